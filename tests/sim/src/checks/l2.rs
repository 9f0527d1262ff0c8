//! L2 every in-doubt branch ends once its coordinator is back; one whose coordinator's log is gone for good waits
//! for an operator.

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

pub(super) struct DoubtEnds;

impl Check for DoubtEnds {
    fn invariant(&self) -> &'static str {
        "L2"
    }

    fn see(&mut self, _: &History, _: &Seen<'_>) -> Verdict {
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let history = world.history();
        for who in 0..world.participants() {
            let Some(machine) = world.participant(who) else {
                return fail(format!("p{} does not run", who + 1));
            };
            let back = |xid: covenant_rules::Xid| history.lineage() == Some(xid.lineage);
            if let Some(doubt) = machine.in_doubt().find(|doubt| back(doubt.xid)) {
                return fail(format!(
                    "{} stays in doubt at p{}",
                    history.shown(doubt.xid),
                    who + 1
                ));
            }
            let holds = |(xid, _): &(covenant_rules::Xid, _)| back(*xid);
            if let Some((xid, _)) = world.ledger(who).and_then(|ledger| ledger.prepared().find(holds)) {
                return fail(format!("{} still holds at p{}", history.shown(xid), who + 1));
            }
        }
        Ok(())
    }
}
