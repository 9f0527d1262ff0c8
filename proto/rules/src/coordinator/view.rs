//! A transaction as callers and operators see it.

use alloc::vec::Vec;

use super::transaction::{Branch, Transaction};
use super::{Coordinator, State};
use crate::{
    AbortReason, BranchRecord, BranchState, Heuristic, Lineage, Name, NoReason, Outcome, OutcomeKind,
    TransactionId, UnixMillis, Vote, Xid,
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
    /// Whether its heuristic differs from the decision; `None` without one, or while that is not known.
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
    /// Where it is; `None` if nothing is known of it.
    pub state: Option<State>,
    /// Why it was aborted.
    pub aborted: Option<AbortReason>,
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
    #[must_use]
    pub fn closed(id: TransactionId, outcome: OutcomeKind, retained_since: UnixMillis) -> Self {
        Self {
            transaction_id: id,
            xid: None,
            outcome,
            state: None,
            aborted: None,
            heuristic: None,
            branches: Vec::new(),
            created: None,
            decided: None,
            retained_since,
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
        let branch = |branch: &Branch| self.branch_view(xid, branch, transaction.state);
        let forgotten = self.fold.open.get(&xid).and_then(|open| open.outcome.heuristic);
        View {
            transaction_id: transaction.transaction_id.clone(),
            xid: Some(xid),
            outcome: outcome_kind(transaction.state, transaction.aborted.as_ref()),
            state: Some(transaction.state),
            aborted: decided.and(transaction.aborted.clone()),
            heuristic: self.fold.heuristic(xid, forgotten),
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
            self.branch_view(outcome.xid, &branch, state)
        };
        View {
            transaction_id: outcome.transaction_id.clone(),
            xid: Some(outcome.xid),
            outcome: outcome_kind(state, outcome.aborted.as_ref()),
            state: Some(state),
            aborted: outcome.aborted.clone(),
            heuristic: self.fold.heuristic(outcome.xid, outcome.heuristic),
            branches: outcome.branches.iter().map(branch).collect(),
            created: Some(outcome.created),
            decided: Some(outcome.decided),
            retained_since: self.fold.retained_since,
        }
    }

    fn branch_view(&self, xid: Xid, branch: &Branch, state: State) -> BranchView {
        BranchView {
            participant: branch.participant.clone(),
            state: self.branch_state(xid, branch, state),
            reason: no_reason(branch.vote.as_ref()),
            deliveries: branch.deliveries,
            lineage: branch.lineage,
            damage: self
                .fold
                .heuristic_entry(xid, &branch.participant)
                .and_then(|entry| entry.damage),
        }
    }

    fn branch_state(&self, xid: Xid, branch: &Branch, state: State) -> BranchState {
        let heuristic = self.fold.heuristic_entry(xid, &branch.participant);
        match heuristic.map(|entry| entry.what) {
            Some(Heuristic::Commit) => return BranchState::HeuristicCommit,
            Some(Heuristic::Abort) => return BranchState::HeuristicAbort,
            Some(Heuristic::Hazard | Heuristic::Mixed) => return BranchState::Unknown,
            None => {}
        }
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
