//! The life of one branch as its participant keeps it.

use alloc::sync::Arc;

use crate::{BranchState, Decision, Millis, TransactionId};

/// One branch and its clock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry {
    pub(super) transaction_id: TransactionId,
    pub(super) state: State,
    /// When it became PREPARED in this start.
    pub(super) since: Millis,
    /// When its inquiry or report goes next; its key in `asks`.
    pub(super) ask_at: Millis,
    /// How often that went, or the vote, in this session.
    pub(super) deliveries: u32,
}

/// The states of section 4, with what each needs, and the ones in which a resource call is under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum State {
    /// P3: unknown to the resource; another attempt of the transaction holds here.
    Waiting { operation: Arc<[u8]> },
    /// Prepare is under way; an ABORT meanwhile is remembered (P10).
    Preparing { operation: Arc<[u8]>, aborted: bool },
    /// In doubt.
    Prepared { operation: Arc<[u8]> },
    /// Abort is under way; for the coordinator it is unknown already.
    Aborting,
    /// Commit is under way.
    Committing,
    /// A tombstone.
    Committed,
    /// Resolve is under way for this operator.
    Resolving { what: Decision, request: u64 },
    /// Decided by hand.
    Heuristic { what: Decision },
    /// Forget is under way.
    Forgetting { what: Decision },
    /// A tombstone.
    Forgotten { committed: bool },
}

impl Entry {
    pub(super) fn new(transaction_id: TransactionId, state: State) -> Self {
        Self {
            transaction_id,
            state,
            since: 0,
            ask_at: 0,
            deliveries: 0,
        }
    }

    /// P2: it has its effect here. COMMIT arrived means that the decision is durable, so committing counts.
    pub(super) fn has_effect(&self) -> bool {
        match &self.state {
            State::Committing | State::Committed => true,
            State::Heuristic { what } | State::Forgetting { what } => *what == Decision::Commit,
            State::Forgotten { committed } => *committed,
            State::Waiting { .. }
            | State::Preparing { .. }
            | State::Prepared { .. }
            | State::Aborting
            | State::Resolving { .. } => false,
        }
    }

    /// P3: it may still hold here.
    pub(super) fn may_hold(&self) -> bool {
        match &self.state {
            State::Preparing { .. } | State::Prepared { .. } | State::Aborting | State::Resolving { .. } => {
                true
            }
            State::Waiting { .. }
            | State::Committing
            | State::Committed
            | State::Heuristic { .. }
            | State::Forgetting { .. }
            | State::Forgotten { .. } => false,
        }
    }

    /// Whether it has something to ask or to report on joining and with back-off (P13, P18).
    pub(super) fn speaks(&self) -> bool {
        match &self.state {
            State::Prepared { .. } | State::Heuristic { .. } => true,
            State::Waiting { .. }
            | State::Preparing { .. }
            | State::Aborting
            | State::Committing
            | State::Committed
            | State::Resolving { .. }
            | State::Forgetting { .. }
            | State::Forgotten { .. } => false,
        }
    }

    /// The state in the words of section 1.
    pub(super) fn branch_state(&self) -> BranchState {
        match &self.state {
            State::Waiting { .. } | State::Preparing { .. } => BranchState::Preparing,
            State::Prepared { .. } => BranchState::Prepared,
            State::Aborting => BranchState::Aborted,
            State::Committing => BranchState::Committing,
            State::Committed => BranchState::Committed,
            State::Resolving { .. } => BranchState::Resolving,
            State::Heuristic { what } | State::Forgetting { what } => match what {
                Decision::Commit => BranchState::HeuristicCommit,
                Decision::Abort => BranchState::HeuristicAbort,
            },
            State::Forgotten { .. } => BranchState::Forgotten,
        }
    }
}
