//! Explores the model with bounds given by flags: progress on stderr, what was found on stdout, and exit code 1 with
//! the steps that lead there if an invariant broke.
//!
//! `cargo run --release -p covenant-model -- --coordinator-crashes 2 --participant-crashes 1 --retries 1`
use anyhow::Result;
use clap::Parser;
use covenant_model::{Bounds, Budget, explore};

/// Explores every interleaving of the shipped machines within these bounds.
#[derive(Parser)]
struct Args {
    /// What each participant does, one letter a participant (y: YES, r: READ_ONLY); may be repeated.
    #[arg(long = "content")]
    contents: Vec<String>,
    /// How many participants, if no content says it: all vote YES.
    #[arg(long, default_value_t = 2)]
    participants: usize,
    /// How many callers' ids.
    #[arg(long, default_value_t = 1)]
    transactions: u8,
    /// Crashes of the coordinator.
    #[arg(long, default_value_t = 0)]
    coordinator_crashes: u8,
    /// Crashes of each participant.
    #[arg(long, default_value_t = 0)]
    participant_crashes: u8,
    /// Sessions cut.
    #[arg(long, default_value_t = 0)]
    cuts: u8,
    /// Jumps to the coordinator's next deadline.
    #[arg(long, default_value_t = 0)]
    coordinator_ticks: u8,
    /// Jumps to a participant's next deadline, of all of them together.
    #[arg(long, default_value_t = 0)]
    participant_ticks: u8,
    /// Attempts begun by sending an id again.
    #[arg(long, default_value_t = 0)]
    retries: u8,
    /// AbortTransaction.
    #[arg(long, default_value_t = 0)]
    aborts: u8,
    /// NO votes of participants that could vote YES.
    #[arg(long, default_value_t = 0)]
    refusals: u8,
    /// Branches decided by hand.
    #[arg(long, default_value_t = 0)]
    heuristics: u8,
    /// Participants learn the coordinator's position, and say it when they join.
    #[arg(long)]
    positions: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Look breadth first, on one thread: what is found has the shortest way to it.
    #[arg(long)]
    shortest: bool,
}

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    let args = Args::parse();
    let contents = if args.contents.is_empty() {
        vec!["y".repeat(args.participants)]
    } else {
        args.contents
    };
    let participants = contents.first().map_or(0, String::len);
    let bounds = Bounds {
        contents,
        transactions: args.transactions,
        budget: Budget {
            coordinator_crashes: args.coordinator_crashes,
            participant_crashes: vec![args.participant_crashes; participants],
            cuts: args.cuts,
            coordinator_ticks: args.coordinator_ticks,
            participant_ticks: args.participant_ticks,
            retries: args.retries,
            aborts: args.aborts,
            refusals: args.refusals,
            heuristics: args.heuristics,
        },
        positions: args.positions,
    };
    let findings = explore(bounds, args.threads, args.shortest, &mut |line| {
        eprintln!("{line}")
    })?;
    println!(
        "states {} steps {} depth {}",
        findings.states, findings.steps, findings.depth
    );
    for name in &findings.seen {
        println!("seen: {name}");
    }
    for (name, steps) in &findings.broken {
        println!("BROKEN: {name}");
        for step in steps {
            println!("    {step}");
        }
    }
    let broken = findings.broken.len();
    anyhow::ensure!(broken == 0, "{broken} invariants broke");
    Ok(())
}
