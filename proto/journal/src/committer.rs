//! The one thread that writes: it takes what waits, writes one entry, forces it, and only then tells anybody.
//!
//! *Record before release*: `durable` rises and waiters complete only after flush and sync returned without
//! error, and after the mark of the log's end was written: what somebody was told cannot go unnoticed. A force that failed or took too long has an unknown result: `on_fatal` is called once, and nothing is
//! completed after it. While one group is forced the next one fills. A running checkpoint adds at most one
//! bounded slice to each round, and makes rounds of its own while nothing else waits.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::archive::Bounds;
use crate::checkpoint::{CheckpointStatus, Job, Manifest, Progress};
use crate::entry::{self, LogKey};
use crate::image::{Batch, Image, ImageError, Space};
use crate::limits::FORCES_PER_VERIFY;
use crate::queue::{Due, Group, Queue};
use crate::sled_image::panic_message;
use crate::waiters::Waiters;

/// Why a journal cannot go on; the result of what was being forced is unknown.
#[derive(Debug, thiserror::Error)]
pub enum FatalCause {
    /// Writing to the image failed.
    #[error("writing the journal failed: {0}; the process must end, the next start decides")]
    Write(#[source] ImageError),
    /// The force failed.
    #[error("forcing the journal failed: {0}; the process must end, the next start decides")]
    Force(#[source] ImageError),
    /// Writing and forcing took longer than the bound.
    #[error(
        "forcing the journal took longer than {timeout:?}; the process must end, the next start decides; \
         look at the disk"
    )]
    TimedOut {
        /// The bound, `Options::force_timeout`.
        timeout: Duration,
    },
    /// The committer panicked.
    #[error("the journal's committer panicked ({why}); the process must end, the next start decides")]
    Panicked {
        /// The panic's message.
        why: String,
    },
}

/// Where a probe is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// At open: the log file is synced and out of the page cache, nothing was read. LSNs are 0.
    StartSynced,
    /// At open: about half of the records were replayed; called once, if there is any record. LSNs: those
    /// of the record that comes next (0 for one of the checkpoint).
    ReplayMid,
    /// An entry with these records is in the file and not yet durable.
    Written,
    /// The entry is durable and nobody was told.
    Forced,
    /// Between two slices of a checkpoint; both LSNs are the checkpoint's.
    CheckpointMid,
}

/// A hook for crash tests: stage, first LSN, last LSN. It runs on the thread that it interrupts.
pub type Probe = Arc<dyn Fn(Stage, u64, u64) + Send + Sync>;

/// What to do when the journal cannot go on.
pub type OnFatal = Arc<dyn Fn(FatalCause) + Send + Sync>;

/// Counters since the open, for figures.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) forces: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
}

/// What the handle, the committer and the watchdog share.
pub(crate) struct Shared {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) wake: Condvar,
    pub(crate) waiters: Waiters,
    pub(crate) durable: watch::Sender<u64>,
    pub(crate) checkpoints: watch::Sender<CheckpointStatus>,
    pub(crate) backlog_bytes: AtomicUsize,
    pub(crate) counters: Counters,
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) on_fatal: OnFatal,
    pub(crate) probe: Option<Probe>,
    pub(crate) force_timeout: Duration,
    fatal: AtomicBool,
    epoch: Instant,
    /// Milliseconds from `epoch` to the beginning of the round under way, plus 1; 0: none.
    round_began_ms: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("durable", &self.waiters.durable())
            .finish_non_exhaustive()
    }
}

/// What a journal begins with.
pub(crate) struct Beginning {
    pub(crate) last_lsn: u64,
    pub(crate) log_bytes: u64,
    pub(crate) manifest: Manifest,
    pub(crate) on_fatal: OnFatal,
    pub(crate) probe: Option<Probe>,
    pub(crate) force_timeout: Duration,
}

