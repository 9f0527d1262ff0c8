//! The whole proof over one recording: images whose logs are opened, images on which the real servers are started, and images of
//! the power going again while these start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use covenant_participant::config::DIAL_CAP_MS;
use covenant_rules::Limits;
use serde::Serialize;

use super::cut::{Cuts, Moments, Point, Report, point};
use super::disk::Disk;
use super::logs::{self, Promise};
use super::recording::{Load, NODES, Recording, small_checkpoints};
use super::shim::{Fdatasync, Shim};
use super::trace::{Change, Event};
use crate::checks::Caller;
use crate::cluster::Plan;
use crate::{Transfer, Who};

/// How much is checked.
#[derive(Clone, Debug)]
pub struct Extent {
    /// What is recorded.
    pub load: Load,
    /// Images whose logs are opened.
    pub points: usize,
    /// Images on which the three servers are started.
    pub starts: usize,
    /// Images of each of these starts.
    pub points_of_a_start: usize,
    /// Threads.
    pub jobs: usize,
}

/// What came of it.
#[derive(Serialize, Debug)]
pub struct Verdict {
    /// Transfers recorded.
    pub transfers: usize,
    /// Changes and syncs recorded.
    pub events: usize,
    /// Syncs among these.
    pub syncs: usize,
    /// Starts of a server among these, by how many processes were recorded.
    pub processes: usize,
    /// sled snapshots that were removed in the load, most of them by starts.
    pub snapshots_removed: usize,
    /// Images whose logs were opened.
    pub logs: Report,
    /// Images on which the servers were started; `failures` numbers them on from the points.
    pub servers: Report,
    /// Images of the power going again during these starts.
    pub again: Report,
    /// Where the recording was kept, if anything failed.
    pub recording: Option<PathBuf>,
}

impl Verdict {
    /// Whether all held.
    #[must_use]
    pub fn holds(&self) -> bool {
        [&self.logs, &self.servers, &self.again]
            .iter()
            .all(|report| report.failures.is_empty())
    }
}

fn promises(recording: &Recording, point: &Point) -> Vec<Promise> {
    let told = recording.told_by(point.event);
    told.iter().map(super::recording::Answer::promise).collect()
}

/// Records a load and checks it. `progress` hears what is done and how much of it.
///
/// # Errors
/// If the recording fails, or images cannot be built. What is wrong with an image stands in the verdict.
pub async fn prove(extent: &Extent, progress: &(impl Fn(&str, usize, usize) + Sync)) -> Result<Verdict> {
    progress("recording", 0, extent.load.transfers);
    let (recording, run) = Recording::of(&extent.load).await.context("recording")?;
    let mut verdict = judge(extent, &recording, progress).await?;
    if !verdict.holds() {
        verdict.recording = Some(run.keep());
    }
    Ok(verdict)
}

async fn judge(
    extent: &Extent,
    recording: &Recording,
    progress: &(impl Fn(&str, usize, usize) + Sync),
) -> Result<Verdict> {
    let moments = moments(recording);
    let (seed, events) = (extent.load.seed, recording.events.len());
    let points = (0..extent.points).map(|number| point(seed, number, &NODES, &moments, events));
    let cuts = Cuts {
        base: &Disk::default(),
        events: &recording.events,
        points: points.collect(),
        jobs: extent.jobs,
    };
    let logs = tokio::task::block_in_place(|| {
        cuts.run(
            &|image, point| logs::check(image, &promises(recording, point)),
            &|done| progress("images with their logs opened", done, extent.points),
        )
    })?;
    let (mut servers, mut again) = (Report::default(), Report::default());
    for start in 0..extent.starts {
        let number = extent.points + start;
        let point = point(seed, number, &NODES, &moments, events);
        servers.images += 1;
        match started(recording, &point, seed, extent.points_of_a_start, extent.jobs).await {
            Ok(more) => again.add(more),
            Err(error) => servers.failures.push((number, format!("{error:#}"))),
        }
        progress("images with their servers started", start + 1, extent.starts);
    }
    let is_sync = |event: &&Event| matches!(event.change, Change::SyncEnded(_));
    let is_snapshot = |event: &&Event| match &event.change {
        Change::Removed(path) => {
            (path.file_name()).is_some_and(|name| name.to_string_lossy().starts_with("snap."))
        }
        _ => false,
    };
    let processes = recording.events.iter().map(|event| event.process);
    Ok(Verdict {
        transfers: recording.answers.len(),
        events,
        syncs: recording.events.iter().filter(is_sync).count(),
        processes: processes.collect::<BTreeSet<u32>>().len(),
        snapshots_removed: recording.events.iter().filter(is_snapshot).count(),
        logs,
        servers,
        again,
        recording: None,
    })
}

