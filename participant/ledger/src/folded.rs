//! The folded side: the same state over durable records only, for outsiders and for checkpoints.
//!
//! It lags behind the live side by what is not durable yet, so nothing it shows can be lost by a crash
//! (section 4), and a checkpoint taken from it is never a fold of the live machine (section 2). Entries since
//! the last checkpoint wait here, encoded, until the next one moves them to the archive.

use std::collections::VecDeque;

use covenant_journal::{ArchiveReader, Checkpoint, Records};
use covenant_rules::Lsn;

use crate::account::AccountName;
use crate::entry::Entry;
use crate::error::Error;
use crate::record::Record;
use crate::state::{Source, State};

/// The durable state and the entries that the archive does not have yet.
pub(crate) struct Folded {
    pub(crate) state: State,
    /// The last record taken.
    pub(crate) lsn: Lsn,
    archive: ArchiveReader,
    /// The number of the first entry of `waiting`.
    first: u64,
    waiting: VecDeque<Vec<u8>>,
}

impl Folded {
    /// The state that replay left, with the entries that it made.
    pub(crate) fn new(state: State, lsn: Lsn, archive: ArchiveReader, waiting: VecDeque<Vec<u8>>) -> Self {
        let first = archive.end();
        assert!(
            first + waiting.len() as u64 == state.entries,
            "the archive ends at {first} and {} entries wait, but there are {}",
            waiting.len(),
            state.entries
        );
        Self {
            state,
            lsn,
            archive,
            first,
            waiting,
        }
    }

    /// Takes the next durable record.
    pub(crate) fn take(&mut self, lsn: Lsn, record: &Record) -> Result<(), Error> {
        assert!(lsn == self.lsn + 1, "record {lsn} does not follow {}", self.lsn);
        let entry = self
            .state
            .apply(record, Source::Log)
            .map_err(|inconsistent| Error::Record {
                lsn: Some(lsn),
                why: inconsistent.0,
            })?;
        self.lsn = lsn;
        if let Some(entry) = entry {
            self.waiting.push_back(entry.encode());
        }
        while self.first < self.archive.end() && self.waiting.pop_front().is_some() {
            self.first += 1;
        }
        Ok(())
    }

    /// The fold, as a checkpoint; no other may be running.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let mut records = Records::new();
        for record in self.state.checkpoint() {
            record.push(&mut records);
        }
        let archived = usize::try_from(self.archive.end() - self.first).unwrap_or(usize::MAX);
        let archive = self.waiting.iter().skip(archived).cloned().collect();
        Checkpoint {
            lsn: self.lsn,
            records,
            archive,
            archive_drop_before: self.archive.start(),
        }
    }

    /// The entry with that number.
    pub(crate) fn entry(&self, index: u64) -> Result<Option<Entry>, Error> {
        let item = match index.checked_sub(self.first) {
            Some(at) => self
                .waiting
                .get(usize::try_from(at).unwrap_or(usize::MAX))
                .cloned(),
            None => self.archive.get(index)?,
        };
        let entry = item.map(|item| Entry::decode(&item)).transpose();
        entry.map_err(|why| Error::Entry { index, why })
    }

    /// At most `limit` entries of an account, newest first, from the one numbered `from` or from its newest; and
    /// the number of the one that follows.
    pub(crate) fn entries(
        &self,
        account: &AccountName,
        from: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<u64>), Error> {
        let held = self
            .state
            .books
            .get(account.as_str())
            .ok_or_else(|| Error::NoAccount(account.clone()))?;
        let mut next = from.or(held.last_entry);
        let mut entries = Vec::new();
        while let Some(index) = next.filter(|_| entries.len() < limit) {
            let no_such_place = || Error::NoSuchPlace {
                account: account.clone(),
                index,
            };
            let entry = self.entry(index)?.ok_or_else(no_such_place)?;
            next = entry.line(account.as_str()).ok_or_else(no_such_place)?.previous;
            entries.push(entry);
        }
        Ok((entries, next))
    }
}
