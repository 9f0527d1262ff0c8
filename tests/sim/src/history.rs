//! What is true, whoever remembers it: the ground truth that all checkers share.
//!
//! It is made of observations alone and never loses anything, however often nodes do.

use std::collections::{BTreeMap, BTreeSet};

use covenant_ledger::simulated::Shown;
use covenant_rules::{
    Decision, Floor, Heuristic, Incarnation, Lineage, Name, Outcome, Record, TransactionId, Vote, Xid,
};

use crate::node::{Micros, Node, name_of};
use crate::seen::Seen;

/// A branch at one participant's log.
pub type Branch = (Xid, Lineage);

/// What a participant's log said of a branch, durably or not.
#[derive(Clone, Debug, Default)]
pub struct BranchTruth {
    /// What it moves: the account and the amount.
    pub moves: Vec<(String, i64)>,
    /// PREPARED was durable at some time.
    pub prepared: bool,
    /// PREPARED is on the disk, durable or not, and nothing ended it.
    pub holds: bool,
    /// COMMITTED is on the disk, durable or not.
    pub committed: bool,
    /// COMMITTED was durable at some time.
    pub committed_durably: bool,
    /// ABORTED was appended at some time.
    pub aborted: bool,
    /// HEURISTIC_x is on the disk, durable or not.
    pub by_hand: Option<Decision>,
    /// HEURISTIC_x was durable at some time.
    pub by_hand_durably: bool,
    /// FORGOTTEN is on the disk.
    pub forgotten: bool,
    /// FORGOTTEN was durable at some time.
    pub forgotten_durably: bool,
}

impl BranchTruth {
    /// Whether its effect is in the books.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.committed || self.by_hand == Some(Decision::Commit)
    }
}

/// A heuristic as the coordinator's log knew it.
#[derive(Clone, Debug)]
pub struct HeuristicTruth {
    /// Whose.
    pub lineage: Lineage,
    /// What.
    pub what: Heuristic,
    /// Whether it differs, as last recorded.
    pub damage: Option<bool>,
}

/// The ground truth.
#[derive(Default)]
pub struct History {
    /// True time.
    pub now: Micros,
    /// Coordinator logs, the present one last.
    pub lineages: Vec<Lineage>,
    /// The present start of the coordinator.
    pub incarnation: Option<Incarnation>,
    /// Starts of the coordinator that were durable.
    pub starts: BTreeSet<(Lineage, Incarnation)>,
    /// Whose attempt each is.
    pub minted: BTreeMap<Xid, TransactionId>,
    /// Decisions appended, durable or not; those that were lost are gone from here.
    pub decided: BTreeMap<Xid, Decision>,
    /// Durable COMMITs, ever.
    pub commits: BTreeMap<Xid, Outcome>,
    /// Durable ABORTs, ever.
    pub aborts: BTreeMap<Xid, Outcome>,
    /// ENDs appended.
    pub ended: BTreeSet<Xid>,
    /// Durable HEURISTICs, ever, the last of each branch.
    pub heuristics: BTreeMap<(Xid, Name), HeuristicTruth>,
    /// Durable FORGETs, ever.
    pub forgets: BTreeSet<(Xid, Name)>,
    /// Operators' durable decisions over damaged records.
    pub resolved: BTreeMap<Xid, Decision>,
    /// Attempts whose decision record was damaged.
    pub damaged: BTreeSet<Xid>,
    /// A damaged record shows no attempt.
    pub damage_hides: bool,
    /// Whether the log of the present lineage is under suspicion.
    pub suspect: bool,
    /// Branches by participant log.
    pub branches: BTreeMap<Branch, BranchTruth>,
    /// Participants' logs, by number, the present one last.
    pub logs: BTreeMap<usize, Vec<Lineage>>,
    /// Logs of participants that are gone for good.
    pub lost_logs: BTreeSet<Lineage>,
    /// The highest floor that each participant log has or heard in its present start, by coordinator log.
    pub floors: BTreeMap<(Lineage, Lineage), Floor>,
    /// The highest FLOOR record on each participant's disk.
    pub floors_written: BTreeMap<(Lineage, Lineage), Floor>,
    /// What went wrong so far, in all.
    pub faults: u64,
    /// What accounts are opened with, by number.
    pub openings: Vec<i64>,
    /// Whether any coordinator log was lost for good.
    pub coordinator_lost: bool,
}

impl History {
    /// What an account was opened with; the opening account itself has given all of it.
    #[must_use]
    pub fn opening(&self, account: &str) -> i64 {
        if account.starts_with("@opening") {
            return -self.openings.iter().sum::<i64>();
        }
        let number = account
            .strip_prefix('a')
            .and_then(|number| number.parse::<usize>().ok());
        number
            .and_then(|number| self.openings.get(number))
            .copied()
            .unwrap_or(0)
    }

