//! The live side: what validation and holds see, ahead of what is durable.
//!
//! In a ledger everything here happens under one lock, which is never held during a force: validate, change the state, append. So
//! append order is the order of changes of state (section 2). Each appended record also waits here for the folded
//! side, which takes it once it is durable.
//!
//! *Once* (P2): the transaction id of every effect stands in an index over all entries, for as long as
//! entries are kept, which is for ever. It costs 10 to 21 bytes of memory per committed branch, and the ids of the
//! entries since the last checkpoint beside it; an id that is not there never touches the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use covenant_codec::MAX_OPERATION_BYTES;
use covenant_journal::{Damaged, Envelope, IdIndex};
use covenant_participant::Branch as Asked;
use covenant_rules::{
    Decision, Floor, Incarnation, Lineage, Lsn, Name, Operator, TransactionId, UnixMillis, Xid,
};

use crate::account::{AccountName, OpenSpec};
use crate::branch::{Branch, Phase};
use crate::entry::Entry;
use crate::error::Error;
use crate::log::{Backlog, JournalLog, Log};
use crate::operation::Movements;
use crate::record::{ByHand, Prepared, Record};
use crate::refusal::Refusal;
use crate::state::{Inconsistent, Source, State};
use crate::wire;

/// Tombstones after which a floor is recorded: a record for every frame would be too many.
pub(crate) const FLOOR_TOMBSTONES: usize = 256;

/// A vote, and the record that must be durable before it leaves.
#[derive(Debug)]
pub(crate) enum Voted {
    Yes(Lsn),
    ReadOnly(Lsn),
    No(Refusal),
}

/// The effects whose entries may not be in the archive yet.
#[derive(Default)]
struct Recent {
    /// The number of the first entry of `causes`.
    first: u64,
    causes: VecDeque<Option<(Xid, TransactionId)>>,
}

/// The live state and what leads from it to the log.
pub(crate) struct Live<L = JournalLog> {
    pub(crate) state: State,
    /// Appended records that the folded side has not taken, in order.
    pub(crate) unfolded: VecDeque<(Lsn, Record)>,
    pub(crate) log: L,
    index: IdIndex,
    recent: Recent,
    /// The LSN of the last record appended.
    appended: Lsn,
    /// Tombstones made since a floor was recorded, and those that replay found.
    tombstones: usize,
    /// How many of them make a floor worth a record.
    floor_tombstones: usize,
}

impl<L: Log> Live<L> {
    /// Over an archive whose entries are not indexed yet, and a state before its first record.
    pub(crate) fn new(log: L, floor_tombstones: usize) -> Self {
        let archived = log.archived();
        Self {
            state: State::new(archived.end),
            unfolded: VecDeque::new(),
            appended: log.next_lsn() - 1,
            tombstones: 0,
            floor_tombstones,
            index: IdIndex::new(archived.start),
            recent: Recent {
                first: archived.end,
                causes: VecDeque::new(),
            },
            log,
        }
    }

    /// Adds the entries of the archive to the index.
    pub(crate) fn index_archive(&mut self) -> Result<(), Error> {
        let archived = self.log.archived();
        let items = archived.end - archived.start;
        self.index.reserve(usize::try_from(items).unwrap_or(usize::MAX));
        for item in self.log.entries() {
            let (index, item) = item?;
            let id = Entry::decode_transaction_id(&item).map_err(|why| Error::Entry { index, why })?;
            if !id.is_empty() {
                self.index.insert(id.as_bytes(), index);
            }
        }
        Ok(())
    }

