//! One bench from its start to its report.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::caller::Line;
use super::child::Child;
use super::report::{self, Latency, LoadView, MoneyView, Report};
use super::tally::{Counting, Tally};
use super::world::World;
use super::{Args, LoadArgs};
use crate::exit::Failure;

/// What callers drive, and where their logs go.
pub(super) struct Target<'a> {
    pub(super) endpoint: &'a str,
    pub(super) ledgers: Vec<&'a str>,
    pub(super) directory: &'a Path,
}

/// How long a caller process may take beyond its time, for the answers that are still out.
const CALLER_MARGIN: Duration = Duration::from_secs(60);

/// How this program was built; only a release says anything about speed.
pub(super) const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// Starts what is to be started, loads it, and ends it.
pub(super) async fn measured(args: &Args) -> Result<Report, Failure> {
    let world = match &args.endpoint {
        Some(endpoint) => World::existing(endpoint, &args.ledger)?,
        None => World::start(usize::from(args.branches)).await?,
    };
    let report = load(args, &args.load, &world).await;
    drop(world.end().await);
    report
}

/// Loads servers that run, and checks their money.
pub(super) async fn load(args: &Args, plan: &LoadArgs, world: &World) -> Result<Report, Failure> {
    world.open_accounts(plan.accounts).await?;
    let warm_up = LoadArgs {
        duration: args.warm_up,
        ..plan.clone()
    };
    let target = Target {
        endpoint: &world.coordinator.url,
        ledgers: world.ledgers.iter().map(|ledger| ledger.name.as_str()).collect(),
        directory: world.directory.path(),
    };
    let processes = usize::from(args.caller_processes).min(plan.concurrency());
    callers(&target, &warm_up, processes, "w", false).await?;
    let money_before = world.money().await?;
    let before = world.snapshot().await?;
    let counted = callers(&target, plan, processes, "m", true).await?;
    let after = world.snapshot().await?;
    let money_after = world.money().await?;
    let (processes, per_transaction) = report::processes(world, &before, &after, &counted);
    let seconds = counted.tally.elapsed_us as f64 / 1e6;
    Ok(Report {
        profile: PROFILE,
        load: LoadView {
            pace: if plan.rate.is_some() { "open" } else { "closed" },
            rate_per_second: plan.rate,
            concurrency: plan.concurrency(),
            branches: world.ledgers.len(),
            accounts_per_ledger: plan.accounts,
            skew: plan.skew,
            aborts_percent: plan.aborts,
            read_only_percent: plan.read_only,
            caller_processes: args.caller_processes,
        },
        seconds,
        transactions_per_second: counted.tally.outcomes.decided() as f64 / seconds,
        latency_us: Latency::of(&counted.latencies),
        outcomes: counted.tally.outcomes,
        reasons: counted.tally.reasons.clone(),
        per_transaction,
        processes,
        money: MoneyView::check(&money_before, &money_after, &counted),
    })
}

/// Runs the caller processes to their end and adds up what they counted.
pub(super) async fn callers(
    target: &Target<'_>,
    plan: &LoadArgs,
    processes: usize,
    phase: &str,
    with_progress: bool,
) -> Result<Counting, Failure> {
    let run = uuid::Uuid::now_v7().simple().to_string();
    let progress = Progress::new(processes, with_progress);
    let mut running = Vec::new();
    for number in 0..processes {
        let name = format!("caller-{phase}-{number}");
        let run = format!("{phase}{}-{number}", &run[..12]);
        let arguments = arguments(target, plan, number, processes, &run);
        let child = Child::start(&name, &arguments, target.directory)?;
        running.push(tally(child, number, plan.duration, &progress));
    }
    let mut sum = Counting::default();
    for tally in try_join_all(running).await? {
        sum.add(tally);
    }
    progress.end();
    Ok(sum)
}

async fn tally(
    mut child: Child,
    number: usize,
    time: Duration,
    progress: &Progress,
) -> Result<Tally, Failure> {
    loop {
        match child.line(time + CALLER_MARGIN).await? {
            Line::Done(done) => progress.show(number, done),
            Line::Tally(tally) => {
                child.end().await;
                return Ok(*tally);
            }
        }
    }
}

/// The part of one caller process.
fn arguments(
    target: &Target<'_>,
    plan: &LoadArgs,
    number: usize,
    processes: usize,
    run: &str,
) -> Vec<String> {
    let concurrency = plan.concurrency() / processes + usize::from(number < plan.concurrency() % processes);
    let mut options = vec![
        ("--endpoint", target.endpoint.to_owned()),
        ("--run", run.to_owned()),
        ("--concurrency", concurrency.to_string()),
        ("--duration", format!("{}ms", plan.duration.as_millis().max(1))),
        ("--accounts", plan.accounts.to_string()),
        ("--skew", plan.skew.to_string()),
        ("--aborts", plan.aborts.to_string()),
        ("--read-only", plan.read_only.to_string()),
        ("--seed", plan.seed.wrapping_add(number as u64).to_string()),
    ];
    let ledgers = target.ledgers.iter();
    options.extend(ledgers.map(|ledger| ("--participant", (*ledger).to_owned())));
    if let Some(rate) = plan.rate {
        options.push(("--rate", (rate / processes as f64).to_string()));
    }
    let options = options
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value]);
    std::iter::once("bench-caller".to_owned())
        .chain(options)
        .collect()
}

/// One line on a terminal that is written over.
struct Progress {
    began: Instant,
    done: std::cell::RefCell<Vec<u64>>,
    shown: bool,
}

impl Progress {
    fn new(processes: usize, wanted: bool) -> Self {
        Self {
            began: Instant::now(),
            done: vec![0; processes].into(),
            shown: wanted && std::io::stderr().is_terminal(),
        }
    }

    fn show(&self, number: usize, done: u64) {
        if !self.shown {
            return;
        }
        let mut all = self.done.borrow_mut();
        all[number] = done;
        let (sum, seconds) = (all.iter().sum::<u64>(), self.began.elapsed().as_secs_f64());
        let line = format!("\r{seconds:>6.1} s  {sum} done  {:.0}/s   ", sum as f64 / seconds);
        // Talk that nobody hears changes nothing.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn end(&self) {
        if self.shown {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
