//! What the live side needs of a log: to append, and the entries that checkpoints took out of it.
//!
//! The ledger's log is the journal; a simulation brings its own. A log numbers its records without gaps and hands
//! an appended record back never: what is durable is the business of whoever owns the log.

use std::ops::Range;
use std::sync::Arc;

use covenant_journal::limits::MAX_BACKLOG_BYTES;
use covenant_journal::{ArchiveReader, Journal, Records};
use covenant_rules::{Lsn, TransactionId};

use crate::crash::Armed;
use crate::error::Error;
use crate::record::Record;

/// More waits to be forced than may.
pub(crate) struct Backlog {
    /// What waits, in bytes.
    pub(crate) waiting: usize,
    /// The bound, in bytes.
    pub(crate) bound: usize,
}

/// A log that the live side appends to.
pub(crate) trait Log {
    /// The LSN of the next record.
    fn next_lsn(&self) -> Lsn;

    /// Hears of a record, and whose it is, before it is applied and appended.
    fn note(&self, record: &Record, of_branch: Option<&TransactionId>);

    /// Appends, and says as what.
    fn append(&mut self, record: &Record) -> Lsn;

    /// Whether too much waits to be forced.
    fn backlog(&self) -> Option<Backlog>;

    /// The numbers of the archived entries.
    fn archived(&self) -> Range<u64>;

    /// One archived entry, encoded; `None` if it is not there.
    fn entry(&self, index: u64) -> Result<Option<Vec<u8>>, Error>;

    /// All archived entries with their numbers, encoded.
    fn entries(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>>;
}

/// The journal as the log.
pub(crate) struct JournalLog {
    journal: Journal,
    archive: ArchiveReader,
    armed: Option<Arc<Armed>>,
    buffer: Records,
}

impl JournalLog {
    pub(crate) fn new(journal: Journal, archive: ArchiveReader, armed: Option<Arc<Armed>>) -> Self {
        Self {
            journal,
            archive,
            armed,
            buffer: Records::new(),
        }
    }
}

impl Log for JournalLog {
    fn next_lsn(&self) -> Lsn {
        self.journal.next_lsn()
    }

    fn note(&self, record: &Record, of_branch: Option<&TransactionId>) {
        if let Some(armed) = &self.armed {
            let (_, transaction_id) = record.about();
            let whose = transaction_id.or(of_branch).cloned();
            armed.note(self.next_lsn(), record.kind(), whose);
        }
    }

    fn append(&mut self, record: &Record) -> Lsn {
        self.buffer.clear();
        record.push(&mut self.buffer);
        self.journal.append(&self.buffer)
    }

    fn backlog(&self) -> Option<Backlog> {
        self.journal.is_backlogged().then(|| Backlog {
            waiting: self.journal.backlog_bytes(),
            bound: MAX_BACKLOG_BYTES,
        })
    }

    fn archived(&self) -> Range<u64> {
        self.archive.start()..self.archive.end()
    }

    fn entry(&self, index: u64) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.archive.get(index)?)
    }

    fn entries(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
        let items = self.archive.scan(self.archive.start());
        items.map(|item| item.map_err(Error::from))
    }
}
