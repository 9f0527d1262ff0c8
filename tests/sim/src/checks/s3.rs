//! S3 non-triviality: all YES or READ_ONLY, no fault, no deadline, nobody aborts: COMMIT.
//!
//! Checked from the other side: every ABORT has the cause that it names.

use std::collections::{BTreeMap, BTreeSet};

use covenant_rules::{AbortReason, Name, Record, ToCoordinator, TransactionId, Vote, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::node::{Micros, name_of};
use crate::seen::Seen;

/// By how much a clock may run fast: a deadline may seem that much shorter.
const FASTEST_PERCENT: Micros = 10;

#[derive(Default)]
pub(super) struct NonTriviality {
    asked: BTreeMap<TransactionId, (Micros, Micros)>,
    aborts_asked: BTreeSet<TransactionId>,
    no_votes: BTreeSet<(Xid, Name)>,
    reports: BTreeSet<(Xid, Name)>,
}

impl NonTriviality {
    fn has_cause(&self, history: &History, id: &TransactionId, xid: Xid, reason: &AbortReason) -> bool {
        match reason {
            AbortReason::VoteNo(name, _) => self.no_votes.contains(&(xid, name.clone())),
            AbortReason::Deadline => {
                let (begun, timeout) = self.asked.get(id).copied().unwrap_or_default();
                history.now >= begun + timeout - timeout / 100 * FASTEST_PERCENT
            }
            AbortReason::Caller | AbortReason::Operator | AbortReason::Fence => {
                self.aborts_asked.contains(id)
            }
            AbortReason::HeuristicAbort(name) => self.reports.contains(&(xid, name.clone())),
            AbortReason::LineageChanged(name) => {
                let of_this_name = |lost| history.name(lost).as_ref() == Some(name);
                history.lost_logs.iter().copied().any(of_this_name)
            }
        }
    }
}

impl Check for NonTriviality {
    fn invariant(&self) -> &'static str {
        "S3"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Asked(id, timeout) => {
                let shortest = self
                    .asked
                    .get(*id)
                    .map_or(*timeout, |(_, before)| *timeout.min(before));
                let first = self.asked.get(*id).map_or(history.now, |(at, _)| *at);
                self.asked.insert((*id).clone(), (first, shortest));
            }
            Seen::AbortAsked(id) => {
                self.aborts_asked.insert((*id).clone());
            }
            // An attempt begins with a call to the process that runs it.
            Seen::CoordinatorStarted { .. } => self.asked.clear(),
            Seen::Heard { who, message, .. } => match message {
                ToCoordinator::Vote(xid, Vote::No(_)) => {
                    self.no_votes.insert((*xid, name_of(*who)));
                }
                ToCoordinator::Report(xid, _) => {
                    self.reports.insert((*xid, name_of(*who)));
                }
                _ => {}
            },
            Seen::Appended(_, Record::Abort(outcome)) => {
                let (id, xid) = (&outcome.transaction_id, outcome.xid);
                if let Some(reason) = &outcome.aborted
                    && !self.has_cause(history, id, xid, reason)
                {
                    return fail(format!(
                        "{} is aborted for {}, and nothing of the kind happened",
                        history.shown(xid),
                        reason.code()
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
