//! S8 immobility: PREPARED leaves only by a decision or a forced heuristic; holds survive restarts.
//!
//! At every start and after every step that called the resource, the holds in the books are those of the branches
//! that the log says are prepared, neither more nor less.

use std::collections::{BTreeMap, BTreeSet};

use covenant_ledger::simulated::{Shown, SimulatedLedger};
use covenant_rules::{Lineage, ToParticipant, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Immobility {
    told: BTreeSet<(Xid, Lineage, bool)>,
    by_hand: BTreeSet<(Xid, Lineage)>,
    logs: BTreeMap<usize, Lineage>,
}

/// Debit and credit held on each account.
type Holds<'a> = BTreeMap<&'a str, (i64, i64)>;

fn holds_of<'a>(moves: impl Iterator<Item = (&'a str, i64)>, holds: &mut Holds<'a>) {
    for (account, amount) in moves {
        let held = holds.entry(account).or_default();
        if amount < 0 {
            held.0 -= amount;
        } else {
            held.1 += amount;
        }
    }
}

impl Immobility {
    fn holds(history: &History, lineage: Lineage, ledger: &SimulatedLedger) -> Verdict {
        let mut expected = Holds::new();
        for ((_, of), branch) in &history.branches {
            if *of == lineage && branch.holds {
                let moves = branch
                    .moves
                    .iter()
                    .map(|(account, amount)| (account.as_str(), *amount));
                holds_of(moves, &mut expected);
            }
        }
        for (name, account) in ledger.books().after(None) {
            let held = (account.pending_debit, account.pending_credit);
            let due = expected.get(name.as_str()).copied().unwrap_or_default();
            if held != due {
                return fail(format!(
                    "{name} holds {held:?}; what is prepared in the log holds {due:?}"
                ));
            }
        }
        Ok(())
    }
}

impl Check for Immobility {
    fn invariant(&self) -> &'static str {
        "S8"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Received { lineage, message, .. } => match message {
                ToParticipant::Commit(xid) => {
                    self.told.insert((*xid, *lineage, true));
                    Ok(())
                }
                ToParticipant::Abort(xid) => {
                    self.told.insert((*xid, *lineage, false));
                    Ok(())
                }
                _ => Ok(()),
            },
            Seen::ByHand { lineage, xid } => {
                self.by_hand.insert((*xid, *lineage));
                Ok(())
            }
            Seen::Wrote { lineage, record, .. } => {
                let (allowed, xid) = match record.shown() {
                    Shown::Committed(xid, _) => (self.told.contains(&(xid, *lineage, true)), xid),
                    Shown::Aborted(xid) => (self.told.contains(&(xid, *lineage, false)), xid),
                    Shown::ByHand(xid, ..) => (self.by_hand.contains(&(xid, *lineage)), xid),
                    _ => return Ok(()),
                };
                if allowed {
                    return Ok(());
                }
                fail(format!(
                    "{} leaves PREPARED, and nobody decided it",
                    history.shown(xid)
                ))
            }
            Seen::Joined { who, lineage, .. } => {
                self.logs.insert(*who, *lineage);
                Ok(())
            }
            Seen::DiskLost(crate::node::Node::Participant(who)) => {
                self.logs.remove(who);
                Ok(())
            }
            Seen::Replayed { who, ledger, .. } => match self.logs.get(who) {
                Some(lineage) => Self::holds(history, *lineage, ledger),
                None => Ok(()),
            },
            Seen::Stepped { lineage, ledger, .. } => Self::holds(history, *lineage, ledger),
            _ => Ok(()),
        }
    }
}