    /// Takes one record of a replay, from the checkpoint if it has no LSN; the entry that it made.
    pub(crate) fn replay(
        &mut self,
        lsn: Option<Lsn>,
        record: &Result<Envelope, Damaged>,
    ) -> Result<Option<Entry>, Error> {
        let source = lsn.map_or(Source::Checkpoint, |_| Source::Log);
        let taken = match record {
            Ok(envelope) => match Record::decode(envelope) {
                Ok(record) => self.state.apply(&record, source),
                Err(why) => self
                    .state
                    .quarantine(lsn, Some(&envelope.head), &why, &envelope.payload, source),
            },
            Err(damaged) => {
                self.state
                    .quarantine(lsn, damaged.head.as_ref(), damaged.why, &damaged.bytes, source)
            }
        };
        let entry = taken.map_err(|Inconsistent(why)| Error::Record { lsn, why })?;
        self.note(entry.as_ref());
        Ok(entry)
    }

    /// The end of a replay: refuses a branch whose holds cannot be told.
    pub(crate) fn replayed(&mut self) -> Result<(), Error> {
        // Else starts that each make few tombstones would never record a floor.
        let tombstones = self
            .state
            .branches
            .values()
            .filter(|branch| branch.is_tombstone());
        self.tombstones = tombstones.count();
        match self.state.unreadable.iter().next() {
            None => Ok(()),
            Some((xid, transaction_id)) => Err(Error::Unreadable {
                xid: *xid,
                transaction_id: transaction_id.clone(),
            }),
        }
    }

    /// The log's identity: `new` on a new log, whose LINEAGE is appended. A log without a name takes the one that is asked
    /// for.
    ///
    /// # Errors
    /// [`Error::NoLineage`] for a log that is not new and names none; [`Error::OtherName`], and nothing is appended.
    pub(crate) fn identify(
        &mut self,
        new: Lineage,
        asked: Option<Name>,
        now: UnixMillis,
    ) -> Result<Lineage, Error> {
        let created = self.appended == 0;
        let (lineage, made_at) = match self.state.lineage {
            Some(known) => known,
            None if created => (new, now),
            None => return Err(Error::NoLineage),
        };
        if let (Some(found), Some(asked)) = (&self.state.name, &asked)
            && found != asked
        {
            let (found, asked) = (found.clone(), asked.clone());
            return Err(Error::OtherName { found, asked });
        }
        if created || (self.state.name.is_none() && asked.is_some()) {
            self.append(Record::Lineage {
                lineage,
                made_at,
                name: asked,
            })?;
        }
        Ok(lineage)
    }

    /// Appends this start; it counts once the record with that LSN is durable.
    pub(crate) fn start(&mut self, bits: u64) -> Result<(Incarnation, Lsn), Error> {
        let incarnation = Incarnation {
            counter: self.state.next_counter(),
            bits,
        };
        let lsn = self.append(Record::Incarnation(incarnation))?;
        Ok((incarnation, lsn))
    }

    /// Notes the entry that the state has just made.
    pub(crate) fn note(&mut self, entry: Option<&Entry>) {
        let Some(entry) = entry else { return };
        let index = self.state.entries - 1;
        assert!(
            index == self.recent.first + self.recent.causes.len() as u64,
            "entry {index} does not follow {} and {} more",
            self.recent.first,
            self.recent.causes.len()
        );
        if let Some((_, transaction_id)) = &entry.cause {
            self.index.insert(transaction_id.as_str().as_bytes(), index);
        }
        self.recent.causes.push_back(entry.cause.clone());
        while self.recent.first < self.log.archived().end && self.recent.causes.pop_front().is_some() {
            self.recent.first += 1;
        }
    }

    /// The LSN of the last record appended.
    pub(crate) fn appended(&self) -> Lsn {
        self.appended
    }

    /// Changes the state and appends, as one; the caller has checked that the record follows.
    pub(crate) fn append(&mut self, record: Record) -> Result<Lsn, Error> {
        let lsn = self.log.next_lsn();
        let of_branch = record.about().0.and_then(|xid| self.state.branches.get(&xid));
        self.log
            .note(&record, of_branch.map(|branch| &branch.transaction_id));
        let entry = self
            .state
            .apply(&record, Source::Log)
            .map_err(|inconsistent| Error::Record {
                lsn: Some(lsn),
                why: inconsistent.0,
            })?;
        self.note(entry.as_ref());
        self.tombstones += usize::from(matches!(record, Record::Committed { .. } | Record::Forgotten(_)));
        self.appended = self.log.append(&record);
        assert!(
            self.appended == lsn,
            "record {lsn} was appended as {}: somebody else appends",
            self.appended
        );
        self.unfolded.push_back((lsn, record));
        Ok(lsn)
    }

