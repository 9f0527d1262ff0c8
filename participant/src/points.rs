//! The crash points of section 9 that belong to the driver: `p.prepare.received`, `p.vote.sent`,
//! `p.decision.received` and `p.ack.sent`. The others are the resource's. Without a plan nothing is kept.

use std::collections::BTreeMap;

use covenant_fault::{CrashPlan, CrashPoint, crash};
use covenant_rules::participant::Event;
use covenant_rules::{ToCoordinator, ToParticipant, TransactionId, Xid};

/// The most ids that are remembered for points armed with one.
const MAX_REMEMBERED_IDS: usize = 100_000;

/// The plan, and the ids of the branches that were asked for while there is one.
pub(crate) struct Points {
    plan: CrashPlan,
    ids: BTreeMap<Xid, TransactionId>,
}

impl Points {
    pub(crate) fn new(plan: CrashPlan, recovered: impl Iterator<Item = (Xid, TransactionId)>) -> Self {
        let ids = if plan.is_empty() {
            BTreeMap::new()
        } else {
            recovered.take(MAX_REMEMBERED_IDS).collect()
        };
        Self { plan, ids }
    }

    /// Ends the process if a message of this frame is a point of the plan.
    pub(crate) fn received(&mut self, frame: &Event) {
        if self.plan.is_empty() {
            return;
        }
        let Event::Frame { messages, .. } = frame else {
            return;
        };
        for message in messages {
            match message {
                ToParticipant::Prepare {
                    xid, transaction_id, ..
                } => {
                    if self.ids.len() < MAX_REMEMBERED_IDS {
                        self.ids.insert(*xid, transaction_id.clone());
                    }
                    self.pass(CrashPoint::PPrepareReceived, *xid);
                }
                ToParticipant::Commit(xid) | ToParticipant::Abort(xid) => {
                    self.pass(CrashPoint::PDecisionReceived, *xid);
                }
                ToParticipant::Pending(_)
                | ToParticipant::Unknown(_)
                | ToParticipant::ReportRecorded(_)
                | ToParticipant::Forget(_) => {}
            }
        }
    }

    /// The point at which the process ends once this message has left the socket.
    pub(crate) fn sent(&self, message: &ToCoordinator) -> Option<CrashPoint> {
        if self.plan.is_empty() {
            return None;
        }
        let (point, xid) = match message {
            ToCoordinator::Vote(xid, _) => (CrashPoint::PVoteSent, xid),
            ToCoordinator::Ack(xid) => (CrashPoint::PAckSent, xid),
            ToCoordinator::LostState(_)
            | ToCoordinator::Inquire(_)
            | ToCoordinator::Report(..)
            | ToCoordinator::ForgetAck(_) => return None,
        };
        self.plan.hit(point, self.id(*xid)).then_some(point)
    }

    fn pass(&self, point: CrashPoint, xid: Xid) {
        if self.plan.hit(point, self.id(xid)) {
            crash(point);
        }
    }

    fn id(&self, xid: Xid) -> Option<&str> {
        self.ids.get(&xid).map(TransactionId::as_str)
    }
}
