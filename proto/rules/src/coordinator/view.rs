//! A transaction as callers and operators see it.

use alloc::vec::Vec;

use super::transaction::{Branch, Transaction};
use super::{Coordinator, State, differs};
use crate::{
    AbortReason, BranchRecord, BranchState, Decision, Heuristic, Lineage, Name, NoReason, Outcome,
    OutcomeKind, TransactionId, UnixMillis, UnknownCause, Vote, Xid,
};

/// One branch of a [`View`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BranchView {
    /// Whose branch.
    pub participant: Name,
    /// Its state as the coordinator knows it.
    pub state: BranchState,
    /// Why it voted NO.
    pub reason: Option<NoReason>,
    /// How often COMMIT was sent to it in this incarnation.
    pub deliveries: u32,
    /// The lineage that was asked.
    pub lineage: Option<Lineage>,
    /// What was decided by hand at it, forgotten or not; never `Mixed`.
    pub heuristic: Option<Heuristic>,
    /// Whether that differs from the decision; `None` without one, or while that is not known.
    pub damage: Option<bool>,
}

/// A transaction as it stands: what every call is answered with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct View {
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// The attempt, if one is known.
    pub xid: Option<Xid>,
    /// What callers are told.
    pub outcome: OutcomeKind,
    /// Why that is UNKNOWN; `None` with every other outcome.
    pub unknown: Option<UnknownCause>,
    /// Where it is; `None` if nothing is known of it.
    pub state: Option<State>,
    /// Why it was aborted.
    pub aborted: Option<AbortReason>,
    /// Whose votes were missing when the deadline passed, sorted; empty unless it was aborted for that.
    pub missing_votes: Vec<Name>,
    /// What was decided by hand beside it.
    pub heuristic: Option<Heuristic>,
    /// Its branches, sorted by participant.
    pub branches: Vec<BranchView>,
    /// The caller's first time for the id.
    pub created: Option<UnixMillis>,
    /// When the coordinator decided.
    pub decided: Option<UnixMillis>,
    /// Outcomes below it are gone.
    pub retained_since: UnixMillis,
}

impl View {
    /// The answer about an id of which nothing is retained.
    pub(super) fn closed(id: TransactionId, outcome: OutcomeKind, retained_since: UnixMillis) -> Self {
        Self {
            transaction_id: id,
            xid: None,
            outcome,
            unknown: None,
            state: None,
            aborted: None,
            missing_votes: Vec::new(),
            heuristic: None,
            branches: Vec::new(),
            created: None,
            decided: None,
            retained_since,
        }
    }

    /// The answer about an id of which nobody may say anything, for this reason.
    #[must_use]
    pub fn unknown(id: TransactionId, cause: UnknownCause, retained_since: UnixMillis) -> Self {
        Self {
            unknown: Some(cause),
            ..Self::closed(id, OutcomeKind::Unknown, retained_since)
        }
    }

    /// How many branches are in doubt as seen from here (section 1): YES voters in PREPARING or DECIDING, or not
    /// resolved in COMMITTING.
    #[must_use]
    pub fn in_doubt(&self) -> usize {
        let in_doubt =
            |branch: &&BranchView| matches!(branch.state, BranchState::Prepared | BranchState::Committing);
        self.branches.iter().filter(in_doubt).count()
    }
}

impl Coordinator {
    /// The view of what is known under this id, if it is running or decided and not archived.
    #[must_use]
    pub fn find_view(&self, id: &TransactionId) -> Option<View> {
        match self.running.get(id) {
            Some(xid) => Some(self.view(*xid)),
            None => {
                let xid = self.fold.open_ids.get(id)?;
                self.fold
                    .open
                    .get(xid)
                    .map(|open| self.view_of_outcome(&open.outcome))
            }
        }
    }

