//! The fold of a ledger's records: the only meaning that the log has.
//!
//! A ledger keeps two of these. The *live* one has taken every record that was appended, and new work is
//! validated against it; the *folded* one has taken only durable records, and outsiders and checkpoints see nothing
//! else. Both go through [`State::apply`], as replay does, so the three cannot disagree. `apply` checks a record
//! against the state again: a log whose records do not follow from each other is refused, not guessed at.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::sync::Arc;

use covenant_journal::Head;
use covenant_rules::{Floor, Incarnation, Lineage, Lsn, Name, TransactionId, UnixMillis, Xid};

use crate::account::{Account, AccountName};
use crate::accounts::{Books, Posted};
use crate::branch::{Branch, Phase, PreparedBranch};
use crate::entry::{Entry, Line};
use crate::record::{ByHand, Prepared, QUARANTINE_PIECE_BYTES, Quarantined, Record};
use crate::stored::{About, Salvage};

/// Where a record was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// In a checkpoint: effects are in the balances already.
    Checkpoint,
    /// In the log, or about to be appended to it.
    Log,
}

/// Why a record does not follow from those before it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Inconsistent(pub(crate) String);

impl Inconsistent {
    fn because(why: impl std::fmt::Display) -> Self {
        Self(why.to_string())
    }

    fn phase(record: &str, xid: Xid) -> Self {
        Self(format!(
            "{record} of {xid}, which is not in the state that it needs"
        ))
    }
}

/// The fold of records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct State {
    /// Which log this is, and when it was made.
    pub(crate) lineage: Option<(Lineage, UnixMillis)>,
    /// The name under which it joins; `None` until a start gives one.
    pub(crate) name: Option<Name>,
    /// Every start, ascending.
    pub(crate) incarnations: Vec<Incarnation>,
    /// Starts after the last one whose records are damaged: their counters are taken too.
    pub(crate) damaged_starts: u64,
    pub(crate) floors: BTreeMap<Lineage, Floor>,
    pub(crate) positions: BTreeMap<Lineage, Lsn>,
    pub(crate) books: Books,
    pub(crate) branches: BTreeMap<Xid, Branch>,
    pub(crate) quarantined: Vec<Quarantined>,
    /// Prepared branches whose operation did not decode and that have not ended.
    pub(crate) unreadable: BTreeMap<Xid, TransactionId>,
    /// The number of the next entry.
    pub(crate) entries: u64,
}

impl State {
    /// Before any record, with the number of entries that the archive holds.
    pub(crate) fn new(entries: u64) -> Self {
        Self {
            entries,
            ..Self::default()
        }
    }

    /// The counter of the next start.
    pub(crate) fn next_counter(&self) -> u64 {
        self.incarnations.last().map_or(0, |last| last.counter) + self.damaged_starts + 1
    }

    /// Takes one record; an entry if it moved money.
    ///
    /// # Errors
    /// [`Inconsistent`]: the record does not follow; nothing changed.
    pub(crate) fn apply(&mut self, record: &Record, source: Source) -> Result<Option<Entry>, Inconsistent> {
        match record {
            Record::Lineage {
                lineage,
                made_at,
                name,
            } => self.identify(*lineage, *made_at, name.as_ref())?,
            Record::Incarnation(incarnation) => self.start(*incarnation)?,
            Record::Prepared(prepared) => self.prepare(prepared)?,
            Record::Committed {
                xid,
                transaction_id,
                committed_at,
            } => {
                return self.commit(*xid, transaction_id, *committed_at, source);
            }
            Record::Aborted(xid) => self.abort(*xid)?,
            Record::Heuristic(by_hand) => return self.decide_by_hand(by_hand, source),
            Record::Forgotten(xid) => match self.branches.get_mut(xid).map(|branch| &mut branch.phase) {
                Some(Phase::ByHand { forgotten, .. }) => *forgotten = true,
                Some(Phase::Prepared { .. } | Phase::Committed { .. }) | None => {
                    return Err(Inconsistent::phase("FORGOTTEN", *xid));
                }
            },
            Record::Floor { lineage, floor } => self.raise_floor(*lineage, *floor),
            Record::AccountOpened { spec, at } => {
                let posted = self.books.open(spec).map_err(Inconsistent::because)?;
                return Ok((!posted.is_empty()).then(|| self.entry(posted, None, *at, *at)));
            }
            Record::AccountClosed(account) => self.books.close(account).map_err(Inconsistent::because)?,
            Record::Account(name, account) => self.books.put(name.clone(), account.clone()),
            Record::Position { lineage, lsn } => self.see(*lineage, *lsn),
            Record::Quarantined(quarantined) => self.quarantined.push(quarantined.clone()),
        }
        Ok(None)
    }

