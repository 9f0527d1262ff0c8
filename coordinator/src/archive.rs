//! Finished outcomes: on disk in the journal's archive, found by the caller's id and by attempt.
//!
//! The disk holds what checkpoints wrote; outcomes finished since the last one wait in memory and are in the
//! log. Memory: 16 to 27 bytes an outcome for the two indexes, and [`Waiting`] outcomes whole. An id
//! that no index knows is surely absent: a new transaction never touches the disk.

use std::collections::VecDeque;
use std::sync::mpsc;

use covenant_codec::outcome::{decode_outcome, encode_outcome, summarize_outcome};
use covenant_journal::{ArchiveReader, IdIndex};
use covenant_rules::coordinator::Archived;
use covenant_rules::{Outcome, TransactionId, UnixMillis, Xid};

use crate::Error;
use crate::attempts::Attempts;

/// How many outcomes one pass of [`OutcomeArchive::expire`] looks at, so that the loop is never held up.
pub(crate) const EXPIRE_SLICE: usize = 256;

/// How many items one batch of the first scan has, and how many batches wait at most.
const SCAN_BATCH: usize = 1_024;
const SCAN_AHEAD: usize = 8;

/// Outcomes finished since the last checkpoint.
type Waiting = VecDeque<Outcome>;

pub(crate) struct OutcomeArchive {
    reader: ArchiveReader,
    ids: IdIndex,
    attempts: Attempts,
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
            for batch in read {
                for (index, bytes) in batch? {
                    let summary =
                        summarize_outcome(&bytes).map_err(|why| Error::ArchiveDamaged { index, why })?;
                    archived.add(summary.retained_by, summary.decided, summary.fence);
                    archive.index(summary.xid, &summary.transaction_id, index);
                }
            }
            Ok((archive, archived))
        })
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

    /// The outcome with this number.
    pub(crate) fn get(&self, index: u64) -> Result<Option<Outcome>, Error> {
        if index < self.start {
            return Ok(None);
        }
        if index >= self.written {
            let slot = usize::try_from(index - self.written).unwrap_or(usize::MAX);
            return Ok(self.waiting.get(slot).cloned());
        }
        let Some(bytes) = self.reader.get(index)? else {
            return Ok(None);
        };
        decode_outcome(&bytes)
            .map(Some)
            .map_err(|why| Error::ArchiveDamaged { index, why })
    }

    /// The outcome of this id: a COMMIT before an ABORT, the latest before an earlier one (R2).
    pub(crate) fn by_id(&self, id: &TransactionId) -> Result<Option<Outcome>, Error> {
        let mut best: Option<(bool, u64, Outcome)> = None;
        for index in self.ids.candidates(id.as_str().as_bytes()) {
            let Some(outcome) = self.get(index)?.filter(|outcome| outcome.transaction_id == *id) else {
                continue;
            };
            let rank = (outcome.aborted.is_none(), index);
            if best
                .as_ref()
                .is_none_or(|(committed, at, _)| rank > (*committed, *at))
            {
                best = Some((rank.0, rank.1, outcome));
            }
        }
        Ok(best.map(|(_, _, outcome)| outcome))
    }

    /// The outcome of this attempt (Q1).
    pub(crate) fn by_xid(&self, xid: Xid) -> Result<Option<Outcome>, Error> {
        let Some(index) = self.attempts.get(xid, self.start) else {
            return Ok(None);
        };
        Ok(self.get(index)?.filter(|outcome| outcome.xid == xid))
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
            // Waiting ones are younger than a checkpoint.
            if self.start >= self.written {
                return Ok(false);
            }
            let Some(outcome) = self.get(self.start)? else {
                return Ok(false);
            };
            if outcome.retained_by() >= self.expire_before {
                return Ok(false);
            }
            self.forget(&outcome);
        }
        Ok(true)
    }

    fn forget(&mut self, outcome: &Outcome) {
        self.ids
            .remove(outcome.transaction_id.as_str().as_bytes(), self.start);
        self.attempts.remove(outcome.xid, self.start);
        self.start += 1;
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

/// Items as the archive numbers them.
type Batch = Result<Vec<(u64, Vec<u8>)>, covenant_journal::Error>;

/// Reads the archive in batches until its end, an error, or until nobody reads on.
fn scan(reader: &ArchiveReader, start: u64, batches: &mpsc::SyncSender<Batch>) {
    let mut items = reader.scan(start);
    loop {
        let batch: Batch = items.by_ref().take(SCAN_BATCH).collect();
        let last = batch.as_ref().map_or(true, |batch| batch.len() < SCAN_BATCH);
        if batches.send(batch).is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use covenant_journal::{Checkpoint, Journal, MemoryImage, Options, Records};
    use covenant_rules::{AbortReason, Fingerprint, Incarnation, Lineage};

    fn outcome(seq: u64, id: &str, decided: u64, committed: bool) -> Outcome {
        Outcome {
            xid: Xid {
                lineage: Lineage(1),
                incarnation: Incarnation { counter: 1, bits: 5 },
                seq,
            },
            transaction_id: TransactionId::new(id).unwrap(),
            fingerprint: Some(Fingerprint([7; 16])),
            created: decided,
            decided,
            aborted: (!committed).then_some(AbortReason::Deadline),
            branches: Vec::new(),
            heuristic: None,
        }
    }

    fn open(image: &MemoryImage) -> (Journal, OutcomeArchive, Archived) {
        let opened = Journal::open_image(Arc::new(image.clone()), Options::new("test")).unwrap();
        let (archive, archived) = OutcomeArchive::open(opened.archive).unwrap();
        (opened.journal, archive, archived)
    }

    /// Writes what waits, as the loop does.
    async fn checkpoint(journal: &Journal, archive: &mut OutcomeArchive) {
        let (items, archive_drop_before) = archive.checkpoint();
        let lsn = journal.durable_lsn();
        let mut checkpoints = journal.checkpoints();
        let checkpoint = Checkpoint {
            lsn,
            records: Records::new(),
            archive: items,
            archive_drop_before,
        };
        journal.checkpoint(checkpoint).unwrap();
        let status = *checkpoints
            .wait_for(|status| status.running.is_none())
            .await
            .unwrap();
        archive.checkpointed(status.archive_end);
    }

    fn id(text: &str) -> TransactionId {
        TransactionId::new(text).unwrap()
    }

    #[tokio::test]
    async fn an_outcome_is_found_before_and_after_its_checkpoint_and_after_a_restart() {
        let image = MemoryImage::new();
        let (journal, mut archive, _) = open(&image);
        for seq in 1..=300 {
            archive.add(outcome(seq, &format!("T{seq}"), 1_000 * seq, seq % 3 != 0));
        }
        let check = |archive: &OutcomeArchive| {
            for seq in [1, 2, 3, 150, 299, 300] {
                let by_id = archive.by_id(&id(&format!("T{seq}"))).unwrap().unwrap();
                assert_eq!(by_id, outcome(seq, &format!("T{seq}"), 1_000 * seq, seq % 3 != 0));
                assert_eq!(archive.by_xid(by_id.xid).unwrap(), Some(by_id));
            }
            assert_eq!(archive.by_id(&id("T301")).unwrap(), None);
            assert_eq!(archive.by_xid(outcome(301, "x", 0, true).xid).unwrap(), None);
        };
        check(&archive);
        checkpoint(&journal, &mut archive).await;
        assert!(archive.waiting.is_empty());
        check(&archive);
        drop((journal, archive));
        let (_journal, archive, archived) = open(&image);
        check(&archive);
        assert_eq!(archived.last_decided, 300_000);
        assert_eq!(archived.seconds.values().map(|second| second.0).sum::<u32>(), 300);
    }

    #[tokio::test]
    async fn a_commit_stands_before_an_abort_of_the_same_id() {
        let (_journal, mut archive, _) = open(&MemoryImage::new());
        archive.add(outcome(2, "T", 5, true));
        archive.add(outcome(1, "T", 6, false));
        assert_eq!(archive.by_id(&id("T")).unwrap().unwrap().xid.seq, 2);
        assert_eq!(
            archive
                .by_xid(outcome(1, "T", 6, false).xid)
                .unwrap()
                .unwrap()
                .aborted,
            Some(AbortReason::Deadline)
        );
    }

    #[tokio::test]
    async fn expired_outcomes_go_in_slices_and_the_rest_stays() {
        let (journal, mut archive, _) = open(&MemoryImage::new());
        let count = 3 * EXPIRE_SLICE as u64;
        for seq in 1..=count {
            archive.add(outcome(seq, &format!("T{seq}"), seq, true));
        }
        checkpoint(&journal, &mut archive).await;
        archive.expire_before(count - 1);
        let mut rounds = 1;
        while archive.expire().unwrap() {
            rounds += 1;
        }
        assert_eq!(rounds, 3);
        assert_eq!(archive.bounds(), (count - 2, count));
        assert_eq!(archive.ids.len(), 2);
        assert_eq!(archive.by_id(&id("T1")).unwrap(), None);
        for seq in [count - 1, count] {
            assert_eq!(
                archive.by_id(&id(&format!("T{seq}"))).unwrap().unwrap().xid.seq,
                seq
            );
            assert_eq!(
                archive
                    .by_xid(outcome(seq, "T", 0, true).xid)
                    .unwrap()
                    .unwrap()
                    .xid
                    .seq,
                seq
            );
        }
        checkpoint(&journal, &mut archive).await;
        assert_eq!(journal.archive().start(), count - 2);
    }
}
