//! What must hold of every effect of the coordinator, whatever happened before: the invariants of section 10.

use alloc::collections::{BTreeMap, BTreeSet};

use super::super::{Coordinator, Effect, Reply, View};
use super::LOG;
use super::model::Participant;
use crate::{
    Decision, Floor, Heuristic, Incarnation, Lineage, Name, Outcome, OutcomeKind, Record, ToParticipant,
    TransactionId, Vote, Xid,
};

/// What is true, seen from outside: it is never lost, however often the coordinator is.
#[derive(Default)]
pub(super) struct Truth {
    /// Durable COMMITs and ABORTs, also those whose record was damaged later.
    pub(super) commits: BTreeMap<Xid, Outcome>,
    pub(super) aborts: BTreeMap<Xid, Outcome>,
    /// Appended decisions, durable or not; a crash takes the lost ones back.
    pub(super) decisions: BTreeMap<Xid, Decision>,
    abort_sent: BTreeSet<Xid>,
    starts: BTreeSet<Incarnation>,
    told: BTreeMap<TransactionId, OutcomeKind>,
    /// Who was durably PREPARED, ever.
    pub(super) prepared: BTreeSet<(Xid, Lineage)>,
    pub(super) minted: BTreeMap<Xid, TransactionId>,
    /// ACKs that reached the coordinator.
    pub(super) acked: BTreeSet<(Xid, Lineage)>,
    /// Durable HEURISTIC and FORGET records, ever.
    heuristics: BTreeMap<(Xid, Name), (Lineage, Heuristic)>,
    pub(super) forgets: BTreeSet<(Xid, Name)>,
    /// The highest floor on its way to each lineage.
    pub(super) floors: BTreeMap<Lineage, Floor>,
    /// Attempts whose decision record was damaged, and whether any damage shows no attempt.
    pub(super) damaged: BTreeSet<Xid>,
    pub(super) damage_unseen: bool,
    /// Attempts whose outcome a durable HEURISTIC carries too: known, whatever was damaged.
    carried: BTreeSet<Xid>,
    pub(super) resolved: BTreeMap<Xid, Decision>,
    /// Whether a participant claimed a position that no log ever had.
    pub(super) suspected: bool,
    /// Things that must happen sometimes, or a run proves nothing.
    pub(super) seen: BTreeSet<&'static str>,
}