fn moments(recording: &Recording) -> Moments {
    Moments::of(
        &recording.events,
        recording.answers.iter().map(|answer| answer.time_ns),
    )
}

/// One point of a recording that was kept, once more: its logs, its servers, and cuts of their start, which is a new one.
///
/// # Errors
/// What does not hold.
pub async fn replay(recording: &Path, seed: u64, number: usize, points_of_a_start: usize) -> Result<()> {
    let recording = Recording::load(recording)?;
    let point = point(seed, number, &NODES, &moments(&recording), recording.events.len());
    let place = crate::binary::scratch()?;
    let image = place.path().join("image");
    point.image(&Disk::default(), &recording.events, &image)?;
    logs::check(&image, &promises(&recording, &point)).with_context(|| format!("{point:?}"))?;
    let again = started(&recording, &point, seed, points_of_a_start, 1).await?;
    match again.failures.into_iter().next() {
        Some((_, why)) => bail!("{why}"),
        None => Ok(()),
    }
}

/// The real servers on an image: they open, end what is open and hold what was told; and then the power goes again.
async fn started(
    recording: &Recording,
    point: &Point,
    seed: u64,
    points_of_a_start: usize,
    jobs: usize,
) -> Result<Report> {
    let (base, again, promises) = start(recording, point).await?;
    let nested = Moments::of(&again, []);
    let points = (0..points_of_a_start)
        .map(|number| super::cut::point(seed ^ point.number as u64, number, &NODES, &nested, again.len()));
    let cuts = Cuts {
        base: &base,
        events: &again,
        points: points.collect(),
        jobs,
    };
    let mut report =
        tokio::task::block_in_place(|| cuts.run(&|image, _| logs::check(image, &promises), &|_| {}))
            .with_context(|| format!("the start on {point:?}"))?;
    // A failure is replayed by the point whose start was cut.
    for (number, why) in &mut report.failures {
        *why = format!("cut {number} of its start: {why}");
        *number = point.number;
    }
    Ok(report)
}

/// How long everything may take to end after a start: what is found in doubt may have to wait for a dial, and once for the
/// longest pause before it is asked about or sent again.
fn end_timeout() -> Duration {
    Duration::from_millis(DIAL_CAP_MS + Limits::default().retry_cap_ms)
}

type Started = (Disk, Vec<Event>, Vec<Promise>);

async fn start(recording: &Recording, point: &Point) -> Result<Started> {
    let shim = Shim::compile()?;
    let mut plan = Plan::new()?;
    let root = plan.directory().canonicalize()?;
    point.image(&Disk::default(), &recording.events, &root)?;
    let base = Disk::of(&root)?;
    for who in [Who::Coordinator, Who::LedgerA, Who::LedgerB] {
        plan = plan.with(who, |launch| small_checkpoints(who, launch));
    }
    plan.coordinator = shim.under(&root, plan.coordinator, Fdatasync::Works)?;
    plan.ledger_a = shim.under(&root, plan.ledger_a, Fdatasync::Works)?;
    plan.ledger_b = shim.under(&root, plan.ledger_b, Fdatasync::Works)?;
    let told = recording.told_by(point.event);
    let callers: Vec<Caller> = told.iter().map(super::recording::Answer::caller).collect();
    let promises = promises(recording, point);
    let mut cluster = plan.start().await?;
    cluster.quiet(end_timeout()).await.context("after the start")?;
    cluster.check(&callers).await?;
    let after = Transfer {
        timeout: Duration::from_secs(10),
        ..Transfer::new(format!("after-{}", point.number), 1)
    };
    cluster
        .commits(&after)
        .await
        .context("a transfer after the cut")?;
    cluster.check(&callers).await?;
    for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
        cluster.server(who).stop_cleanly().await?;
    }
    let again = shim.events(&root)?;
    ensure!(!again.is_empty(), "nothing was recorded of the start");
    logs::check(&root, &promises).context("after the servers had stopped")?;
    Ok((base, again, promises))
}
