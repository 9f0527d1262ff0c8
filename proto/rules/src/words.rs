//! The words of section 1 that are plain values: votes, decisions, outcomes, reasons, states of a branch.

use alloc::sync::Arc;

use crate::Name;

/// The first 128 bits of SHA-256 over the sorted list of (participant, operation): what an id stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fingerprint(pub [u8; 16]);

/// Why a participant votes NO.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NoReason {
    /// A stable code in upper snake case, e.g. `INSUFFICIENT_FUNDS`; at most 64 bytes.
    pub code: Arc<str>,
    /// A sentence for people; at most 512 bytes.
    pub detail: Arc<str>,
}

impl NoReason {
    /// NO to a PREPARE below the floor (P1).
    pub const BELOW_FLOOR: &'static str = "BELOW_FLOOR";
    /// Another attempt of the transaction has its effect here (P2). The only code the coordinator reads:
    /// such an abort is told as UNKNOWN (C8).
    pub const DUPLICATE_TRANSACTION: &'static str = "DUPLICATE_TRANSACTION";

    /// A reason from its two texts.
    #[must_use]
    pub fn new(code: &str, detail: &str) -> Self {
        Self {
            code: Arc::from(code),
            detail: Arc::from(detail),
        }
    }
}

/// What a participant answers to PREPARE. A value, never an error (section 1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Vote {
    /// PREPARED is durable: the branch can commit and waits for the decision.
    Yes,
    /// The branch cannot commit and holds nothing.
    No(NoReason),
    /// The branch changes nothing, holds nothing, and needs no decision.
    ReadOnly,
}

/// What the coordinator chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Decision {
    /// Every branch voted YES or READ_ONLY.
    Commit,
    /// Anything else.
    Abort,
}

/// Why a transaction was aborted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AbortReason {
    /// This participant voted NO for this reason.
    VoteNo(Name, NoReason),
    /// Not all votes were in when the deadline passed.
    Deadline,
    /// A caller asked for it while it was PREPARING.
    Caller,
    /// An operator asked for it while it was PREPARING.
    Operator,
    /// This participant's branch was aborted heuristically before the decision (C4).
    HeuristicAbort(Name),
    /// This participant came back with another lineage before the decision (C4).
    LineageChanged(Name),
    /// AbortTransaction for an id that never ran (R7).
    Fence,
}

impl AbortReason {
    /// The stable code that callers see: a participant's own code for a NO vote.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::VoteNo(_, reason) => &reason.code,
            Self::Deadline => "DEADLINE_EXCEEDED",
            Self::Caller => "ABORTED_BY_CALLER",
            Self::Operator => "ABORTED_BY_OPERATOR",
            Self::HeuristicAbort(_) => "HEURISTIC_ABORT",
            Self::LineageChanged(_) => "PARTICIPANT_LINEAGE_CHANGED",
            Self::Fence => "FENCED_BEFORE_EXECUTE",
        }
    }

    /// Whether another attempt of the same transaction took effect, so that ABORTED must not be said (C8).
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        match self {
            Self::VoteNo(_, reason) => &*reason.code == NoReason::DUPLICATE_TRANSACTION,
            Self::Deadline
            | Self::Caller
            | Self::Operator
            | Self::HeuristicAbort(_)
            | Self::LineageChanged(_)
            | Self::Fence => false,
        }
    }
}

/// What somebody did to a prepared branch without the coordinator, or that its state was lost. A field of
/// its own beside the outcome; it never replaces it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Heuristic {
    /// Committed by hand.
    Commit,
    /// Aborted by hand.
    Abort,
    /// A transaction with branches of both kinds. Never of one branch.
    Mixed,
    /// The branch's state was lost: nobody knows which way it went.
    Hazard,
}

/// What a caller is told (section 1, "outcome").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OutcomeKind {
    /// Final: durable COMMIT.
    Committed,
    /// Final: durable ABORT.
    Aborted,
    /// Not decided, or the decision is not durable yet.
    InProgress,
    /// Nobody may say; never a failure.
    Unknown,
    /// Not committed here as of now.
    NotFound,
    /// Older than what is retained.
    Expired,
}

/// Why nobody may say what became of an id or an attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnknownCause {
    /// The caller first used the id before this log was made (R4).
    BeforeBirth,
    /// The log's tail was lost (R3).
    Suspect,
    /// A record that does not decode is, or may be, about this id (R3).
    Quarantined,
    /// Another attempt of the transaction took effect at a participant (C8).
    OtherAttempt,
}

/// When a caller of Execute wants its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wait {
    /// As soon as the decision is durable.
    Decided,
    /// When every branch is resolved (END).
    Completed,
}

/// The state of one branch, one enumeration for API, command and page (section 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BranchState {
    /// Nothing is known of it, or its state was lost (HAZARD).
    Unknown,
    /// Asked to prepare; no vote yet.
    Preparing,
    /// Voted YES and does not know the decision: in doubt.
    Prepared,
    /// COMMIT is decided and on its way to the branch, or its record is being forced.
    Committing,
    /// Committed; the acknowledgement is in.
    Committed,
    /// Aborted, or voted NO.
    Aborted,
    /// Voted READ_ONLY.
    ReadOnly,
    /// A heuristic record is being forced.
    Resolving,
    /// Committed by hand, not forgotten.
    HeuristicCommit,
    /// Aborted by hand, not forgotten.
    HeuristicAbort,
    /// A heuristic that an operator or the coordinator had forgotten.
    Forgotten,
}
