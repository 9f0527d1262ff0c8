//! S9 no resurrection: an effect is applied at most once per branch, however messages repeat.
//!
//! Every balance is its opening and the effects in the log, each once; at every start and after every step that
//! called the resource.

use std::collections::BTreeMap;

use covenant_ledger::simulated::Shown;
use covenant_rules::Lineage;

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

pub(super) struct NoResurrection;

impl NoResurrection {
    fn balances(
        history: &History,
        lineage: Lineage,
        ledger: &covenant_ledger::simulated::SimulatedLedger,
    ) -> Verdict {
        let mut moved: BTreeMap<&str, i64> = BTreeMap::new();
        for ((_, of), branch) in &history.branches {
            if *of == lineage && branch.has_effect() {
                for (account, amount) in &branch.moves {
                    *moved.entry(account).or_default() += amount;
                }
            }
        }
        for (name, account) in ledger.books().after(None) {
            let opening = history.opening(name.as_str());
            let due = opening + moved.get(name.as_str()).copied().unwrap_or_default();
            if account.posted != due {
                return fail(format!(
                    "{name} has {}; its opening and the effects in the log come to {due}",
                    account.posted
                ));
            }
        }
        Ok(())
    }
}

impl Check for NoResurrection {
    fn invariant(&self) -> &'static str {
        "S9"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Stepped { lineage, ledger, .. } => Self::balances(history, *lineage, ledger),
            Seen::Wrote { record, .. } => match record.shown() {
                Shown::Committed(xid, id) => match history.minted.get(&xid) {
                    Some(minted) if minted != id => {
                        fail(format!("{} takes effect as {id}", history.shown(xid)))
                    }
                    Some(_) | None => Ok(()),
                },
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
