//! S7 presumption (section 5): ABORT without a record is said only of an attempt of this log that a durable start
//! minted, that is not being decided, and whose record nothing hides; and never to a caller.

use covenant_rules::{Decision, OutcomeKind, ToParticipant, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

pub(super) struct Presumption;

impl Presumption {
    fn aborts(history: &History, xid: Xid) -> Verdict {
        let shown = || history.shown(xid);
        // RESOLVED(COMMIT), too, aborts whom it does not name; S4 looks at those whom it does.
        if history.aborts.contains_key(&xid) || history.resolved.contains_key(&xid) {
            return Ok(());
        }
        let current = history.incarnation == Some(xid.incarnation) && history.lineage() == Some(xid.lineage);
        match history.decided.get(&xid) {
            Some(Decision::Abort) => return Ok(()),
            Some(Decision::Commit) if !history.commits.contains_key(&xid) => {
                return fail(format!("ABORT of {} while its COMMIT is being forced", shown()));
            }
            None if current => return fail(format!("ABORT of {}, which is not decided", shown())),
            Some(Decision::Commit) | None => {}
        }
        if history.lineage() != Some(xid.lineage) {
            return fail(format!("ABORT of {}, an attempt of another log", shown()));
        }
        if !history.starts.contains(&(xid.lineage, xid.incarnation)) {
            return fail(format!("ABORT of {}, of a start that never was durable", shown()));
        }
        if history.suspect {
            return fail(format!("ABORT of {} by a log that lost its tail", shown()));
        }
        let hidden = history.damage_hides && history.damaged.contains(&xid);
        if hidden || history.damaged.contains(&xid) {
            return fail(format!("ABORT of {}, whose record does not decode", shown()));
        }
        Ok(())
    }
}

impl Check for Presumption {
    fn invariant(&self) -> &'static str {
        "S7"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Sent {
                message: ToParticipant::Abort(xid),
                ..
            } => Self::aborts(history, *xid),
            Seen::Told(view) if view.outcome == OutcomeKind::Aborted => {
                let known = view.xid.is_some_and(|xid| history.aborts.contains_key(&xid));
                if known {
                    return Ok(());
                }
                fail(format!(
                    "a caller was told ABORTED of {} by presumption",
                    view.transaction_id
                ))
            }
            _ => Ok(()),
        }
    }
}
