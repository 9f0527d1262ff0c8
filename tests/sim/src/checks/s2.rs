//! S2 commit validity: an effect anywhere, heuristics apart, implies that every YES voter was durably PREPARED
//! before the decision, and that the effect's branch is one of them.

use covenant_ledger::simulated::Shown;
use covenant_rules::{Record, ToParticipant, Vote};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

pub(super) struct CommitValidity;

impl Check for CommitValidity {
    fn invariant(&self) -> &'static str {
        "S2"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Appended(_, Record::Commit(outcome)) => {
                let xid = outcome.xid;
                for (name, lineage) in outcome.yes_voters() {
                    let prepared = history.branch(xid, lineage).is_some_and(|branch| branch.prepared);
                    if !prepared {
                        return fail(format!(
                            "COMMIT of {} is appended, and {name} was never durably PREPARED",
                            history.shown(xid)
                        ));
                    }
                }
                let against = outcome.branches.iter().find(|branch| match branch.vote {
                    Some(Vote::Yes | Vote::ReadOnly) => false,
                    Some(Vote::No(_)) | None => true,
                });
                match against {
                    Some(branch) => fail(format!(
                        "COMMIT of {} is appended, and {} did not vote for it",
                        history.shown(xid),
                        branch.participant
                    )),
                    None => Ok(()),
                }
            }
            Seen::Sent {
                lineage,
                message: ToParticipant::Commit(xid),
                ..
            } if !history.commits(*xid, *lineage) => fail(format!(
                "COMMIT of {} goes to a branch that did not vote YES",
                history.shown(*xid)
            )),
            Seen::Wrote { lineage, record, .. } => match record.shown() {
                Shown::Committed(xid, _) if !history.commits(xid, *lineage) => fail(format!(
                    "{} takes effect at a branch that no durable COMMIT names",
                    history.shown(xid)
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
