//! A cluster under load with its files recorded: three real servers, callers who note what they were told and when, and
//! nodes that lose their power, stop and start all the while.
//!
//! A node that is down while the others go on is, for every cut in that time, a node cut alone.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{UnixMillis, Wait};
use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::logs::Promise;
use super::shim::{Fdatasync, Shim};
use super::tear::{self, Dice};
use super::trace::{Event, now_ns};
use crate::checks::{Caller, Told};
use crate::cluster::Plan;
use crate::{Cluster, Transfer, Who};

/// The names of the nodes' directories.
pub const NODES: [&str; 3] = ["c1", crate::cluster::LEDGER_A, crate::cluster::LEDGER_B];

/// Records after which each of the three writes a checkpoint: so few that many fall into a short run.
const CHECKPOINT_RECORDS: u64 = 200;

/// The most that a transfer moves that should commit.
const AMOUNT_MAX: usize = 50;

/// How long a caller waits for one answer, and how long votes may take.
const PATIENCE: Duration = Duration::from_secs(30);
const DEADLINE: Duration = Duration::from_secs(10);

/// How long the end of everything may take before the recording stops. It judges nothing: one look at thousands of transfers
/// takes seconds on a busy machine. What is judged is how soon everything ends on an image.
const END_TIMEOUT: Duration = Duration::from_secs(60);

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Load {
    /// Of everything that is chosen.
    pub seed: u64,
    /// Transfers in all.
    pub transfers: usize,
    /// Callers at a time.
    pub callers: usize,
    /// How often a node is cut off or stopped, and started again.
    pub outages: usize,
    /// What fdatasync does.
    pub fdatasync: Fdatasync,
}

/// What one caller was told, and when.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Answer {
    /// The transaction's id.
    pub id: String,
    /// The caller's first time for it.
    pub created: UnixMillis,
    /// `Some(true)`: COMMITTED; `Some(false)`: ABORTED.
    pub committed: Option<bool>,
    /// When the answer was there, on the clock of the traces.
    pub time_ns: u64,
}

impl Answer {
    fn told(&self) -> Told {
        match self.committed {
            Some(true) => Told::Committed,
            Some(false) => Told::Aborted,
            None => Told::Nothing,
        }
    }

    /// As the checks over real servers want it.
    #[must_use]
    pub fn caller(&self) -> Caller {
        Caller {
            id: self.id.clone(),
            created: self.created,
            told: self.told(),
        }
    }

    /// As the checks over logs want it.
    #[must_use]
    pub fn promise(&self) -> Promise {
        Promise {
            id: self.id.clone(),
            told: self.told(),
        }
    }
}

/// Everything that a run left to be cut at.
pub struct Recording {
    /// Every change and sync, in order.
    pub events: Vec<Event>,
    /// What callers were told, in the order of the times.
    pub answers: Vec<Answer>,
}

/// What of a recording is not in its traces.
#[derive(Serialize, Deserialize)]
struct Rest {
    root: PathBuf,
    answers: Vec<Answer>,
}

impl Recording {
    /// Runs a load and records it.
    ///
    /// # Errors
    /// If a server does not start or stop, or everything has not ended in time.
    pub async fn of(load: &Load) -> Result<(Self, PowerRun)> {
        let shim = Shim::compile()?;
        let mut plan = Plan::new()?;
        let root = plan.directory().canonicalize()?;
        for who in [Who::Coordinator, Who::LedgerA, Who::LedgerB] {
            let mut under = Ok(());
            plan = plan.with(who, |launch| {
                let launch = small_checkpoints(who, launch);
                match shim.under(&root, launch.clone(), load.fdatasync) {
                    Ok(launch) => launch,
                    Err(error) => {
                        under = Err(error);
                        launch
                    }
                }
            });
            under?;
        }
        let mut cluster = plan.start().await?;
        let run = PowerRun { shim, root };
        let answers = drive(&mut cluster, &run.shim, load).await?;
        let recording = Self {
            events: run.shim.events(&run.root)?,
            answers,
        };
        nothing_escaped(&recording.events, &run.root)?;
        run.keep_answers(&recording.answers)?;
        Ok((recording, run))
    }

    /// A recording that was kept.
    ///
    /// # Errors
    /// If its files are not there or not whole.
    pub fn load(directory: &Path) -> Result<Self> {
        let rest = std::fs::read(directory.join("answers.json"))
            .with_context(|| format!("{} is no recording", directory.display()))?;
        let Rest { root, answers } = serde_json::from_slice(&rest)?;
        Ok(Self {
            events: super::trace::read(&directory.join("traces"), &root)?,
            answers,
        })
    }

    /// What callers had been told when the power went after this event.
    #[must_use]
    pub fn told_by(&self, event: usize) -> &[Answer] {
        // Until the next event the disk is the same.
        let until = self.events.get(event + 1).map_or(u64::MAX, |next| next.time_ns);
        let count = self.answers.partition_point(|answer| answer.time_ns < until);
        &self.answers[..count]
    }
}

/// Where a recording lies.
pub struct PowerRun {
    shim: Shim,
    root: PathBuf,
}

impl PowerRun {
    fn keep_answers(&self, answers: &[Answer]) -> Result<()> {
        let rest = Rest {
            root: self.root.clone(),
            answers: answers.to_vec(),
        };
        Ok(std::fs::write(
            self.shim.directory().join("answers.json"),
            serde_json::to_vec(&rest)?,
        )?)
    }

    /// Leaves the recording where it is, for [`Recording::load`].
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.shim.keep()
    }
}

