//! The rules of Covenant: presumed-abort two-phase commit as two pure state machines.
//!
//! [`Coordinator`] is section 3 of PROTOCOL.md with inquiry (5), forgetting (6), the callers' boundary (7)
//! and sessions (8); [`Participant`] is section 4. Both take plain values in (`step(now, event)`) and give
//! plain values out (a list of effects): no clock, no randomness, no channel, no wire type. Durability is an
//! event: a machine emits `Append` and waits; only `Durable` makes it emit what depends on the record. So no
//! caller of this crate can send before the force (S5), and every crash between two effects can be written
//! down in a test.
//!
//! *Architecture invariant:* nothing here returns `Result`. Nonsense from a peer is an `Alarm` effect; an
//! impossible state of our own is an `assert!`, on in release.
//!
//! What is not here: bytes (covenant-codec), disks (covenant-journal), sockets (the two drivers).

#![no_std]

extern crate alloc;

mod backoff;
pub mod coordinator;
mod ids;
mod limits;
mod message;
pub mod participant;
mod record;
mod repeated_lines;
mod words;

pub use backoff::Backoff;
pub use coordinator::Coordinator;
pub use ids::{
    Floor, IdError, Incarnation, Lineage, Lsn, MAX_ID_BYTES, Millis, Name, TransactionId, UnixMillis, Xid,
};
pub use limits::Limits;
pub use message::{Hello, ToCoordinator, ToParticipant};
pub use participant::Participant;
pub use record::{BranchRecord, Operator, Outcome, Quarantined, Record};
pub use repeated_lines::RepeatedLines;
pub use words::{
    AbortReason, BranchState, Decision, Fingerprint, Heuristic, NoReason, OutcomeKind, UnknownCause, Vote,
    Wait,
};