impl Truth {
    /// A record is durable: it can be found by every later start, unless it is damaged.
    pub(super) fn durable(&mut self, record: &Record) {
        match record {
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
                outcome,
            } => {
                self.heuristics
                    .insert((*xid, participant.clone()), (*lineage, *what));
                if outcome.is_some() {
                    self.carried.insert(*xid);
                }
                if *damage == Some(true) {
                    self.seen.insert("damage");
                }
            }
            Record::Forget { xid, participant, .. } => {
                self.forgets.insert((*xid, participant.clone()));
            }
            Record::Incarnation(start) => {
                self.starts.insert(*start);
            }
            Record::Lineage { .. }
            | Record::Participant { .. }
            | Record::End(_)
            | Record::ForgetDone { .. }
            | Record::Resolved { .. }
            | Record::Retained(_)
            | Record::Suspect { .. }
            | Record::SuspectCleared(_)
            | Record::Quarantined(_) => {}
        }
    }

    /// COMMIT names this lineage.
    pub(super) fn commits(&self, xid: Xid, lineage: Lineage) -> bool {
        self.commits
            .get(&xid)
            .is_some_and(|outcome| outcome.commits(lineage))
    }

    fn committed_attempts<'a>(&'a self, id: &'a TransactionId) -> impl Iterator<Item = &'a Outcome> {
        self.commits
            .values()
            .filter(move |outcome| outcome.transaction_id == *id)
    }

    /// An effect leaves the machine. `aborting` are the ABORTs appended by the same event.
    pub(super) fn effect(
        &mut self,
        machine: &Coordinator,
        effect: &Effect,
        to: Option<&Participant>,
        aborting: &BTreeSet<Xid>,
    ) {
        match effect {
            Effect::Append { record, .. } => self.appended(machine, record),
            Effect::Send { message, .. } => {
                let to = to.expect("a message to a session that never was");
                self.sent(machine, message, to, aborting);
            }
            Effect::Reply {
                reply: Reply::Transaction(view),
                ..
            } => self.replied(machine, view),
            Effect::Reply {
                reply: Reply::Refused(_) | Reply::Forgotten,
                ..
            }
            | Effect::Welcome(_)
            | Effect::RefuseJoin(..)
            | Effect::Replaced(_)
            | Effect::Serving
            | Effect::Archive(_)
            | Effect::Expire(_)
            | Effect::Changed(_)
            | Effect::Alarm(_) => {}
        }
    }

    fn appended(&mut self, machine: &Coordinator, record: &Record) {
        match record {
            Record::Commit(outcome) => self.commit_appended(outcome),
            Record::Abort(outcome) => {
                let before = self.decisions.insert(outcome.xid, Decision::Abort);
                assert_eq!(before, None, "one decision: {}", outcome.xid);
            }
            Record::End(xid) => {
                let outcome = self.commits.get(xid).expect("END of what did not commit");
                for (name, voter) in outcome.yes_voters() {
                    let forgotten = self.forgets.contains(&(*xid, name.clone()));
                    assert!(
                        self.acked.contains(&(*xid, voter)) || forgotten,
                        "C10: END of {xid}, {name} owes"
                    );
                }
            }
            Record::Forget {
                xid,
                participant,
                by: None,
            } => {
                let (lineage, what) = self.heuristics[&(*xid, participant.clone())];
                let committed = self.commits(*xid, lineage);
                let agrees = (what == Heuristic::Commit) == committed;
                assert!(agrees, "S10: FORGET of damage by itself: {xid} {participant}");
                assert!(
                    !self.is_undecided(machine, *xid),
                    "C13: FORGET of {xid} before it is decided"
                );
            }
            Record::Suspect { .. } => assert!(self.suspected, "no log lost its tail"),
            Record::Lineage { .. }
            | Record::Incarnation(_)
            | Record::Participant { .. }
            | Record::Heuristic { .. }
            | Record::Forget { by: Some(_), .. }
            | Record::ForgetDone { .. }
            | Record::Resolved { .. }
            | Record::Retained(_)
            | Record::SuspectCleared(_)
            | Record::Quarantined(_) => {}
        }
    }

    fn commit_appended(&mut self, outcome: &Outcome) {
        let xid = outcome.xid;
        let before = self.decisions.insert(xid, Decision::Commit);
        assert_eq!(before, None, "one decision: {xid}");
        assert!(
            !self.abort_sent.contains(&xid),
            "S4: COMMIT of {xid} after an ABORT left"
        );
        let id = &outcome.transaction_id;
        let others = self.committed_attempts(id).count();
        assert_eq!(others, 0, "S15: a second attempt of {id} commits");
        assert_ne!(
            self.told.get(id),
            Some(&OutcomeKind::Aborted),
            "S11: {id} was told ABORTED"
        );
        for branch in &outcome.branches {
            let voted = branch.vote.as_ref().expect("S2: a vote is missing");
            assert!(!matches!(voted, Vote::No(_)), "S2: a NO voter");
        }
        for (name, voter) in outcome.yes_voters() {
            assert!(
                self.prepared.contains(&(xid, voter)),
                "S2: {name} was never PREPARED for {xid}"
            );
        }
    }

    /// A start of this log minted it, or could have.
    fn is_of_a_start(&self, xid: Xid) -> bool {
        xid.lineage == LOG && self.starts.contains(&xid.incarnation)
    }

    /// This start has not come so far.
    fn is_ahead(&self, machine: &Coordinator, xid: Xid) -> bool {
        let last = self
            .minted
            .keys()
            .rev()
            .find(|minted| minted.incarnation == machine.incarnation());
        xid.incarnation == machine.incarnation() && last.is_none_or(|last| xid > *last)
    }

    fn is_undecided(&self, machine: &Coordinator, xid: Xid) -> bool {
        let durable = self.commits.contains_key(&xid) || self.aborts.contains_key(&xid);
        xid.incarnation == machine.incarnation() && !durable
    }

    fn sent(
        &mut self,
        machine: &Coordinator,
        message: &ToParticipant,
        to: &Participant,
        aborting: &BTreeSet<Xid>,
    ) {
        let key = |xid: &Xid| (*xid, to.name.clone());
        match message {
            ToParticipant::Prepare {
                xid, transaction_id, ..
            } => self.prepare_sent(machine, *xid, transaction_id, to),
            ToParticipant::Commit(xid) => self.commit_sent(*xid, to),
            ToParticipant::Abort(xid) => self.abort_sent(machine, *xid, to, aborting),
            ToParticipant::Pending(xid) => {
                assert!(self.is_undecided(machine, *xid), "Q6: {xid} is decided");
            }
            ToParticipant::Unknown(xid) => {
                let excused = machine.is_suspect() || self.damage_unseen || self.damaged.contains(xid);
                let minted = self.is_of_a_start(*xid) && !self.is_ahead(machine, *xid);
                assert!(excused || !minted, "Q4, Q5: nothing hides {xid}");
                self.seen.insert(if self.damaged.contains(xid) {
                    "unknown by damage"
                } else {
                    "unknown"
                });
            }
            ToParticipant::ReportRecorded(xid) => {
                assert!(
                    self.heuristics.contains_key(&key(xid)),
                    "S5: a report of {xid} is not durable"
                );
            }
            ToParticipant::Forget(xid) => {
                assert!(
                    self.forgets.contains(&key(xid)),
                    "S5: FORGET of {xid} is not durable"
                );
            }
        }
    }

    fn prepare_sent(&mut self, machine: &Coordinator, xid: Xid, id: &TransactionId, to: &Participant) {
        assert_eq!(
            xid.incarnation,
            machine.incarnation(),
            "S12: an attempt of another start"
        );
        let before = self.minted.insert(xid, id.clone());
        assert!(
            before.is_none_or(|before| before == *id),
            "S12: {xid} is two transactions"
        );
        assert_eq!(
            self.decisions.get(&xid),
            None,
            "C4: PREPARE of {xid} after its decision"
        );
        let floor = self.floors.get(&to.lineage).copied().unwrap_or_default();
        assert!(
            !xid.is_below(floor),
            "section 6: PREPARE of {xid} below {floor:?} at {}",
            to.name
        );
    }

    fn commit_sent(&mut self, xid: Xid, to: &Participant) {
        assert!(
            self.commits.contains_key(&xid),
            "S5: COMMIT of {xid} is not durable"
        );
        assert!(
            self.commits(xid, to.lineage),
            "S12: COMMIT of {xid} does not name {}",
            to.name
        );
        let floor = self.floors.get(&to.lineage).copied().unwrap_or_default();
        let given_up = self.damaged.contains(&xid) || self.forgets.contains(&(xid, to.name.clone()));
        if xid.is_below(floor) && !given_up {
            assert!(
                !to.is_prepared(xid),
                "section 6: COMMIT of {xid} below {floor:?}, {} owes an ACK",
                to.name
            );
        }
    }

    fn abort_sent(&mut self, machine: &Coordinator, xid: Xid, to: &Participant, aborting: &BTreeSet<Xid>) {
        assert!(
            !self.commits(xid, to.lineage),
            "S4: ABORT of {xid}, which commits at {}",
            to.name
        );
        if self.resolved.contains_key(&xid) {
            return; // Q3, and those whom RESOLVED(COMMIT) does not name.
        }
        assert!(
            self.is_of_a_start(xid),
            "Q2, Q4: ABORT of {xid}, which was never minted"
        );
        let hidden = self.damaged.contains(&xid) && !self.carried.contains(&xid);
        assert!(!hidden, "Q5: presumption over a damaged record of {xid}");
        let told = aborting.contains(&xid);
        assert!(
            told || !machine.is_suspect(),
            "Q4: presumption under SUSPECT of {xid}"
        );
        let current = xid.incarnation == machine.incarnation();
        match self.decisions.get(&xid) {
            Some(Decision::Abort) => {}
            Some(Decision::Commit) => assert!(
                self.commits.contains_key(&xid),
                "C6: ABORT of {xid} while DECIDING"
            ),
            None => assert!(!current, "Q6: ABORT of {xid}, which is not decided"),
        }
        if !self.commits.contains_key(&xid) {
            self.abort_sent.insert(xid);
        }
        if !told && !current && !self.aborts.contains_key(&xid) {
            self.seen.insert("presumption");
        }
    }

    fn replied(&mut self, machine: &Coordinator, view: &View) {
        let id = &view.transaction_id;
        let committed = self.committed_attempts(id).count() > 0;
        let told = self.told.get(id).copied();
        match view.outcome {
            OutcomeKind::Committed => {
                let xid = view.xid.expect("an outcome names its attempt");
                assert!(
                    self.commits.contains_key(&xid),
                    "S5: COMMITTED of {id} is not durable"
                );
                assert_ne!(told, Some(OutcomeKind::Aborted), "S11: {id} was told ABORTED");
                self.told.insert(id.clone(), OutcomeKind::Committed);
                if xid.incarnation != machine.incarnation() {
                    self.seen.insert("committed across a crash");
                }
            }
            OutcomeKind::Aborted => {
                let xid = view.xid.expect("an outcome names its attempt");
                let record = self.aborts.get(&xid).expect("S5: ABORTED is not durable");
                let duplicate = record
                    .aborted
                    .as_ref()
                    .is_some_and(crate::AbortReason::is_duplicate);
                assert!(!duplicate, "C8: {id} is a duplicate");
                assert!(!committed, "S11: {id} is told ABORTED and committed");
                assert_ne!(told, Some(OutcomeKind::Committed), "S11: {id} was told COMMITTED");
                self.told.insert(id.clone(), OutcomeKind::Aborted);
            }
            OutcomeKind::NotFound => {
                assert!(!committed, "R7: {id} committed and is NOT_FOUND");
                assert_eq!(told, None, "S11: {id} was told an outcome and is NOT_FOUND");
            }
            OutcomeKind::InProgress => {
                let xid = view.xid.expect("what is in progress has an attempt");
                assert!(self.is_undecided(machine, xid), "R1: {id} is decided");
            }
            OutcomeKind::Unknown => {
                self.seen.insert("unknown to a caller");
            }
            OutcomeKind::Expired => panic!("nothing is old enough here: {id}"),
        }
    }

    /// S1, S2, S15 over all participants.
    pub(super) fn ends(&mut self, participants: &[Participant]) {
        let mut committed = BTreeSet::new();
        let mut effects: BTreeMap<&TransactionId, Xid> = BTreeMap::new();
        for participant in participants {
            for xid in &participant.committed {
                committed.insert(*xid);
                let outcome = self
                    .commits
                    .get(xid)
                    .expect("S5: an effect without a durable COMMIT");
                assert!(
                    outcome.commits(participant.lineage),
                    "S2: {xid} does not name {}",
                    participant.name
                );
                let other = effects.insert(&outcome.transaction_id, *xid);
                assert!(
                    other.is_none_or(|other| other == *xid),
                    "S15: two attempts took effect"
                );
            }
            if participant.acked_below_floor > 0 {
                self.seen.insert("commit below the floor");
            }
        }
        for participant in participants {
            if let Some(xid) = participant.aborted.intersection(&committed).next() {
                panic!(
                    "S1: {xid} committed elsewhere and aborted at {}",
                    participant.name
                );
            }
        }
    }
}