/// A server that writes checkpoints often.
#[must_use]
pub fn small_checkpoints(who: Who, launch: crate::Launch) -> crate::Launch {
    match who {
        Who::Coordinator => launch.variable("COVENANT_LOG__CHECKPOINT_RECORDS", CHECKPOINT_RECORDS),
        Who::LedgerA | Who::LedgerB => launch
            .argument("--checkpoint-records")
            .argument(CHECKPOINT_RECORDS.to_string()),
    }
}

/// What was recorded, played to its end, gives the files that are there, byte by byte.
fn nothing_escaped(events: &[Event], root: &Path) -> Result<()> {
    let last = events.len().checked_sub(1).context("nothing was recorded")?;
    let place = crate::binary::scratch()?;
    let played = place.path().join("played");
    let disk = super::cut::disk_at(&Disk::default(), events, last)?;
    tear::write(&disk, &HashMap::new(), &mut Dice::new(0), &played)?;
    same(&played, root).context("a change escaped the recording")
}

fn same(played: &Path, found: &Path) -> Result<()> {
    let names = |path: &Path| -> Result<BTreeSet<std::ffi::OsString>> {
        let entries = std::fs::read_dir(path)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    };
    let (expected, there) = (names(played)?, names(found)?);
    ensure!(
        expected == there,
        "{} holds {there:?}, recorded are {expected:?}",
        found.display()
    );
    for name in expected {
        let (played, found) = (played.join(&name), found.join(&name));
        if played.is_dir() {
            same(&played, &found)?;
        } else {
            let differs = std::fs::read(&played)? != std::fs::read(&found)?;
            ensure!(!differs, "{} holds other bytes", found.display());
        }
    }
    Ok(())
}

async fn drive(cluster: &mut Cluster, shim: &Shim, load: &Load) -> Result<Vec<Answer>> {
    let answers = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let client = cluster.client().clone();
    let call = async |caller: usize| -> Result<()> {
        let mut dice = Dice::new(load.seed ^ (caller as u64) << 32);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= load.transfers {
                return Ok(());
            }
            let transfer = transfer(number, &mut dice);
            let outcome = client.execute(&transfer.transaction(), PATIENCE).await?;
            let time_ns = now_ns();
            let committed = match Told::from(&outcome) {
                Told::Committed => Some(true),
                Told::Aborted => Some(false),
                Told::Nothing => None,
            };
            let answer = Answer {
                id: transfer.id,
                created: transfer.created,
                committed,
                time_ns,
            };
            answers
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(answer);
        }
    };
    let calls = async {
        let all = (0..load.callers).map(call);
        for result in join_all(all).await {
            result?;
        }
        Ok(())
    };
    let (called, out) = tokio::join!(calls, outages(cluster, shim, load, &next));
    called.and(out)?;
    cluster.quiet(END_TIMEOUT).await?;
    for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
        cluster.server(who).stop_cleanly().await?;
    }
    let mut answers = answers
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    answers.sort_by_key(|answer| answer.time_ns);
    let committed = answers
        .iter()
        .filter(|answer| answer.committed == Some(true))
        .count();
    ensure!(
        committed * 2 > load.transfers,
        "only {committed} of {} committed",
        load.transfers
    );
    Ok(answers)
}

/// Runs them all at a time on this task.
async fn join_all<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|context| {
        let mut ended = true;
        for (one, value) in &mut running {
            if value.is_none() {
                match one.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *value = Some(ready),
                    std::task::Poll::Pending => ended = false,
                }
            }
        }
        if ended {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    running.into_iter().filter_map(|(_, value)| value).collect()
}

fn transfer(number: usize, dice: &mut Dice) -> Transfer {
    let too_much = dice.percent(10);
    let amount = if too_much {
        100_000_000
    } else {
        dice.below(AMOUNT_MAX) as i64 + 1
    };
    let mut transfer = Transfer {
        timeout: DEADLINE,
        ..Transfer::new(format!("T{number}"), amount)
    };
    if dice.percent(20) {
        transfer.wait = Wait::Completed;
    }
    // Money goes back now and then, so that both ledgers debit.
    if !too_much && number > 50 && dice.percent(20) {
        std::mem::swap(&mut transfer.from, &mut transfer.to);
    }
    transfer
}

/// Takes nodes down and up, each at its share of the transfers.
async fn outages(cluster: &mut Cluster, shim: &Shim, load: &Load, next: &AtomicUsize) -> Result<()> {
    let mut dice = Dice::new(load.seed ^ 0x0007_A6E5);
    for number in 1..=load.outages {
        let due = load.transfers * number / (load.outages + 1);
        crate::wait_until("a share of the transfers", PATIENCE * 4, async || {
            ensure!(next.load(Ordering::Relaxed) >= due, "they are not there yet");
            Ok(())
        })
        .await?;
        let who = [Who::Coordinator, Who::LedgerA, Who::LedgerB][dice.below(3)];
        let server = cluster.server(who);
        if dice.percent(30) {
            server.stop_cleanly().await?;
        } else {
            shim.kill(server).await?;
        }
        pause(dice.below(150)).await;
        server.respawn()?;
        // Now and then it dies in the middle of its start, once more and then for the last time.
        if dice.percent(30) {
            pause(dice.below(40)).await;
            shim.kill(server).await?;
            server.respawn()?;
        }
        server.wait_ready().await?;
    }
    cluster.wait_joined().await
}

async fn pause(milliseconds: usize) {
    tokio::time::sleep(Duration::from_millis(milliseconds as u64)).await;
}
