//! The rows P1 to P21 for what a coordinator sends. First match wins.

use alloc::format;
use alloc::sync::Arc;

use super::branch::State;
use super::{AlarmCode, Branch, Effect, Participant, RESOURCE_EXHAUSTED};
use crate::{Millis, NoReason, ToCoordinator, ToParticipant, TransactionId, Vote, Xid};

impl Participant {
    pub(super) fn message(&mut self, now: Millis, message: ToParticipant) {
        match message {
            ToParticipant::Prepare {
                xid,
                transaction_id,
                operation,
            } => {
                self.on_prepare(now, xid, transaction_id, operation);
            }
            ToParticipant::Commit(xid) => self.on_commit(now, xid),
            ToParticipant::Abort(xid) => self.on_abort(now, xid),
            ToParticipant::Forget(xid) => self.on_forget(xid),
            ToParticipant::ReportRecorded(xid) => self.on_report_recorded(now, xid),
            // Section 5: keep everything held; the back-off asks again.
            ToParticipant::Pending(_) | ToParticipant::Unknown(_) => {}
        }
    }

    fn on_prepare(&mut self, now: Millis, xid: Xid, transaction_id: TransactionId, operation: Arc<[u8]>) {
        let Some(entry) = self.branches.get(&xid) else {
            return self.prepare_unknown(xid, transaction_id, operation);
        };
        let same_id = entry.transaction_id == transaction_id;
        let (same, row) = match &entry.state {
            State::Waiting { operation: asked } => (*asked == operation, Row::Nothing),
            State::Preparing { aborted: true, .. } | State::Aborting => (true, Row::PrepareAfterAbort),
            State::Preparing {
                operation: asked,
                aborted: false,
            } => (*asked == operation, Row::Nothing),
            State::Prepared { operation: asked } => (*asked == operation, Row::Vote),
            State::Committing | State::Resolving { .. } => (true, Row::Nothing),
            State::Committed => (true, Row::Ack),
            State::Heuristic { .. } => (true, Row::Report),
            State::Forgetting { .. } | State::Forgotten { .. } => (true, Row::Nothing),
        };
        if !(same && same_id) {
            return self.alarm(
                AlarmCode::OperationDiffers,
                Some(xid),
                "PREPARE again, with other content",
            );
        }
        match row {
            Row::Nothing => {}
            Row::Vote => self.send(ToCoordinator::Vote(xid, Vote::Yes)),
            Row::Ack => self.send(ToCoordinator::Ack(xid)),
            Row::Report => self.speak(now, xid),
            Row::PrepareAfterAbort => {
                self.alarm(
                    AlarmCode::UnexpectedMessage,
                    Some(xid),
                    "PREPARE after ABORT of the same attempt",
                );
            }
        }
    }

    /// P1 to P6.
    pub(super) fn prepare_unknown(&mut self, xid: Xid, transaction_id: TransactionId, operation: Arc<[u8]>) {
        let known = self.known.get(&xid.lineage);
        if let Some(floor) = known
            .map(|known| known.floor)
            .filter(|floor| xid.is_below(*floor))
        {
            let detail = format!("the floor is {}/{}", floor.counter, floor.seq);
            return self.vote_no(xid, NoReason::BELOW_FLOOR, &detail);
        }
        let effect = self
            .attempts(&transaction_id)
            .find(|other| self.branches[other].has_effect());
        let waits = self
            .attempts(&transaction_id)
            .any(|other| self.branches[&other].may_hold());
        let position = known.map_or(0, |known| known.position);
        if let Some(other) = effect {
            let detail = format!("attempt {other} has its effect here");
            return self.vote_no(xid, NoReason::DUPLICATE_TRANSACTION, &detail);
        }
        let (bound, max_branches) = (
            self.limits.max_waiting_prepares,
            self.limits.max_participant_branches,
        );
        if self.branches.len() >= max_branches {
            let detail = format!("max_participant_branches is {max_branches}; try again later");
            return self.vote_no(xid, RESOURCE_EXHAUSTED, &detail);
        }
        if !waits {
            let state = State::Preparing {
                operation: operation.clone(),
                aborted: false,
            };
            self.insert(xid, transaction_id.clone(), state);
            self.effects.push(Effect::Prepare(Branch {
                xid,
                transaction_id,
                operation,
                position,
            }));
        } else if self.waiting.len() < bound {
            self.insert(xid, transaction_id, State::Waiting { operation });
            self.waiting.insert(xid);
        } else {
            let detail = format!("another attempt is held here and max_waiting_prepares is {bound}");
            self.vote_no(xid, RESOURCE_EXHAUSTED, &detail);
        }
    }

