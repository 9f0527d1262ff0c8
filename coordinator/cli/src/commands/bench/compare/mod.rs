//! `covenant bench --compare`: the product beside what it is made of and beside PostgreSQL, in one run on the same cores.
//!
//! | reference | what |
//! |---|---|
//! | floor | the same messages and forced bytes, record by record, through the shipped transport and journal, no protocol |
//! | file | the same with a bare file in place of the journal |
//! | postgres | the transfer as two branches in two databases of one server, PREPARE TRANSACTION and COMMIT PREPARED |
//!
//! Record sizes are read from the log that the product has just written. For each number of transfers at a time the product,
//! the floor and the file have their turns one after the other, so that a machine whose speed drifts does it to all of them.
//! Only the ratios travel from machine to machine.

pub(crate) mod floor;
mod forced_log;
mod postgres;
mod record_sizes;
mod view;

use std::path::Path;
use std::time::Duration;

use super::child::Child;
use super::report::{Latency, Report};
use super::run::{self, Target};
use super::tally::Counting;
use super::world::World;
use super::{Args, LoadArgs};
use crate::exit::Failure;
use crate::place;
use forced_log::LogKind;
use record_sizes::RecordSizes;
pub(super) use view::Comparison;
use view::{Measured, Ratios};

/// How many transfers are under way at a time: one, and two larger numbers of which the faster counts.
const CONCURRENCIES: [u32; 3] = [1, 64, 256];

/// How many clients of PostgreSQL are tried; the best counts.
const POSTGRES_CLIENTS: [usize; 5] = [1, 8, 16, 32, 64];

/// The longest measurement, so that the whole stays under ten minutes.
const MAX_DURATION: Duration = Duration::from_secs(20);

/// The names of the ledgers, as the product's own bench has them.
const LEDGERS: [&str; 2] = ["ledger-0", "ledger-1"];

/// The longest wait for a floor process.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures all four.
pub(super) async fn compared(args: &Args) -> Result<Comparison, Failure> {
    if args.load.duration > MAX_DURATION {
        let why = format!("--compare takes a --duration of at most {MAX_DURATION:?}");
        return Err(Failure::usage("DURATION", why));
    }
    // Looked for first: minutes of measuring should not end in its absence.
    let server = postgres::Installed::find()?;
    let (mut product, mut floor, mut file) = (Vec::new(), Vec::new(), Vec::new());
    let mut sizes = None;
    for concurrency in CONCURRENCIES {
        let plan = LoadArgs {
            concurrency: Some(concurrency),
            ..args.load.clone()
        };
        let (report, read) = measured_product(args, &plan).await?;
        let sizes: &RecordSizes = sizes.get_or_insert(read);
        product.push(Measured::new(
            concurrency as usize,
            report.transactions_per_second,
            report.latency_us,
        ));
        floor.push(measured_floor(args, &plan, LogKind::Journal, sizes).await?);
        file.push(measured_floor(args, &plan, LogKind::File, sizes).await?);
    }
    let postgres = postgres::measured(&server, &POSTGRES_CLIENTS, args).await?;
    let sizes = sizes.ok_or_else(|| Failure::internal("COMPARE", "nothing was measured"))?;
    Ok(Comparison {
        profile: super::run::PROFILE,
        machine: view::Machine::here(),
        ratios: Ratios::of(&product, &floor, &file, &postgres),
        product,
        floor,
        file,
        postgres_version: server.version.clone(),
        postgres,
        record_sizes: sizes,
    })
}

/// One bench of the product with this load, and the sizes of the records that it left.
async fn measured_product(args: &Args, plan: &LoadArgs) -> Result<(Report, RecordSizes), Failure> {
    let world = World::start(LEDGERS.len()).await?;
    let report = run::load(args, plan, &world).await?;
    if !report.money.adds_up {
        return Err(Failure::internal("MONEY", report.money.wrong.join("; ")));
    }
    let directory = world.end().await;
    let sizes = tokio::task::spawn_blocking(move || RecordSizes::read(directory.path()))
        .await
        .map_err(|error| Failure::internal("COMPARE", error.to_string()))??;
    Ok((report, sizes))
}

/// The same load on a floor.
async fn measured_floor(
    args: &Args,
    plan: &LoadArgs,
    kind: LogKind,
    sizes: &RecordSizes,
) -> Result<Measured, Failure> {
    let directory = place::make("covenant-bench-")?;
    let at = directory.path();
    let (coordinator, endpoint) = floor_process("coordinator", "", kind, sizes.coordinator(), at).await?;
    let mut ledgers = Vec::new();
    for name in LEDGERS {
        ledgers.push(floor_process(name, &endpoint, kind, sizes.ledger(), at).await?.0);
    }
    let target = Target {
        endpoint: &endpoint,
        ledgers: LEDGERS.to_vec(),
        directory: at,
    };
    let processes = usize::from(args.caller_processes).min(plan.concurrency());
    let warm_up = LoadArgs {
        duration: args.warm_up,
        ..plan.clone()
    };
    run::callers(&target, &warm_up, processes, "w", false).await?;
    let counted = run::callers(&target, plan, processes, "m", true).await?;
    for child in ledgers.into_iter().chain([coordinator]) {
        child.end().await;
    }
    Ok(measured(plan.concurrency(), &counted))
}

fn measured(concurrency: usize, counted: &Counting) -> Measured {
    let seconds = counted.tally.elapsed_us as f64 / 1e6;
    let per_second = counted.tally.outcomes.decided() as f64 / seconds;
    Measured::new(concurrency, per_second, Latency::of(&counted.latencies))
}

/// Starts one process of a floor: a coordinator, or with its URL a ledger. Its URL, which a ledger does not have.
async fn floor_process(
    name: &str,
    coordinator: &str,
    kind: LogKind,
    sizes: [usize; 2],
    directory: &Path,
) -> Result<(Child, String), Failure> {
    let role = if coordinator.is_empty() {
        "coordinator"
    } else {
        "ledger"
    };
    let kind = match kind {
        LogKind::Journal => "journal",
        LogKind::File => "file",
    };
    let data = directory.join(name).display().to_string();
    let sizes = format!("{},{}", sizes[0], sizes[1]);
    let arguments = [
        "bench-floor",
        "--role",
        role,
        "--log-kind",
        kind,
        "--data-dir",
        &data,
        "--payload-bytes",
        &sizes,
        "--name",
        name,
        "--coordinator",
        coordinator,
    ];
    let mut child = Child::start(name, &arguments.map(str::to_owned), directory)?;
    let ready: serde_json::Value = child.line(READY_TIMEOUT).await?;
    let listen = ready["listen"].as_str().unwrap_or_default();
    Ok((child, format!("http://{listen}")))
}