    /// Whether a durable COMMIT names this log.
    #[must_use]
    pub fn commits(&self, xid: Xid, lineage: Lineage) -> bool {
        self.commits
            .get(&xid)
            .is_some_and(|outcome| names(outcome, lineage))
    }

    /// The present log of the coordinator.
    #[must_use]
    pub fn lineage(&self) -> Option<Lineage> {
        self.lineages.last().copied()
    }

    /// What is known of a branch.
    #[must_use]
    pub fn branch(&self, xid: Xid, lineage: Lineage) -> Option<&BranchTruth> {
        self.branches.get(&(xid, lineage))
    }

    /// The branches of an attempt.
    pub fn of(&self, xid: Xid) -> impl Iterator<Item = (Lineage, &BranchTruth)> {
        self.branches
            .range((xid, Lineage(0))..=(xid, Lineage(u128::MAX)))
            .map(|((_, lineage), branch)| (*lineage, branch))
    }

    /// Whether an operator or a lost disk had a hand in this attempt.
    #[must_use]
    pub fn by_hand(&self, xid: Xid) -> bool {
        let lost = |lineage: Lineage| self.lost_logs.contains(&lineage);
        self.of(xid)
            .any(|(lineage, branch)| branch.by_hand_durably || branch.by_hand.is_some() || lost(lineage))
            || self
                .heuristics
                .range((xid, first_name())..)
                .take_while(|((of, _), _)| *of == xid)
                .next()
                .is_some()
    }

    /// The transaction and attempt as people read them.
    #[must_use]
    pub fn shown(&self, xid: Xid) -> String {
        let id = self.minted.get(&xid).map_or("?", TransactionId::as_str);
        format!("{id}#{}.{}", xid.incarnation.counter, xid.seq)
    }

    /// Takes one observation.
    pub fn note(&mut self, seen: &Seen<'_>) {
        match seen {
            Seen::CoordinatorStarted {
                lineage, incarnation, ..
            } => {
                if self.lineage() != Some(*lineage) {
                    self.lineages.push(*lineage);
                }
                self.incarnation = Some(*incarnation);
            }
            Seen::Appended(_, record) => self.appended(record),
            Seen::Forced(record) => self.forced(record),
            Seen::Lost(Record::Commit(outcome) | Record::Abort(outcome)) => {
                self.decided.remove(&outcome.xid);
            }
            Seen::Lost(Record::End(xid)) => {
                self.ended.remove(xid);
            }
            Seen::Sent { message, .. } => {
                if let covenant_rules::ToParticipant::Prepare {
                    xid, transaction_id, ..
                } = message
                {
                    self.minted.entry(*xid).or_insert_with(|| transaction_id.clone());
                }
            }
            Seen::Joined { who, lineage, .. } => {
                self.floors.retain(|(own, _), _| own != lineage);
                let written = self.floors_written.iter().filter(|((own, _), _)| own == lineage);
                self.floors.extend(written.map(|(key, floor)| (*key, *floor)));
                let logs = self.logs.entry(*who).or_default();
                if logs.last() != Some(lineage) {
                    logs.push(*lineage);
                }
            }
            Seen::Wrote { lineage, record, .. } => self.wrote(*lineage, record.shown()),
            Seen::WroteDurably { lineage, record, .. } => self.wrote_durably(*lineage, record.shown()),
            Seen::Unwrote { lineage, record } => self.unwrote(*lineage, record.shown()),
            Seen::FloorHeard { lineage, of, floor } => {
                let known = self.floors.entry((*lineage, *of)).or_default();
                *known = (*known).max(*floor);
            }
            Seen::Damaged { xid, shows } => {
                self.faults += 1;
                self.damaged.insert(*xid);
                self.damage_hides |= !shows;
            }
            Seen::DiskLost(Node::Coordinator) => {
                self.faults += 1;
                self.coordinator_lost = true;
            }
            Seen::DiskLost(Node::Participant(who)) => {
                self.faults += 1;
                let last = self.logs.get(who).and_then(|logs| logs.last());
                self.lost_logs.extend(last);
            }
            Seen::Died(_) | Seen::ForceFailed(_) | Seen::Fault | Seen::ByHand { .. } => self.faults += 1,
            Seen::Lost(_)
            | Seen::Serving
            | Seen::FloorSent { .. }
            | Seen::Heard { .. }
            | Seen::HeardReplaced { .. }
            | Seen::Asked(..)
            | Seen::AbortAsked(_)
            | Seen::Told(_)
            | Seen::Archived(_)
            | Seen::Expired(_)
            | Seen::Replayed { .. }
            | Seen::Stepped { .. }
            | Seen::Said { .. }
            | Seen::Received { .. } => {}
        }
    }

