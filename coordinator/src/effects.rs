//! What the loop does with each effect of the machine.

use std::sync::Arc;

use covenant_fault::{CrashPoint, crash};
use covenant_rules::coordinator::{Alarm, AlarmCode, Effect, JoinRefusal, SessionId};
use covenant_rules::{Lsn, Record, ToParticipant, TransactionId};
use tonic::Status;

use crate::Error;
use crate::driver::{Driver, Line};
use crate::grpc::status;
use crate::input::Phase;
use crate::recovery::push_record;

impl Driver {
    /// Performs the effects of one step, in order; appends and sends leave with the end of the round.
    pub(crate) async fn perform(&mut self, effects: Vec<Effect>) -> Result<(), Error> {
        let mut changed = Vec::new();
        for effect in effects {
            match effect {
                Effect::Append { lsn, record, force } => self.append(lsn, &record, force),
                Effect::Send { session, message } => self.send(session, message).await,
                Effect::Reply { request, reply } => self.answer(request, reply),
                Effect::Welcome(session) => self.welcome(session),
                Effect::RefuseJoin(session, refusal) => self.refuse_join(session, refusal),
                Effect::Replaced(session) => self.replaced(session),
                Effect::Serving => self.serving(),
                Effect::Archive(outcome) => self.archive.add(outcome),
                Effect::Expire(since) => {
                    self.archive.expire_before(since);
                    self.expiring();
                }
                Effect::Changed(transaction_id) => changed.push(transaction_id),
                Effect::Alarm(alarm) => self.alarm(&alarm),
            }
        }
        // Last: what this step finished is in the archive by now, and nowhere else.
        changed.dedup();
        for transaction_id in changed {
            self.changed(&transaction_id);
        }
        Ok(())
    }

    fn append(&mut self, lsn: Lsn, record: &Record, force: bool) {
        if self.crash.is_planned() {
            let xid = record.xid();
            let id = record
                .transaction_id()
                .or_else(|| xid.and_then(|xid| self.machine.transaction_id(xid)))
                .map(TransactionId::as_str);
            match record {
                Record::Commit(_) => self.crash.at(CrashPoint::CVotesAll, id),
                Record::End(_) => self.crash.at(CrashPoint::CAcksAll, id),
                Record::Lineage { .. }
                | Record::Incarnation(_)
                | Record::Participant { .. }
                | Record::Abort(_)
                | Record::Heuristic { .. }
                | Record::Forget { .. }
                | Record::ForgetDone { .. }
                | Record::Resolved { .. }
                | Record::Retained(_)
                | Record::Suspect { .. }
                | Record::SuspectCleared(_)
                | Record::Quarantined(_) => {}
            }
            self.crash.arm(lsn, record, id);
        }
        push_record(&mut self.records, record, force);
    }

    async fn send(&mut self, session: SessionId, message: ToParticipant) {
        let point = if self.crash.is_planned() {
            self.sent_point(&message)
        } else {
            None
        };
        let Some(slot) = self.sessions.get_mut(&session) else {
            return;
        };
        if slot.sends.is_empty() {
            self.touched.push(session);
        }
        slot.sends.push(message);
        self.messages_sent += 1;
        if let Some(point) = point {
            self.crash_when_sent(session, point).await;
        }
    }

    fn sent_point(&self, message: &ToParticipant) -> Option<CrashPoint> {
        let id = match message {
            ToParticipant::Prepare { transaction_id, .. } => Some(transaction_id),
            ToParticipant::Commit(xid)
            | ToParticipant::Abort(xid)
            | ToParticipant::Pending(xid)
            | ToParticipant::Unknown(xid)
            | ToParticipant::ReportRecorded(xid)
            | ToParticipant::Forget(xid) => self.machine.transaction_id(*xid),
        };
        self.crash.sent_point(message, id.map(TransactionId::as_str))
    }

    /// The named message leaves through the socket, and nothing after it.
    async fn crash_when_sent(&mut self, session: SessionId, point: CrashPoint) {
        let Some(slot) = self.sessions.get_mut(&session) else {
            return;
        };
        let floor = self.machine.floor(&slot.name);
        slot.outbox.push(&mut slot.sends, floor, self.machine.position());
        if let (Ok(handed_over), Some(meter)) = (slot.outbox.drained().await, &slot.meter) {
            meter.wait_data_written(handed_over).await;
        }
        crash(point);
    }

    fn welcome(&mut self, session: SessionId) {
        let now = self.now();
        let Some(slot) = self.sessions.get(&session) else {
            return;
        };
        if let Some(held_back) = self.lines.count(now, Line::Joined) {
            tracing::info!(participant = %slot.name, session, held_back, "joined");
        }
        slot.outbox
            .welcome(covenant_codec::frame::welcome(&covenant_codec::frame::Welcome {
                version: slot.version,
                lineage: self.machine.lineage(),
                incarnation: self.machine.incarnation(),
                max_frame_bytes: covenant_codec::MAX_FRAME_BYTES as u32,
            }));
    }

    fn refuse_join(&mut self, session: SessionId, refusal: JoinRefusal) {
        let Some(slot) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(held_back) = self.lines.count(self.now(), Line::Refused) {
            tracing::info!(participant = %slot.name, session, ?refusal, held_back, "a session was refused");
        }
        slot.outbox.end(status::join_refusal(refusal));
    }

    fn replaced(&mut self, session: SessionId) {
        let Some(slot) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(held_back) = self.lines.count(self.now(), Line::Replaced) {
            tracing::info!(participant = %slot.name, session, held_back, "replaced by a newer session");
        }
        slot.outbox.end(Status::aborted(
            "this session was replaced by a newer one of the same participant",
        ));
    }

    fn serving(&mut self) {
        let phase = if self.machine.is_suspect() {
            Phase::Suspect
        } else {
            Phase::Serving
        };
        self.inputs.phase.send_replace(phase);
        tracing::info!(
            lineage = %self.machine.lineage(),
            incarnation = self.machine.incarnation().counter,
            position = self.machine.position(),
            in_progress = self.machine.in_progress(),
            "serving"
        );
    }

    fn changed(&self, id: &TransactionId) {
        if self.inputs.changes.receiver_count() == 0 {
            return;
        }
        let archived = || {
            self.archive
                .by_id(id)
                .ok()?
                .outcome
                .map(|o| self.machine.view_of_outcome(&o))
        };
        if let Some(view) = self.machine.find_view(id).or_else(archived) {
            // Nobody watching any more is no error.
            let _ = self.inputs.changes.send(Arc::new(view));
        }
    }

    fn alarm(&mut self, alarm: &Alarm) {
        if let Some(held_back) = self.lines.count(self.now(), Line::Alarm(alarm.code)) {
            let participant = alarm.participant.as_ref().map_or("", |name| name.as_str());
            let xid = alarm.xid.map_or_else(String::new, |xid| xid.to_string());
            tracing::error!(code = alarm.code.as_str(), participant, xid, held_back, "alarm");
        }
        // Before it serves it is RECOVERING, whatever it knows already.
        if alarm.code == AlarmCode::Suspect && self.machine.is_serving() {
            self.inputs.phase.send_replace(Phase::Suspect);
        }
    }
}
