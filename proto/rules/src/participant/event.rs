//! What goes into the participant machine and what comes out of it: the whole interface to the world.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{
    BranchState, Decision, Floor, Hello, Incarnation, Lineage, Lsn, Operator, ToCoordinator, ToParticipant,
    TransactionId, Vote, Xid,
};

/// Who this participant is in its present start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// Made with its data directory.
    pub lineage: Lineage,
    /// This start, already forced by the resource.
    pub incarnation: Incarnation,
}

/// What a log shows of a branch after replay.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RecoveredState {
    /// PREPARED without a decision: in doubt, and its holds are back.
    Prepared {
        /// The payload, as it came in PREPARE.
        operation: Arc<[u8]>,
    },
    /// COMMITTED, its tombstone kept.
    Committed,
    /// Decided by hand and not forgotten.
    Heuristic(Decision),
    /// A heuristic that was forgotten, its tombstone kept.
    Forgotten {
        /// Whether it had its effect (P2).
        committed: bool,
    },
}

/// One branch after replay.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecoveredBranch {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// Where it stands.
    pub state: RecoveredState,
}

/// Everything a participant knows after its start-up (section 2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Recovered {
    /// Who it is.
    pub identity: Identity,
    /// The stored floor of each coordinator lineage, if one was stored.
    pub floors: Vec<(Lineage, Floor)>,
    /// The highest stored position of each coordinator lineage.
    pub positions: Vec<(Lineage, Lsn)>,
    /// The branches, each xid once, in any order.
    pub branches: Vec<RecoveredBranch>,
}

/// A branch as the resource is asked to prepare it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Branch {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id: the unit of "once" at the resource (P2).
    pub transaction_id: TransactionId,
    /// The opaque payload.
    pub operation: Arc<[u8]>,
    /// The highest position seen of `xid.lineage`; PREPARED stores it.
    pub position: Lsn,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// The driver is about to dial: a new connection number, a [`Effect::Hello`]. No session is up.
    Dialed,
    /// The Welcome of a coordinator: the session is up. No other one is.
    Welcomed {
        /// The coordinator's log.
        lineage: Lineage,
        /// Its start.
        incarnation: Incarnation,
    },
    /// The session is over, or the dial failed.
    SessionEnded,
    /// A frame of the session that is up. Without one it is of a replaced session and dropped (section 8).
    Frame {
        /// The messages, in their order.
        messages: Vec<ToParticipant>,
        /// The coordinator's floor for this participant; applies after the messages.
        floor: Option<Floor>,
        /// The coordinator's position; applies after the messages.
        position: Lsn,
    },
    /// The resource completed [`Effect::Prepare`]; with YES, PREPARED is durable.
    Prepared(Xid, Vote),
    /// The resource completed [`Effect::Commit`]: effect and COMMITTED are durable.
    Committed(Xid),
    /// The resource completed [`Effect::Abort`]: ABORTED is appended, the holds are gone.
    Aborted(Xid),
    /// The resource completed [`Effect::Resolve`]: the heuristic is durable and done.
    Resolved(Xid),
    /// The resource completed [`Effect::Forget`]: FORGOTTEN is durable.
    Forgotten(Xid),
    /// An operator decides a prepared branch by hand (P14).
    Resolve {
        /// Comes back in [`Effect::Answer`].
        request: u64,
        /// The branch.
        xid: Xid,
        /// Which way.
        what: Decision,
        /// Who and why.
        by: Operator,
    },
    /// The clock reached [`next_deadline`](crate::Participant::next_deadline).
    Tick,
}

/// What the world is asked to do. At most one resource call per branch is under way: the next one is asked
/// for only after the completion of the last.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// The first message of the session to dial.
    Hello(Hello),
    /// Send in the session that is up.
    Send(ToCoordinator),
    /// Call the resource: validate, hold, append PREPARED, force (P6), or say NO or READ_ONLY (P4, P5).
    Prepare(Branch),
    /// Call the resource: apply, append effect and COMMITTED, release (P12).
    Commit(Xid),
    /// Call the resource: append ABORTED, then release (P10).
    Abort(Xid),
    /// Call the resource: append HEURISTIC_COMMIT or HEURISTIC_ABORT, force, then apply or release (P14).
    Resolve {
        /// The branch.
        xid: Xid,
        /// Which way.
        what: Decision,
        /// Who and why.
        by: Operator,
    },
    /// Call the resource: append FORGOTTEN, force (P19).
    Forget(Xid),
    /// Tell the resource that a floor rose: a lazy FLOOR record; tombstones below may go (section 6).
    Floor {
        /// Whose floor.
        lineage: Lineage,
        /// The new floor.
        floor: Floor,
    },
    /// Answer an operator's [`Event::Resolve`].
    Answer {
        /// The request that is answered.
        request: u64,
        /// `Ok`: durable and done.
        result: Result<(), Refusal>,
    },
    /// Something that people must look at.
    Alarm(Alarm),
}

/// Why an operator's decision was refused (P14, P21).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// No branch of that xid is known here.
    NotFound,
    /// The branch is not PREPARED but in this state.
    NotPrepared(BranchState),
    /// This other attempt of the transaction is prepared or has an effect here.
    OtherAttempt(Xid),
}

/// A line for people, with a stable code.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Alarm {
    /// What kind.
    pub code: AlarmCode,
    /// The branch, if it is about one.
    pub xid: Option<Xid>,
    /// One sentence.
    pub detail: &'static str,
}

/// The kinds of alarm of a participant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AlarmCode {
    /// A branch is in doubt for longer than `in_doubt_alarm_ms` (P13); once per branch and start.
    InDoubtTooLong,
    /// COMMIT for a branch that should be known here and is not (P8).
    LostState,
    /// The same xid with another operation or transaction id (P21).
    OperationDiffers,
    /// Both decisions for one branch (P21, against S4).
    ContraryDecision,
    /// A message that fits no row (P21).
    UnexpectedMessage,
    /// More than [`MAX_LINEAGES`](super::MAX_LINEAGES) coordinator lineages: floor and position of the newest
    /// are not kept.
    TooManyLineages,
}

impl AlarmCode {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::InDoubtTooLong,
        Self::LostState,
        Self::OperationDiffers,
        Self::ContraryDecision,
        Self::UnexpectedMessage,
        Self::TooManyLineages,
    ];

    /// The stable code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InDoubtTooLong => "IN_DOUBT_TOO_LONG",
            Self::LostState => "LOST_STATE",
            Self::OperationDiffers => "OPERATION_DIFFERS",
            Self::ContraryDecision => "CONTRARY_DECISION",
            Self::UnexpectedMessage => "UNEXPECTED_MESSAGE",
            Self::TooManyLineages => "TOO_MANY_LINEAGES",
        }
    }
}
