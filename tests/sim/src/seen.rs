//! What can be seen of a cluster from outside: what each node appended, forced and lost, what left it and what
//! reached it, and what callers were told. Checkers see nothing else.

use covenant_ledger::simulated::{SimulatedLedger, StoredRecord};
use covenant_rules::coordinator::{SessionId, View};
use covenant_rules::{
    Floor, Incarnation, Lineage, Lsn, Outcome, Record, ToCoordinator, ToParticipant, TransactionId,
    UnixMillis, Xid,
};

use crate::node::{Micros, Node};

/// One observation, in the order in which things happened.
pub enum Seen<'a> {
    /// A coordinator process replayed this and began.
    CoordinatorStarted {
        /// Its log.
        lineage: Lineage,
        /// Its start.
        incarnation: Incarnation,
        /// It read a checkpoint.
        checkpointed: bool,
    },
    /// The coordinator's new start is durable: it serves.
    Serving,
    /// The coordinator appended.
    Appended(Lsn, &'a Record),
    /// A record of the coordinator became durable.
    Forced(&'a Record),
    /// A record of the coordinator that was not durable is gone.
    Lost(&'a Record),
    /// The coordinator sent to the participant with this lineage.
    Sent {
        /// To whom.
        who: usize,
        /// The lineage that joined with this session.
        lineage: Lineage,
        /// What.
        message: &'a ToParticipant,
    },
    /// A floor rode on a frame to this lineage.
    FloorSent {
        /// To whom.
        who: usize,
        /// The lineage that joined with this session.
        lineage: Lineage,
        /// Which.
        floor: Floor,
    },
    /// A frame's message reached the coordinator.
    Heard {
        /// From whom.
        who: usize,
        /// The lineage that joined with this session.
        lineage: Lineage,
        /// What.
        message: &'a ToCoordinator,
    },
    /// A message of a session that the coordinator had replaced reached it, and had so many effects.
    HeardReplaced {
        /// The replaced session.
        session: SessionId,
        /// How many effects it had.
        effects: usize,
    },
    /// A caller asked to run an id, with this deadline.
    Asked(&'a TransactionId, Micros),
    /// A caller or operator asked to abort an id.
    AbortAsked(&'a TransactionId),
    /// The coordinator told a caller.
    Told(&'a View),
    /// A finished outcome went to the archive.
    Archived(&'a Outcome),
    /// Outcomes below this time went.
    Expired(UnixMillis),
    /// A participant replayed its disk; nothing of this start is appended yet.
    Replayed {
        /// Who.
        who: usize,
        /// What it came to.
        ledger: &'a SimulatedLedger,
        /// It read a checkpoint.
        checkpointed: bool,
    },
    /// A participant's new start is durable.
    Joined {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// Its start.
        incarnation: Incarnation,
    },
    /// A participant appended.
    Wrote {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// What.
        record: &'a StoredRecord,
    },
    /// A record of a participant became durable.
    WroteDurably {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// What.
        record: &'a StoredRecord,
    },
    /// A record of a participant that was not durable is gone.
    Unwrote {
        /// Its log.
        lineage: Lineage,
        /// What.
        record: &'a StoredRecord,
    },
    /// A participant finished a step that called its resource.
    Stepped {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// Its books and branches.
        ledger: &'a SimulatedLedger,
    },
    /// A participant sent.
    Said {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// What.
        message: &'a ToCoordinator,
    },
    /// A message reached a participant, in the session that it believes in.
    Received {
        /// Who.
        who: usize,
        /// Its log.
        lineage: Lineage,
        /// What.
        message: &'a ToParticipant,
    },
    /// A floor reached a participant.
    FloorHeard {
        /// Its log.
        lineage: Lineage,
        /// Of which coordinator log.
        of: Lineage,
        /// Which.
        floor: Floor,
    },
    /// An operator decided a branch by hand.
    ByHand {
        /// Its log.
        lineage: Lineage,
        /// Which.
        xid: Xid,
    },
    /// A process is gone.
    Died(Node),
    /// A force failed: that process may say nothing more.
    ForceFailed(Node),
    /// The node's disk was lost for good, and it will have another lineage.
    DiskLost(Node),
    /// The decision record of this attempt stopped to decode.
    Damaged {
        /// Whose.
        xid: Xid,
        /// The coordinator's log shows the attempt still.
        shows: bool,
    },
    /// Something else went wrong in the world: S3 speaks of none of the transactions under way.
    Fault,
}
