//! The fold: what the coordinator's durable records say, and nothing else.
//!
//! Replay, the running machine and checkpoints all use this one type. The machine applies a record when it
//! is durable, so a checkpoint taken from here is the fold of durable records, never of the live machine
//! (section 2). Finished outcomes leave the fold: [`Fold::apply`] hands them out for the archive.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::reporters::Reporters;
use crate::{
    BranchRecord, Decision, Heuristic, Incarnation, Lineage, Name, Operator, Outcome, Quarantined, Record,
    TransactionId, UnixMillis, Xid,
};

/// A decided transaction that is not finished: a COMMIT without END, or with a heuristic not forgotten.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Open {
    /// The decision record.
    pub outcome: Outcome,
    /// Branches that a FORGET resolved; acknowledgements of COMMIT are volatile.
    pub resolved: BTreeSet<Name>,
    /// Whether ABORT or END is durable.
    pub ended: bool,
}

/// A heuristic that is not forgotten.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HeuristicEntry {
    /// The reporting or voting lineage.
    pub lineage: Lineage,
    /// `Commit`, `Abort` or `Hazard`.
    pub what: Heuristic,
    /// Whether it differs from the decision; `None` while that is not known.
    pub damage: Option<bool>,
    /// Whether FORGET is durable, and who said so.
    pub forget: Option<Option<Operator>>,
}

/// An operator's decision over a quarantined record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Resolved {
    /// COMMIT or ABORT.
    pub decision: Decision,
    /// Whom a COMMIT commits; any other branch aborts, as one that a COMMIT record does not name.
    pub voters: Vec<Lineage>,
    /// Who said so, and why.
    pub by: Operator,
}

impl Resolved {
    /// What this lineage is answered (Q1, Q3).
    #[must_use]
    pub fn answer(&self, asker: Lineage) -> Decision {
        match self.decision {
            Decision::Commit if self.voters.contains(&asker) => Decision::Commit,
            Decision::Commit | Decision::Abort => Decision::Abort,
        }
    }
}

/// The state that durable records add up to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Fold {
    /// This log's lineage; `None` before its first record.
    pub lineage: Option<Lineage>,
    /// The log's birth.
    pub birth: UnixMillis,
    /// Lineages whose records it continues.
    pub former: Vec<Lineage>,
    /// All starts.
    pub starts: BTreeSet<Incarnation>,
    /// Who holds which name.
    pub participants: BTreeMap<Name, Lineage>,
    /// Decided and not finished.
    pub open: BTreeMap<Xid, Open>,
    /// The attempt of each open transaction, by the caller's id.
    pub open_ids: BTreeMap<TransactionId, Xid>,
    /// Heuristics not forgotten.
    pub heuristics: BTreeMap<(Xid, Name), HeuristicEntry>,
    /// Whose they are.
    pub(super) reporters: Reporters,
    /// Operators' decisions over quarantined records.
    pub resolved: BTreeMap<Xid, Resolved>,
    /// Outcomes below it are gone (section 6).
    pub retained_since: UnixMillis,
    /// Who knew a position beyond the log's end (`None`: the data directory), until an operator clears it.
    pub suspect: Option<(Option<Name>, u64)>,
    /// Records that did not decode.
    pub quarantined: Vec<Quarantined>,
}

