//! S6 the forget rule (section 6): floors only rise and lie below all that may still come; nothing is prepared below
//! one; a tombstone stays until a durable floor has passed it; COMMIT leaves only after END, and END comes only when
//! every YES voter has acknowledged.

use std::collections::BTreeMap;

use covenant_ledger::simulated::Shown;
use covenant_rules::{Floor, Heuristic, Incarnation, Lineage, Record, ToCoordinator, ToParticipant, Xid};

use super::{Check, Verdict, fail};
use crate::history::{History, names};
use crate::node::name_of;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct ForgetRule {
    /// The highest floor sent, by name, participant log and coordinator log.
    sent: BTreeMap<(usize, Lineage, Lineage), Floor>,
}

impl ForgetRule {
    fn floor_sent(&mut self, history: &History, who: usize, lineage: Lineage, floor: Floor) -> Verdict {
        let Some(of) = history.lineage() else {
            return Ok(());
        };
        let before = self.sent.entry((who, lineage, of)).or_default();
        if floor < *before {
            return fail(format!(
                "the floor of {} falls from {before:?} to {floor:?}",
                name_of(who)
            ));
        }
        *before = floor;
        let lowest = Xid {
            lineage: of,
            incarnation: Incarnation { counter: 0, bits: 0 },
            seq: 0,
        };
        let below = history
            .commits
            .range(lowest..)
            .take_while(|(xid, _)| xid.lineage == of);
        for (xid, outcome) in below.filter(|(xid, _)| xid.is_below(floor)) {
            let owes = names(outcome, lineage) && !Self::given_up(history, *xid, who);
            let branch = history.branch(*xid, lineage);
            if owes && branch.is_some_and(|branch| !branch.committed_durably && !branch.by_hand_durably) {
                return fail(format!(
                    "the floor passed {}, which {} has not committed",
                    history.shown(*xid),
                    name_of(who)
                ));
            }
        }
        Ok(())
    }

    /// A record that an operator gave up, or that nobody can read.
    fn given_up(history: &History, xid: Xid, who: usize) -> bool {
        history.damaged.contains(&xid) || history.forgets.contains(&(xid, name_of(who)))
    }

    fn ended(history: &History, xid: Xid) -> Verdict {
        let Some(outcome) = history.commits.get(&xid) else {
            return fail(format!("END of {}, which did not commit", history.shown(xid)));
        };
        for (name, lineage) in outcome.yes_voters() {
            let branch = history.branch(xid, lineage);
            let hazard = history.heuristics.get(&(xid, name.clone()));
            let forgot_hazard = hazard.is_some_and(|h| h.what == Heuristic::Hazard)
                && history.forgets.contains(&(xid, name.clone()));
            let resolved = branch.is_some_and(|branch| branch.committed_durably || branch.by_hand_durably);
            if !resolved && !forgot_hazard {
                return fail(format!(
                    "END of {}, and {name} has not committed",
                    history.shown(xid)
                ));
            }
        }
        Ok(())
    }
}

impl Check for ForgetRule {
    fn invariant(&self) -> &'static str {
        "S6"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            // What was acknowledged and not ended before a crash is sent again below the floor, and acknowledged (P8).
            Seen::CoordinatorStarted { .. } => {
                self.sent.clear();
                Ok(())
            }
            Seen::FloorSent { who, lineage, floor } => self.floor_sent(history, *who, *lineage, *floor),
            Seen::Sent {
                who,
                lineage,
                message: ToParticipant::Prepare { xid, .. },
            } => {
                let floor = self
                    .sent
                    .get(&(*who, *lineage, xid.lineage))
                    .copied()
                    .unwrap_or_default();
                if xid.is_below(floor) {
                    return fail(format!(
                        "PREPARE of {} below the floor {floor:?}",
                        history.shown(*xid)
                    ));
                }
                Ok(())
            }
            Seen::Wrote { lineage, record, .. } => match record.shown() {
                Shown::Prepared(xid, ..) => {
                    let floor = history
                        .floors
                        .get(&(*lineage, xid.lineage))
                        .copied()
                        .unwrap_or_default();
                    if xid.is_below(floor) {
                        return fail(format!(
                            "{} is prepared below the floor {floor:?}",
                            history.shown(xid)
                        ));
                    }
                    Ok(())
                }
                _ => Ok(()),
            },
            Seen::Said {
                lineage,
                message: ToCoordinator::LostState(xid),
                ..
            } if history
                .branch(*xid, *lineage)
                .is_some_and(|branch| branch.committed_durably) =>
            {
                fail(format!(
                    "the tombstone of {} is gone, and the floor has not passed it",
                    history.shown(*xid)
                ))
            }
            Seen::Appended(_, Record::End(xid)) => Self::ended(history, *xid),
            Seen::Archived(outcome) if outcome.aborted.is_none() && !history.ended.contains(&outcome.xid) => {
                fail(format!(
                    "COMMIT of {} leaves without END",
                    history.shown(outcome.xid)
                ))
            }
            _ => Ok(()),
        }
    }
}
