//! Finished outcomes: on disk in the journal's archive, found by the caller's id and by attempt.
//!
//! The disk holds what checkpoints wrote; outcomes finished since the last one wait in memory and are in the
//! log. Memory: 16 to 27 bytes an outcome for the two indexes, and [`Waiting`] outcomes whole. An id
//! that no index knows is surely absent: a new transaction never touches the disk.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::mpsc;

use covenant_codec::outcome::{decode_outcome, encode_outcome, summarize_outcome};
use covenant_journal::{ArchiveReader, Error as JournalError, IdIndex};
use covenant_rules::coordinator::Archived;
use covenant_rules::{Outcome, TransactionId, UnixMillis, Xid};

use crate::Error;
use crate::attempts::Attempts;
use crate::damage::{Damage, DamagedItem, shown};

/// How many outcomes one pass of [`OutcomeArchive::expire`] looks at, so that the loop is never held up.
pub(crate) const EXPIRE_SLICE: usize = 256;

/// How many items one batch of the first scan has, and how many batches wait at most.
const SCAN_BATCH: usize = 1_024;
const SCAN_AHEAD: usize = 8;

/// Outcomes finished since the last checkpoint.
type Waiting = VecDeque<Outcome>;

/// What the archive has under a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    Outcome(Outcome),
    Damaged(DamagedItem),
}

/// What a look-up gave: the outcome, and damaged items that may be the one that was looked for.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) damaged: Vec<DamagedItem>,
}

pub(crate) struct OutcomeArchive {
    reader: ArchiveReader,
    ids: IdIndex,
    attempts: Attempts,
    damage: Damage,
    /// Number of the first item that is not expired.
    start: u64,
    /// Number of the first waiting item: what the last finished checkpoint wrote up to.
    written: u64,
    waiting: Waiting,
    /// Items whose time lies below it go.
    expire_before: UnixMillis,
}

impl OutcomeArchive {
    /// Reads the whole archive once and builds its indexes and its summary.
    pub(crate) fn open(reader: ArchiveReader) -> Result<(Self, Archived), Error> {
        let start = reader.start();
        let mut archive = Self {
            ids: IdIndex::new(start),
            attempts: Attempts::default(),
            damage: Damage::default(),
            start,
            written: reader.end(),
            waiting: VecDeque::new(),
            expire_before: 0,
            reader: reader.clone(),
        };
        archive
            .ids
            .reserve(usize::try_from(reader.end() - start).unwrap_or(0));
        let mut archived = Archived::default();
        // Reading and indexing cost about the same; each gets a thread.
        std::thread::scope(|scope| {
            let (batches, read) = mpsc::sync_channel(SCAN_AHEAD);
            scope.spawn(move || scan(&reader, start, &batches));
            for item in read.into_iter().flatten() {
                archive.take_in(item, &mut archived)?;
            }
            Ok((archive, archived))
        })
    }

    /// One item of the first scan. What does not decode is quarantined and indexed by what it shows.
    fn take_in(&mut self, item: Scanned, archived: &mut Archived) -> Result<(), Error> {
        let (index, bytes) = match item {
            Ok(item) => item,
            Err(JournalError::ArchiveDamaged { first, last, why }) => {
                for index in first..=last {
                    self.quarantine(&DamagedItem {
                        index,
                        shows: shown(None, None, None),
                        why: why.to_owned(),
                    })?;
                }
                return Ok(());
            }
            Err(other) => return Err(other.into()),
        };
        match summarize_outcome(&bytes) {
            Ok(summary) => {
                archived.add(summary.retained_by, summary.decided, summary.fence);
                self.index(summary.xid, &summary.transaction_id, index);
                Ok(())
            }
            Err(why) => self.quarantine(&DamagedItem {
                index,
                shows: shown(None, None, None),
                why: why.to_string(),
            }),
        }
    }

    /// An item does not decode: it is noted once, and stays until the items around it expire.
    ///
    /// # Errors
    /// [`Error::TooManyQuarantined`].
    pub(crate) fn quarantine(&mut self, damaged: &DamagedItem) -> Result<(), Error> {
        self.damage.insert(damaged)
    }

    /// What does not decode.
    pub(crate) fn damage(&self) -> &Damage {
        &self.damage
    }

    fn end(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Number of the first outcome and one above the last, for listings.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        (self.start, self.end())
    }

