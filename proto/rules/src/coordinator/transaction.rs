//! The life of one transaction: C1 to C11.
//!
//! ```text
//! Execute -> PREPARING -- all votes in --> DECIDING -- COMMIT durable --> COMMITTING -- END --> COMMITTED
//!                |
//!                +-- NO, deadline, abort, ... --> ABORTING -- ABORT durable --> ABORTED
//! ```
//! There is no other arrow: time-out, retry, operator and recovery all pass through here.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{AlarmCode, Coordinator, Effect, Reply, RequestId, SessionId, Timer};
use crate::{
    AbortReason, Backoff, BranchRecord, Fingerprint, Heuristic, Lineage, Millis, Name, Outcome, Record,
    ToParticipant, TransactionId, UnixMillis, Vote, Wait, Xid,
};

/// Where a transaction is (section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// PREPARE is out; votes are counted.
    Preparing,
    /// COMMIT is appended and not durable. Nothing leaves.
    Deciding,
    /// COMMIT is durable; not all YES voters are resolved.
    Committing,
    /// END.
    Committed,
    /// ABORT is appended and not durable.
    Aborting,
    /// ABORT is durable.
    Aborted,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Branch {
    pub(super) participant: Name,
    /// Until no PREPARE can be sent any more: the vote is counted, or the decision made.
    pub(super) operation: Option<Arc<[u8]>>,
    /// The lineage that was asked first, and the only one whose vote counts.
    pub(super) lineage: Option<Lineage>,
    pub(super) vote: Option<Vote>,
    /// Owes the coordinator nothing.
    pub(super) resolved: bool,
    /// How often the decision was sent.
    pub(super) deliveries: u32,
}

impl Branch {
    fn record(&self) -> BranchRecord {
        BranchRecord {
            participant: self.participant.clone(),
            lineage: self.lineage,
            vote: self.vote.clone(),
            forgotten: None,
        }
    }

    pub(super) fn voted_yes(&self) -> bool {
        self.vote == Some(Vote::Yes)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Transaction {
    pub(super) transaction_id: TransactionId,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) created: UnixMillis,
    pub(super) decided: UnixMillis,
    pub(super) state: State,
    pub(super) aborted: Option<AbortReason>,
    /// Sorted by participant.
    pub(super) branches: Vec<Branch>,
    pub(super) callers: Vec<(RequestId, Wait)>,
    /// Heuristic reports that came in DECIDING (C7).
    pub(super) remembered: Vec<(Name, Lineage, Heuristic)>,
    pub(super) timer: Option<Millis>,
    pub(super) delivery: u32,
}

impl Transaction {
    pub(super) fn branch(&mut self, participant: &Name) -> Option<&mut Branch> {
        let at = self
            .branches
            .binary_search_by(|branch| branch.participant.cmp(participant))
            .ok()?;
        self.branches.get_mut(at)
    }

    /// The transaction as COMMITTING, from its durable decision (recovery).
    pub(super) fn committing(outcome: &Outcome, resolved: impl Fn(&Name) -> bool) -> Self {
        let branch = |record: &BranchRecord| Branch {
            participant: record.participant.clone(),
            operation: None,
            lineage: record.lineage,
            vote: record.vote.clone(),
            resolved: resolved(&record.participant),
            deliveries: 0,
        };
        Self {
            transaction_id: outcome.transaction_id.clone(),
            fingerprint: outcome.fingerprint,
            created: outcome.created,
            decided: outcome.decided,
            state: State::Committing,
            aborted: None,
            branches: outcome.branches.iter().map(branch).collect(),
            callers: Vec::new(),
            remembered: Vec::new(),
            timer: None,
            delivery: 0,
        }
    }

