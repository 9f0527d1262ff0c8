//! What much of something costs: many branches, many outcomes, many open transactions, a participant that is away,
//! deletion, many callers, and a restart with all of it. See `covenant_tests::growth`.
//!
//! `cargo run --release -p covenant-tests --bin growth -- [--outcomes 1000000] [--open 10000] [-o json]`: about ten minutes.
//! Nothing is asserted about speed; that the money adds up is.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what it is for"
)]

use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use covenant_tests::growth::branches::{self, Host};
use covenant_tests::growth::load::Turns;
use covenant_tests::growth::process::Disk;
use covenant_tests::growth::{Growth, Options, measure};

#[derive(Parser)]
#[command(about = "Measure what much of something costs, beside little of it")]
struct Arguments {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// How many outcomes are retained.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=5_000_000))]
    outcomes: u64,
    /// How many transactions stay open, each with two branches in doubt.
    #[arg(long, default_value_t = 9_000, value_parser = clap::value_parser!(u64).range(1..=9_999))]
    open: u64,
    /// How long each turn of a load is measured, in seconds.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// How many turns each of the two clusters has.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=20))]
    rounds: u64,
    /// The numbers of branches to compare.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64")]
    branches: Vec<usize>,
    /// The numbers of callers to compare.
    #[arg(long, value_delimiter = ',', default_value = "1,64,256,500,1000,5000,20000")]
    callers: Vec<u32>,
    /// How to print the figures.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Subcommand)]
enum Mode {
    /// Part of the measurement: ledgers in one process.
    #[command(hide = true)]
    Host(Host),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(Mode::Host(host)) = &arguments.mode {
        return branches::host(host).await;
    }
    let options = Options {
        outcomes: arguments.outcomes,
        open: usize::try_from(arguments.open)?,
        turn: Duration::from_secs(arguments.seconds),
        rounds: usize::try_from(arguments.rounds)?,
        branches: arguments.branches,
        callers: arguments.callers,
    };
    let growth = measure(&options, &|line| eprintln!("{line}")).await?;
    match arguments.output {
        Format::Json => println!("{}", serde_json::to_string_pretty(&growth)?),
        Format::Table => print_table(&growth),
    }
    Ok(())
}

fn print_table(growth: &Growth) {
    println!("({})", growth.profile);
    println!(
        "{:>8} {:>14} {:>22} {:>18} {:>18}",
        "BRANCHES", "TRANSACTIONS/S", "COORDINATOR US/BRANCH", "LEDGERS US/BRANCH", "CALLERS US/BRANCH"
    );
    for row in &growth.branches {
        println!(
            "{:>8} {:>14.0} {:>22.1} {:>18.1} {:>18.1}",
            row.branches, row.per_second, row.coordinator_us, row.ledgers_us, row.callers_us
        );
    }
    println!();
    let turns = |what: &str, turns: &Turns| {
        let rates = |rates: &[f64]| {
            rates
                .iter()
                .map(|rate| format!("{rate:.0}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        println!(
            "{what:<28} {:.3} of the small cluster's rate   ({} over {})",
            turns.ratio,
            rates(&turns.large),
            rates(&turns.small)
        );
    };
    let sizes = &growth.sizes;
    turns(&format!("{} outcomes", sizes.outcomes), &growth.retained);
    turns(&format!("+ {} open, in doubt", sizes.open), &growth.in_doubt);
    turns("+ their participants away", &growth.away);
    turns("+ deleting", &growth.deleting);
    println!();
    println!(
        "coordinator killed, to SERVING   {:>8} ms",
        sizes.coordinator_restart_ms
    );
    println!(
        "ledger killed, to ready          {:>8} ms",
        sizes.ledger_restart_ms
    );
    println!(
        "coordinator resident at its peak {:>8.0} MB",
        sizes.coordinator_peak_mb
    );
    println!(
        "coordinator after the restart    {:>8.0} MB",
        sizes.coordinator_restarted_mb
    );
    println!(
        "ledger resident at its peak      {:>8.0} MB",
        sizes.ledger_peak_mb
    );
    let disk = |who: &str, disk: &Disk| {
        println!(
            "{who:<32} {:>8.0} MB of files, {:.0} MB live: {:.2} times",
            disk.files_mb, disk.live_mb, disk.ratio
        );
    };
    disk("coordinator's directory", &sizes.coordinator_disk);
    disk("ledger's directory", &sizes.ledger_disk);
    println!();
    println!(
        "{:>8} {:>12} {:>10} {:>10} {:>10} {:>9} {:>9}  WHY NOT COMMITTED",
        "CALLERS", "TRANSFERS/S", "P50 MS", "P99 MS", "MAX MS", "REFUSED", "UNKNOWN"
    );
    for row in &growth.callers {
        println!(
            "{:>8} {:>12.0} {:>10.2} {:>10.2} {:>10.1} {:>9} {:>9}  {}",
            row.callers,
            row.per_second,
            row.p50_ms,
            row.p99_ms,
            row.max_ms,
            row.refused,
            row.unknown,
            row.reasons
        );
    }
}