impl Shared {
    pub(crate) fn new(beginning: Beginning) -> Self {
        let Beginning {
            last_lsn,
            log_bytes,
            manifest,
            on_fatal,
            probe,
            force_timeout,
        } = beginning;
        let bounds = Arc::new(Bounds::default());
        bounds.publish(manifest.archive_start, manifest.archive_end);
        let counters = Counters {
            log_bytes: AtomicU64::new(log_bytes),
            ..Counters::default()
        };
        Self {
            queue: Mutex::new(Queue::new(last_lsn + 1)),
            wake: Condvar::new(),
            waiters: Waiters::new(last_lsn),
            durable: watch::Sender::new(last_lsn),
            checkpoints: watch::Sender::new(manifest.status(None)),
            backlog_bytes: AtomicUsize::new(0),
            counters,
            bounds,
            on_fatal,
            probe,
            force_timeout,
            fatal: AtomicBool::new(false),
            epoch: Instant::now(),
            round_began_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        // A panic while it was held is fatal anyway, and fatal must still be able to stop the queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn probe(&self, stage: Stage, first: u64, last: u64) {
        if let Some(probe) = &self.probe {
            probe(stage, first, last);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Why the journal failed, if it did.
    pub(crate) fn failed_why(&self) -> Option<String> {
        if self.fatal.load(Ordering::Acquire) {
            self.lock_queue().stopped.clone()
        } else {
            None
        }
    }

    /// Stops everything for good and says why, once.
    pub(crate) fn fail(&self, cause: FatalCause) {
        if self.fatal.swap(true, Ordering::AcqRel) {
            return;
        }
        self.waiters.freeze();
        self.lock_queue().stop(&cause.to_string());
        (self.on_fatal)(cause);
    }
}

/// The default of `Options::on_fatal`: says why on the log, and aborts.
pub(crate) fn abort_process(cause: FatalCause) {
    tracing::error!(%cause, "the journal cannot go on");
    std::process::abort();
}

/// Watches that no round outlasts the bound; ends when the committer, which owns the sender, ends.
pub(crate) fn watch_rounds(shared: &Shared, committer: &Receiver<()>) {
    let timeout_ms = u64::try_from(shared.force_timeout.as_millis()).unwrap_or(u64::MAX);
    let pause = (shared.force_timeout / 8).max(Duration::from_millis(1));
    while committer.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let began = shared.round_began_ms.load(Ordering::Acquire);
        if began != 0 && shared.now_ms().saturating_sub(began - 1) > timeout_ms {
            shared.fail(FatalCause::TimedOut {
                timeout: shared.force_timeout,
            });
            return;
        }
    }
}

/// The committer's thread.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    image: Arc<dyn Image>,
    manifest: Manifest,
    job: Option<Job>,
    scratch: Vec<u8>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, image: Arc<dyn Image>, manifest: Manifest) -> Self {
        Self {
            shared,
            image,
            manifest,
            job: None,
            scratch: Vec::new(),
        }
    }