impl Fold {
    /// Takes one durable record. Returns the outcome that it finished, for the archive.
    pub fn apply(&mut self, record: Record) -> Option<Outcome> {
        match record {
            Record::Lineage {
                lineage,
                birth,
                former,
            } => {
                self.lineage = Some(lineage);
                self.birth = birth;
                self.former = former;
                self.retained_since = self.retained_since.max(birth);
            }
            Record::Incarnation(incarnation) => {
                self.starts.insert(incarnation);
            }
            Record::Participant { name, lineage } => {
                self.participants.insert(name, lineage);
            }
            Record::Commit(outcome) => return self.open(outcome, false),
            Record::Abort(outcome) => return self.open(outcome, true),
            Record::End(xid) => {
                self.open.get_mut(&xid)?.ended = true;
                return self.finish(xid);
            }
            Record::Heuristic {
                xid,
                participant,
                lineage,
                what,
                damage,
                outcome,
            } => {
                let entry = HeuristicEntry {
                    lineage,
                    what,
                    damage,
                    forget: None,
                };
                self.heuristic_found(xid, participant, entry);
                // A finished outcome was archived; the heuristic alone holds it open again.
                let finished = outcome.filter(|_| !self.open.contains_key(&xid));
                return finished.and_then(|outcome| self.open(outcome, true));
            }
            Record::Forget { xid, participant, by } => {
                let branch = (xid, participant);
                if let Some(entry) = self.heuristics.get_mut(&branch) {
                    entry.forget = Some(by);
                    self.reporters.insert(&branch.1, entry.lineage, xid, true);
                }
            }
            Record::ForgetDone { xid, participant } => return self.forget_done(xid, participant),
            Record::Resolved {
                xid,
                decision,
                voters,
                by,
            } => {
                // What did not decode stays in the way of its id (R3): its outcome is not known here.
                let resolved = Resolved { decision, voters, by };
                self.resolved.insert(xid, resolved);
            }
            Record::Retained(since) => {
                self.retained_since = self.retained_since.max(since);
            }
            Record::Suspect {
                participant,
                position,
            } => {
                self.suspect = Some((participant, position));
            }
            Record::SuspectCleared(_) => {
                self.suspect = None;
            }
            Record::Quarantined(quarantined) => {
                self.quarantined.push(quarantined);
            }
        }
        None
    }

    fn open(&mut self, outcome: Outcome, ended: bool) -> Option<Outcome> {
        let xid = outcome.xid;
        self.open_ids.insert(outcome.transaction_id.clone(), xid);
        self.open.insert(
            xid,
            Open {
                outcome,
                resolved: BTreeSet::new(),
                ended,
            },
        );
        self.finish(xid)
    }

    /// A branch with a heuristic is not resolved before that is forgotten.
    fn heuristic_found(&mut self, xid: Xid, participant: Name, mut entry: HeuristicEntry) {
        if let Some(open) = self.open.get_mut(&xid) {
            open.resolved.remove(&participant);
        }
        let key = (xid, participant);
        // Judging it later changes nothing of what was forgotten; another content must be forgotten itself.
        if let Some(before) = self.heuristics.get(&key) {
            self.reporters.remove(&key.1, before.lineage, xid);
            if before.what == entry.what {
                entry.forget.clone_from(&before.forget);
            }
        }
        self.reporters
            .insert(&key.1, entry.lineage, xid, entry.forget.is_some());
        self.heuristics.insert(key, entry);
    }

    fn forget_done(&mut self, xid: Xid, participant: Name) -> Option<Outcome> {
        let entry = self.heuristics.remove(&(xid, participant.clone()));
        if let Some(entry) = &entry {
            self.reporters.remove(&participant, entry.lineage, xid);
        }
        let open = self.open.get_mut(&xid)?;
        let asked = |branch: &BranchRecord, lineage| {
            branch.participant == participant && branch.lineage == Some(lineage)
        };
        let owes = |lineage| !open.outcome.branches.iter().any(|branch| asked(branch, lineage));
        let by_another_lineage = entry.as_ref().is_some_and(|entry| owes(entry.lineage));
        // A hazard that nobody had forgotten was cleared by the branch's own ACK (C12).
        if let Some(entry) = entry.filter(|entry| entry.what != Heuristic::Hazard || entry.forget.is_some()) {
            open.outcome.heuristic = merge(open.outcome.heuristic, entry.what);
            let branches = open.outcome.branches.iter_mut();
            for branch in branches.filter(|branch| asked(branch, entry.lineage)) {
                branch.forgotten = Some(entry.what);
            }
        }
        if !by_another_lineage {
            open.resolved.insert(participant);
        }
        self.finish(xid)
    }

    /// Finished: ABORT is durable, or END; and no heuristic waits to be forgotten (section 1).
    fn finish(&mut self, xid: Xid) -> Option<Outcome> {
        let open = self.open.get(&xid)?;
        if !open.ended || self.heuristics_of(xid).next().is_some() {
            return None;
        }
        let open = self.open.remove(&xid)?;
        if self.open_ids.get(&open.outcome.transaction_id) == Some(&xid) {
            self.open_ids.remove(&open.outcome.transaction_id);
        }
        Some(open.outcome)
    }

