//! The handle of an open journal: append, wait, checkpoint, close.
//!
//! Clones share one journal; the last one dropped closes it. No method blocks on the disk but `close`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::watch;

use crate::archive::ArchiveReader;
use crate::checkpoint::{Checkpoint, CheckpointStatus, Manifest};
use crate::committer::{Committer, Shared, watch_rounds};
use crate::envelope::Records;
use crate::error::Error;
use crate::image::Image;
use crate::limits::MAX_BACKLOG_BYTES;

/// Number of a record: from 1, without gaps.
pub type Lsn = u64;

/// Figures since the open; each only rises, but `log_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Forces that succeeded.
    pub forces: u64,
    /// Entries written.
    pub entries: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of the entries written.
    pub bytes: u64,
    /// Bytes of the entries above the last checkpoint, which the next replay reads.
    pub log_bytes: u64,
}

struct Threads {
    committer: JoinHandle<()>,
    watchdog: JoinHandle<()>,
    /// Disconnected when the committer has ended and let go of the image.
    ended: mpsc::Receiver<()>,
}

struct Inner {
    shared: Arc<Shared>,
    archive: ArchiveReader,
    threads: Mutex<Option<Threads>>,
}

/// An open journal; see the module's documentation.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

impl Journal {
    pub(crate) fn start(shared: Shared, image: Arc<dyn Image>, manifest: Manifest) -> Result<Self, Error> {
        let shared = Arc::new(shared);
        let archive = ArchiveReader::new(Arc::clone(&image), Arc::clone(&shared.bounds));
        let (alive, watched) = mpsc::channel::<()>();
        let (running, ended) = mpsc::channel::<()>();
        let committer = Committer::new(Arc::clone(&shared), image, manifest);
        let committer = spawn("journal", move || {
            let _signals = (alive, running);
            committer.run();
        })?;
        let for_watchdog = Arc::clone(&shared);
        let watchdog = spawn("journal-watchdog", move || watch_rounds(&for_watchdog, &watched))?;
        let threads = Mutex::new(Some(Threads {
            committer,
            watchdog,
            ended,
        }));
        Ok(Self {
            inner: Arc::new(Inner {
                shared,
                archive,
                threads,
            }),
        })
    }

    /// Hands all records over at once, in order, and returns the LSN of the last; for none, that of the last
    /// record appended before.
    ///
    /// It never waits for the disk and never refuses: callers shed work while [`Journal::is_backlogged`]. After
    /// `close` or a fatal failure the records get numbers and are dropped: they never become durable.
    pub fn append(&self, records: &Records) -> Lsn {
        let shared = &self.inner.shared;
        let mut queue = shared.lock_queue();
        if queue.stopped.is_some() {
            return queue.next_lsn() + records.len() as u64 - 1;
        }
        shared
            .backlog_bytes
            .fetch_add(records.encoded_bytes(), Ordering::AcqRel);
        let news = queue.append(records);
        let last = queue.next_lsn() - 1;
        let wake = news && queue.asleep;
        drop(queue);
        if wake {
            shared.wake.notify_one();
        }
        last
    }

    /// The LSN that the next record will get.
    pub fn next_lsn(&self) -> Lsn {
        self.inner.shared.lock_queue().next_lsn()
    }

    /// The position: LSN of the last durable record, 0 for none; a receiver sees every rise or a later one.
    pub fn durable(&self) -> watch::Receiver<Lsn> {
        self.inner.shared.durable.subscribe()
    }

    /// The position now.
    pub fn durable_lsn(&self) -> Lsn {
        self.inner.shared.waiters.durable()
    }

