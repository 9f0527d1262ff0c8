//! The callers' boundary (section 7): one table for Execute, GetTransaction and AbortTransaction.

use alloc::boxed::Box;

use super::{Coordinator, Effect, Execute, Refusal, Reply, RequestId, State, View};
use crate::{
    AbortReason, Fingerprint, Name, Outcome, OutcomeKind, Record, TransactionId, UnixMillis, UnknownCause,
    Wait, Xid,
};

/// What section 7 says of an id before it looks at the call.
enum Found {
    /// R1: an attempt is under way (PREPARING, DECIDING or ABORTING).
    Running(Xid),
    /// R2: a retained outcome; still COMMITTING if an attempt is given.
    Decided(Box<View>, Option<Xid>),
    /// R3, R4: nothing may be said or run.
    Unknown(UnknownCause),
    /// R4: it is older than what is retained.
    Expired,
    /// Nothing is known of it.
    Nothing,
}

impl Coordinator {
    /// Execute.
    pub(super) fn execute(&mut self, request: RequestId, execute: Execute, known: Option<&Outcome>) {
        let sorted = execute.branches.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let within = !execute.branches.is_empty() && execute.branches.len() <= self.limits.max_branches;
        assert!(
            sorted && within && execute.timeout_ms <= self.limits.max_deadline_ms,
            "Execute out of bounds"
        );
        if !self.serving {
            return self.reply(request, Reply::Refused(Refusal::Recovering));
        }
        let id = &execute.transaction_id;
        if self.is_other_content(id, execute.fingerprint, known) {
            return self.reply(request, Reply::Refused(Refusal::OtherContent));
        }
        match self.find(id, Some(execute.created), known) {
            Found::Running(xid) => {
                self.attach(request, xid, execute.wait);
            }
            Found::Decided(_, Some(xid)) if execute.wait == Wait::Completed => {
                self.attach(request, xid, Wait::Completed);
            }
            Found::Decided(view, _) => self.reply(request, Reply::Transaction(view)),
            Found::Unknown(cause) => self.reply_unknown(request, id.clone(), cause),
            Found::Expired => self.reply_closed(request, id.clone(), OutcomeKind::Expired),
            Found::Nothing => match self.may_run(&execute) {
                Ok(()) => self.begin(request, execute),
                Err(refusal) => self.reply(request, Reply::Refused(refusal)),
            },
        }
    }

    /// GetTransaction.
    pub(super) fn get(
        &mut self,
        request: RequestId,
        id: &TransactionId,
        created: Option<UnixMillis>,
        known: Option<&Outcome>,
    ) {
        if !self.serving {
            return self.reply(request, Reply::Refused(Refusal::Recovering));
        }
        match self.find(id, created, known) {
            Found::Running(xid) => {
                let view = Box::new(self.view(xid));
                self.reply(request, Reply::Transaction(view));
            }
            Found::Decided(view, _) => self.reply(request, Reply::Transaction(view)),
            Found::Unknown(cause) => self.reply_unknown(request, id.clone(), cause),
            Found::Expired => self.reply_closed(request, id.clone(), OutcomeKind::Expired),
            Found::Nothing => match created.and_then(|created| self.ahead(created)) {
                Some(refusal) => self.reply(request, Reply::Refused(refusal)),
                None => self.reply_closed(request, id.clone(), OutcomeKind::NotFound),
            },
        }
    }

    /// AbortTransaction.
    pub(super) fn abort_call(
        &mut self,
        request: RequestId,
        id: &TransactionId,
        created: Option<UnixMillis>,
        by: AbortReason,
        known: Option<&Outcome>,
    ) {
        if !self.serving {
            return self.reply(request, Reply::Refused(Refusal::Recovering));
        }
        match self.find(id, created, known) {
            Found::Running(xid) => {
                let attached = self.attach(request, xid, Wait::Decided);
                let state = self.transactions.get(&xid).map(|transaction| transaction.state);
                // A call that is refused runs nothing.
                if attached && state == Some(State::Preparing) {
                    self.abort(xid, by);
                }
            }
            Found::Decided(view, _) => self.reply(request, Reply::Transaction(view)),
            Found::Unknown(cause) => self.reply_unknown(request, id.clone(), cause),
            Found::Expired => self.reply_closed(request, id.clone(), OutcomeKind::Expired),
            Found::Nothing => match created {
                None => self.reply_closed(request, id.clone(), OutcomeKind::NotFound),
                Some(created) => self.fence(request, id, created),
            },
        }
    }