    /// Runs until the journal closes or cannot go on.
    pub(crate) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        match catch_unwind(AssertUnwindSafe(|| self.rounds())) {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => shared.fail(cause),
            Err(panic) => shared.fail(FatalCause::Panicked {
                why: panic_message(&*panic),
            }),
        }
    }

    fn rounds(&mut self) -> Result<(), FatalCause> {
        while let Some(group) = self.next_round() {
            let began_ms = self.shared.now_ms() + 1;
            self.shared.round_began_ms.store(began_ms, Ordering::Release);
            let result = self.round(group);
            self.shared.round_began_ms.store(0, Ordering::Release);
            result?;
        }
        self.image.verify().map_err(FatalCause::Force)?;
        self.image.force_end().map_err(FatalCause::Force)
    }

    /// Waits for work: a group, or `Some(None)` for a round of the checkpoint alone; `None` at the end.
    fn next_round(&mut self) -> Option<Option<Group>> {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock_queue();
        loop {
            if queue.stopped.is_some() {
                return None;
            }
            if let Some(work) = queue.checkpoint.take() {
                self.job = Some(Job::new(&self.manifest, work));
            }
            // A checkpoint that a close cuts short leaves the old one or the new one whole.
            let ride = self.job.is_some() && !queue.closing;
            let wait = match queue.due(ride) {
                Due::Group(group) => return Some(Some(group)),
                Due::Stop => {
                    queue.stop("it was closed");
                    return None;
                }
                Due::Wait(_) if ride => return Some(None),
                Due::Wait(wait) => wait,
            };
            queue.asleep = true;
            queue = match wait {
                None => shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    shared
                        .wake
                        .wait_timeout(queue, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
            queue.asleep = false;
        }
    }

    fn round(&mut self, group: Option<Group>) -> Result<(), FatalCause> {
        let shared = Arc::clone(&self.shared);
        let span = group.as_ref().map(|group| (group.first, group.last()));
        if let Some(group) = &group {
            self.write_entry(group).map_err(FatalCause::Write)?;
        }
        let sliced = match &mut self.job {
            Some(job) => {
                let freed = job.step(&*self.image).map_err(FatalCause::Write)?;
                shared.counters.log_bytes.fetch_sub(freed, Ordering::Relaxed);
                Some(job.lsn())
            }
            None => None,
        };
        self.image.flush().map_err(FatalCause::Force)?;
        if let Some((first, last)) = span {
            shared.probe(Stage::Written, first, last);
        }
        self.image.sync().map_err(FatalCause::Force)?;
        if shared
            .counters
            .forces
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(FORCES_PER_VERIFY)
        {
            self.image.verify().map_err(FatalCause::Force)?;
        }
        if let Some((first, last)) = span {
            self.note_end(last).map_err(FatalCause::Force)?;
            shared.probe(Stage::Forced, first, last);
        }
        if let Some(group) = group {
            self.publish(group);
        }
        self.after_slice()?;
        if let Some(lsn) = sliced {
            shared.probe(Stage::CheckpointMid, lsn, lsn);
        }
        Ok(())
    }

    fn write_entry(&mut self, group: &Group) -> Result<(), ImageError> {
        entry::encode(&mut self.scratch, &group.bytes, &group.lens);
        let key = LogKey {
            first: group.first,
            count: group.lens.len() as u16,
        };
        let mut batch = Batch::new();
        entry::put_chunks(&mut batch, Space::Log, &self.scratch, |part| key.key(part));
        self.image.apply(&batch)?;
        let counters = &self.shared.counters;
        counters.entries.fetch_add(1, Ordering::Relaxed);
        counters
            .records
            .fetch_add(group.lens.len() as u64, Ordering::Relaxed);
        counters
            .bytes
            .fetch_add(self.scratch.len() as u64, Ordering::Relaxed);
        counters
            .log_bytes
            .fetch_add(self.scratch.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Overwrites the mark of the log's end. One that falls is forced at once: a loss that was accepted may not come back
    /// with an older mark after a power cut.
    fn note_end(&self, lsn: u64) -> Result<(), ImageError> {
        let falls = self.image.noted_end().is_some_and(|noted| noted > lsn);
        self.image.note_end(lsn)?;
        if falls { self.image.force_end() } else { Ok(()) }
    }

    fn publish(&self, group: Group) {
        let last = group.last();
        let bytes = group.bytes.len();
        self.shared.lock_queue().recycle(group);
        self.shared.backlog_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if let Some(woken) = self.shared.waiters.take(last) {
            self.shared.durable.send_replace(last);
            woken.complete();
        }
    }

    fn after_slice(&mut self) -> Result<(), FatalCause> {
        let Some(job) = &mut self.job else {
            return Ok(());
        };
        let lsn = job.lsn();
        match job.forced(&*self.image).map_err(FatalCause::Write)? {
            Progress::Running => {}
            Progress::Switched(manifest) => {
                self.image.force_end().map_err(FatalCause::Force)?;
                self.manifest = manifest;
                self.shared
                    .bounds
                    .publish(manifest.archive_start, manifest.archive_end);
                self.shared.checkpoints.send_replace(manifest.status(Some(lsn)));
            }
            Progress::Done => {
                self.image.verify().map_err(FatalCause::Force)?;
                self.job = None;
                self.shared.checkpoints.send_replace(self.manifest.status(None));
            }
        }
        Ok(())
    }
}