    /// Completes when the record `lsn` is durable, at once if it is; never after a fatal failure, and never for
    /// a record that was not appended before `close`. It waits from the call on, not from the first poll.
    pub fn wait_durable(&self, lsn: Lsn) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.shared.waiters.wait(lsn)
    }

    /// Bytes of records appended and not yet durable.
    pub fn backlog_bytes(&self) -> usize {
        self.inner.shared.backlog_bytes.load(Ordering::Acquire)
    }

    /// Whether more than [`MAX_BACKLOG_BYTES`] wait: callers then shed work.
    pub fn is_backlogged(&self) -> bool {
        self.backlog_bytes() > MAX_BACKLOG_BYTES
    }

    /// Queues a checkpoint, one at a time; [`Journal::checkpoints`] tells when it counts and when it is done.
    ///
    /// A checkpoint fails only as the journal fails: by `Options::on_fatal`. A close cuts it short, and the next
    /// open finds the old one or the new one whole.
    ///
    /// # Errors
    /// [`Error::CheckpointBusy`] while one runs, [`Error::Stopped`] after close or a fatal failure.
    ///
    /// # Panics
    /// If its LSN is not durable (*a checkpoint is the fold of durable records*) or lies below that of the
    /// current one, or if it drops archive items that there are not.
    pub fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), Error> {
        let durable = self.durable_lsn();
        let shared = &self.inner.shared;
        assert!(
            checkpoint.lsn <= durable,
            "checkpoint {} lies above {durable}, the durable end",
            checkpoint.lsn
        );
        let mut busy = None;
        shared.checkpoints.send_if_modified(|status| {
            // Checked here so that a mistake shows at the caller that made it.
            assert!(
                checkpoint.lsn >= status.lsn,
                "checkpoint {} lies below {}",
                checkpoint.lsn,
                status.lsn
            );
            let archive_end = status.archive_end + checkpoint.archive.len() as u64;
            assert!(
                checkpoint.archive_drop_before <= archive_end,
                "the archive ends at {archive_end}"
            );
            busy = status.running;
            status.running = Some(busy.unwrap_or(checkpoint.lsn));
            busy.is_none()
        });
        if let Some(lsn) = busy {
            return Err(Error::CheckpointBusy { lsn });
        }
        let mut queue = shared.lock_queue();
        if let Some(why) = queue.stopped.clone() {
            drop(queue);
            shared.checkpoints.send_modify(|status| status.running = None);
            return Err(Error::Stopped { why });
        }
        queue.checkpoint = Some(checkpoint);
        drop(queue);
        shared.wake.notify_one();
        Ok(())
    }

    /// How far checkpoints are: `lsn` rises when a switch is durable, `running` is `None` when all is done.
    pub fn checkpoints(&self) -> watch::Receiver<CheckpointStatus> {
        self.inner.shared.checkpoints.subscribe()
    }

    /// The archive's reader.
    pub fn archive(&self) -> ArchiveReader {
        self.inner.archive.clone()
    }

    /// Figures since the open.
    pub fn stats(&self) -> Stats {
        let counters = &self.inner.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            forces: read(&counters.forces),
            entries: read(&counters.entries),
            records: read(&counters.records),
            bytes: read(&counters.bytes),
            log_bytes: read(&counters.log_bytes),
        }
    }

    /// Bytes of the entries above the last checkpoint: when to write the next one.
    pub fn log_bytes(&self) -> u64 {
        self.stats().log_bytes
    }

    /// Forces what waits and stops the threads; blocks for that long, at most `Options::force_timeout`.
    ///
    /// The image, and with it the directory's lock, is let go with the last clone of this, [`ArchiveReader`], scan and
    /// replay.
    ///
    /// # Errors
    /// [`Error::CloseTimedOut`]; [`Error::Stopped`] if a fatal failure came first.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.close()
    }
}

impl Inner {
    fn close(&self) -> Result<(), Error> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = threads.take() {
            self.shared.lock_queue().closing = true;
            self.shared.wake.notify_one();
            let timeout = self.shared.force_timeout;
            if running.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
                return Err(Error::CloseTimedOut { timeout });
            }
            // A panic of the committer was told by `on_fatal`.
            let _ = running.committer.join();
            let _ = running.watchdog.join();
        }
        drop(threads);
        match self.shared.failed_why() {
            Some(why) => Err(Error::Stopped { why }),
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the journal did not close cleanly");
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(Error::io("start a thread for", std::path::Path::new(name)))
}
