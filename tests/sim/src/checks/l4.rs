//! L4 logs, tombstones and outcomes stay bounded.
//!
//! At a quiet point the durable fold holds nothing that is decided. A participant keeps no branch that its floor has
//! passed, and its log as few of them as are not worth a FLOOR record: the tombstones made since the last one, and
//! those that were too young for it.

use std::collections::BTreeMap;

use covenant_ledger::simulated::Shown;
use covenant_rules::{Floor, Lineage};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

#[derive(Default)]
pub(super) struct Bounded {
    /// Tombstones of each participant log that its last FLOOR record did not pass.
    too_young: BTreeMap<Lineage, usize>,
}

impl Bounded {
    fn tombstones_above(history: &History, lineage: Lineage, of: Lineage, floor: Floor) -> usize {
        let above = history.branches.iter().filter(|((xid, own), branch)| {
            let tombstone = branch.committed || branch.forgotten;
            *own == lineage && xid.lineage == of && !xid.is_below(floor) && tombstone
        });
        above.count()
    }
}

impl Check for Bounded {
    fn invariant(&self) -> &'static str {
        "L4"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        if let Seen::Wrote { lineage, record, .. } = seen
            && let Shown::Floor(of, floor) = record.shown()
        {
            let count = Self::tombstones_above(history, *lineage, of, floor);
            self.too_young.insert(*lineage, count);
        }
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let Some(machine) = world.coordinator() else {
            return fail("the coordinator does not run".to_owned());
        };
        if let Some((xid, _)) = machine.fold().open.iter().next() {
            return fail(format!(
                "{} is finished and not archived",
                world.history().shown(*xid)
            ));
        }
        let retained = world.outcomes() as u64;
        if retained > world.limits().max_retained_outcomes {
            return fail(format!("{retained} outcomes are retained"));
        }
        for who in 0..world.participants() {
            let (Some(machine), Some(ledger)) = (world.participant(who), world.ledger(who)) else {
                return fail(format!("p{} does not run", who + 1));
            };
            let kept = world.branches_above_floor(who) + world.foreign_branches(who);
            if machine.branches() > kept {
                return fail(format!(
                    "p{} keeps {} branches, not {kept}",
                    who + 1,
                    machine.branches()
                ));
            }
            let young = world
                .lineage_of(who)
                .and_then(|own| self.too_young.get(&own))
                .copied();
            let bound = kept + world.floor_slack() + young.unwrap_or(0);
            if ledger.branches() > bound {
                return fail(format!(
                    "the log of p{} keeps {} branches, more than {bound}",
                    who + 1,
                    ledger.branches()
                ));
            }
        }
        Ok(())
    }
}