    pub(super) fn outcome(&self, xid: Xid) -> Outcome {
        Outcome {
            xid,
            transaction_id: self.transaction_id.clone(),
            fingerprint: self.fingerprint,
            created: self.created,
            decided: self.decided,
            aborted: self.aborted.clone(),
            branches: self.branches.iter().map(Branch::record).collect(),
            heuristic: None,
        }
    }
}

impl Coordinator {
    /// C1: PREPARE to every branch whose participant is here; the others get it when they join.
    pub(super) fn begin(&mut self, request: RequestId, execute: super::Execute) {
        let xid = self.mint();
        let branch = |(participant, operation)| Branch {
            participant,
            operation: Some(operation),
            lineage: None,
            vote: None,
            resolved: false,
            deliveries: 0,
        };
        let deadline = self.now + execute.timeout_ms;
        let transaction = Transaction {
            transaction_id: execute.transaction_id.clone(),
            fingerprint: Some(execute.fingerprint),
            created: execute.created,
            decided: 0,
            state: State::Preparing,
            aborted: None,
            branches: execute.branches.into_iter().map(branch).collect(),
            callers: alloc::vec![(request, execute.wait)],
            remembered: Vec::new(),
            timer: None,
            delivery: 0,
        };
        self.effects.push(Effect::Changed(execute.transaction_id.clone()));
        self.running.insert(execute.transaction_id, xid);
        let participants: Vec<(Name, usize)> = transaction
            .branches
            .iter()
            .map(|branch| {
                let bytes = branch.operation.as_ref().map_or(0, |operation| operation.len());
                (branch.participant.clone(), bytes)
            })
            .collect();
        self.transactions.insert(xid, transaction);
        self.set_timer(xid, Some(deadline));
        for (participant, bytes) in &participants {
            if let Some(known) = self.participants.get_mut(participant) {
                known.owed.insert(xid);
                known.operation_bytes += bytes;
                self.operation_bytes += bytes;
            }
            self.send_prepare(xid, participant);
        }
    }

    /// No PREPARE of this branch, or of all, is sent any more: what it would bring is not held.
    pub(super) fn free_operations(&mut self, xid: Xid, of: Option<&Name>) {
        let transaction = self.transactions.get_mut(&xid);
        for branch in transaction.into_iter().flat_map(|t| &mut t.branches) {
            if of.is_some_and(|name| branch.participant != *name) {
                continue;
            }
            let known = self.participants.get_mut(&branch.participant);
            if let (Some(operation), Some(known)) = (branch.operation.take(), known) {
                known.operation_bytes -= operation.len();
                self.operation_bytes -= operation.len();
            }
        }
    }

    /// C1, C3: PREPARE, if the participant is here with the lineage that was asked before.
    pub(super) fn send_prepare(&mut self, xid: Xid, participant: &Name) {
        let Some((session, lineage)) = self.full_session(participant) else {
            return;
        };
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        let transaction_id = transaction.transaction_id.clone();
        let Some(branch) = transaction.branch(participant) else {
            return;
        };
        if branch.vote.is_some() || branch.lineage.is_some_and(|asked| asked != lineage) {
            return;
        }
        let Some(operation) = branch.operation.clone() else {
            return;
        };
        branch.lineage = Some(lineage);
        self.send(
            session,
            ToParticipant::Prepare {
                xid,
                transaction_id,
                operation,
            },
        );
    }

    /// C2, C4, C14, C15: a vote from the participant's live session.
    pub(super) fn vote(
        &mut self,
        session: SessionId,
        participant: &Name,
        lineage: Lineage,
        xid: Xid,
        vote: Vote,
        known: Option<&Outcome>,
    ) {
        let state = self.transactions.get(&xid).map(|transaction| transaction.state);
        match state {
            Some(State::Preparing | State::Deciding) => {}
            Some(State::Committing | State::Committed | State::Aborting | State::Aborted) | None => {
                if vote == Vote::Yes {
                    self.answer_inquiry(session, participant, lineage, xid, known); // C14
                }
                return;
            }
        }
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        let preparing = transaction.state == State::Preparing;
        match transaction
            .branch(participant)
            .filter(|branch| branch.lineage == Some(lineage))
        {
            None => return self.alarm(AlarmCode::FitsNoRow, Some(participant), Some(xid)), // C15
            Some(Branch {
                vote: Some(counted), ..
            }) => {
                if *counted != vote {
                    self.alarm(AlarmCode::ContraryVote, Some(participant), Some(xid));
                }
                return;
            }
            Some(branch) => {
                assert!(preparing, "DECIDING with a vote missing: {xid} of {participant}");
                branch.vote = Some(vote.clone());
                self.free_operations(xid, Some(participant));
            }
        }
        match vote {
            Vote::Yes => self.decide_if_all_voted(xid),
            Vote::ReadOnly => {
                self.no_longer_owed(participant, xid);
                self.decide_if_all_voted(xid);
            }
            Vote::No(reason) => self.abort(xid, AbortReason::VoteNo(participant.clone(), reason)),
        }
        self.changed(xid);
    }

