//! L1 every transaction leaves PREPARING.

use covenant_rules::coordinator::State;

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

pub(super) struct LeavesPreparing;

impl Check for LeavesPreparing {
    fn invariant(&self) -> &'static str {
        "L1"
    }

    fn see(&mut self, _: &History, _: &Seen<'_>) -> Verdict {
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let Some(machine) = world.coordinator() else {
            return fail("the coordinator does not run".to_owned());
        };
        let waits = machine.running_after(None).find(|view| {
            matches!(
                view.state,
                Some(State::Preparing | State::Deciding | State::Aborting)
            )
        });
        match waits {
            Some(view) => fail(format!("{} stays {:?}", view.transaction_id, view.state)),
            None => Ok(()),
        }
    }
}