    /// P2, P4, P5, P6.
    pub(crate) fn prepare(&mut self, asked: Asked, at: UnixMillis) -> Result<Voted, Error> {
        let Asked {
            xid,
            transaction_id,
            operation,
            position,
        } = asked;
        if let Some(branch) = self.state.branches.get(&xid) {
            return match &branch.phase {
                // Its record was appended before: what was appended last covers it.
                Phase::Prepared { operation: known, .. } if *known == operation => {
                    Ok(Voted::Yes(self.appended))
                }
                Phase::Prepared { .. } | Phase::Committed { .. } | Phase::ByHand { .. } => {
                    Err(wrong_state(xid, branch, "prepare this operation"))
                }
            };
        }
        if let Some(effect) = self.effect_of(&transaction_id)? {
            return Ok(Voted::No(Refusal::DuplicateTransaction {
                transaction_id,
                xid: effect,
            }));
        }
        if let Some(Backlog { waiting, bound }) = self.log.backlog() {
            return Ok(Voted::No(Refusal::Exhausted { waiting, bound }));
        }
        let movements = match self.validate(&operation) {
            Ok(movements) => movements,
            Err(refusal) => return Ok(Voted::No(refusal)),
        };
        if movements.is_read_only() {
            return Ok(Voted::ReadOnly(self.appended));
        }
        let movements = Arc::new(movements);
        let prepared = Prepared {
            xid,
            transaction_id,
            operation,
            movements,
            position,
            prepared_at: at,
        };
        self.append(Record::Prepared(prepared)).map(Voted::Yes)
    }

    /// P12; again for a branch that committed before.
    pub(crate) fn commit(&mut self, xid: Xid, at: UnixMillis) -> Result<Lsn, Error> {
        let branch = self.state.branches.get(&xid).ok_or(Error::UnknownBranch(xid))?;
        match &branch.phase {
            Phase::Committed { .. } => Ok(self.appended),
            Phase::Prepared { .. } => {
                let transaction_id = branch.transaction_id.clone();
                self.append(Record::Committed {
                    xid,
                    transaction_id,
                    committed_at: at,
                })
            }
            Phase::ByHand { .. } => Err(wrong_state(xid, branch, "commit")),
        }
    }

    /// P10; nothing for a branch that is unknown.
    pub(crate) fn abort(&mut self, xid: Xid) -> Result<(), Error> {
        let Some(branch) = self.state.branches.get(&xid) else {
            return Ok(());
        };
        match &branch.phase {
            Phase::Prepared { .. } => self.append(Record::Aborted(xid)).map(drop),
            Phase::Committed { .. } | Phase::ByHand { .. } => Err(wrong_state(xid, branch, "abort")),
        }
    }

    /// P14; again for a branch that was decided by hand in the same way.
    pub(crate) fn resolve(
        &mut self,
        xid: Xid,
        what: Decision,
        by: Operator,
        at: UnixMillis,
    ) -> Result<Lsn, Error> {
        let commit = what == Decision::Commit;
        let branch = self.state.branches.get(&xid).ok_or(Error::UnknownBranch(xid))?;
        match &branch.phase {
            Phase::Prepared { .. } => {}
            Phase::ByHand { commit: known, .. } if *known == commit => return Ok(self.appended),
            Phase::ByHand { .. } | Phase::Committed { .. } => {
                return Err(wrong_state(xid, branch, "be decided so by hand"));
            }
        }
        let transaction_id = branch.transaction_id.clone();
        if commit && let Some(effect) = self.effect_of(&transaction_id)? {
            return Err(Error::SecondEffect {
                xid,
                transaction_id,
                effect,
            });
        }
        self.append(Record::Heuristic(ByHand {
            xid,
            transaction_id,
            commit,
            by,
            at,
        }))
    }

