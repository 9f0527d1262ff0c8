//! S1 agreement: per attempt, no two branches end COMMITTED and ABORTED, heuristics apart.
//!
//! A branch that the COMMIT does not name is no part of it: it aborts by Q7.

use std::collections::{BTreeMap, BTreeSet};

use covenant_ledger::simulated::Shown;
use covenant_rules::{Lineage, Xid};

use super::{Check, Verdict, fail};
use crate::history::{History, names};
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Agreement {
    committed: BTreeSet<Xid>,
    aborted: BTreeMap<Xid, BTreeSet<Lineage>>,
}

impl Check for Agreement {
    fn invariant(&self) -> &'static str {
        "S1"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        let Seen::Wrote { lineage, record, .. } = seen else {
            return Ok(());
        };
        let xid = match record.shown() {
            Shown::Committed(xid, _) => {
                self.committed.insert(xid);
                xid
            }
            Shown::Aborted(xid) => {
                self.aborted.entry(xid).or_default().insert(*lineage);
                xid
            }
            _ => return Ok(()),
        };
        let named = |lineage: &&Lineage| {
            let decided = history.commits.get(&xid);
            decided.is_none_or(|outcome| names(outcome, **lineage))
        };
        let aborted = self.aborted.get(&xid).and_then(|all| all.iter().find(named));
        match aborted {
            Some(other) if self.committed.contains(&xid) && !history.lost_logs.contains(other) => {
                fail(format!(
                    "{} is COMMITTED at one branch and ABORTED at another",
                    history.shown(xid)
                ))
            }
            Some(_) | None => Ok(()),
        }
    }
}