    /// C6: all votes are in. Nothing leaves before COMMIT is durable.
    pub(super) fn decide_if_all_voted(&mut self, xid: Xid) {
        let decided = self.decide_time();
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        let all_in = transaction.branches.iter().all(|branch| branch.vote.is_some());
        if transaction.state != State::Preparing || !all_in {
            return;
        }
        transaction.state = State::Deciding;
        transaction.decided = decided;
        let outcome = transaction.outcome(xid);
        self.free_operations(xid, None);
        self.set_timer(xid, None);
        self.append(Record::Commit(outcome), true);
    }

    /// C4: append ABORT with force; the messages to participants wait for nothing, callers for the force.
    pub(super) fn abort(&mut self, xid: Xid, reason: AbortReason) {
        let decided = self.decide_time();
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        assert!(
            transaction.state == State::Preparing,
            "ABORT of {xid} in {:?}",
            transaction.state
        );
        transaction.state = State::Aborting;
        transaction.decided = decided;
        transaction.aborted = Some(reason);
        let outcome = transaction.outcome(xid);
        let told: Vec<(Name, Option<Lineage>, bool)> = transaction
            .branches
            .iter()
            .map(|branch| {
                (
                    branch.participant.clone(),
                    branch.lineage,
                    needs_abort(branch.vote.as_ref()),
                )
            })
            .collect();
        self.free_operations(xid, None);
        self.set_timer(xid, None);
        self.append(Record::Abort(outcome), true);
        for (participant, lineage, tell) in told {
            self.no_longer_owed(&participant, xid);
            let session = lineage.and_then(|lineage| self.session_of(&participant, lineage));
            if let Some(session) = session.filter(|_| tell) {
                self.send(session, ToParticipant::Abort(xid));
            }
        }
        self.changed(xid);
    }

    /// C9, C11: COMMIT to the unresolved YES voters that are here (to one participant, or to all).
    pub(super) fn send_commits(&mut self, xid: Xid, only: Option<&Name>) {
        let Some(transaction) = self.transactions.get(&xid) else {
            return;
        };
        assert!(
            transaction.state == State::Committing,
            "COMMIT of {xid} in {:?}",
            transaction.state
        );
        let due: Vec<(Name, Lineage)> = transaction
            .branches
            .iter()
            .filter(|branch| branch.voted_yes() && !branch.resolved)
            .filter(|branch| only.is_none_or(|only| *only == branch.participant))
            .filter_map(|branch| Some((branch.participant.clone(), branch.lineage?)))
            .collect();
        let mut sent = false;
        for (participant, lineage) in due {
            if self.decided_by_hand(xid, &participant, lineage) {
                continue;
            }
            let Some(session) = self.session_of(&participant, lineage) else {
                continue;
            };
            self.send(session, ToParticipant::Commit(xid));
            if let Some(branch) = self
                .transactions
                .get_mut(&xid)
                .and_then(|t| t.branch(&participant))
            {
                branch.deliveries = branch.deliveries.saturating_add(1);
            }
            sent = true;
        }
        // One that joins again and again must not put off what the others are owed.
        let armed = self.transactions.get(&xid).is_some_and(|t| t.timer.is_some());
        if sent && !armed {
            self.arm_retry(xid);
        }
    }

    fn arm_retry(&mut self, xid: Xid) {
        let backoff = Backoff {
            base_ms: self.limits.retry_base_ms,
            cap_ms: self.limits.retry_cap_ms,
        };
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        let pause = backoff.pause(xid, "", transaction.delivery);
        transaction.delivery = transaction.delivery.saturating_add(1);
        self.set_timer(xid, Some(self.now + pause));
    }

