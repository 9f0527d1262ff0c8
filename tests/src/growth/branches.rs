//! What a branch costs in CPU when a transaction has many: ledgers of which several are in one process.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use covenant_client::{Branch, Client, Outcome, Transaction, Wait, unix_now};
use covenant_ledger::{Ledger, OpenSpec};
use covenant_participant::{Config, JoinState, Participant};
use covenant_proto::ledger::v1::{Direction, Leg, Operation};
use covenant_rules::Name;
use serde::Serialize;
use tokio::task::JoinSet;

use super::process::cpu_us;
use crate::binary::scratch;
use crate::cluster::PATIENCE;
use crate::process::{Process, bound_to_its_starter};
use crate::server::{Launch, READY_TIMEOUT};
use crate::transfer::{CURRENCY, branch};

/// The ledgers of one process.
const LEDGERS_OF_A_PROCESS: usize = 16;

/// The branches that are under way at a time, over all transactions.
const BRANCHES_TOGETHER: usize = 512;

/// The accounts of each ledger.
const ACCOUNTS: usize = 1_000;

/// What each of them has.
const OPENING: i64 = 1_000_000_000_000;

/// The hidden mode of the program: some ledgers in one process.
#[derive(Args, Debug)]
pub struct Host {
    /// The number of the first one.
    #[arg(long)]
    first: usize,
    /// How many.
    #[arg(long)]
    ledgers: usize,
    /// Whom to join.
    #[arg(long)]
    coordinator: String,
    /// Where their logs are.
    #[arg(long)]
    directory: PathBuf,
}

/// What a branch costs.
#[derive(Clone, Debug, Serialize)]
pub struct BranchCost {
    /// Of each transaction.
    pub branches: usize,
    /// Transactions a second.
    pub per_second: f64,
    /// The coordinator's CPU per branch, in microseconds.
    pub coordinator_us: f64,
    /// That of all ledgers together, per branch.
    pub ledgers_us: f64,
    /// That of the callers, per branch.
    pub callers_us: f64,
}

fn ledger_name(number: usize) -> String {
    format!("ledger-{number:02}")
}

/// Runs the ledgers until the process is killed.
///
/// # Errors
/// If one does not open or join.
#[allow(clippy::print_stdout, reason = "the line of readiness")]
pub async fn host(host: &Host) -> Result<()> {
    let mut handles = Vec::new();
    for number in host.first..host.first + host.ledgers {
        let name = Name::new(&ledger_name(number))?;
        let directory = host.directory.join(name.as_str());
        let ledger = Ledger::open(&directory, covenant_ledger::Options::default()).await?;
        for account in 0..ACCOUNTS {
            let spec: OpenSpec = format!("n{account}={OPENING}:{CURRENCY}").parse()?;
            ledger.open_account(&spec).await?;
        }
        let config = Config::new(name, &host.coordinator);
        let handle = Participant::start(config, Arc::new(ledger)).await?;
        let mut joined = handle.joined();
        let wait = joined.wait_for(JoinState::is_joined);
        tokio::time::timeout(PATIENCE, wait).await??;
        handles.push(handle);
    }
    println!("ready");
    std::future::pending().await
}

/// Runs transactions of so many branches for a time.
///
/// # Errors
/// If one does not commit.
pub async fn cost(branches: usize, time: Duration) -> Result<BranchCost> {
    ensure!(branches >= 2, "a transfer has 2 branches at least");
    let directory = scratch()?;
    let mut coordinator = Launch::coordinator(&directory.path().join("coordinator"))?
        .start()
        .await?;
    let url = coordinator.url();
    let mut hosts = Vec::new();
    for first in (0..branches).step_by(LEDGERS_OF_A_PROCESS) {
        let program = std::env::current_exe()?;
        let mut command: Command = bound_to_its_starter(program.as_os_str());
        command
            .args(["host", "--coordinator", &url, "--first", &first.to_string()])
            .args([
                "--ledgers",
                &LEDGERS_OF_A_PROCESS.min(branches - first).to_string(),
            ])
            .arg("--directory")
            .arg(directory.path());
        hosts.push(Process::spawn("ledgers", &mut command)?);
    }
    for host in &mut hosts {
        host.first_line(READY_TIMEOUT).await?;
    }
    let clients = [Client::new(&url)?, Client::new(&url)?];
    // Unmeasured: connections come up, and memory is taken for the first time.
    run(&clients, "warm", branches, time / 4).await?;
    let pids: Vec<u32> = hosts.iter().map(Process::id).collect();
    let coordinator = coordinator.process().id();
    let cpu = || -> Result<[u64; 3]> {
        let ledgers = pids.iter().map(|pid| cpu_us(*pid)).sum::<Result<u64>>()?;
        Ok([cpu_us(coordinator)?, ledgers, cpu_us(std::process::id())?])
    };
    let before = cpu()?;
    let began = Instant::now();
    let count = run(&clients, "measured", branches, time).await?;
    let seconds = began.elapsed().as_secs_f64();
    let after = cpu()?;
    let each = |index: usize| (after[index] - before[index]) as f64 / (count * branches) as f64;
    Ok(BranchCost {
        branches,
        per_second: count as f64 / seconds,
        coordinator_us: each(0),
        ledgers_us: each(1),
        callers_us: each(2),
    })
}

async fn run(clients: &[Client], run: &'static str, branches: usize, time: Duration) -> Result<usize> {
    let next = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + time;
    let mut callers = JoinSet::new();
    for caller in 0..(BRANCHES_TOGETHER / branches).max(1) {
        let (client, next) = (clients[caller % clients.len()].clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut committed = 0;
            while Instant::now() < until {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let transaction = transaction(run, number, branches);
                let outcome = client.execute(&transaction, PATIENCE).await?;
                ensure!(
                    matches!(outcome, Outcome::Committed(_)),
                    "{} is {outcome:?}",
                    transaction.id
                );
                committed += 1;
            }
            Ok(committed)
        });
    }
    let mut committed = 0;
    while let Some(ended) = callers.join_next().await {
        committed += ended.context("a caller ended")??;
    }
    Ok(committed)
}

/// The first ledger pays 1 to every other one.
fn transaction(run: &str, number: usize, branches: usize) -> Transaction {
    let paid = i64::try_from(branches - 1).unwrap_or(i64::MAX);
    let leg = |index: usize| Leg {
        account: format!("n{}", (number + index) % ACCOUNTS),
        direction: if index == 0 {
            Direction::Debit
        } else {
            Direction::Credit
        }
        .into(),
        amount: if index == 0 { paid } else { 1 },
        currency: CURRENCY.to_owned(),
    };
    let branch = |index: usize| -> Branch {
        let operation = Operation {
            legs: vec![leg(index)],
            assertions: Vec::new(),
        };
        branch(&ledger_name(index), operation)
    };
    Transaction {
        id: format!("{run}-{number}"),
        created: unix_now(),
        branches: (0..branches).map(branch).collect(),
        timeout: Some(Duration::from_secs(30)),
        wait: Wait::Decided,
    }
}