    /// P19, P20; nothing for a branch that is unknown (P7).
    pub(crate) fn forget(&mut self, xid: Xid) -> Result<Lsn, Error> {
        let Some(branch) = self.state.branches.get(&xid) else {
            return Ok(self.appended);
        };
        match &branch.phase {
            Phase::ByHand { forgotten: true, .. } => Ok(self.appended),
            Phase::ByHand { forgotten: false, .. } => self.append(Record::Forgotten(xid)),
            Phase::Prepared { .. } | Phase::Committed { .. } => Err(wrong_state(xid, branch, "be forgotten")),
        }
    }

    /// Opens an account; `None` if it is there already, in the same currency.
    pub(crate) fn open_account(&mut self, spec: &OpenSpec, at: UnixMillis) -> Result<Option<Lsn>, Error> {
        let known = self.state.books.get(spec.account.as_str());
        if known.is_some_and(|account| account.currency == spec.currency) {
            return Ok(None);
        }
        self.state.books.check_open(spec)?;
        self.refuse_backlog()?;
        self.append(Record::AccountOpened {
            spec: spec.clone(),
            at,
        })
        .map(Some)
    }

    /// Closes an account; again for one that is closed.
    pub(crate) fn close_account(&mut self, name: &AccountName) -> Result<Lsn, Error> {
        self.state.books.check_close(name)?;
        if self
            .state
            .books
            .get(name.as_str())
            .is_some_and(|account| account.closed)
        {
            return Ok(self.appended);
        }
        self.refuse_backlog()?;
        self.append(Record::AccountClosed(name.clone()))
    }

    /// Section 6: a floor is recorded, lazily, when many tombstones could go by it; the next one is higher anyway.
    pub(crate) fn raise_floor(&mut self, lineage: Lineage, floor: Floor) -> Result<(), Error> {
        let risen = self.state.floors.get(&lineage).is_none_or(|known| *known < floor);
        if !risen || self.tombstones < self.floor_tombstones {
            return Ok(());
        }
        self.tombstones = 0;
        self.append(Record::Floor { lineage, floor }).map(drop)
    }

    fn refuse_backlog(&self) -> Result<(), Error> {
        match self.log.backlog() {
            None => Ok(()),
            Some(Backlog { waiting, bound }) => Err(Error::Backlogged { waiting, bound }),
        }
    }

    fn validate(&self, operation: &[u8]) -> Result<Movements, Refusal> {
        if operation.len() > MAX_OPERATION_BYTES {
            return Err(Refusal::TooLarge {
                bytes: operation.len(),
                bound: MAX_OPERATION_BYTES,
            });
        }
        let movements = wire::movements(operation)?;
        self.state.books.check(&movements)?;
        Ok(movements)
    }

    /// The attempt of the transaction that has its effect here, if one has (P2). For a branch that is not known it
    /// may even be its own, whose tombstone a floor has dropped: that one has no second effect either (S9).
    fn effect_of(&self, transaction_id: &TransactionId) -> Result<Option<Xid>, Error> {
        for index in self.index.candidates(transaction_id.as_str().as_bytes()) {
            if let Some((effect, id)) = self.cause(index)?
                && id == *transaction_id
            {
                return Ok(Some(effect));
            }
        }
        Ok(None)
    }

    fn cause(&self, index: u64) -> Result<Option<(Xid, TransactionId)>, Error> {
        if let Some(at) = index.checked_sub(self.recent.first) {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            return Ok(self.recent.causes.get(at).cloned().flatten());
        }
        let item = self.log.entry(index)?.unwrap_or_default();
        Ok(Entry::decode(&item)
            .map_err(|why| Error::Entry { index, why })?
            .cause)
    }
}

fn wrong_state(xid: Xid, branch: &Branch, call: &'static str) -> Error {
    Error::WrongState {
        xid,
        state: branch.state_name(),
        call,
    }
}
