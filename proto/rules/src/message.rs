//! The messages of a session, as plain values (sections 3, 4 and 8).
//!
//! A frame carries a list of them in order; beside them, from the coordinator, its floor for this
//! participant and its position, which apply after the messages of the frame.

use alloc::sync::Arc;

use crate::{Heuristic, Incarnation, Lineage, Lsn, Name, TransactionId, Vote, Xid};

/// The first message of a session, from the participant (section 8).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// The name under which it joins.
    pub name: Name,
    /// Its lineage.
    pub lineage: Lineage,
    /// Its start.
    pub incarnation: Incarnation,
    /// Rises with every dial of one incarnation.
    pub connection: u64,
    /// The highest position it has seen of each coordinator lineage that it knows.
    pub positions: alloc::vec::Vec<(Lineage, Lsn)>,
}

/// From the coordinator to one participant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ToParticipant {
    /// Do the operation so far that it can be committed or aborted, and vote.
    Prepare {
        /// The attempt.
        xid: Xid,
        /// The caller's id: the unit of "once" at the resource (P2).
        transaction_id: TransactionId,
        /// The opaque payload.
        operation: Arc<[u8]>,
    },
    /// The decision COMMIT, first sent, sent again, or as the answer to an inquiry.
    Commit(Xid),
    /// The decision ABORT, or the answer ABORT to an inquiry.
    Abort(Xid),
    /// The answer PENDING to an inquiry: not decided.
    Pending(Xid),
    /// The answer UNKNOWN to an inquiry: nobody may say; keep everything.
    Unknown(Xid),
    /// A heuristic report is durable at the coordinator (C13).
    ReportRecorded(Xid),
    /// Forget a heuristic (P19).
    Forget(Xid),
}

/// From one participant to the coordinator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ToCoordinator {
    /// The answer to PREPARE.
    Vote(Xid, Vote),
    /// COMMITTED is durable.
    Ack(Xid),
    /// COMMIT for a branch that should be known here and is not (P8).
    LostState(Xid),
    /// What became of this branch (section 5)?
    Inquire(Xid),
    /// The branch was decided by hand: `Commit` or `Abort`.
    Report(Xid, Heuristic),
    /// FORGOTTEN is durable, or the branch is unknown.
    ForgetAck(Xid),
}
