//! S14 conservation: the sum of all ledgers is constant at every quiet point.
//!
//! Heuristics apart, every transaction moves money and makes none: what its branches did to customers' accounts
//! adds up to 0. Of every ledger, all accounts together always add up to 0 per currency.

use std::collections::BTreeMap;

use covenant_rules::Xid;

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

pub(super) struct Conservation;

impl Check for Conservation {
    fn invariant(&self) -> &'static str {
        "S14"
    }

    fn see(&mut self, _: &History, _: &Seen<'_>) -> Verdict {
        Ok(())
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let history = world.history();
        let mut sums: BTreeMap<Xid, i64> = BTreeMap::new();
        for ((xid, _), branch) in history.branches.iter().filter(|(_, branch)| branch.has_effect()) {
            let customers = branch
                .moves
                .iter()
                .filter(|(account, _)| !account.starts_with('@'));
            *sums.entry(*xid).or_default() += customers.map(|(_, amount)| amount).sum::<i64>();
        }
        let unlike = |xid: Xid| history.by_hand(xid) || history.lineage() != Some(xid.lineage);
        for (xid, sum) in sums {
            if sum != 0 && !unlike(xid) {
                return fail(format!("{} made {sum} minor units", history.shown(xid)));
            }
        }
        for who in 0..world.participants() {
            let Some(ledger) = world.ledger(who) else {
                continue;
            };
            if let Some((currency, sum)) = ledger.books().totals().into_iter().find(|(_, sum)| *sum != 0) {
                return fail(format!("the books of p{} add up to {sum} {currency}", who + 1));
            }
        }
        Ok(())
    }
}
