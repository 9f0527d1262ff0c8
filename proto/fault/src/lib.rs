//! Crash points by name, and the socket meter that makes the sent ones exact.
//!
//! A [`CrashPlan`] says at which of the points of section 9 a process shall end; [`crash`] ends it there as a
//! power switch would, without unwinding and without flushing. Release builds carry it too, so that what is tested
//! is what runs: an empty plan costs one comparison. [`metered`] counts what has left through a socket, so that at
//! a *sent* point the named message has left and later ones have not.
//!
//! What is not here: where the points lie (the drivers, the journal's probe), and losing unsynced data.

mod crash_point;
mod error;
pub mod metered;
mod plan;

pub use crash_point::{CrashPoint, Side, crash};
pub use error::Error;
pub use plan::CrashPlan;
