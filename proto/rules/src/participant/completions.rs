//! The rows that a completed resource call moves: P9, P10, P15, P14 and P19. Each completion is the durable
//! event. One that fits no state is a fault of ours, not of a peer: an assertion.

use super::branch::State;
use super::{Effect, Participant, by_hand};
use crate::{Decision, Millis, ToCoordinator, Vote, Xid};

impl Participant {
    /// P9; P4 and P5 leave no trace; an ABORT that came meanwhile acts now, and no vote leaves (P10).
    pub(super) fn prepared(&mut self, now: Millis, xid: Xid, vote: Vote) {
        let entry = self.entry(xid);
        let State::Preparing { operation, aborted } = &entry.state else {
            panic!("prepare completed while {:?}: {xid}", entry.state)
        };
        match (&vote, *aborted) {
            (Vote::Yes, false) => {
                entry.state = State::Prepared {
                    operation: operation.clone(),
                };
                self.entered(now, xid);
                self.send(ToCoordinator::Vote(xid, Vote::Yes));
            }
            (Vote::Yes, true) => {
                entry.state = State::Aborting;
                self.effects.push(Effect::Abort(xid));
            }
            (Vote::No(_) | Vote::ReadOnly, aborted) => {
                let entry = self.remove(xid);
                if !aborted {
                    self.send(ToCoordinator::Vote(xid, vote));
                }
                self.wake(&entry.transaction_id);
            }
        }
    }

    /// P15.
    pub(super) fn committed(&mut self, now: Millis, xid: Xid) {
        let entry = self.entry(xid);
        assert!(
            entry.state == State::Committing,
            "commit completed while {:?}: {xid}",
            entry.state
        );
        entry.state = State::Committed;
        self.entered(now, xid);
        self.send(ToCoordinator::Ack(xid));
    }

    /// P10: nothing is kept of the branch.
    pub(super) fn aborted(&mut self, xid: Xid) {
        let entry = self.remove(xid);
        assert!(
            entry.state == State::Aborting,
            "abort completed while {:?}: {xid}",
            entry.state
        );
        self.wake(&entry.transaction_id);
    }

    /// P14: the report goes whatever decision came meanwhile; it is the answer to both.
    pub(super) fn resolved(&mut self, now: Millis, xid: Xid) {
        let entry = self.entry(xid);
        let State::Resolving { what, request } = entry.state else {
            panic!("resolve completed while {:?}: {xid}", entry.state)
        };
        entry.state = State::Heuristic { what };
        let transaction_id = entry.transaction_id.clone();
        self.entered(now, xid);
        self.effects.push(Effect::Answer {
            request,
            result: Ok(()),
        });
        self.send(ToCoordinator::Report(xid, by_hand(what)));
        self.wake(&transaction_id);
    }

    /// P19.
    pub(super) fn forgotten(&mut self, now: Millis, xid: Xid) {
        let entry = self.entry(xid);
        let State::Forgetting { what } = entry.state else {
            panic!("forget completed while {:?}: {xid}", entry.state)
        };
        entry.state = State::Forgotten {
            committed: what == Decision::Commit,
        };
        self.entered(now, xid);
        self.send(ToCoordinator::ForgetAck(xid));
    }
}
