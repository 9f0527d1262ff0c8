//! S4 stability: a durable COMMIT is never followed by an ABORT answer to one of its branches, in any incarnation;
//! nor the reverse; and there is one decision per attempt. And after an ABORT left, no COMMIT is ever appended for that attempt (section 3).

use std::collections::BTreeSet;

use covenant_rules::{Lineage, Record, ToParticipant, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Stability {
    aborted: BTreeSet<(Xid, Lineage)>,
    commits: BTreeSet<(Xid, Lineage)>,
    abort_left: BTreeSet<Xid>,
    decided: BTreeSet<Xid>,
}

impl Check for Stability {
    fn invariant(&self) -> &'static str {
        "S4"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Appended(_, Record::Commit(outcome) | Record::Abort(outcome))
                if self.decided.contains(&outcome.xid) =>
            {
                fail(format!(
                    "a second decision of {} is appended",
                    history.shown(outcome.xid)
                ))
            }
            Seen::Appended(_, Record::Abort(outcome)) => {
                self.decided.insert(outcome.xid);
                Ok(())
            }
            Seen::Lost(Record::Commit(outcome) | Record::Abort(outcome)) => {
                self.decided.remove(&outcome.xid);
                Ok(())
            }
            Seen::Appended(_, Record::Commit(outcome)) if self.abort_left.contains(&outcome.xid) => {
                fail(format!(
                    "COMMIT of {} is appended after an ABORT of it left",
                    history.shown(outcome.xid)
                ))
            }
            Seen::Appended(_, Record::Commit(outcome)) => {
                self.decided.insert(outcome.xid);
                Ok(())
            }
            Seen::Sent { lineage, message, .. } => match message {
                ToParticipant::Commit(xid) => {
                    self.commits.insert((*xid, *lineage));
                    if self.aborted.contains(&(*xid, *lineage)) {
                        return fail(format!(
                            "COMMIT of {} to a branch that was told ABORT",
                            history.shown(*xid)
                        ));
                    }
                    Ok(())
                }
                ToParticipant::Abort(xid) => {
                    self.aborted.insert((*xid, *lineage));
                    if !history.commits.contains_key(xid) {
                        self.abort_left.insert(*xid);
                    }
                    if history.commits(*xid, *lineage) || self.commits.contains(&(*xid, *lineage)) {
                        return fail(format!(
                            "ABORT of {} to a branch of its durable COMMIT",
                            history.shown(*xid)
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
