//! Runs transactions through both machines and prints nothing: what counts instructions counts them around it.
//!
//! `machine-steps --transactions N [--branches B] [--in-doubt D]`.

use anyhow::{Result, ensure};
use clap::Parser;
use covenant_bench::Machines;

/// How many transactions are under way at a time.
const TOGETHER: usize = 50;

#[derive(Parser)]
struct Arguments {
    /// How many transactions; a multiple of 50, which are under way together.
    #[arg(long)]
    transactions: usize,
    /// The branches of each.
    #[arg(long, default_value_t = 2)]
    branches: usize,
    /// How many transactions of two other participants are in doubt meanwhile.
    #[arg(long, default_value_t = 0)]
    in_doubt: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(
        arguments.transactions.is_multiple_of(TOGETHER),
        "--transactions {} is no multiple of {TOGETHER}",
        arguments.transactions
    );
    let mut machines = Machines::new(arguments.branches + 2);
    machines.leave_in_doubt(arguments.in_doubt);
    for _ in 0..arguments.transactions / TOGETHER {
        machines.run(TOGETHER, arguments.branches);
    }
    Ok(())
}
