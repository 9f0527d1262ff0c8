//! The exhaustive model: every interleaving of the *shipped* machines ([`covenant_rules::Coordinator`] and
//! [`covenant_rules::Participant`]) within bounds, by stateright.
//!
//! A state holds both machines as they are, the logs, what is on its way, and what was ever durable, sent or told
//! (`truth.rs`). A step is one event: a frame arrives, one record is forced, a session ends, a process dies and
//! keeps any prefix of what it had not forced, time jumps to a deadline, a caller or an operator acts (`step.rs`).
//! In every state every invariant of PROTOCOL.md section 10 must hold (`invariants.rs`), and what that section
//! wants to be seen sometimes is counted (`sightings.rs`). Faults, calls and jumps are budgets (`bounds.rs`).
//!
//! It shows that no order of these steps breaks a rule, up to the bounds: a few faults, at most three participants,
//! two ids. L1 to L4 are looked at where nothing is left to do but faults, calls and jumps of time.
//!
//! It does not show bytes, disks or the two drivers; S13 (a force that fails ends the process: here it is a crash);
//! quarantine, checkpoints, retention, restored logs and changed lineages, which the unit tests of the machines look
//! at. What is merged into one step, and why nothing is lost by it, stands in `step.rs`. States are told apart by 64
//! bits of hash: that one of a million states is taken for another has a chance of 1 in 30 million.
mod bounds;
mod explore;
mod invariants;
mod names;
mod server;
mod sightings;
mod site;
mod step;
mod truth;
mod world;

pub use bounds::{Bounds, Budget, MAX_PARTICIPANTS};
pub use explore::{Findings, explore};
pub use step::Step;
pub use world::World;