    /// R7: an ABORT of an id that never ran, against an Execute still under way.
    fn fence(&mut self, request: RequestId, id: &TransactionId, created: UnixMillis) {
        if let Some(refusal) = self.ahead(created) {
            return self.reply(request, Reply::Refused(refusal));
        }
        if let Err(refusal) = self.admit_outcome(true) {
            return self.reply(request, Reply::Refused(refusal));
        }
        self.begin_fence(request, id.clone(), created);
    }

    fn begin_fence(&mut self, request: RequestId, transaction_id: TransactionId, created: UnixMillis) {
        let xid = self.mint();
        let decided = self.decide_time();
        let outcome = Outcome {
            xid,
            transaction_id: transaction_id.clone(),
            fingerprint: None,
            created,
            decided,
            aborted: Some(AbortReason::Fence),
            branches: alloc::vec::Vec::new(),
            heuristic: None,
        };
        let mut fence = super::Transaction::committing(&outcome, |_| true);
        fence.state = State::Aborting;
        fence.aborted = outcome.aborted.clone();
        fence.callers.push((request, Wait::Decided));
        self.running.insert(transaction_id, xid);
        self.transactions.insert(xid, fence);
        self.retention.fence_begun();
        self.append(Record::Abort(outcome), true);
    }

    /// Compared first, with what is known of the id; a fence matches everything.
    fn is_other_content(&self, id: &TransactionId, asked: Fingerprint, known: Option<&Outcome>) -> bool {
        let running = self.running.get(id).and_then(|xid| self.transactions.get(xid));
        let fingerprint = match running {
            Some(transaction) => transaction.fingerprint,
            None => self.retained(id, known).and_then(|outcome| outcome.fingerprint),
        };
        fingerprint.is_some_and(|fingerprint| fingerprint != asked)
    }

    /// The retained outcome of an id that is not running.
    fn retained<'a>(&'a self, id: &TransactionId, known: Option<&'a Outcome>) -> Option<&'a Outcome> {
        let open = self.fold.open_ids.get(id).and_then(|xid| self.fold.open.get(xid));
        let archived = known.filter(|outcome| {
            outcome.transaction_id == *id && outcome.retained_by() >= self.fold.retained_since
        });
        open.map(|open| &open.outcome).or(archived)
    }

    /// R1 to R4.
    fn find(&self, id: &TransactionId, created: Option<UnixMillis>, known: Option<&Outcome>) -> Found {
        if let Some(xid) = self.running.get(id) {
            let state = self.transactions.get(xid).map(|transaction| transaction.state);
            return match state {
                Some(State::Preparing | State::Deciding | State::Aborting) => Found::Running(*xid),
                Some(State::Committing | State::Committed | State::Aborted) | None => {
                    Found::Decided(Box::new(self.view(*xid)), Some(*xid))
                }
            };
        }
        if let Some(outcome) = self.retained(id, known) {
            return Found::Decided(Box::new(self.view_of_outcome(outcome)), None);
        }
        // R5 let it be that far ahead of the clock when it was asked for before this start.
        let earlier = created.is_none_or(|created| created <= self.latest_of_earlier);
        let behind_quarantine = self.quarantine.shows_id(id) || (self.quarantine.hides_an_id() && earlier);
        if behind_quarantine {
            return Found::Unknown(UnknownCause::Quarantined); // R3
        }
        if self.is_suspect() {
            return Found::Unknown(UnknownCause::Suspect); // R3
        }
        match created {
            Some(created) if created < self.fold.birth => Found::Unknown(UnknownCause::BeforeBirth),
            Some(created) if created < self.fold.retained_since => Found::Expired,
            Some(_) | None => Found::Nothing,
        }
    }

