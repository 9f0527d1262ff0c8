//! The pure part of a ledger for simulations: the same live state, records, replay and checkpoint fold, without a
//! disk, a thread, a clock or randomness.
//!
//! [`SimulatedLedger`] appends to memory, and whoever simulates the disk takes what was appended, decides what of
//! it survives, and recovers another ledger from that. Everything that a ledger decides is the shipped code; what
//! is not here is the journal below it, its second, folded state for outsiders, and the waiting for durability:
//! every call answers with the LSN that must be durable before its result counts (RC1).

use std::ops::Range;
use std::sync::Arc;

use covenant_journal::{Damaged, Envelope, Head};
use covenant_participant::{Branch, Recovered};
use covenant_rules::participant::Identity;
use covenant_rules::{Decision, Floor, Incarnation, Lineage, Lsn, Operator, TransactionId, UnixMillis, Xid};

use crate::accounts::Books;
use crate::entry::Entry;
use crate::live::{Live, Voted};
use crate::log::{Backlog, Log};
use crate::operation::Movements;
use crate::record::{ByHand, Prepared, Record};
use crate::{Error, OpenSpec, Refusal, resource};

/// A record as a simulated disk keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRecord(Kept);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kept {
    Whole(Record),
    Damaged(Damaged),
}

/// What a stored record is, for whoever looks at a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown<'a> {
    /// Which log this is.
    Lineage(Lineage),
    /// One start.
    Incarnation(Incarnation),
    /// PREPARED, with what it moves.
    Prepared(Xid, &'a TransactionId, &'a Movements),
    /// COMMITTED and its effect.
    Committed(Xid, &'a TransactionId),
    /// ABORTED.
    Aborted(Xid),
    /// HEURISTIC_COMMIT or HEURISTIC_ABORT.
    ByHand(Xid, &'a TransactionId, Decision),
    /// FORGOTTEN.
    Forgotten(Xid),
    /// FLOOR.
    Floor(Lineage, Floor),
    /// A record about accounts or positions.
    Other,
    /// Bytes that do not decode.
    Damaged,
}

impl StoredRecord {
    /// What it is.
    #[must_use]
    pub fn shown(&self) -> Shown<'_> {
        match &self.0 {
            Kept::Damaged(_) => Shown::Damaged,
            Kept::Whole(record) => match record {
                Record::Lineage { lineage, .. } => Shown::Lineage(*lineage),
                Record::Incarnation(incarnation) => Shown::Incarnation(*incarnation),
                Record::Prepared(Prepared {
                    xid,
                    transaction_id,
                    movements,
                    ..
                }) => Shown::Prepared(*xid, transaction_id, movements),
                Record::Committed {
                    xid, transaction_id, ..
                } => Shown::Committed(*xid, transaction_id),
                Record::Aborted(xid) => Shown::Aborted(*xid),
                Record::Heuristic(ByHand {
                    xid,
                    transaction_id,
                    commit,
                    ..
                }) => {
                    let decision = if *commit {
                        Decision::Commit
                    } else {
                        Decision::Abort
                    };
                    Shown::ByHand(*xid, transaction_id, decision)
                }
                Record::Forgotten(xid) => Shown::Forgotten(*xid),
                Record::Floor { lineage, floor } => Shown::Floor(*lineage, *floor),
                Record::AccountOpened { .. }
                | Record::AccountClosed(_)
                | Record::Account(..)
                | Record::Position { .. }
                | Record::Quarantined(_) => Shown::Other,
            },
        }
    }

    /// Whether what depends on it waits for its force (section 2).
    #[must_use]
    pub fn is_forced(&self) -> bool {
        match &self.0 {
            Kept::Whole(record) => record.force() == covenant_journal::Force::Now,
            Kept::Damaged(_) => false,
        }
    }

    /// The same record with a payload that does not decode; its head still shows what it is about.
    #[must_use]
    pub fn damaged(&self) -> Self {
        let Kept::Whole(record) = &self.0 else {
            return self.clone();
        };
        let (xid, transaction_id) = record.about();
        let head = Head {
            kind: u8::try_from(i32::from(record.kind())).unwrap_or_default(),
            xid: xid.map(|xid| xid.to_bytes()),
            transaction_id: transaction_id.map(|id| id.as_str().into()),
        };
        Self(Kept::Damaged(Damaged {
            head: Some(head),
            bytes: b"damaged".to_vec(),
            records: 1,
            why: "a simulated disk changed its payload",
        }))
    }

    fn replayed(&self) -> Result<Envelope, Damaged> {
        let record = match &self.0 {
            Kept::Damaged(damaged) => return Err(damaged.clone()),
            Kept::Whole(record) => record,
        };
        let (xid, transaction_id) = record.about();
        let mut payload = Vec::new();
        record.write(&mut payload);
        Ok(Envelope {
            head: Head {
                kind: u8::try_from(i32::from(record.kind())).unwrap_or_default(),
                xid: xid.map(|xid| xid.to_bytes()),
                transaction_id: transaction_id.map(|id| id.as_str().into()),
            },
            payload,
        })
    }
}

