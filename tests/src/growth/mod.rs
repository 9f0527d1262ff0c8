//! Growth: what a cluster costs when there is much of something, beside one that has little of it, in turns in one run.
//!
//! Two clusters stand side by side. One is filled with outcomes, then given transactions that stay open, then a participant
//! that is away, then killed and started, then made to delete; after each step both run the same load in turns, so that a
//! machine whose speed drifts does it to both. Nothing is asserted about speed: only the ratios travel from machine to
//! machine. That the money adds up is asserted by every load (`covenant bench`).
//!
//! It cannot show weeks: what a million outcomes cost is measured, not what their age does.

pub mod branches;
pub mod load;
pub mod open;
pub mod process;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use covenant_client::Outcome;
use serde::Serialize;

use crate::cluster::{Cluster, PATIENCE, Plan, Who};
use branches::BranchCost;
use load::{CallerRow, Turns};
use open::Open;

/// The transfers at a time of every load.
pub const CONCURRENCY: u32 = 256;

/// The longest deadline of the coordinator that deletes: outcomes younger than that and a minute stay, so it has to be
/// short for a bound on their number to be reached.
const SHORT_DEADLINE_MS: u64 = 1_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many outcomes are retained.
    pub outcomes: u64,
    /// How many transactions stay open, each with two branches in doubt.
    pub open: usize,
    /// How long a load is measured in each turn.
    pub turn: Duration,
    /// How many turns each cluster has.
    pub rounds: usize,
    /// The numbers of branches to compare.
    pub branches: Vec<usize>,
    /// The numbers of callers to compare.
    pub callers: Vec<u32>,
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Growth {
    /// `release` or `debug`; only a release says anything.
    pub profile: &'static str,
    /// CPU by the number of branches.
    pub branches: Vec<BranchCost>,
    /// With [`Options::outcomes`] retained.
    pub retained: Turns,
    /// The same, and [`Options::open`] transactions open whose participants are there and do not acknowledge.
    pub in_doubt: Turns,
    /// The same, their participants away.
    pub away: Turns,
    /// The same, while the oldest outcomes are deleted for every new one.
    pub deleting: Turns,
    /// Sizes, before and after a restart.
    pub sizes: Sizes,
    /// The load by the number of callers.
    pub callers: Vec<CallerRow>,
}

/// What the filled cluster takes, in MB of 1,048,576 bytes and milliseconds.
#[derive(Debug, Default, Serialize)]
pub struct Sizes {
    /// The outcomes that its callers were told.
    pub outcomes: u64,
    /// Transactions that are open at the restart.
    pub open: usize,
    /// The coordinator's largest resident size of both its lives.
    pub coordinator_peak_mb: f64,
    /// The coordinator's resident size after the restart.
    pub coordinator_restarted_mb: f64,
    /// Killed, to SERVING.
    pub coordinator_restart_ms: u128,
    /// The ledger's largest resident size.
    pub ledger_peak_mb: f64,
    /// Killed, to ready.
    pub ledger_restart_ms: u128,
    /// The coordinator's directory, and what in it is live.
    pub coordinator_disk: process::Disk,
    /// The ledger's directory, and what in it is live.
    pub ledger_disk: process::Disk,
}

/// Where it is, for who watches.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Measures all of it.
///
/// # Errors
/// If it could not be carried through, or the money does not add up.
pub async fn measure(options: &Options, progress: Progress<'_>) -> Result<Growth> {
    let mut branches = Vec::new();
    for count in &options.branches {
        progress(&format!("{count} branches"));
        branches.push(branches::cost(*count, options.turn).await?);
    }
    let (small, mut large) = (Cluster::start().await?, Plan::new()?.start().await?);
    let mut sizes = Sizes {
        open: options.open,
        ..Sizes::default()
    };
    while sizes.outcomes < options.outcomes {
        progress(&format!("{} of {} outcomes", sizes.outcomes, options.outcomes));
        sizes.outcomes += load::run(&large, CONCURRENCY, options.turn).await?.committed;
    }
    let turns = async |what: &str, large: &Cluster| {
        progress(what);
        load::turns(&small, large, options)
            .await
            .with_context(|| what.to_owned())
    };
    let retained = turns("many outcomes", &large).await?;
    progress("opening transactions");
    let open = Open::make(&large, options.open).await?;
    let in_doubt = turns("open transactions", &large).await?;
    drop(open);
    let away = turns("a participant away", &large).await?;
    progress("killing and starting");
    restarts(&mut large, &mut sizes).await?;
    delete_from_here(&mut large, options).await?;
    let kept_since = retained_since(&large).await?;
    let deleting = turns("deleting", &large).await?;
    ensure!(retained_since(&large).await? > kept_since, "nothing was deleted");
    progress("callers");
    let mut callers = Vec::new();
    for count in &options.callers {
        callers.push(load::callers(&small, *count, options.turn).await?);
    }
    progress("reading the logs");
    measure_disks(&mut large, &mut sizes).await?;
    Ok(Growth {
        profile: if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
        branches,
        retained,
        in_doubt,
        away,
        deleting,
        sizes,
        callers,
    })
}

async fn restarts(large: &mut Cluster, sizes: &mut Sizes) -> Result<()> {
    let before = process::peak_mb(large.coordinator.process().id())?;
    sizes.ledger_peak_mb = process::peak_mb(large.ledger_a.process().id())?;
    sizes.coordinator_restart_ms = restart(large, Who::Coordinator).await?;
    let coordinator = large.coordinator.process().id();
    sizes.coordinator_restarted_mb = process::resident_mb(coordinator)?;
    sizes.coordinator_peak_mb = before.max(process::peak_mb(coordinator)?);
    sizes.ledger_restart_ms = restart(large, Who::LedgerA).await?;
    Ok(())
}

/// Kills a process and starts it again: the milliseconds to its line of readiness.
async fn restart(cluster: &mut Cluster, who: Who) -> Result<u128> {
    cluster.server(who).kill()?;
    let began = Instant::now();
    cluster.server(who).restart().await?;
    Ok(began.elapsed().as_millis())
}

/// From now on the coordinator retains no more outcomes than it has.
async fn delete_from_here(large: &mut Cluster, options: &Options) -> Result<()> {
    large.coordinator.stop_cleanly().await?;
    let launch = (large.coordinator.launch().clone())
        .variable("COVENANT_RETENTION__MAX_RETAINED_OUTCOMES", options.outcomes)
        .variable("COVENANT_TRANSACTIONS__MAX_DEADLINE_MS", SHORT_DEADLINE_MS)
        .variable("COVENANT_TRANSACTIONS__DEFAULT_DEADLINE_MS", SHORT_DEADLINE_MS);
    large.coordinator.respawn_as(&launch)?;
    large.coordinator.wait_ready().await
}

/// Since when outcomes are retained, in seconds since the Unix epoch.
async fn retained_since(cluster: &Cluster) -> Result<i64> {
    let unknown = cluster.client().get("no such transfer", None, PATIENCE).await?;
    let Outcome::NotFound(view) = unknown else {
        bail!("an id that nobody sent is {unknown:?}")
    };
    Ok(view.retained_since.context("NOT_FOUND says since when")?.seconds)
}

async fn measure_disks(large: &mut Cluster, sizes: &mut Sizes) -> Result<()> {
    for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
        large.server(who).stop_cleanly().await?;
    }
    sizes.coordinator_disk = process::disk(large.coordinator.launch().data_dir(), "coordinator")?;
    sizes.ledger_disk = process::disk(large.ledger_a.launch().data_dir(), "ledger")?;
    Ok(())
}