    /// All that is running after this attempt, in the order of their attempts.
    pub fn running_after(&self, after: Option<Xid>) -> impl Iterator<Item = View> + '_ {
        use core::ops::Bound;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.transactions.range((from, Bound::Unbounded));
        range.map(|(xid, transaction)| self.view_of(*xid, transaction))
    }

    /// The caller's id of an attempt that is running or not archived.
    #[must_use]
    pub fn transaction_id(&self, xid: Xid) -> Option<&TransactionId> {
        let running = self
            .transactions
            .get(&xid)
            .map(|transaction| &transaction.transaction_id);
        running.or_else(|| self.fold.open.get(&xid).map(|open| &open.outcome.transaction_id))
    }

    /// Whether an attempt is PREPARING to COMMITTING.
    #[must_use]
    pub fn is_running(&self, xid: Xid) -> bool {
        self.transactions.contains_key(&xid)
    }

    pub(super) fn view(&self, xid: Xid) -> View {
        match (self.transactions.get(&xid), self.fold.open.get(&xid)) {
            (Some(transaction), _) => self.view_of(xid, transaction),
            (None, Some(open)) => self.view_of_outcome(&open.outcome),
            (None, None) => panic!("no view of {xid}: it is neither running nor open"),
        }
    }

    pub(super) fn view_of(&self, xid: Xid, transaction: &Transaction) -> View {
        let decided = match transaction.state {
            State::Committing | State::Committed | State::Aborted => Some(transaction.decided),
            State::Preparing | State::Deciding | State::Aborting => None,
        };
        let open = self.fold.open.get(&xid).map(|open| &open.outcome);
        let branch = |branch: &Branch| {
            let forgotten = open.and_then(|outcome| forgotten(outcome, &branch.participant));
            self.branch_view(xid, branch, transaction.state, forgotten)
        };
        let outcome = outcome_kind(transaction.state, transaction.aborted.as_ref());
        let votes = transaction.branches.iter();
        let votes = votes.map(|branch| (&branch.participant, branch.vote.as_ref()));
        let aborted = decided.and(transaction.aborted.clone());
        View {
            transaction_id: transaction.transaction_id.clone(),
            xid: Some(xid),
            outcome,
            unknown: unknown_cause(outcome),
            state: Some(transaction.state),
            missing_votes: missing_votes(aborted.as_ref(), votes),
            aborted,
            heuristic: self
                .fold
                .heuristic(xid, open.and_then(|outcome| outcome.heuristic)),
            branches: transaction.branches.iter().map(branch).collect(),
            created: Some(transaction.created),
            decided,
            retained_since: self.fold.retained_since,
        }
    }

    /// The view of a decided transaction that runs no more.
    #[must_use]
    pub fn view_of_outcome(&self, outcome: &Outcome) -> View {
        let state = if outcome.aborted.is_some() {
            State::Aborted
        } else {
            State::Committed
        };
        let branch = |record: &BranchRecord| {
            let branch = Branch {
                participant: record.participant.clone(),
                operation: None,
                lineage: record.lineage,
                vote: record.vote.clone(),
                resolved: true,
                deliveries: 0,
            };
            self.branch_view(outcome.xid, &branch, state, record.forgotten)
        };
        let told = outcome_kind(state, outcome.aborted.as_ref());
        let votes = outcome.branches.iter();
        let votes = votes.map(|branch| (&branch.participant, branch.vote.as_ref()));
        View {
            transaction_id: outcome.transaction_id.clone(),
            xid: Some(outcome.xid),
            outcome: told,
            unknown: unknown_cause(told),
            state: Some(state),
            missing_votes: missing_votes(outcome.aborted.as_ref(), votes),
            aborted: outcome.aborted.clone(),
            heuristic: self.fold.heuristic(outcome.xid, outcome.heuristic),
            branches: outcome.branches.iter().map(branch).collect(),
            created: Some(outcome.created),
            decided: Some(outcome.decided),
            retained_since: self.fold.retained_since,
        }
    }

    /// `forgotten`: what was decided by hand at it and is forgotten since.
    fn branch_view(
        &self,
        xid: Xid,
        branch: &Branch,
        state: State,
        forgotten: Option<Heuristic>,
    ) -> BranchView {
        let entry = self.fold.heuristic_entry(xid, &branch.participant);
        let (branch_state, heuristic, damage) = match (entry, forgotten) {
            (Some(entry), _) => (by_hand(entry.what), Some(entry.what), entry.damage),
            // It ended by hand, and must not pass for one that ended by the decision.
            (None, Some(what)) => {
                let damage = decision(state).map(|decision| differs(what, decision));
                (BranchState::Forgotten, Some(what), damage)
            }
            (None, None) => (ordinary(branch, state), None, None),
        };
        BranchView {
            participant: branch.participant.clone(),
            state: branch_state,
            reason: no_reason(branch.vote.as_ref()),
            deliveries: branch.deliveries,
            lineage: branch.lineage,
            heuristic,
            damage,
        }
    }
}

