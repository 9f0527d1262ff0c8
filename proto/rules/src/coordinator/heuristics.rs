//! Heuristics: C12 and C13. A heuristic stands beside the outcome and never replaces it.

use alloc::vec::Vec;

use super::{AlarmCode, Coordinator, State, differs, inquiry::Answer};
use crate::{AbortReason, Decision, Heuristic, Lineage, Name, Outcome, Record, ToParticipant, Vote, Xid};

impl Coordinator {
    /// C13, and C4 or C5 while PREPARING: a participant reports what was decided by hand.
    pub(super) fn report(
        &mut self,
        participant: &Name,
        lineage: Lineage,
        xid: Xid,
        what: Heuristic,
        known: Option<&Outcome>,
    ) {
        match what {
            Heuristic::Commit | Heuristic::Abort => {}
            // Of one branch nobody can report these.
            Heuristic::Mixed | Heuristic::Hazard => {
                return self.alarm(AlarmCode::FitsNoRow, Some(participant), Some(xid));
            }
        }
        match self
            .transactions
            .get_mut(&xid)
            .map(|transaction| (transaction.state, transaction))
        {
            Some((State::Deciding, transaction)) => {
                let report = (participant.clone(), lineage, what);
                if !transaction.remembered.contains(&report) {
                    transaction.remembered.push(report); // C7
                }
                return;
            }
            Some((State::Preparing, transaction)) => {
                let asked = transaction
                    .branch(participant)
                    .is_some_and(|b| b.lineage == Some(lineage));
                self.record_heuristic(xid, participant, lineage, what, None, None);
                if asked && what == Heuristic::Abort {
                    self.abort(xid, AbortReason::HeuristicAbort(participant.clone())); // C4
                }
                return;
            }
            Some((State::Committing | State::Committed | State::Aborting | State::Aborted, _)) | None => {}
        }
        let aborting = self
            .transactions
            .get(&xid)
            .is_some_and(|t| t.state == State::Aborting);
        let decision = if aborting {
            None
        } else {
            self.answer(xid, lineage, known).decision()
        };
        let damage = decision.map(|decision| differs(what, decision));
        if let (None, Answer::Unknown(Some(code))) = (decision, self.answer(xid, lineage, known)) {
            self.alarm(code, Some(participant), Some(xid));
        }
        self.record_heuristic(xid, participant, lineage, what, damage, known);
    }

    /// Forces HEURISTIC, once per branch and content.
    pub(super) fn record_heuristic(
        &mut self,
        xid: Xid,
        participant: &Name,
        lineage: Lineage,
        what: Heuristic,
        damage: Option<bool>,
        archived: Option<&Outcome>,
    ) {
        let entry = self.fold.heuristic_entry(xid, participant);
        let same = entry.is_some_and(|e| e.what == what && (e.damage == damage || damage.is_none()));
        if same {
            if let Some(session) = self.session_of(participant, lineage) {
                self.send(session, ToParticipant::ReportRecorded(xid));
            }
            return;
        }
        let new = entry.is_none() && self.on_its_way.heuristic(xid, participant).is_none();
        if self.on_its_way.has_heuristic(xid, participant, what, damage) {
            return;
        }
        let kept = self.fold.heuristics.len() + self.on_its_way.heuristics();
        // Reports about attempts that nobody here knows cost a forger nothing: half of the room is not theirs.
        let is_known = self.transactions.contains_key(&xid)
            || self.fold.open.contains_key(&xid)
            || archived.is_some_and(|outcome| outcome.xid == xid);
        let max = self.limits.max_heuristics;
        if new && kept >= if is_known { max } else { max.div_ceil(2) } {
            return self.alarm(AlarmCode::TooManyHeuristics, Some(participant), Some(xid));
        }
        let record = Record::Heuristic {
            xid,
            participant: participant.clone(),
            lineage,
            what,
            damage,
            outcome: self.reopened(xid, archived),
        };
        self.append(record, true);
    }

    /// The outcome of a transaction that may be finished before a heuristic appended here is durable.
    fn reopened(&self, xid: Xid, archived: Option<&Outcome>) -> Option<Outcome> {
        if let Some(transaction) = self.transactions.get(&xid) {
            return (transaction.state == State::Aborting).then(|| transaction.outcome(xid));
        }
        let retained =
            |outcome: &&Outcome| outcome.xid == xid && outcome.retained_by() >= self.fold.retained_since;
        let open = self.fold.open.get(&xid).map(|open| &open.outcome);
        open.or(archived.filter(retained)).cloned()
    }

    /// The decision is durable: judge what was reported before it (C13).
    pub(super) fn judge(&mut self, xid: Xid, decision: Decision) {
        let unjudged: Vec<(Name, Lineage, Heuristic)> = self
            .fold
            .heuristics_of(xid)
            .filter(|(_, entry)| entry.damage.is_none())
            .map(|(name, entry)| (name.clone(), entry.lineage, entry.what))
            .collect();
        for (participant, lineage, what) in unjudged {
            let against = if decision == Decision::Commit {
                // A branch that the COMMIT does not name is answered ABORT (Q7).
                self.answer(xid, lineage, None).decision()
            } else {
                Some(decision)
            };
            if let Some(against) = against {
                let damage = Some(differs(what, against));
                self.record_heuristic(xid, &participant, lineage, what, damage, None);
            }
        }
    }

