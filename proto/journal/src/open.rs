//! Opening a journal, in the order that section 2 asks for.
//!
//! Lock, sync and drop the log file, look at its end, remove snapshots (`directory`, `tail`), then sled, under a watchdog, because
//! damaged bytes can make it panic or spin for ever; then one walk over everything, which refuses a gap before
//! anything is changed; then the sweep of what a crash left. Records come back by [`Replay`]; which of them make
//! a lineage or an incarnation, and that one must be appended and forced before acting, is the caller's.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::archive::ArchiveReader;
use crate::committer::{Beginning, OnFatal, Probe, Shared, Stage, abort_process};
use crate::directory::{self, StartReport};
use crate::end_mark::LostTail;
use crate::error::Error;
use crate::image::{Image, ImageError};
use crate::journal::Journal;
use crate::replay::{Replay, Survey};
use crate::sled_image::SledImage;
use crate::sweep::Sweep;

/// How to open a journal.
#[derive(Clone)]
pub struct Options {
    /// Who the directory belongs to, for example `coordinator`; another role refuses it.
    pub role: String,
    /// Longest time of one round of write and force; default 30 s.
    pub force_timeout: Duration,
    /// Longest time that sled may take to open and to be walked over once; default 60 s.
    pub open_timeout: Duration,
    /// Called once when the journal cannot go on; default: an error line on the log, then `abort()`.
    pub on_fatal: OnFatal,
    /// A hook for crash tests; default none.
    pub probe: Option<Probe>,
}

impl Options {
    /// The defaults, for this role.
    pub fn new(role: &str) -> Self {
        Self {
            role: role.to_owned(),
            force_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_secs(60),
            on_fatal: Arc::new(abort_process),
            probe: None,
        }
    }
}

/// An opened journal and what it holds.
pub struct Opened {
    /// The handle.
    pub journal: Journal,
    /// Whether it holds no record at all.
    pub created: bool,
    /// The records, to be read before the first append that depends on them.
    pub replay: Replay,
    /// The archive.
    pub archive: ArchiveReader,
    /// What the start did on disk; all zero for an image in memory.
    pub report: StartReport,
    /// The records that were forced here and are gone, if any are known to be.
    ///
    /// Every open says it again, until records are forced: the mark of the log's end is overwritten with their LSN. So
    /// whoever goes on with what is left must first append a record of its own that says so, and wait for it. Who
    /// cannot go on calls [`Opened::refuse_lost_tail`].
    pub lost_tail: Option<LostTail>,
}

impl Opened {
    /// # Errors
    /// [`Error::TailLost`] if records that were forced are gone.
    pub fn refuse_lost_tail(&self) -> Result<(), Error> {
        self.lost_tail.map_or(Ok(()), |lost| Err(Error::TailLost(lost)))
    }
}

impl Journal {
    /// Opens the journal of a data directory, which it makes if there is none.
    ///
    /// After [`Error::OpenHung`] a thread of this process may spin and keep the lock: end the process.
    ///
    /// # Errors
    /// All that [`Error`] says of directories and of damaged bytes.
    pub fn open(path: &Path, options: Options) -> Result<Opened, Error> {
        let directory = directory::prepare(path, &options.role)?;
        let report = directory.report;
        let what = path.display().to_string();
        let (image, survey) = watched(what, &options, move || {
            let (begun, log) = (directory::has_begun(&directory.path), directory.path.clone());
            let image: Arc<dyn Image> = Arc::new(SledImage::open(directory)?);
            let survey = survey_and_sweep(&image)?;
            if begun && survey.last_lsn == 0 && survey.manifest.generation == 0 {
                return Err(Error::Corrupted {
                    what: log.display().to_string(),
                    why: "no record can be read, although records were forced here".to_owned(),
                });
            }
            Ok((image, survey))
        })?;
        start(image, survey, options, report)
    }

    /// Opens the journal that an image holds, for example a `MemoryImage`.
    ///
    /// # Errors
    /// [`Error::Gap`], [`Error::CheckpointIncomplete`], [`Error::Corrupted`], [`Error::Image`], the watchdog's.
    pub fn open_image(image: Arc<dyn Image>, options: Options) -> Result<Opened, Error> {
        let (image, survey) = watched("the image".to_owned(), &options, move || {
            let survey = survey_and_sweep(&image)?;
            Ok((image, survey))
        })?;
        start(image, survey, options, StartReport::default())
    }
}

/// Calls the first probe, then runs `open` on a thread of its own, within the bound.
fn watched<T: Send + 'static>(
    what: String,
    options: &Options,
    open: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    if let Some(probe) = &options.probe {
        probe(Stage::StartSynced, 0, 0);
    }
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new()
        .name("journal-open".to_owned())
        .spawn(move || {
            // The receiver goes only after its timeout, and then nobody needs the result.
            let _ = sender.send(open());
        })
        .map_err(Error::io("start a thread for", Path::new(&what)))?;
    match receiver.recv_timeout(options.open_timeout) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::OpenHung {
            what,
            timeout: options.open_timeout,
        }),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let why = thread.join().err().map_or_else(
                || "without a message".to_owned(),
                |panic| crate::sled_image::panic_message(&*panic),
            );
            Err(Error::OpenPanicked { what, why })
        }
    }
}

fn survey_and_sweep(image: &Arc<dyn Image>) -> Result<Survey, Error> {
    image.verify()?;
    let survey = Survey::of(image)?;
    if sweep(&**image, &survey)? > 0 {
        image.flush()?;
        image.sync()?;
    }
    Ok(survey)
}

/// Removes what the checkpoint left stale before a crash; how many keys.
fn sweep(image: &dyn Image, survey: &Survey) -> Result<usize, ImageError> {
    let mut sweep = Sweep::new(image, &survey.manifest)?;
    let mut keys = 0;
    loop {
        let swept = sweep.step(image)?;
        keys += swept.keys;
        if swept.ended {
            return Ok(keys);
        }
    }
}

fn start(
    image: Arc<dyn Image>,
    survey: Survey,
    options: Options,
    report: StartReport,
) -> Result<Opened, Error> {
    let replay = Replay::new(Arc::clone(&image), &survey, options.probe.clone());
    let lost_tail = LostTail::of(survey.last_lsn, image.noted_end());
    let created = replay.total() == 0 && survey.last_lsn == 0;
    let shared = Shared::new(Beginning {
        last_lsn: survey.last_lsn,
        log_bytes: survey.log_bytes,
        manifest: survey.manifest,
        on_fatal: options.on_fatal,
        probe: options.probe,
        force_timeout: options.force_timeout,
    });
    let journal = Journal::start(shared, image, survey.manifest)?;
    let archive = journal.archive();
    Ok(Opened {
        journal,
        created,
        replay,
        archive,
        report,
        lost_tail,
    })
}
