//! What was appended about single branches and is not durable yet, found by branch.
//!
//! The machine asks here before it appends a HEURISTIC, FORGET or FORGET_DONE once more. It is derived from the
//! pending records and costs a look-up per record, however many wait: a flood of reports stays linear. Other kinds
//! of records leave no trace here.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Heuristic, Name, Record, Xid};

/// Names one branch.
type Branch = (Xid, Name);

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct OnItsWay {
    /// What was done, and whether it is damage, oldest first; at most one of each content.
    heuristics: BTreeMap<Branch, VecDeque<(Heuristic, Option<bool>)>>,
    forgets: BTreeSet<Branch>,
    /// How many FORGET_DONEs: a late ACK may clear a hazard that is also being forgotten.
    done: BTreeMap<Branch, u32>,
}

/// What a record says of a branch.
enum Said {
    Heuristic(Heuristic, Option<bool>),
    Forget,
    ForgetDone,
}

fn said(record: &Record) -> Option<(Branch, Said)> {
    let (xid, participant, said) = match record {
        Record::Heuristic {
            xid,
            participant,
            what,
            damage,
            ..
        } => (xid, participant, Said::Heuristic(*what, *damage)),
        Record::Forget { xid, participant, .. } => (xid, participant, Said::Forget),
        Record::ForgetDone { xid, participant } => (xid, participant, Said::ForgetDone),
        Record::Lineage { .. }
        | Record::Incarnation(_)
        | Record::Participant { .. }
        | Record::Commit(_)
        | Record::Abort(_)
        | Record::End(_)
        | Record::Resolved { .. }
        | Record::Retained(_)
        | Record::Suspect { .. }
        | Record::SuspectCleared(_)
        | Record::Quarantined(_) => return None,
    };
    Some(((*xid, participant.clone()), said))
}

impl OnItsWay {
    /// The record was appended.
    pub(super) fn appended(&mut self, record: &Record) {
        let Some((branch, said)) = said(record) else {
            return;
        };
        match said {
            Said::Heuristic(what, damage) => {
                self.heuristics
                    .entry(branch)
                    .or_default()
                    .push_back((what, damage));
            }
            Said::Forget => drop(self.forgets.insert(branch)),
            Said::ForgetDone => *self.done.entry(branch).or_default() += 1,
        }
    }

    /// The record is durable. Records become so in the order in which they were appended.
    pub(super) fn durable(&mut self, record: &Record) {
        let Some((branch, said)) = said(record) else {
            return;
        };
        match said {
            Said::Heuristic(..) => {
                if let Some(contents) = self.heuristics.get_mut(&branch) {
                    contents.pop_front();
                    if contents.is_empty() {
                        self.heuristics.remove(&branch);
                    }
                }
            }
            Said::Forget => drop(self.forgets.remove(&branch)),
            Said::ForgetDone => {
                if let Some(count) = self.done.get_mut(&branch) {
                    *count -= 1;
                    if *count == 0 {
                        self.done.remove(&branch);
                    }
                }
            }
        }
    }

    /// The heuristic of the branch that was appended last.
    pub(super) fn heuristic(&self, xid: Xid, participant: &Name) -> Option<Heuristic> {
        if self.heuristics.is_empty() {
            return None;
        }
        let contents = self.heuristics.get(&(xid, participant.clone()))?;
        contents.back().map(|(what, _)| *what)
    }

    /// Whether a heuristic of the branch with this content is on its way.
    pub(super) fn has_heuristic(
        &self,
        xid: Xid,
        participant: &Name,
        what: Heuristic,
        damage: Option<bool>,
    ) -> bool {
        let contents = self.heuristics.get(&(xid, participant.clone()));
        contents.is_some_and(|contents| contents.contains(&(what, damage)))
    }

    /// Branches with a heuristic on its way.
    pub(super) fn heuristics(&self) -> usize {
        self.heuristics.len()
    }

    /// Whether a FORGET of the branch is on its way.
    pub(super) fn has_forget(&self, xid: Xid, participant: &Name) -> bool {
        self.forgets.contains(&(xid, participant.clone()))
    }

    /// Whether a FORGET_DONE of the branch is on its way.
    pub(super) fn has_forget_done(&self, xid: Xid, participant: &Name) -> bool {
        self.done.contains_key(&(xid, participant.clone()))
    }
}
