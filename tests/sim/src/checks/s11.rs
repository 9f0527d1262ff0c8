//! S11 caller truth, heuristics apart: told COMMITTED, no branch of that attempt ever aborts; told ABORTED, no
//! attempt of that id ever commits; and a final answer stays until it is EXPIRED.

use std::collections::{BTreeMap, BTreeSet};

use covenant_ledger::simulated::Shown;
use covenant_rules::coordinator::View;
use covenant_rules::{OutcomeKind, Record, TransactionId, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct CallerTruth {
    told: BTreeMap<TransactionId, OutcomeKind>,
    committed: BTreeSet<Xid>,
    expired: BTreeSet<TransactionId>,
    aborted: BTreeSet<Xid>,
    /// Ids of coordinator logs that are gone: nobody can keep what was told.
    orphaned: BTreeSet<TransactionId>,
}

impl CallerTruth {
    fn told(&mut self, history: &History, view: &View) -> Verdict {
        let id = &view.transaction_id;
        if self.orphaned.contains(id) {
            return Ok(());
        }
        let before = self.told.get(id).copied().filter(|_| !self.expired.contains(id));
        let differs = |other| before == Some(other);
        match view.outcome {
            OutcomeKind::Committed => {
                if differs(OutcomeKind::Aborted) {
                    return fail(format!("{id} was told ABORTED and is told COMMITTED"));
                }
                self.told.insert(id.clone(), OutcomeKind::Committed);
                if let Some(xid) = view.xid {
                    self.committed.insert(xid);
                    if self.aborted.contains(&xid) && !history.by_hand(xid) {
                        return fail(format!("{id} is told COMMITTED, and a branch of it aborted"));
                    }
                }
            }
            OutcomeKind::Aborted => {
                if differs(OutcomeKind::Committed) {
                    return fail(format!("{id} was told COMMITTED and is told ABORTED"));
                }
                let commits = history
                    .commits
                    .values()
                    .any(|outcome| outcome.transaction_id == *id);
                if commits && !self.expired.contains(id) {
                    return fail(format!("{id} committed and is told ABORTED"));
                }
                self.told.insert(id.clone(), OutcomeKind::Aborted);
            }
            OutcomeKind::Expired => {
                self.expired.insert(id.clone());
            }
            OutcomeKind::NotFound if before.is_some() => {
                return fail(format!("{id} was told {before:?} and is NOT_FOUND"));
            }
            OutcomeKind::NotFound | OutcomeKind::InProgress | OutcomeKind::Unknown => {}
        }
        Ok(())
    }
}

impl Check for CallerTruth {
    fn invariant(&self) -> &'static str {
        "S11"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Told(view) => self.told(history, view),
            Seen::DiskLost(crate::node::Node::Coordinator) => {
                self.orphaned.extend(history.minted.values().cloned());
                Ok(())
            }
            Seen::Forced(Record::Commit(outcome)) => {
                let id = &outcome.transaction_id;
                let told = self
                    .told
                    .get(id)
                    .filter(|_| !self.expired.contains(id) && !self.orphaned.contains(id));
                if told == Some(&OutcomeKind::Aborted) {
                    return fail(format!("{id} was told ABORTED and commits"));
                }
                Ok(())
            }
            Seen::Wrote { lineage, record, .. } => match record.shown() {
                Shown::Aborted(xid) => {
                    self.aborted.insert(xid);
                    let named = history.commits(xid, *lineage) || !history.commits.contains_key(&xid);
                    if self.committed.contains(&xid) && named && !history.by_hand(xid) {
                        return fail(format!(
                            "{} was told COMMITTED, and a branch aborts",
                            history.shown(xid)
                        ));
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
