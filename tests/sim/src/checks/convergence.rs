//! CONVERGENCE: once every fault has ended and everything is back, a bounded time later nothing is under way.
//!
//! L1 to L4 say what may not be left. This is for what they do not look at: who is locked out owes nothing, its callers
//! hear ABORTED, and it still may not stay out.

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

pub(super) struct Convergence;

impl Check for Convergence {
    fn invariant(&self) -> &'static str {
        "CONVERGENCE"
    }

    fn see(&mut self, _: &History, _: &Seen<'_>) -> Verdict {
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        world.unrest().map_or(Ok(()), fail)
    }
}
