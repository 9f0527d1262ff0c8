//! Measures a cluster beside what it is made of, all in one run on one machine: a forced journal write, a loopback gRPC
//! round trip, one transfer at a time, many at a time, and with `--million` what a million outcomes cost.
//!
//! `cargo run --release -p covenant-tests --bin figures -- [--million] [-o json]`. Nothing is asserted about speed: only
//! the ratios travel from machine to machine. That the money adds up is asserted.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use covenant_client::{Client, Outcome};
use covenant_journal::{Force, HeadRef, Journal, Options, Records};
use covenant_proto::ledger::v1::OpenAccountRequest;
use covenant_proto::ledger::v1::ledger_service_client::LedgerServiceClient;
use covenant_tests::binary::scratch;
use covenant_tests::cluster::{LEDGER_A, LEDGER_B, OPENING, PATIENCE};
use covenant_tests::transfer::{CURRENCY, Place};
use covenant_tests::world::{LedgerReader, LedgerView, World};
use covenant_tests::{Cluster, Transfer, Who, checks, wait_until};
use serde::Serialize;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// The accounts on each side of the load.
const ACCOUNTS: usize = 1_000;

/// What each account of the load has, in minor units.
const ACCOUNT_OPENING: i64 = 1_000_000_000;

/// The connections that the callers share.
const CONNECTIONS: usize = 4;

/// How many transfers of `--million` are under way at a time.
const MILLION_CALLERS: usize = 256;

/// How often each of the single measurements has its turn.
const ROUNDS: u32 = 5;

/// The bytes of the measured journal record.
const RECORD_BYTES: usize = 200;