    /// HEURISTIC is durable: acknowledge, and let it be forgotten or raise the alarm.
    pub(super) fn heuristic_durable(
        &mut self,
        xid: Xid,
        participant: &Name,
        lineage: Lineage,
        what: Heuristic,
        damage: Option<bool>,
    ) {
        if what != Heuristic::Hazard
            && let Some(session) = self.session_of(participant, lineage)
        {
            self.send(session, ToParticipant::ReportRecorded(xid));
        }
        if self.decided_by_hand(xid, participant, lineage) && self.is_committing(xid) {
            // No COMMIT goes to it any more, so it holds no floor back; FORGET needs none (section 6).
            self.no_longer_owed(participant, xid);
        }
        match damage {
            Some(true) => self.alarm(AlarmCode::HeuristicDamage, Some(participant), Some(xid)),
            Some(false) => self.append_forget(xid, participant, None),
            None => self.judge_late(xid, participant, lineage, what),
        }
        self.changed(xid);
    }

    /// A report of the time before the decision has become durable.
    fn judge_late(&mut self, xid: Xid, participant: &Name, lineage: Lineage, what: Heuristic) {
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            if let Some(decision) = self.fold.open.get(&xid).map(|open| open.outcome.decision()) {
                self.judge(xid, decision);
            }
            return;
        };
        match transaction.state {
            State::Preparing => {
                let branch = transaction
                    .branch(participant)
                    .filter(|b| b.lineage == Some(lineage));
                if let (Heuristic::Commit, Some(branch)) = (what, branch) {
                    branch.vote.get_or_insert(Vote::Yes); // C5
                    self.free_operations(xid, Some(participant));
                    self.decide_if_all_voted(xid);
                }
            }
            State::Committing => self.judge(xid, Decision::Commit),
            State::Deciding | State::Aborting | State::Committed | State::Aborted => {}
        }
    }

    /// C12: the voting lineage lost its state, or its name is held by another one.
    pub(super) fn hazard(&mut self, xid: Xid, participant: &Name, voter: Lineage, why: AlarmCode) {
        let known = self.fold.heuristic_entry(xid, participant).is_some();
        if known || self.on_its_way.heuristic(xid, participant).is_some() {
            return;
        }
        self.alarm(why, Some(participant), Some(xid));
        self.record_heuristic(xid, participant, voter, Heuristic::Hazard, Some(true), None);
    }

    /// LOST_STATE from a session (C12, C15).
    pub(super) fn lost_state(&mut self, participant: &Name, lineage: Lineage, xid: Xid) {
        let transaction = self.transactions.get_mut(&xid);
        let committing = transaction.filter(|transaction| transaction.state == State::Committing);
        let branch = committing.and_then(|transaction| transaction.branch(participant));
        match branch.filter(|branch| branch.voted_yes() && branch.lineage == Some(lineage)) {
            Some(branch) if branch.resolved => {}
            Some(_) => self.hazard(xid, participant, lineage, AlarmCode::LostState),
            None => self.alarm(AlarmCode::FitsNoRow, Some(participant), Some(xid)),
        }
    }

    /// The voting lineage acknowledged after all: the hazard is over (C12).
    pub(super) fn clear_hazard(&mut self, xid: Xid, participant: &Name) {
        let entry = self
            .fold
            .heuristic_entry(xid, participant)
            .map(|entry| entry.what);
        if self.on_its_way.heuristic(xid, participant).or(entry) == Some(Heuristic::Hazard) {
            self.append(
                Record::ForgetDone {
                    xid,
                    participant: participant.clone(),
                },
                false,
            );
        }
    }

    /// Whether the branch was committed or aborted by hand: COMMIT is no longer sent to it (C13).
    pub(super) fn decided_by_hand(&self, xid: Xid, participant: &Name, voter: Lineage) -> bool {
        let entry = self.fold.heuristic_entry(xid, participant);
        entry
            .filter(|entry| entry.lineage == voter)
            .is_some_and(|entry| match entry.what {
                Heuristic::Commit | Heuristic::Abort => entry.damage.is_some(),
                Heuristic::Mixed | Heuristic::Hazard => false,
            })
    }

    fn is_committing(&self, xid: Xid) -> bool {
        let transaction = self.transactions.get(&xid);
        transaction.is_some_and(|transaction| transaction.state == State::Committing)
    }

    /// Whether only the acknowledgement of FORGET resolves the branch (C13).
    pub(super) fn awaits_forget(&self, xid: Xid, participant: &Name, voter: Lineage) -> bool {
        let entry = self.fold.heuristic_entry(xid, participant);
        entry.is_some_and(|entry| entry.lineage == voter && entry.what != Heuristic::Hazard)
    }
}
