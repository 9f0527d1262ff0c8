//! Everything that can go wrong when a journal is opened or read, one enum for the crate.
//!
//! Each message names the value, the bound and the way out. A failure of a *running* journal is no
//! `Error`: its result is unknown, so it goes to `Options::on_fatal` and the process ends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::end_mark::LostTail;
use crate::image::ImageError;

/// Why a journal could not be opened, read or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The data directory is something else, for example a file.
    #[error("data directory {} is not a directory; name a directory", path.display())]
    NotADirectory {
        /// The path that was given.
        path: PathBuf,
    },
    /// The directory holds files, and none that says it is a journal's.
    #[error(
        "data directory {} holds {found:?} but no `format` file, so it is not Covenant's; \
         name an empty directory, or restore the missing `format` file from a copy",
        path.display()
    )]
    NotCovenant {
        /// The data directory.
        path: PathBuf,
        /// One of the names found in it.
        found: String,
    },
    /// Another process, or another journal of this process, has the directory.
    #[error(
        "data directory {} is in use by process {holder}; stop that process or name another directory",
        path.display()
    )]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// The process id written in the lock file, or `unknown`.
        holder: String,
    },
    /// A newer version of Covenant wrote the directory.
    #[error(
        "data directory {} has format {found}, this program knows formats up to {supported}; \
         start a newer version of Covenant",
        path.display()
    )]
    NewerFormat {
        /// The data directory.
        path: PathBuf,
        /// The format written in the directory.
        found: u32,
        /// The highest format that this program reads.
        supported: u32,
    },
    /// The directory belongs to a process of another role.
    #[error("data directory {} belongs to a {found}, not to a {expected}; name another directory", path.display())]
    OtherRole {
        /// The data directory.
        path: PathBuf,
        /// The role written in the directory.
        found: String,
        /// The role asked for.
        expected: String,
    },
    /// The `format` file does not decode.
    #[error("{} does not decode ({why}); keep the directory, and restore this file from a copy", path.display())]
    FormatDamaged {
        /// The format file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Pages of the log file stayed in the page cache, so what replay would read may not be on the disk.
    #[error(
        "{pages} pages of {} stayed in the page cache after {attempts} attempts, so it cannot be told whether \
         they are durable; end other programs that have the file open, and name a directory on a disk \
         (tmpfs keeps nothing durable)",
        path.display()
    )]
    StillCached {
        /// The log file.
        path: PathBuf,
        /// Pages still cached at the last attempt.
        pages: u64,
        /// Attempts made.
        attempts: u32,
    },
    /// The file system cannot say whether a page is in the page cache, as a tmpfs cannot.
    #[error(
        "the file system of {} cannot tell whether what is read is on a disk (tmpfs keeps nothing durable); \
         name a directory on a disk",
        path.display()
    )]
    CannotTellCached {
        /// The file that was asked about.
        path: PathBuf,
    },
    /// The data directory lies on a file system that keeps its files in memory, or cannot tell whether it does.
    #[error(
        "data directory {} is not on a disk: its file system keeps files only in memory, or cannot tell whether what \
         is read is on the disk (tmpfs keeps nothing durable); name a directory on a disk",
        path.display()
    )]
    NotOnDisk {
        /// The data directory.
        path: PathBuf,
    },
    /// A value went to `blobs/`, which nothing syncs.
    #[error(
        "{} holds {found:?}: a page outgrew the log file and is not durable; keep the directory, \
         copy it, and restore from a backup",
        path.display()
    )]
    BlobFound {
        /// The `blobs` directory.
        path: PathBuf,
        /// The name found in it.
        found: String,
    },
    /// Opening did not end in time.
    #[error(
        "opening {what} did not end within {timeout:?}: its bytes are probably damaged; keep the directory \
         (nothing was overwritten on purpose), copy it, and restore from a backup"
    )]
    OpenHung {
        /// What was being opened.
        what: String,
        /// The bound, `Options::open_timeout`.
        timeout: Duration,
    },
    /// Opening panicked.
    #[error(
        "opening {what} panicked ({why}): its bytes are probably damaged; keep the directory, copy it, \
         and restore from a backup"
    )]
    OpenPanicked {
        /// What was being opened.
        what: String,
        /// The panic's message.
        why: String,
    },
    /// The store says that its bytes are damaged.
    #[error("{what} is damaged ({why}); keep the directory, copy it, and restore from a backup")]
    Corrupted {
        /// What is damaged.
        what: String,
        /// What the store says of it.
        why: String,
    },
    /// Durable records are missing between two that are there.
    #[error(
        "the log has a gap: expected record {expected}, found record {found}; keep the directory, copy it, \
         and restore from a backup"
    )]
    Gap {
        /// The LSN that should come next.
        expected: u64,
        /// The LSN that comes next.
        found: u64,
    },
    /// Records that were forced are gone from the end of the log; see `Opened::lost_tail`.
    #[error("{0}; start nothing on what is left: keep the directory, copy it, and restore from a backup")]
    TailLost(LostTail),
    /// Records of the current checkpoint are missing.
    #[error(
        "checkpoint {generation} holds {found} of its {expected} records; keep the directory, copy it, \
         and restore from a backup"
    )]
    CheckpointIncomplete {
        /// The checkpoint's generation.
        generation: u64,
        /// Records it should hold.
        expected: u64,
        /// Records found in sequence.
        found: u64,
    },
    /// Archive items are missing or do not decode; the items around them are readable.
    #[error(
        "archive items {first} to {last} are damaged ({why}); keep the directory, and restore them from a backup"
    )]
    ArchiveDamaged {
        /// First damaged index.
        first: u64,
        /// Last damaged index.
        last: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// A checkpoint was asked for while another one runs.
    #[error("the checkpoint at record {lsn} still runs; wait for it before the next")]
    CheckpointBusy {
        /// The LSN of the running checkpoint.
        lsn: u64,
    },
    /// The committer did not stop in time.
    #[error("the journal's committer did not stop within {timeout:?}; end the process")]
    CloseTimedOut {
        /// The bound, `Options::force_timeout`.
        timeout: Duration,
    },
    /// The journal stopped before: it is closed, or a force failed and its result is unknown.
    #[error("the journal has stopped ({why}); start the process again")]
    Stopped {
        /// Why it stopped.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}; check that the path exists and its owner and mode", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The image below refused.
    #[error("cannot read the journal: {0}; keep the directory, copy it, and restore from a backup")]
    Image(#[from] ImageError),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}
