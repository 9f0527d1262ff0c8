//! S10 heuristic accounting: every branch that ended unlike the decision has a durable record until FORGET.

use std::collections::BTreeSet;

use covenant_ledger::simulated::Shown;
use covenant_rules::{Decision, Heuristic, Lineage, Record, ToParticipant, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::node::name_of;
use crate::seen::Seen;
use crate::world::World;

#[derive(Default)]
pub(super) struct HeuristicAccounting {
    /// Branches that were told to forget.
    forget: BTreeSet<(Xid, Lineage)>,
}

impl HeuristicAccounting {
    /// END while a branch that was decided by hand has not acknowledged FORGET.
    fn ended(history: &History, xid: Xid) -> Verdict {
        let Some(outcome) = history.commits.get(&xid) else {
            return Ok(());
        };
        for (name, lineage) in outcome.yes_voters() {
            let key = (xid, name.clone());
            let recorded = history.heuristics.get(&key).is_some_and(|h| h.lineage == lineage);
            let branch = history.branch(xid, lineage);
            let by_hand = branch.is_some_and(|branch| branch.by_hand_durably);
            let acknowledged = branch.is_some_and(|branch| branch.forgotten_durably);
            let gone = history.lost_logs.contains(&lineage) && history.forgets.contains(&key);
            if recorded && by_hand && !acknowledged && !gone {
                return fail(format!(
                    "END of {}, and {name} has not acknowledged FORGET",
                    history.shown(xid)
                ));
            }
        }
        Ok(())
    }

    /// FORGET without an operator is for heuristics that agree with the decision.
    fn forgets_damage(history: &History, xid: Xid, name: &covenant_rules::Name) -> Verdict {
        let Some(truth) = history.heuristics.get(&(xid, name.clone())) else {
            return fail(format!(
                "FORGET of {} at {name}, of which nothing is durable",
                history.shown(xid)
            ));
        };
        let committed = history.commits(xid, truth.lineage);
        let differs = match truth.what {
            Heuristic::Commit => !committed,
            Heuristic::Abort => committed,
            Heuristic::Mixed | Heuristic::Hazard => true,
        };
        if differs {
            return fail(format!(
                "damage of {} at {name} is forgotten by itself",
                history.shown(xid)
            ));
        }
        Ok(())
    }
}

impl Check for HeuristicAccounting {
    fn invariant(&self) -> &'static str {
        "S10"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Appended(_, Record::End(xid)) => Self::ended(history, *xid),
            Seen::Appended(
                _,
                Record::Forget {
                    xid,
                    participant,
                    by: None,
                },
            ) => Self::forgets_damage(history, *xid, participant),
            Seen::Received {
                lineage,
                message: ToParticipant::Forget(xid),
                ..
            } => {
                self.forget.insert((*xid, *lineage));
                Ok(())
            }
            Seen::Wrote { lineage, record, .. } => match record.shown() {
                Shown::Forgotten(xid) if !self.forget.contains(&(xid, *lineage)) => {
                    fail(format!("{} is forgotten, and nobody said so", history.shown(xid)))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn quiet(&mut self, world: &World) -> Verdict {
        let history = world.history();
        for ((xid, lineage), branch) in &history.branches {
            let Some(what) = branch.by_hand.filter(|_| branch.by_hand_durably) else {
                continue;
            };
            let gone = history.lost_logs.contains(lineage) || history.lineage() != Some(xid.lineage);
            let committed = history.commits(*xid, *lineage);
            let differs = (what == Decision::Commit) != committed;
            let recorded = history
                .logs
                .iter()
                .find(|(_, logs)| logs.contains(lineage))
                .is_some_and(|(who, _)| history.heuristics.contains_key(&(*xid, name_of(*who))));
            if differs && !recorded && !gone {
                return fail(format!(
                    "{} ended by hand unlike the decision, and no record says so",
                    history.shown(*xid)
                ));
            }
        }
        Ok(())
    }
}