    /// R5, R6 and the bounds.
    fn may_run(&mut self, execute: &Execute) -> Result<(), Refusal> {
        if let Some(refusal) = self.ahead(execute.created) {
            return Err(refusal);
        }
        let unknown = execute
            .branches
            .iter()
            .find(|(name, _)| !self.participants.contains_key(name));
        if let Some((name, _)) = unknown {
            return Err(Refusal::ParticipantUnknown(name.clone()));
        }
        let exhausted = |bound, value: usize| Refusal::Exhausted {
            bound,
            value: value as u64,
        };
        if self.transactions.len() >= self.limits.max_in_progress {
            return Err(exhausted("max_in_progress", self.limits.max_in_progress));
        }
        let max_bytes = self.limits.max_in_progress_bytes;
        if self.operation_bytes + execute.operation_bytes() > max_bytes {
            return Err(exhausted("max_in_progress_bytes", max_bytes));
        }
        // One that does not answer must leave room for the others.
        let max_bytes = max_bytes.div_ceil(2);
        let held = |name: &Name| {
            self.participants
                .get(name)
                .map_or(0, |known| known.operation_bytes)
        };
        let mut branches = execute.branches.iter();
        if branches.any(|(name, operation)| held(name) + operation.len() > max_bytes) {
            return Err(exhausted("max_in_progress_bytes of one participant", max_bytes));
        }
        let per_participant = self.limits.max_in_progress_per_participant;
        let owed = |name: &Name| self.participants.get(name).map_or(0, |known| known.owed.len());
        if execute
            .branches
            .iter()
            .any(|(name, _)| owed(name) >= per_participant)
        {
            return Err(exhausted("max_in_progress_per_participant", per_participant));
        }
        self.admit_outcome(false)
    }

    fn ahead(&self, created: UnixMillis) -> Option<Refusal> {
        let now = self.wall();
        let max_ahead_ms = self.limits.max_created_ahead_ms;
        (created > now + max_ahead_ms).then_some(Refusal::CreatedAhead {
            created,
            now,
            max_ahead_ms,
        })
    }

    /// Whether the caller is attached; if not, it was refused.
    fn attach(&mut self, request: RequestId, xid: Xid, wait: Wait) -> bool {
        let max = self.limits.max_attached_callers;
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return false;
        };
        if transaction.callers.len() >= max {
            self.reply(request, Reply::Refused(Refusal::attached_callers(max)));
            return false;
        }
        transaction.callers.push((request, wait));
        true
    }

    /// The callers that wait for an answer about this id, at most `max_attached_callers`.
    pub fn attached_callers(&self, id: &TransactionId) -> impl Iterator<Item = RequestId> {
        let running = self.running.get(id).and_then(|xid| self.transactions.get(xid));
        let callers = running.map(|transaction| transaction.callers.iter());
        callers.into_iter().flatten().map(|(request, _)| *request)
    }

    pub(super) fn caller_left(&mut self, request: RequestId, id: &TransactionId) {
        let running = self
            .running
            .get(id)
            .and_then(|xid| self.transactions.get_mut(xid));
        if let Some(transaction) = running {
            transaction.callers.retain(|(attached, _)| *attached != request);
        }
    }

    fn reply_unknown(&mut self, request: RequestId, transaction_id: TransactionId, cause: UnknownCause) {
        let view = View::unknown(transaction_id, cause, self.fold.retained_since);
        self.reply(request, Reply::Transaction(Box::new(view)));
    }

    fn reply_closed(&mut self, request: RequestId, transaction_id: TransactionId, outcome: OutcomeKind) {
        let view = View::closed(transaction_id, outcome, self.fold.retained_since);
        self.effects.push(Effect::Reply {
            request,
            reply: Reply::Transaction(Box::new(view)),
        });
    }
}