/// What a checkpoint left: the fold of the durable records up to its LSN, and the entries that they made.
#[derive(Clone, Default, Debug)]
pub struct Checkpoint {
    /// The last record that is folded into it; 0 without a checkpoint.
    pub lsn: Lsn,
    records: Vec<StoredRecord>,
    entries: Arc<Vec<Vec<u8>>>,
}

impl Checkpoint {
    /// How many records it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Its records.
    pub fn records(&self) -> impl Iterator<Item = &StoredRecord> {
        self.records.iter()
    }
}

struct MemoryLog {
    next: Lsn,
    appended: Vec<StoredRecord>,
    entries: Arc<Vec<Vec<u8>>>,
}

impl Log for MemoryLog {
    fn next_lsn(&self) -> Lsn {
        self.next
    }

    fn note(&self, _: &Record, _: Option<&TransactionId>) {}

    fn append(&mut self, record: &Record) -> Lsn {
        self.appended.push(StoredRecord(Kept::Whole(record.clone())));
        self.next += 1;
        self.next - 1
    }

    fn backlog(&self) -> Option<Backlog> {
        None
    }

    fn archived(&self) -> Range<u64> {
        0..self.entries.len() as u64
    }

    fn entry(&self, index: u64) -> Result<Option<Vec<u8>>, Error> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        Ok(self.entries.get(at).cloned())
    }

    fn entries(&self) -> impl Iterator<Item = Result<(u64, Vec<u8>), Error>> {
        (0..).zip(self.entries.iter().cloned()).map(Ok)
    }
}

/// What a prepare came to (P4, P5, P6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// YES, once this record is durable.
    Yes(Lsn),
    /// READ_ONLY, once this record is durable.
    ReadOnly(Lsn),
    /// NO, at once.
    No(Refusal),
}

/// A ledger on a log in memory. See the module's documentation.
pub struct SimulatedLedger {
    live: Live<MemoryLog>,
    /// The entries that the log's records made since the checkpoint.
    made: Vec<Entry>,
}

impl SimulatedLedger {
    /// Replays a checkpoint and the records above it: the state before this start is appended.
    ///
    /// # Errors
    /// As [`crate::Ledger::open`] for what a log may hold.
    pub fn replay(
        checkpoint: &Checkpoint,
        log: &[StoredRecord],
        floor_tombstones: usize,
    ) -> Result<Self, Error> {
        let memory = MemoryLog {
            next: checkpoint.lsn + log.len() as Lsn + 1,
            appended: Vec::new(),
            entries: Arc::clone(&checkpoint.entries),
        };
        let mut live = Live::new(memory, floor_tombstones);
        live.index_archive()?;
        let mut made = Vec::new();
        for record in &checkpoint.records {
            live.replay(None, &record.replayed())?;
        }
        for (lsn, record) in (checkpoint.lsn + 1..).zip(log) {
            made.extend(live.replay(Some(lsn), &record.replayed())?);
        }
        live.replayed()?;
        Ok(Self { live, made })
    }