    /// C10, C15: ACK from the lineage that voted resolves the branch.
    pub(super) fn ack(&mut self, participant: &Name, lineage: Lineage, xid: Xid) {
        let state = self.transactions.get(&xid).map(|transaction| transaction.state);
        match state {
            Some(State::Committing) => {}
            // The branch may acknowledge again after END, and below the floor (P8, C14).
            Some(State::Committed) | None => return,
            Some(State::Preparing | State::Deciding | State::Aborting | State::Aborted) => {
                return self.alarm(AlarmCode::FitsNoRow, Some(participant), Some(xid));
            }
        }
        let awaits_forget = self.awaits_forget(xid, participant, lineage);
        let branch = self
            .transactions
            .get_mut(&xid)
            .and_then(|transaction| transaction.branch(participant));
        match branch.filter(|branch| branch.voted_yes() && branch.lineage == Some(lineage)) {
            None => self.alarm(AlarmCode::FitsNoRow, Some(participant), Some(xid)),
            Some(branch) if branch.resolved || awaits_forget => {}
            Some(_) => {
                self.clear_hazard(xid, participant);
                self.resolve_branch(xid, participant);
            }
        }
    }

    /// The branch owes nothing any more; END when none does (C10).
    pub(super) fn resolve_branch(&mut self, xid: Xid, participant: &Name) {
        let branch = self
            .transactions
            .get_mut(&xid)
            .and_then(|transaction| transaction.branch(participant));
        if let Some(branch) = branch {
            branch.resolved = true;
            self.no_longer_owed(participant, xid);
            self.end_if_all_resolved(xid);
        }
    }

    pub(super) fn end_if_all_resolved(&mut self, xid: Xid) {
        let Some(transaction) = self.transactions.get(&xid) else {
            return;
        };
        let owes = |branch: &Branch| branch.voted_yes() && !branch.resolved;
        if transaction.state != State::Committing || transaction.branches.iter().any(owes) {
            return;
        }
        self.set_timer(xid, None);
        let Some(mut transaction) = self.transactions.remove(&xid) else {
            return;
        };
        transaction.state = State::Committed;
        self.stop_running(&transaction.transaction_id, xid);
        self.append(Record::End(xid), false);
        let callers = core::mem::take(&mut transaction.callers);
        let view = self.view_of(xid, &transaction);
        for (request, _) in callers {
            self.reply(request, Reply::Transaction(alloc::boxed::Box::new(view.clone())));
        }
        self.effects.push(Effect::Changed(transaction.transaction_id));
    }

    pub(super) fn stop_running(&mut self, transaction_id: &TransactionId, xid: Xid) {
        if self.running.get(transaction_id) == Some(&xid) {
            self.running.remove(transaction_id);
        }
    }

    /// The deadline (C4), or the next delivery (C11).
    pub(super) fn transaction_due(&mut self, xid: Xid) {
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        transaction.timer = None;
        match transaction.state {
            State::Preparing => self.abort(xid, AbortReason::Deadline),
            State::Committing => self.send_commits(xid, None),
            State::Deciding | State::Committed | State::Aborting | State::Aborted => {}
        }
    }

    pub(super) fn set_timer(&mut self, xid: Xid, at: Option<Millis>) {
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        let before = core::mem::replace(&mut transaction.timer, at);
        if let Some(before) = before {
            self.timers.remove(&(before, Timer::Transaction(xid)));
        }
        if let Some(at) = at {
            self.timers.insert((at, Timer::Transaction(xid)));
        }
    }

    pub(super) fn changed(&mut self, xid: Xid) {
        if let Some(transaction) = self.transactions.get(&xid) {
            self.effects
                .push(Effect::Changed(transaction.transaction_id.clone()));
        }
    }
}

/// ABORT goes to all but NO and READ_ONLY voters (C4).
fn needs_abort(vote: Option<&Vote>) -> bool {
    match vote {
        Some(Vote::No(_) | Vote::ReadOnly) => false,
        Some(Vote::Yes) | None => true,
    }
}