#[derive(Parser)]
#[command(about = "Measure a cluster beside what it is made of")]
struct Arguments {
    /// How long each single measurement takes, in seconds; the load takes 3 times as long.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The transfers at a time in the load.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    callers: u64,
    /// Also run a million transfers, or so many, and look at what their outcomes cost: minutes.
    #[arg(long, value_name = "TRANSFERS", num_args = 0..=1, require_equals = true, default_missing_value = "1000000")]
    million: Option<usize>,
    /// How to print the figures.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Times of one kind, in microseconds.
#[derive(Serialize)]
struct Times {
    count: usize,
    p50_us: u128,
    p99_us: u128,
}

impl Times {
    fn of(mut taken: Vec<Duration>) -> Result<Self> {
        ensure!(!taken.is_empty(), "nothing was measured");
        taken.sort_unstable();
        let at = |percent: usize| taken[(taken.len() - 1) * percent / 100].as_micros();
        Ok(Self {
            count: taken.len(),
            p50_us: at(50),
            p99_us: at(99),
        })
    }
}

#[derive(Serialize)]
struct Load {
    callers: usize,
    transfers: usize,
    per_second: f64,
    times: Times,
}

#[derive(Serialize)]
struct Million {
    transfers: usize,
    per_second: f64,
    coordinator_resident_mb: u64,
    coordinator_log_mb: u64,
    ledger_resident_mb: u64,
    ledger_log_mb: u64,
    coordinator_restart_ms: u128,
    coordinator_resident_after_restart_mb: u64,
    ledger_restart_ms: u128,
}

#[derive(Serialize)]
struct Figures {
    profile: &'static str,
    forced_write: Times,
    round_trip: Times,
    one_transfer: Times,
    /// The p50 of one transfer over that of two forced writes and three round trips.
    ratio: f64,
    load: Load,
    million: Option<Million>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let run = Duration::from_secs(arguments.seconds);
    let mut cluster = Cluster::start().await?;
    open_accounts(&cluster).await?;
    let (mut writes, mut trips, mut transfers) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that a machine whose speed drifts does it to all three; never beside each other.
    for _ in 0..ROUNDS {
        writes.extend(forced_writes(run / ROUNDS).await?);
        trips.extend(round_trips(&cluster, run / ROUNDS).await?);
        let first = transfers.len();
        transfers.extend(one_at_a_time(&cluster, first, run / ROUNDS).await?);
    }
    let (forced_write, round_trip) = (Times::of(writes)?, Times::of(trips)?);
    let one_transfer = Times::of(transfers)?;
    let load = many_at_a_time(
        &cluster,
        "load",
        arguments.callers.try_into()?,
        usize::MAX,
        3 * run,
    )
    .await?;
    let million = match arguments.million {
        Some(transfers) => Some(million(&mut cluster, transfers).await?),
        None => None,
    };
    let parts = 2 * forced_write.p50_us + 3 * round_trip.p50_us;
    let figures = Figures {
        profile: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
        ratio: one_transfer.p50_us as f64 / parts as f64,
        forced_write,
        round_trip,
        one_transfer,
        load,
        million,
    };
    match arguments.output {
        Format::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
        Format::Table => print_table(&figures),
    }
    adds_up(&cluster).await
}

/// S14, once nothing is held any more.
async fn adds_up(cluster: &Cluster) -> Result<()> {
    let world = wait_until("nothing to be held", PATIENCE, async || {
        let mut ledgers = Vec::new();
        for (name, url) in [
            (LEDGER_A, cluster.ledger_a.url()),
            (LEDGER_B, cluster.ledger_b.url()),
        ] {
            let reader = LedgerReader::new(name, &url)?;
            let (accounts, holds) = (reader.accounts().await?, reader.holds().await?);
            // The entries of a million transfers are not needed for a sum.
            ledgers.push(LedgerView {
                name: name.to_owned(),
                accounts,
                entries: Vec::new(),
                holds,
            });
        }
        let world = World {
            transactions: Vec::new(),
            ledgers,
        };
        checks::quiet(&world)?;
        Ok(world)
    })
    .await?;
    let customers = i128::from(OPENING) + 2 * ACCOUNTS as i128 * i128::from(ACCOUNT_OPENING);
    checks::s14_conservation(&world, customers)
}

async fn open_accounts(cluster: &Cluster) -> Result<()> {
    for (url, side) in [(cluster.ledger_a.url(), "a"), (cluster.ledger_b.url(), "b")] {
        let ledger = LedgerServiceClient::connect(url).await?;
        let opening = (0..ACCOUNTS).map(|number| {
            let mut ledger = ledger.clone();
            let request = OpenAccountRequest {
                account: format!("{side}{number}"),
                currency: CURRENCY.to_owned(),
                opening_amount: ACCOUNT_OPENING,
            };
            tokio::spawn(async move { ledger.open_account(request).await.map(drop) })
        });
        for opened in opening.collect::<Vec<_>>() {
            opened.await??;
        }
    }
    Ok(())
}

/// One append of one record, forced, after the other.
async fn forced_writes(run: Duration) -> Result<Vec<Duration>> {
    let directory = scratch()?;
    let journal = Journal::open(&directory.path().join("journal"), Options::new("figures"))?.journal;
    let mut records = Records::new();
    let head = HeadRef {
        kind: 1,
        xid: Some(&[7; 40]),
        transaction_id: Some("transfer-0000001"),
    };
    records.push(head, Force::Now, &[5; RECORD_BYTES]);
    measured(run, async || {
        let lsn = journal.append(&records);
        journal.wait_durable(lsn).await;
        Ok(())
    })
    .await
}

/// A unary call that the server answers at once.
async fn round_trips(cluster: &Cluster, run: Duration) -> Result<Vec<Duration>> {
    let channel = tonic::transport::Endpoint::from_shared(cluster.coordinator.url())?
        .connect()
        .await?;
    let health = HealthClient::new(channel);
    measured(run, async || {
        health
            .clone()
            .check(HealthCheckRequest {
                service: String::new(),
            })
            .await?;
        Ok(())
    })
    .await
}

async fn measured(run: Duration, mut work: impl AsyncFnMut() -> Result<()>) -> Result<Vec<Duration>> {
    let began = Instant::now();
    let mut taken = Vec::new();
    while began.elapsed() < run {
        let started = Instant::now();
        work().await?;
        taken.push(started.elapsed());
    }
    Ok(taken)
}

async fn one_at_a_time(cluster: &Cluster, first: usize, run: Duration) -> Result<Vec<Duration>> {
    let mut number = first;
    measured(run, async || {
        number += 1;
        commit(cluster.client(), "one", number).await
    })
    .await
}

async fn commit(client: &Client, run: &str, number: usize) -> Result<()> {
    let place = |ledger: &str, account: String| Place {
        ledger: ledger.to_owned(),
        account,
    };
    let usual = Transfer::new(format!("{run}-{number}"), 1);
    let transfer = Transfer {
        from: place(&usual.from.ledger, format!("a{}", number % ACCOUNTS)),
        to: place(&usual.to.ledger, format!("b{}", number / 7 % ACCOUNTS)),
        ..usual
    };
    let outcome = client.execute(&transfer.transaction(), PATIENCE).await?;
    ensure!(
        matches!(outcome, Outcome::Committed(_)),
        "{} is {outcome:?}",
        transfer.id
    );
    Ok(())
}

/// Callers that share a few connections, each sending one transfer after the other, for a time or up to a number.
async fn many_at_a_time(
    cluster: &Cluster,
    run: &'static str,
    callers: usize,
    transfers: usize,
    time: Duration,
) -> Result<Load> {
    let clients = (0..CONNECTIONS)
        .map(|_| Client::new(&cluster.coordinator.url()))
        .collect::<Result<Vec<_>, _>>()?;
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (client, next) = (clients[caller % CONNECTIONS].clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut taken = Vec::new();
                while began.elapsed() < time {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= transfers {
                        break;
                    }
                    let started = Instant::now();
                    commit(&client, run, number).await?;
                    taken.push(started.elapsed());
                }
                anyhow::Ok(taken)
            })
        })
        .collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await??);
    }
    let (count, seconds) = (taken.len(), began.elapsed().as_secs_f64());
    Ok(Load {
        callers,
        transfers: count,
        per_second: count as f64 / seconds,
        times: Times::of(taken)?,
    })
}