    /// P3: attempts that waited for this transaction are looked at again, in the order of their xids.
    pub(super) fn wake(&mut self, transaction_id: &TransactionId) {
        if self.waiting.is_empty() {
            return;
        }
        let woken: alloc::vec::Vec<Xid> = self
            .attempts(transaction_id)
            .filter(|xid| self.waiting.contains(xid))
            .collect();
        for xid in woken {
            let entry = self.stop_waiting(xid);
            let State::Waiting { operation } = entry.state else {
                unreachable!("what is in `waiting` waits: {xid}")
            };
            self.prepare_unknown(xid, entry.transaction_id, operation);
        }
    }

    fn on_commit(&mut self, now: Millis, xid: Xid) {
        let Some(entry) = self.branches.get(&xid) else {
            return self.commit_unknown(xid);
        };
        match &entry.state {
            State::Waiting { .. } => self.commit_unknown(xid),
            State::Preparing { aborted: false, .. }
            | State::Committing
            | State::Resolving { .. }
            | State::Forgetting { .. }
            | State::Forgotten { .. } => {}
            State::Prepared { .. } => {
                let transaction_id = entry.transaction_id.clone();
                self.leave_doubt(xid, State::Committing);
                self.effects.push(Effect::Commit(xid));
                self.wake(&transaction_id);
            }
            State::Preparing { aborted: true, .. } | State::Aborting => {
                self.alarm(
                    AlarmCode::ContraryDecision,
                    Some(xid),
                    "COMMIT after ABORT of the same attempt",
                );
                self.send(ToCoordinator::LostState(xid));
            }
            State::Committed => self.send(ToCoordinator::Ack(xid)),
            State::Heuristic { .. } => self.speak(now, xid),
        }
    }

    /// P8.
    fn commit_unknown(&mut self, xid: Xid) {
        if xid.is_below(self.floor(xid.lineage)) {
            self.send(ToCoordinator::Ack(xid));
        } else {
            self.alarm(
                AlarmCode::LostState,
                Some(xid),
                "COMMIT for a branch that is not known here",
            );
            self.send(ToCoordinator::LostState(xid));
        }
    }

    fn on_abort(&mut self, now: Millis, xid: Xid) {
        let Some(entry) = self.branches.get_mut(&xid) else {
            return;
        };
        match &mut entry.state {
            State::Waiting { .. } => {
                self.stop_waiting(xid);
            }
            State::Preparing { aborted, .. } => *aborted = true,
            State::Prepared { .. } => {
                self.leave_doubt(xid, State::Aborting);
                self.effects.push(Effect::Abort(xid));
            }
            State::Aborting
            | State::Resolving { .. }
            | State::Forgetting { .. }
            | State::Forgotten { .. } => {}
            State::Committing | State::Committed => {
                self.alarm(
                    AlarmCode::ContraryDecision,
                    Some(xid),
                    "ABORT after COMMIT of the same attempt",
                );
            }
            State::Heuristic { .. } => self.speak(now, xid),
        }
    }

    fn on_forget(&mut self, xid: Xid) {
        let Some(entry) = self.branches.get(&xid) else {
            return self.send(ToCoordinator::ForgetAck(xid));
        };
        match &entry.state {
            State::Waiting { .. } | State::Aborting | State::Forgotten { .. } => {
                self.send(ToCoordinator::ForgetAck(xid));
            }
            State::Heuristic { what } => {
                let what = *what;
                self.leave_doubt(xid, State::Forgetting { what });
                self.effects.push(Effect::Forget(xid));
            }
            State::Forgetting { .. } => {}
            State::Preparing { .. }
            | State::Prepared { .. }
            | State::Committing
            | State::Committed
            | State::Resolving { .. } => {
                self.alarm(
                    AlarmCode::UnexpectedMessage,
                    Some(xid),
                    "FORGET for a branch without a heuristic",
                );
            }
        }
    }

    /// P18: the report is durable over there; it is repeated at the slowest pace only, until FORGET.
    fn on_report_recorded(&mut self, now: Millis, xid: Xid) {
        let Some(entry) = self.branches.get_mut(&xid) else {
            return;
        };
        match &entry.state {
            State::Heuristic { .. } => {
                entry.deliveries = u32::MAX;
                self.ask_later(now, xid);
            }
            State::Waiting { .. }
            | State::Preparing { .. }
            | State::Prepared { .. }
            | State::Aborting
            | State::Committing
            | State::Committed
            | State::Resolving { .. }
            | State::Forgetting { .. }
            | State::Forgotten { .. } => {}
        }
    }

    fn stop_waiting(&mut self, xid: Xid) -> super::Entry {
        self.waiting.remove(&xid);
        self.remove(xid)
    }

    fn vote_no(&mut self, xid: Xid, code: &str, detail: &str) {
        self.send(ToCoordinator::Vote(xid, Vote::No(NoReason::new(code, detail))));
    }
}

/// What PREPARE means for a branch that is known.
enum Row {
    /// P16, P20, and P3 while it waits.
    Nothing,
    /// P11.
    Vote,
    /// P17.
    Ack,
    /// P18.
    Report,
    /// P21.
    PrepareAfterAbort,
}