    /// Takes a finished outcome.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.index(outcome.xid, outcome.transaction_id.as_str(), self.end());
        self.waiting.push_back(outcome);
    }

    fn index(&mut self, xid: Xid, transaction_id: &str, index: u64) {
        self.ids.insert(transaction_id.as_bytes(), index);
        self.attempts.insert(xid, index);
    }

    /// The item with this number.
    pub(crate) fn get(&self, index: u64) -> Result<Option<Item>, Error> {
        self.get_for(index, None, None)
    }

    /// The item with this number, which was looked for by attempt or by id.
    fn get_for(
        &self,
        index: u64,
        xid: Option<Xid>,
        id: Option<&TransactionId>,
    ) -> Result<Option<Item>, Error> {
        if index < self.start {
            return Ok(None);
        }
        if index >= self.written {
            let slot = usize::try_from(index - self.written).unwrap_or(usize::MAX);
            return Ok(self.waiting.get(slot).cloned().map(Item::Outcome));
        }
        let damaged = |bytes: Option<&[u8]>, why: String| {
            let shows = shown(bytes, xid, id);
            Ok(Some(Item::Damaged(DamagedItem { index, shows, why })))
        };
        match self.reader.get(index) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => match decode_outcome(&bytes) {
                Ok(outcome) => Ok(Some(Item::Outcome(outcome))),
                Err(why) => damaged(Some(&bytes), why.to_string()),
            },
            Err(JournalError::ArchiveDamaged { why, .. }) => damaged(None, why.to_owned()),
            Err(other) => Err(other.into()),
        }
    }

    /// The outcome of this id: a COMMIT before an ABORT, the latest before an earlier one (R2).
    ///
    /// Beside an item that does not decode and may be of this id an ABORT is not told.
    pub(crate) fn by_id(&self, id: &TransactionId) -> Result<Found, Error> {
        let mut best: Option<(bool, u64, Outcome)> = None;
        let mut damaged = Vec::new();
        for index in self.ids.candidates(id.as_str().as_bytes()) {
            let outcome = match self.get_for(index, None, Some(id))? {
                Some(Item::Outcome(outcome)) if outcome.transaction_id == *id => outcome,
                Some(Item::Damaged(item)) => {
                    if item.shows.transaction_id.as_ref().is_none_or(|shown| shown == id) {
                        damaged.push(item);
                    }
                    continue;
                }
                Some(Item::Outcome(_)) | None => continue,
            };
            let rank = (outcome.aborted.is_none(), index);
            if best
                .as_ref()
                .is_none_or(|(committed, at, _)| rank > (*committed, *at))
            {
                best = Some((rank.0, rank.1, outcome));
            }
        }
        let best = best.filter(|(committed, ..)| *committed || damaged.is_empty());
        Ok(Found {
            outcome: best.map(|(_, _, outcome)| outcome),
            damaged,
        })
    }

    /// The outcome of this attempt (Q1).
    pub(crate) fn by_xid(&self, xid: Xid) -> Result<Found, Error> {
        let mut found = Found::default();
        if let Some(index) = self.attempts.get(xid, self.start) {
            match self.get_for(index, Some(xid), None)? {
                Some(Item::Outcome(outcome)) => found.outcome = Some(outcome).filter(|o| o.xid == xid),
                Some(Item::Damaged(item)) => found.damaged.push(item),
                None => {}
            }
        }
        Ok(found)
    }

    /// Whether the item of this number is the last one of its attempt: one that a heuristic opened again is archived once
    /// more when that is forgotten.
    pub(crate) fn is_latest(&self, xid: Xid, index: u64) -> bool {
        self.attempts.get(xid, self.start) == Some(index)
    }

    /// Outcomes below this time go, a slice at every call of [`OutcomeArchive::expire`].
    pub(crate) fn expire_before(&mut self, since: UnixMillis) {
        self.expire_before = self.expire_before.max(since);
    }

    /// Drops expired outcomes from the oldest on. Returns whether there may be more.
    ///
    /// They lie nearly in the order of their times; one that is not expired yet keeps the later ones for a
    /// while, and the machine looks at the time itself (R2).
    pub(crate) fn expire(&mut self) -> Result<bool, Error> {
        for _ in 0..EXPIRE_SLICE {
            // One that does not decode has no time to compare: it goes with the first one behind it.
            let next = self.damage.step_over(self.start);
            // Waiting ones are younger than a checkpoint.
            if next >= self.written {
                return Ok(false);
            }
            match self.get(next)? {
                Some(Item::Outcome(outcome)) if outcome.retained_by() < self.expire_before => {
                    self.forget(next, &outcome);
                }
                Some(Item::Damaged(item)) => self.quarantine(&item)?,
                Some(Item::Outcome(_)) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Drops this item and those before it, of which none decodes.
    fn forget(&mut self, index: u64, outcome: &Outcome) {
        for index in self.start..index {
            if let Some(shown) = self.damage.remove(index) {
                if let Some(id) = shown.transaction_id {
                    self.ids.remove(id.as_str().as_bytes(), index);
                }
                if let Some(xid) = shown.xid {
                    self.attempts.remove(xid, index);
                }
            }
        }
        self.ids.remove(outcome.transaction_id.as_str().as_bytes(), index);
        self.attempts.remove(outcome.xid, index);
        self.start = index + 1;
        self.ids.raise_base(self.start);
    }

    /// What a checkpoint has to write: all that waits, and the number below which items go.
    pub(crate) fn checkpoint(&self) -> (Vec<Vec<u8>>, u64) {
        (self.waiting.iter().map(encode_outcome).collect(), self.start)
    }

    /// A checkpoint wrote the items up to this number.
    pub(crate) fn checkpointed(&mut self, end: u64) {
        let written = usize::try_from(end.saturating_sub(self.written)).unwrap_or(usize::MAX);
        self.waiting.drain(..written.min(self.waiting.len()));
        self.written = self.written.max(end);
    }
}

/// One item of the first scan, or a run that is damaged.
type Scanned = Result<(u64, Vec<u8>), JournalError>;

/// Reads the archive in batches until its end, or until nobody reads on.
fn scan(reader: &ArchiveReader, start: u64, batches: &mpsc::SyncSender<Vec<Scanned>>) {
    let mut items = reader.scan(start);
    loop {
        let batch: Vec<Scanned> = items.by_ref().take(SCAN_BATCH).collect();
        let last = batch.len() < SCAN_BATCH;
        if batches.send(batch).is_err() || last {
            return;
        }
    }
}