    /// Takes a record that did not decode, as far as its head tells what it did.
    ///
    /// # Errors
    /// [`Inconsistent`] if it may touch what nobody can tell.
    pub(crate) fn quarantine(
        &mut self,
        lsn: Option<Lsn>,
        head: Option<&Head>,
        why: &str,
        bytes: &[u8],
        source: Source,
    ) -> Result<Option<Entry>, Inconsistent> {
        let about = head.and_then(|head| About::of(head).ok());
        for piece in bytes.chunks(QUARANTINE_PIECE_BYTES) {
            self.quarantined.push(Quarantined {
                lsn,
                xid: about.as_ref().and_then(|about| about.xid),
                transaction_id: about.as_ref().and_then(|about| about.transaction_id.clone()),
                why: why.into(),
                bytes: piece.into(),
            });
        }
        match about.map_or(Salvage::Nothing, |about| about.salvage()) {
            Salvage::Effect(record) => return self.apply(&record, source),
            Salvage::Harmless => {}
            Salvage::Start => self.damaged_starts += 1,
            Salvage::Holds(xid, transaction_id) => drop(self.unreadable.insert(xid, transaction_id)),
            Salvage::Nothing => {
                return Err(Inconsistent(format!(
                    "it is damaged ({why}), and it cannot be told what it touches"
                )));
            }
        }
        Ok(None)
    }

    /// The records of a checkpoint: their fold, over the same entries, is this state.
    pub(crate) fn checkpoint(&self) -> impl Iterator<Item = Record> {
        let lineage = self.lineage.map(|(lineage, made_at)| Record::Lineage {
            lineage,
            made_at,
            name: self.name.clone(),
        });
        let account = |(name, account): (&AccountName, &Account)| {
            // What is pending comes back with the PREPARED records.
            let Account {
                currency,
                posted,
                closed,
                last_entry,
                ..
            } = *account;
            let account = Account {
                posted,
                closed,
                last_entry,
                ..Account::empty(currency)
            };
            Record::Account(name.clone(), account)
        };
        let position = |(lineage, lsn): (&Lineage, &Lsn)| Record::Position {
            lineage: *lineage,
            lsn: *lsn,
        };
        let floor = |(lineage, floor): (&Lineage, &Floor)| Record::Floor {
            lineage: *lineage,
            floor: *floor,
        };
        lineage
            .into_iter()
            .chain(self.incarnations.iter().copied().map(Record::Incarnation))
            .chain(self.books.after(None).map(account))
            .chain(self.positions.iter().map(position))
            .chain(self.floors.iter().map(floor))
            .chain(
                self.branches
                    .iter()
                    .flat_map(|(xid, branch)| branch.records(*xid)),
            )
            .chain(self.quarantined.iter().cloned().map(Record::Quarantined))
    }

