//! `covenant-sim --seeds N [--from S] [--jobs J] [-o table|json]`, `--seed S --trace` for one seed, or `matrix
//! [--write]` for the scripts of the failure matrix.
//!
//! Exit 0 only if every invariant held in every seed. A failing seed is printed with the command that replays it.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use covenant_sim::batch::{self, Batch};
use covenant_sim::matrix;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Simulates whole clusters, a seed each, and checks the invariants of the protocol.
#[derive(Parser)]
#[command(name = "covenant-sim", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// This seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: a line for everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// How many threads.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
    /// How the report looks.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Subcommand)]
enum Command {
    /// Plays every script of the failure matrix and says which golden pages differ.
    Matrix {
        /// Write the pages anew.
        #[arg(long)]
        write: bool,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if let Some(Command::Matrix { write }) = args.command {
        return play_matrix(write);
    }
    // An assertion of the shipped code is reported like any violation, with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout().lock();
    if let (Some(seed), true) = (args.seed, args.trace) {
        let report = covenant_sim::run_traced(seed);
        for line in &report.trace {
            writeln!(out, "{line}")?;
        }
        if let Some(violation) = &report.violation {
            writeln!(out, "{}", batch::sentence(violation))?;
        }
        return Ok(exit(report.violation.is_none()));
    }
    let (from, seeds) = args.seed.map_or((args.from, args.seeds), |seed| (seed, 1));
    let terminal = std::io::stderr().is_terminal();
    let progress = |done: u64| {
        if terminal {
            // Progress is for whoever watches: a closed terminal is no reason to stop.
            let _ = write!(std::io::stderr(), "\r{done} of {seeds} seeds");
        }
    };
    let batch = Batch::run(from, seeds, args.jobs, &progress);
    if terminal {
        let _ = writeln!(std::io::stderr());
    }
    match args.output {
        Output::Table => write!(out, "{}", batch.table())?,
        Output::Json => writeln!(out, "{}", batch.json()?)?,
    }
    Ok(exit(batch.violations.is_empty()))
}

fn exit(holds: bool) -> ExitCode {
    if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn play_matrix(write: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let pages = match matrix::pages() {
        Ok(pages) => pages,
        Err(wrong) => {
            for one in wrong {
                writeln!(out, "{one}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    };
    let directory = matrix::directory();
    if write {
        matrix::write(&pages, &directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let differences = matrix::differences(&pages, &directory)?;
    for difference in &differences {
        writeln!(out, "{difference}")?;
    }
    Ok(exit(differences.is_empty()))
}
