//! What must be seen at least once in a batch of runs, or the batch proves nothing (section 10, `sometimes`).

use std::collections::{BTreeMap, BTreeSet};

use covenant_rules::{Decision, Lsn, Record, ToCoordinator, ToParticipant, Vote, Xid};

use crate::disk::Disk;
use crate::history::History;
use crate::node::Node;
use crate::seen::Seen;

/// The `sometimes` of section 10, and some of our own.
pub const ALL: [&str; 14] = [
    "a commit during which every node crashed once",
    "a restart with the COMMIT record half-written, found",
    "a restart with the COMMIT record half-written, not found",
    "an inquiry answered by presumption",
    "COMMIT below the floor",
    "heuristic damage",
    "a read-only mix",
    "a retry whose first attempt is still held somewhere",
    "a frame of a replaced session arrived",
    "a failed force",
    "a tombstone was met by COMMIT",
    "UNKNOWN to an inquiry",
    "an effect was lost and applied again",
    "a checkpoint that a later start read",
];

/// How often each thing was seen.
#[derive(Clone, Default, Debug)]
pub struct Sometimes {
    /// By name.
    pub counts: BTreeMap<&'static str, u64>,
    crashed: BTreeMap<Xid, BTreeSet<Node>>,
    lost_effects: BTreeSet<(Xid, covenant_rules::Lineage)>,
    held_first: BTreeSet<covenant_rules::TransactionId>,
    presumed: BTreeSet<Xid>,
}

impl Sometimes {
    /// Counts one.
    pub fn happened(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Adds what another run saw.
    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(crate) fn alarm(&mut self, code: &'static str) {
        if code == "HEURISTIC_DAMAGE" {
            self.happened("heuristic damage");
        }
    }

    /// A record that a crash took.
    pub(crate) fn lost(&mut self, record: &Record) {
        if matches!(record, Record::Commit(_)) {
            self.happened("a restart with the COMMIT record half-written, not found");
        }
    }

    /// What a crash left behind the forced records.
    pub(crate) fn found(&mut self, forced: Lsn, disk: &Disk<Record>) {
        for lsn in forced + 1..=disk.appended() {
            if matches!(disk.get(lsn), Some(Record::Commit(_))) {
                self.happened("a restart with the COMMIT record half-written, found");
            }
        }
    }

    pub(crate) fn note(&mut self, history: &History, seen: &Seen<'_>) {
        match seen {
            Seen::Died(node) => {
                for crashed in self.crashed.values_mut() {
                    crashed.insert(*node);
                }
            }
            Seen::Replayed {
                checkpointed: true, ..
            }
            | Seen::CoordinatorStarted {
                checkpointed: true, ..
            } => {
                self.happened("a checkpoint that a later start read");
            }
            Seen::ForceFailed(_) => self.happened("a failed force"),
            Seen::Appended(_, Record::Commit(outcome)) => {
                self.crashed.insert(outcome.xid, BTreeSet::new());
                let voted = |vote: &Vote| {
                    outcome
                        .branches
                        .iter()
                        .any(|branch| branch.vote.as_ref() == Some(vote))
                };
                if voted(&Vote::ReadOnly) && voted(&Vote::Yes) {
                    self.happened("a read-only mix");
                }
                if self.held_first.contains(&outcome.transaction_id) {
                    self.happened("a retry whose first attempt is still held somewhere");
                }
            }
            Seen::Appended(_, Record::End(xid)) => self.ended(history, *xid),
            Seen::Sent { lineage, message, .. } => self.sent(history, *lineage, message),
            Seen::Received { lineage, message, .. } => self.received(history, *lineage, message),
            Seen::Said {
                message: ToCoordinator::Vote(xid, Vote::Yes),
                ..
            } => {
                let id = history.minted.get(xid);
                let held = |(other, branch): (&(Xid, _), &crate::history::BranchTruth)| {
                    branch.holds && other.0 != *xid && history.minted.get(&other.0) == id
                };
                if let Some(id) = id.filter(|_| history.branches.iter().any(held)) {
                    self.held_first.insert(id.clone());
                }
            }
            Seen::Unwrote { lineage, record } => {
                if let covenant_ledger::simulated::Shown::Committed(xid, _) = record.shown() {
                    self.lost_effects.insert((xid, *lineage));
                }
            }
            Seen::Wrote { lineage, record, .. } => {
                if let covenant_ledger::simulated::Shown::Committed(xid, _) = record.shown()
                    && self.lost_effects.remove(&(xid, *lineage))
                {
                    self.happened("an effect was lost and applied again");
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, history: &History, xid: Xid) {
        let Some(crashed) = self.crashed.remove(&xid) else {
            return;
        };
        let Some(outcome) = history.commits.get(&xid) else {
            return;
        };
        let voter = |lineage| {
            let who = history.logs.iter().find(|(_, logs)| logs.contains(&lineage));
            who.is_some_and(|(who, _)| crashed.contains(&Node::Participant(*who)))
        };
        let mut voters = outcome.yes_voters().map(|(_, lineage)| lineage).peekable();
        if voters.peek().is_some() && voters.all(voter) && crashed.contains(&Node::Coordinator) {
            self.happened("a commit during which every node crashed once");
        }
    }

    fn sent(&mut self, history: &History, lineage: covenant_rules::Lineage, message: &ToParticipant) {
        match message {
            ToParticipant::Abort(xid) => {
                let decided = history.decided.get(xid) == Some(&Decision::Abort);
                if !decided && !history.resolved.contains_key(xid) && self.presumed.insert(*xid) {
                    self.happened("an inquiry answered by presumption");
                }
            }
            ToParticipant::Unknown(_) => self.happened("UNKNOWN to an inquiry"),
            ToParticipant::Commit(xid) => {
                let tombstone = history
                    .branch(*xid, lineage)
                    .is_some_and(|branch| branch.committed_durably);
                if tombstone {
                    self.happened("a tombstone was met by COMMIT");
                }
            }
            _ => {}
        }
    }

    fn received(&mut self, history: &History, lineage: covenant_rules::Lineage, message: &ToParticipant) {
        if let ToParticipant::Commit(xid) = message {
            let floor = history.floors.get(&(lineage, xid.lineage));
            if floor.is_some_and(|floor| xid.is_below(*floor)) {
                self.happened("COMMIT below the floor");
            }
        }
    }
}