    /// The branches that are prepared, by attempt.
    pub(crate) fn prepared(&self) -> impl Iterator<Item = PreparedBranch<'_>> {
        self.branches
            .iter()
            .filter_map(|(xid, branch)| match &branch.phase {
                Phase::Prepared {
                    movements,
                    prepared_at,
                    ..
                } => Some(PreparedBranch {
                    xid: *xid,
                    transaction_id: &branch.transaction_id,
                    movements,
                    prepared_at: *prepared_at,
                }),
                Phase::Committed { .. } | Phase::ByHand { .. } => None,
            })
    }

    fn identify(
        &mut self,
        lineage: Lineage,
        made_at: UnixMillis,
        name: Option<&Name>,
    ) -> Result<(), Inconsistent> {
        match self.lineage {
            None => self.lineage = Some((lineage, made_at)),
            Some((known, _)) if known == lineage && self.name.is_none() && name.is_some() => {}
            Some((known, _)) => {
                return Err(Inconsistent(format!("a second LINEAGE, {lineage} after {known}")));
            }
        }
        self.name = name.cloned();
        Ok(())
    }

    fn start(&mut self, incarnation: Incarnation) -> Result<(), Inconsistent> {
        let last = self.incarnations.last().map_or(0, |last| last.counter);
        if incarnation.counter <= last {
            return Err(Inconsistent(format!(
                "start {} after start {last}",
                incarnation.counter
            )));
        }
        self.incarnations.push(incarnation);
        // Its counter is above theirs.
        self.damaged_starts = 0;
        Ok(())
    }

    fn see(&mut self, lineage: Lineage, lsn: Lsn) {
        let seen = self.positions.entry(lineage).or_default();
        *seen = lsn.max(*seen);
    }

    fn prepare(&mut self, prepared: &Prepared) -> Result<(), Inconsistent> {
        let Prepared {
            xid,
            transaction_id,
            operation,
            movements,
            position,
            prepared_at,
        } = prepared;
        let slot = match self.branches.entry(*xid) {
            Slot::Occupied(_) => return Err(Inconsistent::phase("PREPARED", *xid)),
            Slot::Vacant(slot) => slot,
        };
        self.books.hold(movements).map_err(Inconsistent::because)?;
        slot.insert(Branch {
            transaction_id: transaction_id.clone(),
            phase: Phase::Prepared {
                operation: Arc::clone(operation),
                movements: Arc::clone(movements),
                position: *position,
                prepared_at: *prepared_at,
            },
        });
        self.see(xid.lineage, *position);
        Ok(())
    }

    fn commit(
        &mut self,
        xid: Xid,
        transaction_id: &TransactionId,
        committed_at: UnixMillis,
        source: Source,
    ) -> Result<Option<Entry>, Inconsistent> {
        self.end(
            xid,
            transaction_id,
            Phase::Committed { committed_at },
            Some(committed_at),
            source,
        )
    }

    fn decide_by_hand(&mut self, by_hand: &ByHand, source: Source) -> Result<Option<Entry>, Inconsistent> {
        let ByHand {
            xid,
            transaction_id,
            commit,
            by,
            at,
        } = by_hand;
        let phase = Phase::ByHand {
            commit: *commit,
            by: by.clone(),
            at: *at,
            forgotten: false,
        };
        if !commit && self.unreadable.remove(xid).is_some() {
            self.branches.insert(
                *xid,
                Branch {
                    transaction_id: transaction_id.clone(),
                    phase,
                },
            );
            return Ok(None);
        }
        self.end(*xid, transaction_id, phase, commit.then_some(*at), source)
    }

    /// Puts a prepared branch into its last phase; posts what it held if it committed, else releases it.
    fn end(
        &mut self,
        xid: Xid,
        transaction_id: &TransactionId,
        phase: Phase,
        committed_at: Option<UnixMillis>,
        source: Source,
    ) -> Result<Option<Entry>, Inconsistent> {
        if source == Source::Checkpoint {
            self.branches.insert(
                xid,
                Branch {
                    transaction_id: transaction_id.clone(),
                    phase,
                },
            );
            return Ok(None);
        }
        let branch = self
            .branches
            .get_mut(&xid)
            .ok_or_else(|| Inconsistent::phase("an end", xid))?;
        let Phase::Prepared {
            movements,
            prepared_at,
            ..
        } = &branch.phase
        else {
            return Err(Inconsistent::phase("an end", xid));
        };
        let (movements, prepared_at) = (Arc::clone(movements), *prepared_at);
        let cause = Some((xid, branch.transaction_id.clone()));
        branch.phase = phase;
        let Some(committed_at) = committed_at else {
            self.books.release(&movements);
            return Ok(None);
        };
        let posted = self.books.post(&movements);
        Ok(Some(self.entry(posted, cause, prepared_at, committed_at)))
    }

    fn abort(&mut self, xid: Xid) -> Result<(), Inconsistent> {
        if self.unreadable.remove(&xid).is_some() {
            return Ok(());
        }
        match self.branches.entry(xid) {
            Slot::Occupied(slot) => match &slot.get().phase {
                Phase::Prepared { movements, .. } => {
                    self.books.release(movements);
                    slot.remove();
                    Ok(())
                }
                Phase::Committed { .. } | Phase::ByHand { .. } => Err(Inconsistent::phase("ABORTED", xid)),
            },
            Slot::Vacant(_) => Err(Inconsistent::phase("ABORTED", xid)),
        }
    }

    /// Raises a floor and drops the tombstones of its lineage below it (section 6).
    fn raise_floor(&mut self, lineage: Lineage, floor: Floor) {
        let known = self.floors.entry(lineage).or_default();
        *known = floor.max(*known);
        let floor = *known;
        let lowest = Xid {
            lineage,
            incarnation: Incarnation { counter: 0, bits: 0 },
            seq: 0,
        };
        let gone: Vec<Xid> = self
            .branches
            .range(lowest..)
            .take_while(|(xid, _)| xid.lineage == lineage && xid.is_below(floor))
            .filter(|(_, branch)| branch.is_tombstone())
            .map(|(xid, _)| *xid)
            .collect();
        for xid in gone {
            self.branches.remove(&xid);
        }
    }

    fn entry(
        &mut self,
        posted: Vec<Posted>,
        cause: Option<(Xid, TransactionId)>,
        prepared_at: UnixMillis,
        committed_at: UnixMillis,
    ) -> Entry {
        let index = self.entries;
        self.entries += 1;
        let line = |Posted {
                        account,
                        amount,
                        balance_after,
                    }| {
            let previous = self.books.link(&account, index);
            Line {
                account,
                amount,
                balance_after,
                previous,
            }
        };
        Entry {
            cause,
            lines: posted.into_iter().map(line).collect(),
            prepared_at,
            committed_at,
        }
    }
}