    /// Appends this start, and LINEAGE before it on a new log; it counts once the returned LSN is durable.
    ///
    /// # Errors
    /// [`Error::NoLineage`] for a log that is not new and names none.
    pub fn start(
        &mut self,
        new_lineage: Lineage,
        bits: u64,
        at: UnixMillis,
    ) -> Result<(Recovered, Lsn), Error> {
        let lineage = self.live.identify(new_lineage, None, at)?;
        let (incarnation, lsn) = self.live.start(bits)?;
        let identity = Identity { lineage, incarnation };
        Ok((resource::recovered(identity, &self.live.state), lsn))
    }

    /// The checkpoint of a ledger that has replayed what is durable and appended nothing.
    #[must_use]
    pub fn checkpoint(&self, before: &Checkpoint) -> Checkpoint {
        assert!(
            self.live.unfolded.is_empty(),
            "a checkpoint folds durable records only"
        );
        let mut entries = before.entries.to_vec();
        entries.extend(self.made.iter().map(Entry::encode));
        let records = self.live.state.checkpoint();
        Checkpoint {
            lsn: self.live.appended(),
            records: records.map(|record| StoredRecord(Kept::Whole(record))).collect(),
            entries: Arc::new(entries),
        }
    }

    /// What was appended since the last call, in order.
    pub fn take_appended(&mut self) -> Vec<StoredRecord> {
        self.live.unfolded.clear();
        std::mem::take(&mut self.live.log.appended)
    }

    /// P2, P4, P5, P6.
    ///
    /// # Errors
    /// RC4: not known.
    pub fn prepare(&mut self, branch: Branch, at: UnixMillis) -> Result<Prepare, Error> {
        Ok(match self.live.prepare(branch, at)? {
            Voted::Yes(lsn) => Prepare::Yes(lsn),
            Voted::ReadOnly(lsn) => Prepare::ReadOnly(lsn),
            Voted::No(refusal) => Prepare::No(refusal),
        })
    }

    /// P12.
    ///
    /// # Errors
    /// RC4: not known.
    pub fn commit(&mut self, xid: Xid, at: UnixMillis) -> Result<Lsn, Error> {
        self.live.commit(xid, at)
    }

    /// P10.
    ///
    /// # Errors
    /// RC4: not known.
    pub fn abort(&mut self, xid: Xid) -> Result<(), Error> {
        self.live.abort(xid)
    }

    /// P14.
    ///
    /// # Errors
    /// RC4: not known.
    pub fn resolve(&mut self, xid: Xid, what: Decision, by: Operator, at: UnixMillis) -> Result<Lsn, Error> {
        self.live.resolve(xid, what, by, at)
    }

    /// P19.
    ///
    /// # Errors
    /// RC4: not known.
    pub fn forget(&mut self, xid: Xid) -> Result<Lsn, Error> {
        self.live.forget(xid)
    }

    /// Section 6.
    ///
    /// # Errors
    /// [`Error::Record`] if the log does not follow.
    pub fn raise_floor(&mut self, lineage: Lineage, floor: Floor) -> Result<(), Error> {
        self.live.raise_floor(lineage, floor)
    }

    /// Opens an account; it counts once the returned LSN is durable.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn open_account(&mut self, spec: &OpenSpec, at: UnixMillis) -> Result<Option<Lsn>, Error> {
        self.live.open_account(spec, at)
    }

    /// All accounts, with what prepared branches hold on them.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.live.state.books
    }

    /// The prepared branches and what each holds, by attempt.
    pub fn prepared(&self) -> impl Iterator<Item = (Xid, &Movements)> {
        self.live
            .state
            .prepared()
            .map(|branch| (branch.xid, branch.movements))
    }

    /// How many branches the log still knows, tombstones included.
    #[must_use]
    pub fn branches(&self) -> usize {
        self.live.state.branches.len()
    }
}
