//! A ledger on a journal: open it, change it, read what is durable.
//!
//! Two states stand side by side. The *live* one has taken everything that was appended: new work is validated
//! against it and holds are placed in it. The *folded* one has taken only what is durable: every read of an
//! outsider and every checkpoint comes from it. A change is one record, so the effect of a branch, its entry and
//! COMMITTED are one atomic unit. Wall time is stored for display and decides nothing.
//!
//! Opening replays the checkpoint and the records above it, refuses what cannot be told (section 2), appends this
//! start's INCARNATION and returns when that is durable: holds are back before anything else can happen.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use covenant_fault::CrashPlan;
use covenant_journal::{Image, Journal, Opened, Options as JournalOptions, Replay, Replayed, Stats};
use covenant_rules::{Incarnation, Lineage, Lsn, Name, UnixMillis};

use crate::crash::Armed;
use crate::error::Error;
use crate::folded::Folded;
use crate::live::{FLOOR_TOMBSTONES, Live};
use crate::log::JournalLog;
use crate::record::Record;

/// Records since the last checkpoint after which the next one is written.
pub const CHECKPOINT_RECORDS: u64 = 50_000;
/// Bytes of log since the last checkpoint after which the next one is written: 64 MiB.
pub const CHECKPOINT_BYTES: u64 = 64 * 1024 * 1024;
/// Appended records that wait for the folded side before it is brought up to what is durable.
const FOLD_RECORDS: usize = 256;
/// The role in the data directory's format file.
const ROLE: &str = "ledger";

/// Where wall times come from; they are stored for display.
pub type Clock = Arc<dyn Fn() -> UnixMillis + Send + Sync>;

/// How to open a ledger.
#[derive(Clone)]
pub struct Options {
    /// The name under which the ledger joins: the first one that a directory is opened with stays its own, and another
    /// one is refused. `None`, the default, asks for none.
    pub name: Option<Name>,
    /// Crash points of the resource; empty by default.
    pub crash: CrashPlan,
    /// Wall time; the system's by default.
    pub clock: Clock,
    /// Records after which a checkpoint is written; [`CHECKPOINT_RECORDS`] by default, at least 1.
    pub checkpoint_records: u64,
    /// The journal's own; its probe is replaced if `crash` is not empty.
    pub journal: JournalOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            crash: CrashPlan::default(),
            clock: Arc::new(system_time),
            checkpoint_records: CHECKPOINT_RECORDS,
            journal: JournalOptions::new(ROLE),
        }
    }
}

fn system_time() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::try_from(since.as_millis()).unwrap_or(UnixMillis::MAX)
}

/// An open ledger; clones are cheap and share it.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) lineage: Lineage,
    pub(crate) incarnation: Incarnation,
    journal: Journal,
    clock: Clock,
    checkpoint_records: u64,
    live: Mutex<Live>,
    folded: Mutex<Folded>,
    checkpoint_thread: Mutex<Option<JoinHandle<()>>>,
}

impl Ledger {
    /// Opens the ledger of a data directory, which it makes if there is none.
    ///
    /// # Errors
    /// What the journal says of directories, of damaged bytes and of a lost tail; [`Error::Record`], [`Error::Unreadable`],
    /// [`Error::NoLineage`] and [`Error::Entry`] for a log that is damaged where it counts; [`Error::OtherName`].
    pub async fn open(directory: &Path, options: Options) -> Result<Self, Error> {
        let directory = directory.to_owned();
        Self::open_with(options, move |options| Journal::open(&directory, options)).await
    }

    /// Opens the ledger that an image holds, for example a `MemoryImage`.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub async fn open_image(image: Arc<dyn Image>, options: Options) -> Result<Self, Error> {
        Self::open_with(options, move |options| Journal::open_image(image, options)).await
    }

    async fn open_with(
        options: Options,
        open: impl FnOnce(JournalOptions) -> Result<Opened, covenant_journal::Error> + Send + 'static,
    ) -> Result<Self, Error> {
        // Opening blocks on the disk; the thread ends with the process if the open hangs.
        let opening = tokio::task::spawn_blocking(move || Inner::open(options, open));
        let (inner, start) = opening.await.map_err(|_| Error::OpenEnded)??;
        inner.wait_durable(start).await;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Which log this is.
    #[must_use]
    pub fn lineage(&self) -> Lineage {
        self.inner.lineage
    }

    /// What was written to the log since the open.
    #[must_use]
    pub fn log_stats(&self) -> Stats {
        self.inner.journal.stats()
    }

    /// Which start of it this is.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// Queues a checkpoint of what is durable; whether it did, which it does not while another one runs.
    ///
    /// Ledgers write checkpoints by themselves: this is for tests and for a start that should be short.
    ///
    /// # Errors
    /// What the journal says after it stopped; [`Error::Record`].
    pub fn checkpoint(&self) -> Result<bool, Error> {
        let mut folded = self.inner.folded()?;
        self.inner.checkpoint(&mut folded)
    }

    /// The journal below, for its figures.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }

    /// Forces what waits and lets go of the directory; blocks for that long. Nothing may be called after it.
    ///
    /// # Errors
    /// What the journal says.
    pub fn close(&self) -> Result<(), Error> {
        let thread = lock(&self.inner.checkpoint_thread).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::warn!("the thread that wrote a checkpoint panicked");
        }
        Ok(self.inner.journal.close()?)
    }
}

/// # Panics
/// If a change panicked before under this lock: what it guards cannot be trusted any more.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|_| panicked_before())
}

fn panicked_before() -> ! {
    panic!("a change of the ledger panicked before; start the process again");
}

