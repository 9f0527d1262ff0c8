//! An attack on a cluster, beside honest transfers, and the judgement of what is left.
//!
//! It knows nothing of the attack. How fast the honest transfers are meanwhile is printed, not judged.

#![allow(
    clippy::print_stdout,
    reason = "how fast others are meanwhile is told, not judged"
)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use covenant_client::Outcome;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::checks;
use crate::cluster::{OPENING, PATIENCE, QUIET_TIMEOUT};
use crate::{Cluster, Transfer, Who};

/// What a process may have resident at its peak, in MiB: its outboxes and queues at their bounds, in a debug build.
pub const MAX_RESIDENT_MIB: u64 = 384;

/// How long an attack may take.
pub const ATTACK_TIMEOUT: Duration = Duration::from_secs(60);

/// Honest transfers, one after the other, until they are told to end.
struct Honest {
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<Vec<Duration>>>,
}

impl Honest {
    fn start(cluster: &Cluster) -> Self {
        let client = cluster.client().clone();
        let (stop, mut stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let mut taken = Vec::new();
            while stopped.try_recv().is_err() {
                let transfer = Transfer::new(format!("honest-{}", taken.len()), 1);
                let began = Instant::now();
                let outcome = client.execute(&transfer.transaction(), PATIENCE).await?;
                ensure!(
                    matches!(outcome, Outcome::Committed(_)),
                    "{} is {outcome:?}",
                    transfer.id
                );
                taken.push(began.elapsed());
            }
            Ok(taken)
        });
        Self { stop, running }
    }

    async fn end(self, what: &str) -> Result<usize> {
        // It may have ended by an error, which comes out below.
        let _ = self.stop.send(());
        let mut taken = self.running.await??;
        ensure!(!taken.is_empty(), "no honest transfer was sent");
        taken.sort_unstable();
        println!(
            "{what}: {} honest transfers, p50 {:?}, slowest {:?}",
            taken.len(),
            taken[taken.len() / 2],
            taken[taken.len() - 1]
        );
        Ok(taken.len())
    }
}

/// Runs an attack beside honest transfers and judges what is left: they committed, no process panicked or outgrew
/// [`MAX_RESIDENT_MIB`], and everything adds up.
///
/// # Errors
/// What did not withstand it.
pub async fn withstands(
    mut cluster: Cluster,
    what: &str,
    attack: impl AsyncFnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let honest = Honest::start(&cluster);
    let attacked = tokio::time::timeout(ATTACK_TIMEOUT, attack(&cluster))
        .await
        .with_context(|| format!("the attack takes longer than {ATTACK_TIMEOUT:?}"))
        .flatten();
    if let Err(error) = attacked {
        return Err(error.context(cluster.coordinator.process().tail()));
    }
    let committed = honest.end(what).await?;
    cluster.commits(&Transfer::new("afterwards", 1)).await?;
    for who in [Who::Coordinator, Who::LedgerA, Who::LedgerB] {
        let process = cluster.server(who).process();
        ensure!(!process.has_ended()?, "{who:?} ended; {}", process.tail());
        let peak = peak_mib(process.id())?;
        println!("{what}: {who:?} had {peak} MiB at its peak");
        ensure!(
            peak <= MAX_RESIDENT_MIB,
            "{who:?} had {peak} MiB; the bound is {MAX_RESIDENT_MIB}"
        );
        let panicked = process
            .stderr()
            .into_iter()
            .find(|line| line.contains("panicked at"));
        ensure!(panicked.is_none(), "{who:?}: {panicked:?}");
    }
    let mut world = cluster.quiet(QUIET_TIMEOUT).await?;
    for view in &mut world.transactions {
        // A rogue that took part shows no entries.
        view.branches
            .retain(|branch| !branch.participant.starts_with("rogue"));
    }
    checks::s1_agreement(&world)?;
    checks::s15_one_commit(&world)?;
    checks::s14_conservation(&world, OPENING.into())?;
    let bob = world.account("bob")?.posted;
    ensure!(
        bob > i64::try_from(committed)?,
        "bob has {bob} after {committed} transfers of 1 and one more"
    );
    cluster.stop_and_check_logs().await
}

/// The most that a process ever had resident.
fn peak_mib(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .context("no VmHWM")?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()?;
    Ok(kib / 1_024)
}
