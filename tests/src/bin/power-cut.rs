//! Cuts the power of a cluster under load, at thousands of points, and checks what each leaves.
//!
//! `cargo run --release -p covenant-tests --bin power-cut -- --seed 1 --points 3000 [-o json]`. The last line of stdout is the
//! verdict; exit 0 only if all held. A point that failed prints the command that replays it on the recording, which is kept.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]
#![allow(clippy::print_stderr, reason = "progress is for people at a terminal")]

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use covenant_tests::power::cut::Report;
use covenant_tests::power::proof::{Extent, Verdict, prove, replay};
use covenant_tests::power::recording::Load;
use covenant_tests::power::shim::Fdatasync;

/// The most failures that are printed.
const FAILURES_SHOWN: usize = 20;

#[derive(Parser)]
#[command(about = "Cut the power of a cluster under load and check what is left")]
struct Arguments {
    /// Of the load and of every point.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Images whose three logs are opened and judged.
    #[arg(long, default_value_t = 3_000)]
    points: usize,
    /// Images on which the three servers are started; a 30th of the points if not given.
    #[arg(long)]
    starts: Option<usize>,
    /// Images of the power going again, for each of these starts.
    #[arg(long, default_value_t = 10)]
    points_of_a_start: usize,
    /// Transfers in the load.
    #[arg(long, default_value_t = 2_000)]
    transfers: usize,
    /// Callers at a time.
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// How often a node is cut off or stopped during the load, and started again.
    #[arg(long, default_value_t = 24)]
    outages: usize,
    /// Threads that build and open images.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Replays one point of a recording that was kept.
    #[arg(long, requires = "point")]
    recording: Option<PathBuf>,
    /// The point to replay.
    #[arg(long, requires = "recording")]
    point: Option<usize>,
    /// How to print the verdict.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let (Some(recording), Some(point)) = (&arguments.recording, arguments.point) {
        let held = replay(recording, arguments.seed, point, arguments.points_of_a_start).await;
        if let Err(error) = &held {
            println!("{error:#}");
        }
        println!("point {point}: {}", if held.is_ok() { "holds" } else { "FAILED" });
        return Ok(ExitCode::from(u8::from(held.is_err())));
    }
    let began = Instant::now();
    let extent = Extent {
        load: Load {
            seed: arguments.seed,
            transfers: arguments.transfers,
            callers: arguments.callers,
            outages: arguments.outages,
            fdatasync: Fdatasync::Works,
        },
        points: arguments.points,
        starts: arguments.starts.unwrap_or(arguments.points / 30),
        points_of_a_start: arguments.points_of_a_start,
        jobs: arguments.jobs.into(),
    };
    let terminal = std::io::stderr().is_terminal();
    let verdict = prove(&extent, &|what, done, all| {
        if terminal {
            eprint!("\r\x1b[K{what}: {done} of {all}");
        }
    })
    .await?;
    if terminal {
        eprintln!();
    }
    match arguments.output {
        Format::Table => table(&verdict, arguments.seed),
        Format::Json => println!(
            "{}",
            serde_json::to_string(&verdict).context("the verdict as JSON")?
        ),
    }
    let images = verdict.logs.images + verdict.servers.images + verdict.again.images;
    let failed = verdict.logs.failures.len() + verdict.servers.failures.len() + verdict.again.failures.len();
    println!(
        "{}: seed {}, {images} images, {failed} failed, {:.0} s",
        if verdict.holds() { "holds" } else { "FAILED" },
        arguments.seed,
        began.elapsed().as_secs_f64()
    );
    Ok(ExitCode::from(u8::from(!verdict.holds())))
}

fn table(verdict: &Verdict, seed: u64) {
    println!(
        "recorded: {} transfers, {} processes, {} changes and syncs of files, {} of them syncs that ended, {} snapshots removed",
        verdict.transfers, verdict.processes, verdict.events, verdict.syncs, verdict.snapshots_removed
    );
    println!(
        "{:<34} {:>7} {:>11} {:>7} {:>7}",
        "", "images", "in a start", "lossy", "failed"
    );
    let rows = [
        ("logs opened", &verdict.logs),
        ("servers started", &verdict.servers),
        ("cut again in these starts", &verdict.again),
    ];
    for (what, report) in rows {
        let Report {
            images,
            in_a_start,
            lossy,
            failures,
            ..
        } = report;
        println!(
            "{what:<34} {images:>7} {in_a_start:>11} {lossy:>7} {:>7}",
            failures.len()
        );
    }
    for (number, why) in rows
        .iter()
        .flat_map(|(_, report)| &report.failures)
        .take(FAILURES_SHOWN)
    {
        println!("point {number}: {why}");
    }
    if let Some(recording) = &verdict.recording {
        println!(
            "replay a point: cargo run --release -p covenant-tests --bin power-cut -- --seed {seed} --recording {} --point N",
            recording.display()
        );
    }
}