impl Inner {
    fn open(
        options: Options,
        open: impl FnOnce(JournalOptions) -> Result<Opened, covenant_journal::Error>,
    ) -> Result<(Self, Lsn), Error> {
        let armed = Armed::new(options.crash);
        let mut journal_options = options.journal;
        if let Some(armed) = &armed {
            journal_options.probe = Some(armed.probe());
        }
        let opened = open(journal_options)?;
        // The books would go on without effects that the coordinator was told are durable.
        opened.refuse_lost_tail()?;
        let Opened {
            journal,
            replay,
            archive,
            ..
        } = opened;
        let log = JournalLog::new(journal.clone(), archive.clone(), armed);
        let mut live = Live::new(log, FLOOR_TOMBSTONES);
        live.index_archive()?;
        let waiting = replay_into(&mut live, replay)?;
        let replayed = live.appended();
        let now = (options.clock)();
        let folded = Folded::new(live.state.clone(), replayed, archive, waiting);
        let new = Lineage(uuid::Uuid::new_v4().as_u128());
        let lineage = live.identify(new, options.name, now)?;
        let bits = getrandom::u64().map_err(Error::Random)?;
        let (incarnation, start) = live.start(bits)?;
        let inner = Self {
            lineage,
            incarnation,
            journal,
            clock: options.clock,
            checkpoint_records: options.checkpoint_records.max(1),
            live: Mutex::new(live),
            folded: Mutex::new(folded),
            checkpoint_thread: Mutex::new(None),
        };
        Ok((inner, start))
    }

    pub(crate) fn now(&self) -> UnixMillis {
        (self.clock)()
    }

    /// Completes when the record is durable; reads that begin after it see it.
    pub(crate) async fn wait_durable(&self, lsn: Lsn) {
        self.journal.wait_durable(lsn).await;
    }

    /// Works on the live state, under its lock, and then brings the folded side up if much waits for it.
    pub(crate) fn change<T>(self: &Arc<Self>, work: impl FnOnce(&mut Live) -> T) -> T {
        let (result, waiting) = {
            let mut live = lock(&self.live);
            let result = work(&mut live);
            (result, live.unfolded.len())
        };
        if waiting >= FOLD_RECORDS {
            self.fold_if_free();
        }
        result
    }

    /// The folded side with everything that is durable.
    pub(crate) fn folded(self: &Arc<Self>) -> Result<MutexGuard<'_, Folded>, Error> {
        let mut folded = lock(&self.folded);
        self.fold(&mut folded)?;
        self.start_checkpoint_if_due(&folded);
        Ok(folded)
    }

    /// The lock of the folded side is always taken before the live side's.
    fn fold(&self, folded: &mut Folded) -> Result<(), Error> {
        let durable = self.journal.durable_lsn();
        let ready: Vec<(Lsn, Record)> = {
            let mut live = lock(&self.live);
            let count = live.unfolded.partition_point(|(lsn, _)| *lsn <= durable);
            live.unfolded.drain(..count).collect()
        };
        for (lsn, record) in &ready {
            folded.take(*lsn, record)?;
        }
        Ok(())
    }

    /// Somebody who reads or writes a checkpoint folds as well: then there is nothing to do here.
    fn fold_if_free(self: &Arc<Self>) {
        let mut folded = match self.folded.try_lock() {
            Ok(folded) => folded,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(_)) => panicked_before(),
        };
        if let Err(error) = self.fold(&mut folded) {
            // The live state took the same records: going on would serve what the log does not say.
            panic!("the durable records do not fold: {error}");
        }
        self.start_checkpoint_if_due(&folded);
    }

    /// Builds a checkpoint on a thread of its own: encoding all accounts would hold up the callers.
    fn start_checkpoint_if_due(self: &Arc<Self>, folded: &Folded) {
        let status = *self.journal.checkpoints().borrow();
        let due = folded.lsn >= status.lsn + self.checkpoint_records
            || (folded.lsn > status.lsn && self.journal.log_bytes() >= CHECKPOINT_BYTES);
        if !due || status.running.is_some() {
            return;
        }
        let mut running = lock(&self.checkpoint_thread);
        if running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let inner = Arc::clone(self);
        let write = move || {
            let queued = inner
                .folded()
                .and_then(|mut folded| inner.checkpoint(&mut folded));
            if let Err(error) = queued {
                tracing::warn!(%error, "no checkpoint was written; the log stays as it is");
            }
        };
        match thread::Builder::new()
            .name("ledger-checkpoint".to_owned())
            .spawn(write)
        {
            Ok(thread) => *running = Some(thread),
            Err(error) => tracing::warn!(%error, "no thread for a checkpoint; the log stays as it is"),
        }
    }

    fn checkpoint(&self, folded: &mut Folded) -> Result<bool, Error> {
        let status = *self.journal.checkpoints().borrow();
        if status.running.is_some() || folded.lsn > self.journal.durable_lsn() || folded.lsn == status.lsn {
            return Ok(false);
        }
        match self.journal.checkpoint(folded.checkpoint()) {
            Ok(()) => Ok(true),
            Err(covenant_journal::Error::CheckpointBusy { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes every record of the replay into the live state; the entries that they made.
fn replay_into(live: &mut Live, replay: Replay) -> Result<VecDeque<Vec<u8>>, Error> {
    let mut waiting = VecDeque::new();
    for replayed in replay {
        let Replayed { lsns, record } = replayed?;
        let lsn = lsns.as_ref().map(|lsns| *lsns.start());
        let entry = live.replay(lsn, &record)?;
        waiting.extend(entry.map(|entry| entry.encode()));
    }
    live.replayed()?;
    for quarantined in &live.state.quarantined {
        let xid = quarantined.xid.map(|xid| xid.to_string());
        tracing::warn!(
            lsn = quarantined.lsn,
            xid,
            why = &*quarantined.why,
            "a damaged record is quarantined"
        );
    }
    Ok(waiting)
}