    fn appended(&mut self, record: &Record) {
        match record {
            Record::Commit(outcome) => {
                self.decided.insert(outcome.xid, Decision::Commit);
            }
            Record::Abort(outcome) => {
                self.minted
                    .entry(outcome.xid)
                    .or_insert_with(|| outcome.transaction_id.clone());
                self.decided.insert(outcome.xid, Decision::Abort);
            }
            Record::End(xid) => {
                self.ended.insert(*xid);
            }
            Record::Suspect { .. } => self.suspect = true,
            _ => {}
        }
    }

    fn forced(&mut self, record: &Record) {
        match record {
            Record::Incarnation(incarnation) => {
                let lineage = self.lineage();
                self.starts.extend(lineage.map(|lineage| (lineage, *incarnation)));
            }
            Record::Commit(outcome) => {
                self.commits.insert(outcome.xid, outcome.clone());
            }
            Record::Abort(outcome) => {
                self.aborts.insert(outcome.xid, outcome.clone());
            }
            Record::Heuristic {
                xid,
                participant,
                lineage,
                what,
                damage,
                ..
            } => {
                let truth = HeuristicTruth {
                    lineage: *lineage,
                    what: *what,
                    damage: *damage,
                };
                self.heuristics.insert((*xid, participant.clone()), truth);
            }
            Record::Forget { xid, participant, .. } => {
                self.forgets.insert((*xid, participant.clone()));
            }
            Record::Resolved { xid, decision, .. } => {
                self.resolved.insert(*xid, *decision);
            }
            Record::SuspectCleared(_) => self.suspect = false,
            _ => {}
        }
    }

    fn wrote(&mut self, lineage: Lineage, shown: Shown<'_>) {
        match shown {
            Shown::Prepared(xid, _, movements) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                branch.holds = true;
                branch.moves = movements
                    .movements
                    .iter()
                    .map(|movement| (movement.account.to_string(), movement.amount))
                    .collect();
            }
            Shown::Committed(xid, _) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                (branch.committed, branch.holds) = (true, false);
            }
            Shown::Aborted(xid) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                (branch.aborted, branch.holds) = (true, false);
            }
            Shown::ByHand(xid, _, decision) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                (branch.by_hand, branch.holds) = (Some(decision), false);
            }
            Shown::Forgotten(xid) => self.branches.entry((xid, lineage)).or_default().forgotten = true,
            Shown::Lineage(_) | Shown::Incarnation(_) | Shown::Floor(..) | Shown::Other | Shown::Damaged => {}
        }
    }

    fn wrote_durably(&mut self, lineage: Lineage, shown: Shown<'_>) {
        match shown {
            Shown::Floor(of, floor) => {
                let written = self.floors_written.entry((lineage, of)).or_default();
                *written = floor.max(*written);
            }
            Shown::Prepared(xid, ..) => self.branches.entry((xid, lineage)).or_default().prepared = true,
            Shown::Committed(xid, _) => {
                self.branches.entry((xid, lineage)).or_default().committed_durably = true;
            }
            Shown::ByHand(xid, ..) => self.branches.entry((xid, lineage)).or_default().by_hand_durably = true,
            Shown::Forgotten(xid) => {
                self.branches.entry((xid, lineage)).or_default().forgotten_durably = true;
            }
            Shown::Aborted(_) | Shown::Lineage(_) | Shown::Incarnation(_) | Shown::Other | Shown::Damaged => {
            }
        }
    }

    /// A crash takes records back from the end, so the branch is again as it was before them.
    fn unwrote(&mut self, lineage: Lineage, shown: Shown<'_>) {
        match shown {
            Shown::Prepared(xid, ..) => {
                self.branches.entry((xid, lineage)).or_default().holds = false;
            }
            Shown::Committed(xid, _) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                (branch.committed, branch.holds) = (false, true);
            }
            Shown::Aborted(xid) => self.branches.entry((xid, lineage)).or_default().holds = true,
            Shown::ByHand(xid, ..) => {
                let branch = self.branches.entry((xid, lineage)).or_default();
                (branch.by_hand, branch.holds) = (None, true);
            }
            Shown::Forgotten(xid) => self.branches.entry((xid, lineage)).or_default().forgotten = false,
            Shown::Lineage(_) | Shown::Incarnation(_) | Shown::Floor(..) | Shown::Other | Shown::Damaged => {}
        }
    }

    /// The participant with this log.
    #[must_use]
    pub fn name(&self, lineage: Lineage) -> Option<Name> {
        let who = self.logs.iter().find(|(_, logs)| logs.contains(&lineage))?.0;
        Some(name_of(*who))
    }
}

/// Whether a decision record shows this log as a YES voter.
#[must_use]
pub fn names(outcome: &Outcome, lineage: Lineage) -> bool {
    outcome.aborted.is_none()
        && outcome
            .branches
            .iter()
            .any(|branch| branch.lineage == Some(lineage) && branch.vote == Some(Vote::Yes))
}

/// Where a range over the names of one attempt begins.
fn first_name() -> Name {
    match Name::new("!") {
        Ok(name) => name,
        Err(error) => unreachable!("'!' is a name: {error}"),
    }
}
