//! S5 send after force: COMMIT and COMMITTED only after a durable COMMIT; ABORTED to a caller only after a durable
//! ABORT; YES after PREPARED; ACK after COMMITTED; and what section 2 forces before it counts.

use covenant_rules::{OutcomeKind, ToCoordinator, ToParticipant, Vote};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::node::name_of;
use crate::seen::Seen;

pub(super) struct SendAfterForce;

impl SendAfterForce {
    fn sent(history: &History, who: usize, message: &ToParticipant) -> Verdict {
        let (durable, what, xid) = match message {
            ToParticipant::Commit(xid) => (history.commits.contains_key(xid), "COMMIT", xid),
            ToParticipant::Forget(xid) => (history.forgets.contains(&(*xid, name_of(who))), "FORGET", xid),
            ToParticipant::ReportRecorded(xid) => {
                let recorded = history.heuristics.contains_key(&(*xid, name_of(who)));
                (recorded, "REPORT RECORDED", xid)
            }
            ToParticipant::Prepare { .. }
            | ToParticipant::Abort(_)
            | ToParticipant::Pending(_)
            | ToParticipant::Unknown(_) => return Ok(()),
        };
        if durable {
            return Ok(());
        }
        fail(format!(
            "{what} of {} left before its record was durable",
            history.shown(*xid)
        ))
    }

    fn said(history: &History, lineage: covenant_rules::Lineage, message: &ToCoordinator) -> Verdict {
        let (what, xid) = match message {
            ToCoordinator::Vote(xid, Vote::Yes) => ("YES", xid),
            ToCoordinator::Ack(xid) => ("ACK", xid),
            ToCoordinator::Report(xid, _) => ("a report", xid),
            ToCoordinator::ForgetAck(xid) => ("the acknowledgement of FORGET", xid),
            ToCoordinator::Vote(_, Vote::No(_) | Vote::ReadOnly)
            | ToCoordinator::LostState(_)
            | ToCoordinator::Inquire(_) => return Ok(()),
        };
        let Some(branch) = history.branch(*xid, lineage) else {
            // P7: of what it never knew a participant forgets nothing.
            let nothing = matches!(message, ToCoordinator::ForgetAck(_));
            return if nothing {
                Ok(())
            } else {
                fail(format!("{what} of {} came from nowhere", history.shown(*xid)))
            };
        };
        let durable = match message {
            ToCoordinator::Vote(..) => branch.prepared,
            // Below the floor a forgotten branch is acknowledged as well (P8).
            ToCoordinator::Ack(_) => branch.committed_durably || branch.forgotten_durably,
            ToCoordinator::Report(..) => branch.by_hand_durably,
            _ => branch.forgotten_durably || branch.by_hand.is_none(),
        };
        if durable {
            return Ok(());
        }
        fail(format!(
            "{what} of {} left before its record was durable",
            history.shown(*xid)
        ))
    }
}

impl Check for SendAfterForce {
    fn invariant(&self) -> &'static str {
        "S5"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Sent { who, message, .. } => Self::sent(history, *who, message),
            Seen::Said { lineage, message, .. } => Self::said(history, *lineage, message),
            Seen::Told(view) => {
                let Some(xid) = view.xid else {
                    return Ok(());
                };
                let durable = match view.outcome {
                    OutcomeKind::Committed => history.commits.contains_key(&xid),
                    OutcomeKind::Aborted => history.aborts.contains_key(&xid),
                    OutcomeKind::InProgress
                    | OutcomeKind::Unknown
                    | OutcomeKind::NotFound
                    | OutcomeKind::Expired => true,
                };
                if durable {
                    return Ok(());
                }
                fail(format!(
                    "a caller was told {:?} of {}, which is not durable",
                    view.outcome,
                    history.shown(xid)
                ))
            }
            _ => Ok(()),
        }
    }
}
