//! The seam: everything that can happen to the coordinator, and everything it asks of the world.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{JoinRefusal, SessionId, View};
use crate::{
    AbortReason, Fingerprint, Hello, Lsn, Millis, Name, Operator, Outcome, Quarantined, Record,
    ToCoordinator, ToParticipant, TransactionId, UnixMillis, Wait, Xid,
};

/// Names one call of a caller; the machine's answer carries it back.
pub type RequestId = u64;

/// A caller's Execute, within the bounds of sizes and counts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Execute {
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// The caller's first time for that id.
    pub created: UnixMillis,
    /// Of the branches.
    pub fingerprint: Fingerprint,
    /// At least one, at most one per participant, sorted by participant.
    pub branches: Vec<(Name, Arc<[u8]>)>,
    /// The deadline as a duration; at most the limit.
    pub timeout_ms: Millis,
    /// When to answer.
    pub wait: Wait,
}

impl Execute {
    /// The bytes of its operations together.
    #[must_use]
    pub fn operation_bytes(&self) -> usize {
        self.branches.iter().map(|(_, operation)| operation.len()).sum()
    }
}

/// Everything that can happen to the coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// The wall clock, told now and then; only `decided`, R4 and R5 look at it.
    Clock(UnixMillis),
    /// A caller runs a transaction, or asks for its outcome again.
    Execute {
        /// To answer.
        request: RequestId,
        /// What to run.
        execute: Execute,
        /// What the archive has under this id.
        known: Option<Outcome>,
    },
    /// A caller asks for an outcome.
    Get {
        /// To answer.
        request: RequestId,
        /// The caller's id.
        transaction_id: TransactionId,
        /// The caller's first time for it, if it still knows.
        created: Option<UnixMillis>,
        /// What the archive has under this id.
        known: Option<Outcome>,
    },
    /// A caller or an operator aborts what is undecided.
    Abort {
        /// To answer.
        request: RequestId,
        /// The caller's id.
        transaction_id: TransactionId,
        /// The caller's first time for it, if it still knows.
        created: Option<UnixMillis>,
        /// [`AbortReason::Caller`] or [`AbortReason::Operator`].
        by: AbortReason,
        /// What the archive has under this id.
        known: Option<Outcome>,
    },
    /// A participant dialled in and said Hello.
    Joined {
        /// The stream.
        session: SessionId,
        /// What it said.
        hello: Hello,
    },
    /// The stream ended.
    Left(SessionId),
    /// A message of a session.
    Message {
        /// The stream.
        session: SessionId,
        /// What it said.
        message: ToCoordinator,
        /// What the archive has under the message's attempt, if [`super::Coordinator::wants_archive`] said so.
        known: Option<Outcome>,
    },
    /// An operator lets a heuristic be forgotten.
    Forget {
        /// To answer.
        request: RequestId,
        /// The attempt.
        xid: Xid,
        /// Whose branch.
        participant: Name,
        /// Who and why.
        by: Operator,
    },
    /// The caller of this request waits no more: it hung up, or its own deadline passed. Its place among the attached
    /// callers is free; nothing else changes.
    CallerLeft {
        /// Which request.
        request: RequestId,
        /// The id that it named.
        transaction_id: TransactionId,
    },
    /// An archived outcome was found not to decode: it stays in the archive, and in the way of its id and its
    /// attempt (Q5, R3). Told before the event that it concerns.
    Quarantined(Quarantined),
    /// All records up to this one are forced.
    Durable(Lsn),
    /// Time passed.
    Tick,
}