async fn million(cluster: &mut Cluster, transfers: usize) -> Result<Million> {
    let hours = Duration::from_secs(6 * 3_600);
    let load = many_at_a_time(cluster, "million", MILLION_CALLERS, transfers, hours).await?;
    let (coordinator, ledger) = (
        cluster.coordinator.process().id(),
        cluster.ledger_a.process().id(),
    );
    let before = (resident_mb(coordinator)?, resident_mb(ledger)?);
    let coordinator_restart_ms = restart(cluster, Who::Coordinator).await?;
    let coordinator_resident_after_restart_mb = resident_mb(cluster.coordinator.process().id())?;
    let ledger_restart_ms = restart(cluster, Who::LedgerA).await?;
    cluster.wait_joined().await?;
    Ok(Million {
        transfers: load.transfers,
        per_second: load.per_second,
        coordinator_resident_mb: before.0,
        coordinator_log_mb: directory_mb(cluster.coordinator.launch().data_dir())?,
        ledger_resident_mb: before.1,
        ledger_log_mb: directory_mb(cluster.ledger_a.launch().data_dir())?,
        coordinator_restart_ms,
        coordinator_resident_after_restart_mb,
        ledger_restart_ms,
    })
}

/// Kills a process and starts it again: the milliseconds to its line of readiness.
async fn restart(cluster: &mut Cluster, who: Who) -> Result<u128> {
    cluster.server(who).kill()?;
    let began = Instant::now();
    cluster.server(who).restart().await?;
    Ok(began.elapsed().as_millis())
}

fn resident_mb(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1_024)
}

fn directory_mb(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes >> 20)
}

fn print_table(figures: &Figures) {
    let row = |what: &str, times: &Times| {
        println!(
            "{what:<44} {:>8} us {:>8} us {:>8}",
            times.p50_us, times.p99_us, times.count
        );
    };
    println!(
        "{:<44} {:>11} {:>11} {:>8}   ({})",
        "", "p50", "p99", "times", figures.profile
    );
    row("forced journal write, 200 B", &figures.forced_write);
    row("loopback gRPC round trip", &figures.round_trip);
    row("one transfer at a time, decided", &figures.one_transfer);
    println!(
        "{:<44} {:>8.2}",
        "  over 2 forced writes + 3 round trips", figures.ratio
    );
    let load = &figures.load;
    row(&format!("{} transfers at a time", load.callers), &load.times);
    println!("{:<44} {:>8.0} transfers/s", "", load.per_second);
    if let Some(million) = &figures.million {
        println!(
            "{:<44} {:>8.0} transfers/s",
            format!("{} transfers", million.transfers),
            million.per_second
        );
        for (what, value, unit) in [
            (
                "coordinator resident",
                u128::from(million.coordinator_resident_mb),
                "MB",
            ),
            (
                "coordinator resident after a restart",
                million.coordinator_resident_after_restart_mb.into(),
                "MB",
            ),
            ("coordinator log", million.coordinator_log_mb.into(), "MB"),
            (
                "coordinator killed, to ready",
                million.coordinator_restart_ms,
                "ms",
            ),
            ("ledger resident", million.ledger_resident_mb.into(), "MB"),
            ("ledger log", million.ledger_log_mb.into(), "MB"),
            ("ledger killed, to ready", million.ledger_restart_ms, "ms"),
        ] {
            println!("{what:<44} {value:>8} {unit}");
        }
    }
}