    /// The heuristics of one attempt that are not forgotten.
    pub fn heuristics_of(&self, xid: Xid) -> impl Iterator<Item = (&Name, &HeuristicEntry)> {
        self.heuristics
            .range((
                core::ops::Bound::Included((xid, first_name())),
                core::ops::Bound::Unbounded,
            ))
            .take_while(move |((of, _), _)| *of == xid)
            .map(|((_, name), entry)| (name, entry))
    }

    /// The heuristic of one branch that is not forgotten.
    #[must_use]
    pub fn heuristic_entry(&self, xid: Xid, participant: &Name) -> Option<&HeuristicEntry> {
        if self.heuristics.is_empty() {
            return None;
        }
        self.heuristics.get(&(xid, participant.clone()))
    }

    /// The heuristic field of an attempt: what is forgotten of it and what is not.
    #[must_use]
    pub fn heuristic(&self, xid: Xid, archived: Option<Heuristic>) -> Option<Heuristic> {
        self.heuristics_of(xid)
            .fold(archived, |sum, (_, entry)| merge(sum, entry.what))
    }

    /// Records whose replay gives this state again: the content of a checkpoint.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        if let Some(lineage) = self.lineage {
            records.push(Record::Lineage {
                lineage,
                birth: self.birth,
                former: self.former.clone(),
            });
        }
        records.extend(self.starts.iter().copied().map(Record::Incarnation));
        records.extend(
            self.participants
                .iter()
                .map(|(name, lineage)| Record::Participant {
                    name: name.clone(),
                    lineage: *lineage,
                }),
        );
        records.push(Record::Retained(self.retained_since));
        for ((xid, participant), entry) in &self.heuristics {
            let participant = participant.clone();
            records.push(Record::Heuristic {
                xid: *xid,
                participant: participant.clone(),
                lineage: entry.lineage,
                what: entry.what,
                damage: entry.damage,
                outcome: None,
            });
            if let Some(by) = &entry.forget {
                records.push(Record::Forget {
                    xid: *xid,
                    participant,
                    by: by.clone(),
                });
            }
        }
        for (xid, open) in &self.open {
            let outcome = open.outcome.clone();
            let aborted = outcome.aborted.is_some();
            records.push(if aborted {
                Record::Abort(outcome)
            } else {
                Record::Commit(outcome)
            });
            for participant in &open.resolved {
                let participant = participant.clone();
                records.push(Record::ForgetDone {
                    xid: *xid,
                    participant,
                });
            }
            if open.ended && !aborted {
                records.push(Record::End(*xid));
            }
        }
        for (xid, resolved) in &self.resolved {
            records.push(Record::Resolved {
                xid: *xid,
                decision: resolved.decision,
                voters: resolved.voters.clone(),
                by: resolved.by.clone(),
            });
        }
        if let Some((participant, position)) = &self.suspect {
            records.push(Record::Suspect {
                participant: participant.clone(),
                position: *position,
            });
        }
        records.extend(self.quarantined.iter().cloned().map(Record::Quarantined));
        records
    }
}

/// When a record's transaction was decided; 0 if it says nothing of that.
pub(super) fn decided(record: &Record) -> UnixMillis {
    match record {
        Record::Commit(outcome) | Record::Abort(outcome) => outcome.decided,
        Record::Heuristic { outcome, .. } => outcome.as_ref().map_or(0, |outcome| outcome.decided),
        Record::Lineage { .. }
        | Record::Incarnation(_)
        | Record::Participant { .. }
        | Record::End(_)
        | Record::Forget { .. }
        | Record::ForgetDone { .. }
        | Record::Resolved { .. }
        | Record::Retained(_)
        | Record::Suspect { .. }
        | Record::SuspectCleared(_)
        | Record::Quarantined(_) => 0,
    }
}

/// The heuristic field of a transaction whose branches had these.
fn merge(sum: Option<Heuristic>, next: Heuristic) -> Option<Heuristic> {
    match sum {
        None => Some(next),
        Some(sum) if sum == next => Some(sum),
        Some(_) => Some(Heuristic::Mixed),
    }
}

/// Sorts before every name that can be made: where a range over one attempt begins.
fn first_name() -> Name {
    Name::lowest()
}
