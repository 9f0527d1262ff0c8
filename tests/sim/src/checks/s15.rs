//! S15 one commit: of all attempts of a transaction, at most one takes effect, a forgotten heuristic apart.

use std::collections::BTreeMap;

use covenant_ledger::simulated::Shown;
use covenant_rules::{Decision, Lineage, Record, TransactionId, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct OneCommit {
    /// The attempts with an effect at a log.
    effects: BTreeMap<(TransactionId, Lineage), Xid>,
    /// The attempts with a durable COMMIT, per coordinator log.
    commits: BTreeMap<(TransactionId, Lineage), Xid>,
}

impl Check for OneCommit {
    fn invariant(&self) -> &'static str {
        "S15"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            // An attempt that only looked has no effect.
            Seen::Forced(Record::Commit(outcome)) if outcome.yes_voters().next().is_some() => {
                let key = (outcome.transaction_id.clone(), outcome.xid.lineage);
                match self.commits.insert(key, outcome.xid) {
                    Some(before) if before != outcome.xid && !history.by_hand(before) => fail(format!(
                        "{} commits after {}",
                        history.shown(outcome.xid),
                        history.shown(before)
                    )),
                    Some(_) | None => Ok(()),
                }
            }
            Seen::Wrote { lineage, record, .. } => {
                let (xid, id) = match record.shown() {
                    Shown::Committed(xid, id) | Shown::ByHand(xid, id, Decision::Commit) => (xid, id),
                    _ => return Ok(()),
                };
                let before = self.effects.insert((id.clone(), *lineage), xid);
                // What a crash took back had no effect.
                let stands = |before: &Xid| history.branch(*before, *lineage).is_some_and(|b| b.has_effect());
                match before.filter(|before| *before != xid && stands(before)) {
                    Some(before) => fail(format!(
                        "{} takes effect where {} has",
                        history.shown(xid),
                        history.shown(before)
                    )),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