/// The state of a branch that was decided by hand, or whose state was lost.
fn by_hand(what: Heuristic) -> BranchState {
    match what {
        Heuristic::Commit => BranchState::HeuristicCommit,
        Heuristic::Abort => BranchState::HeuristicAbort,
        Heuristic::Hazard | Heuristic::Mixed => BranchState::Unknown,
    }
}

/// The state of a branch at which nobody decided anything by hand.
fn ordinary(branch: &Branch, state: State) -> BranchState {
    match (&branch.vote, state) {
        (Some(Vote::ReadOnly), _) => BranchState::ReadOnly,
        (Some(Vote::No(_)), _) | (_, State::Aborting | State::Aborted) => BranchState::Aborted,
        (None, State::Preparing | State::Deciding | State::Committing | State::Committed) => {
            BranchState::Preparing
        }
        (Some(Vote::Yes), State::Committed) => BranchState::Committed,
        (Some(Vote::Yes), State::Preparing | State::Deciding) => BranchState::Prepared,
        (Some(Vote::Yes), State::Committing) if branch.resolved => BranchState::Committed,
        (Some(Vote::Yes), State::Committing) => BranchState::Committing,
    }
}

/// The durable decision of a transaction in this state.
fn decision(state: State) -> Option<Decision> {
    match state {
        State::Committing | State::Committed => Some(Decision::Commit),
        State::Aborted => Some(Decision::Abort),
        State::Preparing | State::Deciding | State::Aborting => None,
    }
}

/// What is forgotten of the branch of this participant.
fn forgotten(outcome: &Outcome, participant: &Name) -> Option<Heuristic> {
    let at = outcome
        .branches
        .binary_search_by(|branch| branch.participant.cmp(participant))
        .ok()?;
    outcome.branches.get(at)?.forgotten
}

/// Whose votes are not there, if it was aborted because the deadline passed.
fn missing_votes<'a>(
    aborted: Option<&AbortReason>,
    votes: impl Iterator<Item = (&'a Name, Option<&'a Vote>)>,
) -> Vec<Name> {
    if aborted != Some(&AbortReason::Deadline) {
        return Vec::new();
    }
    let missing = votes.filter(|(_, vote)| vote.is_none());
    missing.map(|(name, _)| name.clone()).collect()
}

/// Why an outcome of which the attempt is known is UNKNOWN (C8).
fn unknown_cause(outcome: OutcomeKind) -> Option<UnknownCause> {
    (outcome == OutcomeKind::Unknown).then_some(UnknownCause::OtherAttempt)
}

fn no_reason(vote: Option<&Vote>) -> Option<NoReason> {
    match vote {
        Some(Vote::No(reason)) => Some(reason.clone()),
        Some(Vote::Yes | Vote::ReadOnly) | None => None,
    }
}

fn outcome_kind(state: State, aborted: Option<&AbortReason>) -> OutcomeKind {
    match state {
        State::Preparing | State::Deciding | State::Aborting => OutcomeKind::InProgress,
        State::Committing | State::Committed => OutcomeKind::Committed,
        State::Aborted if aborted.is_some_and(AbortReason::is_duplicate) => OutcomeKind::Unknown, // C8
        State::Aborted => OutcomeKind::Aborted,
    }
}
