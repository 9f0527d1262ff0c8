//! What the floor forces its records with: the shipped journal, or a bare file.
//!
//! The bare file is the limit of any log on this disk: a file that is allocated before, one write and one fdatasync for all
//! that waits. Nothing in it can be read back; only sizes and forces are those of a log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use covenant_journal::limits::LAZY_FORCE_MS;
use covenant_journal::{Force, Journal, Options, Records};
use tokio::sync::watch;

use crate::exit::Failure;
use crate::servers::journal_failure;

/// The bytes of the file; when they are written, it begins again at the front.
const FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The most bytes of one write; what waits beyond it comes with the next.
const MAX_WRITE_BYTES: usize = 1024 * 1024;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum LogKind {
    /// The shipped journal.
    Journal,
    /// A bare file.
    File,
}

/// A log of numbered records, from 1.
pub(super) enum ForcedLog {
    Journal(Journal),
    File(Arc<FileLog>),
}

impl ForcedLog {
    /// Opens a new one in this directory; blocks.
    pub(super) fn open(kind: LogKind, directory: &Path) -> Result<Self, Failure> {
        match kind {
            LogKind::Journal => {
                let opened = Journal::open(directory, Options::new("bench"));
                Ok(Self::Journal(
                    opened.map_err(|error| journal_failure(&error))?.journal,
                ))
            }
            LogKind::File => FileLog::open(directory)
                .map(Self::File)
                .map_err(|error| Failure::internal("FLOOR", format!("{}: {error}", directory.display()))),
        }
    }

    /// Hands records over; the number of the last one.
    pub(super) fn append(&self, records: &Records) -> u64 {
        match self {
            Self::Journal(journal) => journal.append(records),
            Self::File(file) => file.append(records),
        }
    }

    /// The number of the last durable record.
    pub(super) fn durable(&self) -> watch::Receiver<u64> {
        match self {
            Self::Journal(journal) => journal.durable(),
            Self::File(file) => file.durable.subscribe(),
        }
    }
}

/// The bare file; a thread writes it until the process ends.
pub(super) struct FileLog {
    waiting: Mutex<Waiting>,
    news: Condvar,
    durable: watch::Sender<u64>,
}

#[derive(Default)]
struct Waiting {
    bytes: usize,
    last: u64,
    is_urgent: bool,
    /// Since when a lazy record waits.
    since: Option<Instant>,
}

impl FileLog {
    fn open(directory: &Path) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(directory)?;
        let file = File::create(directory.join("log"))?;
        let zeros = vec![0; MAX_WRITE_BYTES];
        for offset in (0..FILE_BYTES).step_by(MAX_WRITE_BYTES) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        let log = Arc::new(Self {
            waiting: Mutex::default(),
            news: Condvar::new(),
            durable: watch::Sender::new(0),
        });
        let writer = Arc::clone(&log);
        std::thread::Builder::new()
            .name("bare-file".to_owned())
            .spawn(move || writer.write(&file, &zeros))?;
        Ok(log)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, records: &Records) -> u64 {
        let mut waiting = self.waiting();
        waiting.bytes += records.encoded_bytes();
        waiting.last += records.len() as u64;
        waiting.is_urgent |= records.iter().any(|(_, force)| force == Force::Now);
        waiting.since.get_or_insert_with(Instant::now);
        let last = waiting.last;
        drop(waiting);
        self.news.notify_one();
        last
    }

    /// Waits for what is to be forced: its bytes, and the number of its last record.
    fn take(&self) -> (usize, u64) {
        let lazy = Duration::from_millis(LAZY_FORCE_MS);
        let mut waiting = self.waiting();
        loop {
            let left = waiting.since.map(|since| lazy.saturating_sub(since.elapsed()));
            match left {
                Some(left) if waiting.is_urgent || left.is_zero() => {
                    let taken = (waiting.bytes, waiting.last);
                    let last = waiting.last;
                    *waiting = Waiting {
                        last,
                        ..Waiting::default()
                    };
                    return taken;
                }
                left => {
                    let wait = left.unwrap_or(Duration::from_secs(1));
                    let woken = self.news.wait_timeout(waiting, wait);
                    waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn write(&self, file: &File, bytes: &[u8]) {
        let mut offset = 0;
        loop {
            let (mut left, last) = self.take();
            while left > 0 {
                let now = left.min(MAX_WRITE_BYTES);
                if offset + now as u64 > FILE_BYTES {
                    offset = 0;
                }
                if let Err(error) = file.write_all_at(&bytes[..now], offset) {
                    tracing::error!(%error, "the bare file cannot be written");
                    std::process::abort();
                }
                offset += now as u64;
                left -= now;
            }
            if let Err(error) = file.sync_data() {
                tracing::error!(%error, "the bare file cannot be forced");
                std::process::abort();
            }
            self.durable.send_replace(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_journal::HeadRef;

    fn records(force: Force) -> Records {
        let head = HeadRef {
            kind: 1,
            xid: None,
            transaction_id: None,
        };
        let mut records = Records::new();
        records.push(head, force, &[1; 100]);
        records.push(head, force, &[1; 100]);
        records
    }

    #[tokio::test]
    async fn both_logs_number_records_and_tell_when_they_are_durable() {
        for kind in [LogKind::Journal, LogKind::File] {
            let directory = crate::place::make("covenant-test-").unwrap();
            let log = ForcedLog::open(kind, &directory.path().join("log")).unwrap();
            let mut durable = log.durable();
            for (force, last) in [(Force::Now, 2), (Force::Lazy, 4)] {
                assert_eq!(log.append(&records(force)), last);
                durable.wait_for(|durable| *durable == last).await.unwrap();
            }
        }
    }
}
