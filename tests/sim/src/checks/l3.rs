//! L3 every COMMITTING transaction reaches END once its participants are back, and every caller is told.

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

pub(super) struct ReachesEnd;

impl Check for ReachesEnd {
    fn invariant(&self) -> &'static str {
        "L3"
    }

    fn see(&mut self, _: &History, _: &Seen<'_>) -> Verdict {
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let Some(machine) = world.coordinator() else {
            return fail("the coordinator does not run".to_owned());
        };
        if let Some(view) = machine.running_after(None).next() {
            return fail(format!("{} stays {:?}", view.transaction_id, view.state));
        }
        if let Some((xid, name)) = machine.fold().heuristics.keys().next() {
            return fail(format!(
                "the heuristic of {} at {name} stays",
                world.history().shown(*xid)
            ));
        }
        match world.callers().iter().find(|caller| !caller.heard_healed) {
            Some(caller) => fail(format!(
                "nobody tells the caller of {}",
                caller.transaction.transaction_id
            )),
            None => Ok(()),
        }
    }
}
