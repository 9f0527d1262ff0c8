//! The exhaustive model: every interleaving of the *shipped* machines ([`covenant_rules::Coordinator`] and
//! [`covenant_rules::Participant`]) within bounds, by stateright.
mod bounds;
mod explore;
mod invariants;
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
