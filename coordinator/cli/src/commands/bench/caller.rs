//! One process of callers: runs its part of the load and hands over what it counted.
//!
//! It is the hidden command `bench-caller`. It writes one line of JSON to stdout twice a second while it runs, with how many
//! transactions are done, and a last one with the whole tally. It ends when its stdin does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use covenant_client::Client;
use serde::{Deserialize, Serialize};

use super::LoadArgs;
use super::load::{Load, Zipf};
use super::pace::{self, Pace, Ran};
use super::process_figures::ProcessFigures;
use super::tally::{Counting, Ended, Tally};
use crate::exit::{Exit, Failure};
use crate::output;
use crate::servers::StopArgs;

/// The connections that the callers of one process share.
const CONNECTIONS: usize = 4;

/// How long a caller asks for the outcome of one transaction, in milliseconds.
const PATIENCE_MS: u64 = 30_000;

/// How often a process says how far it is, in milliseconds.
const PROGRESS_MS: u64 = 500;

/// Part of the load of `covenant bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The coordinator's address.
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// A ledger of every transaction; given at least twice.
    #[arg(long, value_name = "NAME")]
    participant: Vec<String>,
    /// The beginning of its transaction ids, which no other process has.
    #[arg(long, value_name = "TEXT")]
    run: String,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    stop: StopArgs,
}

/// A line of such a process.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    /// So many transactions are done.
    Done(u64),
    /// All are.
    Tally(Box<Tally>),
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let stop = args.stop.start()?;
    tokio::select! {
        ran = load(&args) => ran.map(|()| Exit::Done),
        () = stop.wait() => Ok(Exit::Negative),
    }
}

async fn load(args: &Args) -> Result<(), Failure> {
    let plan = &args.load;
    let load = Arc::new(Load {
        run: args.run.clone(),
        ledgers: args.participant.clone(),
        aborts_percent: plan.aborts,
        read_only_percent: plan.read_only,
        accounts: Zipf::new(plan.accounts as usize, plan.skew),
        seed: plan.seed,
    });
    let clients = (0..CONNECTIONS)
        .map(|_| Client::new(&args.endpoint))
        .collect::<Result<Arc<[Client]>, _>>()?;
    let counting = Arc::new(Mutex::new(Counting::default()));
    let into = Arc::clone(&counting);
    let record = move |ran: Ran<Ended>, latency| {
        // A panic elsewhere takes nothing from what was counted.
        into.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(ran, latency);
    };
    let execute = move |number: u64| {
        let client = clients[number as usize % CONNECTIONS].clone();
        let (intent, transaction) = load.transaction(number);
        async move {
            let patience = Duration::from_millis(PATIENCE_MS);
            let outcome = client.execute(&transaction, patience).await;
            Ended { intent, outcome }
        }
    };
    let pace = plan.rate.map_or(Pace::Closed, Pace::Open);
    let began = Instant::now();
    let running = pace::run(pace, plan.concurrency(), plan.duration, execute, record);
    tokio::select! {
        () = running => {}
        failed = progress(&counting) => return failed,
    }
    let counted = std::mem::take(&mut *counting.lock().unwrap_or_else(PoisonError::into_inner));
    let own = ProcessFigures::of(std::process::id()).unwrap_or_default();
    print(&Line::Tally(Box::new(
        counted.finish(began.elapsed(), own.cpu_us),
    )))
}

/// Says how far it is until that cannot be written any more.
async fn progress(counting: &Mutex<Counting>) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(Duration::from_millis(PROGRESS_MS));
    loop {
        ticks.tick().await;
        let done = counting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .latencies
            .len();
        print(&Line::Done(done))?;
    }
}

fn print(line: &Line) -> Result<(), Failure> {
    output::write(&output::compact(line)?).map(drop)
}