/// Everything the coordinator asks of the world.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Append the record as this LSN; with `force`, force it at once. LSNs come without gaps, in order.
    Append {
        /// The record's number.
        lsn: Lsn,
        /// What to store.
        record: Record,
        /// Whether somebody waits for it.
        force: bool,
    },
    /// Send on a session, in order.
    Send {
        /// The stream.
        session: SessionId,
        /// What to say.
        message: ToParticipant,
    },
    /// Answer a caller.
    Reply {
        /// Whom.
        request: RequestId,
        /// What to say.
        reply: Reply,
    },
    /// The session is accepted: Welcome is the first thing sent on it.
    Welcome(SessionId),
    /// The session is refused and ends.
    RefuseJoin(SessionId, JoinRefusal),
    /// The session was replaced by a newer one of the same participant and ends.
    Replaced(SessionId),
    /// Replay is over and the new incarnation is durable.
    Serving,
    /// The outcome is finished: it is the archive's from here on.
    Archive(Outcome),
    /// Outcomes with max(created, decided) below it go (RETAINED is durable).
    Expire(UnixMillis),
    /// The state of this transaction changed; for those who watch.
    Changed(TransactionId),
    /// Somebody should know.
    Alarm(Alarm),
}

/// What a call is answered with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Reply {
    /// The transaction as it stands: outcome, branches, heuristic.
    Transaction(Box<View>),
    /// The call ran nothing.
    Refused(Refusal),
    /// FORGET is durable.
    Forgotten,
}

/// Why a call ran nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Replay is not over.
    Recovering,
    /// The id is known with another fingerprint.
    OtherContent,
    /// `created` lies further ahead of the coordinator's clock than the bound (R5).
    CreatedAhead {
        /// What the caller said.
        created: UnixMillis,
        /// The coordinator's clock.
        now: UnixMillis,
        /// The bound.
        max_ahead_ms: Millis,
    },
    /// R6.
    ParticipantUnknown(Name),
    /// A bound is reached.
    Exhausted {
        /// Its name in [`crate::Limits`].
        bound: &'static str,
        /// Its value.
        value: u64,
    },
    /// There is no such heuristic to forget, or its transaction is not decided yet.
    NoHeuristic,
}

impl Refusal {
    /// Too many callers wait for the same thing.
    pub(super) fn attached_callers(max: usize) -> Self {
        Self::Exhausted {
            bound: "max_attached_callers",
            value: max as u64,
        }
    }
}

/// What somebody should know. The code is stable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Alarm {
    /// What.
    pub code: AlarmCode,
    /// Who said or caused it, if it was a participant.
    pub participant: Option<Name>,
    /// The attempt it is about.
    pub xid: Option<Xid>,
}

/// The alarms of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AlarmCode {
    /// A branch voted, and then voted otherwise (C2).
    ContraryVote,
    /// A vote, ACK or LOST_STATE that fits no row (C15).
    FitsNoRow,
    /// A YES voter does not know its branch any more (C12).
    LostState,
    /// A YES voter's name is held by another lineage (C12).
    LineageChanged,
    /// A message about an attempt of a lineage that is not this log's (Q2, section 8).
    ForeignLineage,
    /// An attempt that this log never minted (Q4).
    NeverMinted,
    /// A heuristic differs from the decision (C13).
    HeuristicDamage,
    /// Two starts of one participant lineage with the same counter and other bits (section 8).
    IncarnationConflict,
    /// A participant knows a position beyond this log's end (section 5).
    Suspect,
    /// A heuristic report was not taken because too many wait to be forgotten.
    TooManyHeuristics,
}

impl AlarmCode {
    /// The stable code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContraryVote => "CONTRARY_VOTE",
            Self::FitsNoRow => "FITS_NO_ROW",
            Self::LostState => "LOST_STATE",
            Self::LineageChanged => "LINEAGE_CHANGED",
            Self::ForeignLineage => "FOREIGN_LINEAGE",
            Self::NeverMinted => "NEVER_MINTED",
            Self::HeuristicDamage => "HEURISTIC_DAMAGE",
            Self::IncarnationConflict => "INCARNATION_CONFLICT",
            Self::Suspect => "SUSPECT",
            Self::TooManyHeuristics => "TOO_MANY_HEURISTICS",
        }
    }
}
