//! `covenant bench`: a load on real processes, and what it cost.
//!
//! By itself it starts a coordinator, ledgers and callers as processes of their own, every log forced, in a new directory on
//! a disk, and removes all of it at the end; with `--endpoint` and `--ledger` it drives what runs already. Figures are
//! differences between two looks at the servers, before and after the measured load; a warm-up comes before the first.
//! At the end the money must add up, over all ledgers and ledger by ledger.
//!
//! What it cannot show: how fast the servers would be with the cores that the callers take.

pub(crate) mod caller;
mod child;
pub(crate) mod compare;
mod load;
mod pace;
mod process_figures;
mod report;
mod run;
mod tally;
mod world;

use std::time::Duration;

use crate::args::OutputArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::parse;
use crate::servers::Stop;

/// How many transactions are under way at a time in the closed loop when nothing is said.
const DEFAULT_CONCURRENCY: u32 = 64;

/// The most under way in the open loop when nothing is said.
const DEFAULT_OPEN_CONCURRENCY: u32 = 1_024;

/// Measure transfers over a coordinator and its ledgers, started here or there already.
#[derive(clap::Args)]
#[command(after_help = "\
Without --rate each caller sends its next transfer when it has the answer to its last (closed loop). With --rate transfers
start at that rate whatever becomes of them (open loop), and latencies count from when each was meant to start.

With --endpoint nobody else may move money at these ledgers meanwhile: the sums are compared.

Exit codes: 0 measured, and the money adds up; 1 it does not add up, or interrupted; 2 an argument is wrong; 4 a server was not
reached; 70 it could not be carried through.

Examples:
  covenant bench
  covenant bench --concurrency 256 --duration 30s -o json
  covenant bench --rate 2000 --aborts 5 --read-only 20
  covenant bench --accounts 1                                  one hot account on each side
  covenant bench --compare -o json                             needs PostgreSQL 15 or later on this machine
  covenant bench --endpoint http://127.0.0.1:7400 --ledger ledger-a=http://127.0.0.1:7410 \\
                 --ledger ledger-b=http://127.0.0.1:7411")]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// How many ledgers to start; each transfer has a branch at every one.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..=64), conflicts_with = "endpoint")]
    branches: u8,
    /// How long the load runs unmeasured before, e.g. 1s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse::duration)]
    warm_up: Duration,
    /// How many processes the callers are in.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    caller_processes: u16,
    /// A coordinator that runs already, as http://HOST:PORT; needs --ledger for each of its ledgers to use.
    #[arg(long, value_name = "URL", requires = "ledger")]
    endpoint: Option<String>,
    /// A ledger that has joined it, given at least twice.
    #[arg(long, value_name = "NAME=URL", value_parser = ledger, requires = "endpoint")]
    ledger: Vec<(String, String)>,
    /// Measure one, 64 and 256 transfers at a time beside three references in the same run: the floor (the same messages and
    /// forced bytes without protocol), the floor over a bare file, and PostgreSQL's two-phase commit.
    #[arg(long, conflicts_with_all = ["endpoint", "rate", "concurrency", "branches", "aborts", "read_only"])]
    compare: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What the callers do; the same options for the bench and for each of its caller processes.
#[derive(clap::Args, Clone)]
pub(crate) struct LoadArgs {
    /// How many transfers are under way at a time, at the most in the open loop [default: 64, with --rate 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: Option<u32>,
    /// Start so many transfers a second, whatever becomes of them.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    rate: Option<f64>,
    /// How long to measure, e.g. 10s.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse::duration)]
    duration: Duration,
    /// The accounts at each ledger.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    accounts: u32,
    /// How much hotter the hottest accounts are, as a Zipf exponent, 0 to 10; 0: all alike.
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.0, value_parser = skew)]
    skew: f64,
    /// How many of 100 transfers ask for more than there is, and so abort.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    aborts: u8,
    /// How many of 100 transfers only look at the last ledger, which votes READ_ONLY.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    read_only: u8,
    /// What accounts and intents are drawn from: the same seed, the same load.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn ledger(text: &str) -> Result<(String, String), String> {
    let (name, url) = text
        .split_once('=')
        .ok_or("give NAME=URL, for example ledger-a=http://127.0.0.1:7410")?;
    Ok((name.to_owned(), url.to_owned()))
}

fn rate(text: &str) -> Result<f64, String> {
    within(text, 0.1, 1e6)
}

fn skew(text: &str) -> Result<f64, String> {
    within(text, 0.0, 10.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("give a number from {least} to {most}"))
}

impl LoadArgs {
    fn concurrency(&self) -> usize {
        let default = if self.rate.is_some() {
            DEFAULT_OPEN_CONCURRENCY
        } else {
            DEFAULT_CONCURRENCY
        };
        self.concurrency.unwrap_or(default) as usize
    }

    fn check(&self, ledgers: usize) -> Result<(), Failure> {
        if self.aborts + self.read_only > 100 {
            let why = format!(
                "--aborts {} and --read-only {} are together more than 100 percent",
                self.aborts, self.read_only
            );
            return Err(Failure::usage("PERCENT", why));
        }
        if self.read_only > 0 && ledgers == 2 && self.accounts == 1 {
            let why = "--read-only with two ledgers moves money within the first: give --accounts 2 or more";
            return Err(Failure::usage("ACCOUNTS", why));
        }
        Ok(())
    }
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        self.output.output()
    }

    fn check(&self) -> Result<(), Failure> {
        let ledgers = if self.endpoint.is_some() {
            self.ledger.len()
        } else {
            usize::from(self.branches)
        };
        if ledgers < 2 {
            return Err(Failure::usage("LEDGERS", "give --ledger NAME=URL at least twice"));
        }
        if self.load.concurrency() < usize::from(self.caller_processes) {
            let why = "--concurrency is below --caller-processes: a process would have no caller";
            return Err(Failure::usage("CONCURRENCY", why));
        }
        self.load.check(ledgers)
    }
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    args.check()?;
    let stop = Stop::on_signal()?;
    if args.compare {
        let compared = tokio::select! {
            compared = compare::compared(&args) => compared?,
            () = stop.wait() => return Err(interrupted()),
        };
        args.output().one(&compared, |_| compared.tables())?;
        return Ok(Exit::Done);
    }
    let report = tokio::select! {
        report = run::measured(&args) => report?,
        () = stop.wait() => return Err(interrupted()),
    };
    args.output().one(&report, |_| report.tables())?;
    Ok(if report.money.adds_up {
        Exit::Done
    } else {
        Exit::Negative
    })
}

fn interrupted() -> Failure {
    Failure::new(Exit::Negative, "INTERRUPTED", "the bench was interrupted")
}
