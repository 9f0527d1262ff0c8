//! Chaos over real processes: load, faults that a seed chooses, and a verdict.
//!
//! `cargo run --release -p covenant-tests --bin chaos -- --seed 7 --duration 60s [--participants 3]
//! [--kill coordinator,participant] [--pause] [--cut] [--disk-full] [--clock] [--namespaces] [-o json]`. Without a fault flag all kinds are
//! injected; a kind that cannot be injected here is an error and never left out. Exit codes: 0 every claim holds, 1 one does
//! not, 3 a kind of fault or a claim met nothing, so that the run shows nothing about it, 70 the run could not be carried
//! through. The last line of stdout is the verdict; with `-o json` that line is all.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use covenant_tests::chaos::checker::Verdict;
use covenant_tests::chaos::plan::Kind;
use covenant_tests::chaos::private;
use covenant_tests::chaos::run::{self, Options};
use tokio::signal::unix::{SignalKind, signal};

/// Run transfers through faults and check that nothing was lost, made or left.
#[derive(Parser)]
#[command(after_help = "\
Without a fault flag all kinds are injected. --disk-full needs root and loop devices; --clock needs a C compiler.

With --namespaces the coordinator, each ledger and the callers are hosts of their own, in network namespaces, and --cut cuts
hosts from each other: one host from all (unplug), or what one host sends to another is lost and the other's packets arrive
(lose_up to the coordinator's host, lose_down from it); each for less than TCP repeats, and for longer than the keep-alive
of a session. A cut met something if the kernel counted packets that it lost. All packets are lost or none, and none comes
late, twice or in another order. Needs root and iproute2; nothing is left on the machine, however the run ends.

Exit codes: 0 every claim holds; 1 a claim does not hold: the data is kept and the line says where; 3 nothing is violated,
but a kind of fault or a claim met nothing; 70 not carried through.")]
struct Arguments {
    /// The seed of the plan of faults and of what callers ask for.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// How long the load lasts, e.g. 60s or 30m; at least 1s.
    #[arg(long, default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// The ledgers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=16))]
    participants: u64,
    /// Kill processes: all kinds of them, or those named.
    #[arg(long, value_enum, value_delimiter = ',', num_args = 0.., require_equals = false)]
    kill: Option<Vec<Victim>>,
    /// Stop processes for a while.
    #[arg(long)]
    pause: bool,
    /// Cut connections.
    #[arg(long)]
    cut: bool,
    /// Fill disks.
    #[arg(long)]
    disk_full: bool,
    /// Step wall clocks.
    #[arg(long)]
    clock: bool,
    /// Make each process a host of its own; cuts are between hosts then.
    #[arg(long)]
    namespaces: bool,
    /// The callers.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    callers: u64,
    /// The ids per second of all callers, at most.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: u64,
    /// How to print the report.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Victim {
    Coordinator,
    Participant,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is no duration; write e.g. 60s or 30m"))?;
    let seconds = match &text[digits.len()..] {
        "s" => number,
        "m" => number.saturating_mul(60),
        unit => {
            return Err(format!(
                "{unit:?} is no unit of a duration; write e.g. 60s or 30m"
            ));
        }
    };
    match seconds {
        1..=86_400 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is out of bounds; the bounds are 1s and 86400s")),
    }
}

impl Arguments {
    fn kinds(&self) -> Vec<Kind> {
        let killed = |victim| {
            self.kill
                .as_ref()
                .is_some_and(|named| named.is_empty() || named.contains(&victim))
        };
        let chosen: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| match kind {
                Kind::KillCoordinator => killed(Victim::Coordinator),
                Kind::KillParticipant => killed(Victim::Participant),
                Kind::Pause => self.pause,
                Kind::Cut => self.cut,
                Kind::DiskFull => self.disk_full,
                Kind::Clock => self.clock,
            })
            .collect();
        if chosen.is_empty() {
            return Kind::ALL.to_vec();
        }
        chosen
    }

    fn options(&self) -> Options {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let profile = if cfg!(debug_assertions) { "" } else { "--release " };
        Options {
            seed: self.seed,
            duration: self.duration,
            participants: usize::try_from(self.participants).unwrap_or(usize::MAX),
            kinds: self.kinds(),
            namespaces: self.namespaces,
            callers: usize::try_from(self.callers).unwrap_or(usize::MAX),
            rate: self.rate,
            command: format!(
                "cargo run {profile}-p covenant-tests --bin chaos -- {}",
                words.join(" ")
            ),
        }
    }
}

/// Says how far it is: over and over on one line of a terminal, else line by line.
fn progress(line: &str) {
    let mut stderr = std::io::stderr();
    let (begin, end) = if stderr.is_terminal() {
        ("\r\x1b[2K", "")
    } else {
        ("", "\n")
    };
    // Talk that nobody hears changes nothing.
    let _ = write!(stderr, "{begin}{line}{end}").and_then(|()| stderr.flush());
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match carry_out(&arguments) {
        Ok(Verdict::Holds) => ExitCode::SUCCESS,
        Ok(Verdict::Violated) => ExitCode::from(1),
        Ok(Verdict::NotMet) => ExitCode::from(3),
        Err(error) => {
            println!("Verdict: not carried through: {error:#}");
            ExitCode::from(70)
        }
    }
}

fn carry_out(arguments: &Arguments) -> Result<Verdict> {
    let options = arguments.options();
    if options.namespaces || options.kinds.contains(&Kind::DiskFull) {
        // Before there is any other thread or child.
        private::enter(options.namespaces)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Whoever stops it leaves no process behind: what runs is dropped, and killed by that.
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            report = run::run(&options, &progress) => report,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("stopped by SIGTERM"),
        }
    })?;
    if std::io::stderr().is_terminal() {
        progress("");
    }
    match arguments.output {
        Format::Table => println!("{}", report.table()),
        Format::Json => println!("{}", report.json()?),
    }
    Ok(report.verdict())
}
