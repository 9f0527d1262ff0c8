//! The ONE loop: it owns the machine, performs its effects and feeds completions back.
//!
//! Its inputs, all in one `select`:
//! * calls of callers and operators, and frames of sessions, each from a bounded queue;
//! * the journal's durable LSN: `Event::Durable`;
//! * the clock: `Event::Tick` exactly at the machine's next deadline, `Event::Clock` once a second;
//! * checkpoints that finished, and slices of expiring outcomes;
//! * the drain: from then on no new work, and the end when nothing is in progress or the time is up.
//!
//! *Architecture invariant:* the loop never awaits a send or a force (a crash point under test apart), so
//! queues cannot close a ring. It drains what waits, up to a bound, steps, hands all appends to the journal
//! as one batch, and releases all sends for one participant together.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use covenant_fault::metered::Meter;
use covenant_journal::{Checkpoint, CheckpointStatus, Journal, Records};
use covenant_rules::coordinator::{AlarmCode, Effect, Event, RequestId, SessionId};
use covenant_rules::{Coordinator, Millis, Name, RepeatedLines, ToParticipant};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use crate::archive::OutcomeArchive;
use crate::crash::Crash;
use crate::input::{Caller, FromSession, Inputs, Phase};
use crate::outbox::Outbox;
use crate::recovery::{Recovered, push_record, unix_millis};
use crate::{Config, Error};

/// How many inputs of one kind one round of the loop takes.
const MAX_ROUND: usize = 256;

/// A checkpoint is also taken after this many bytes of log, 64 MiB: the next start reads no more, however large the
/// records are.
const CHECKPOINT_BYTES: u64 = 64 * 1024 * 1024;

/// How often the machine is told the wall clock.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// One live or joining session.
pub(crate) struct Slot {
    pub(crate) name: Name,
    pub(crate) outbox: Outbox,
    pub(crate) meter: Option<Arc<Meter>>,
    pub(crate) version: u32,
    pub(crate) joined_at_ms: u64,
    pub(crate) sends: Vec<ToParticipant>,
}

/// What a line of the log is about, of those that peers can repeat.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Line {
    Alarm(AlarmCode),
    Joined,
    Refused,
    Replaced,
    NotDraining,
    Failed,
}

pub(crate) struct Driver {
    pub(crate) machine: Coordinator,
    pub(crate) archive: OutcomeArchive,
    pub(crate) journal: Journal,
    pub(crate) crash: Crash,
    pub(crate) inputs: Inputs,
    pub(crate) started: Instant,
    /// Appends of this round.
    pub(crate) records: Records,
    pub(crate) sessions: HashMap<SessionId, Slot>,
    /// Sessions with sends of this round.
    pub(crate) touched: Vec<SessionId>,
    pub(crate) callers: HashMap<RequestId, Caller>,
    pub(crate) lines: RepeatedLines<Line>,
    pub(crate) next_request: RequestId,
    pub(crate) messages_sent: u64,
    pub(crate) messages_received: u64,
    expiring: bool,
    checkpoint_records: u64,
    drain: Duration,
}

impl Driver {
    pub(crate) fn new(config: &Config, recovered: Recovered, crash: Crash, inputs: Inputs) -> Self {
        Self {
            machine: recovered.machine,
            archive: recovered.archive,
            journal: recovered.journal,
            crash,
            inputs,
            // The machine counts from the wall clock that it was recovered with.
            started: recovered.started,
            records: Records::new(),
            sessions: HashMap::new(),
            touched: Vec::new(),
            callers: HashMap::new(),
            lines: RepeatedLines::new(),
            next_request: 1,
            messages_sent: 0,
            messages_received: 0,
            expiring: true,
            checkpoint_records: config.log.checkpoint_records,
            drain: Duration::from_millis(config.sessions.drain_ms),
        }
    }

    /// Runs until a drain ends. `effects` are those of the machine's start.
    pub(crate) async fn run(
        mut self,
        effects: Vec<Effect>,
        mut draining: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        // Before the first append: a receiver sees only what rises after it was made.
        let mut durable = self.journal.durable();
        let mut checkpoints = self.journal.checkpoints();
        self.perform(effects).await?;
        self.flush().await?;
        let mut clock = tokio::time::interval(CLOCK_PERIOD);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut calls = Vec::with_capacity(MAX_ROUND);
        let mut frames = Vec::with_capacity(MAX_ROUND);
        let mut drain_until: Option<Instant> = None;
        loop {
            if drain_until.is_some_and(|until| self.machine.in_progress() == 0 || Instant::now() >= until) {
                break;
            }
            let wake = self.wake_at(drain_until);
            tokio::select! {
                changed = durable.changed() => {
                    // The journal outlives the loop.
                    if changed.is_err() { break; }
                    let lsn = *durable.borrow_and_update();
                    self.step(Event::Durable(lsn)).await?;
                }
                taken = self.inputs.frames.recv_many(&mut frames, MAX_ROUND) => {
                    if taken == 0 { break; }
                    for input in frames.drain(..) { self.session_input(input).await?; }
                }
                taken = self.inputs.calls.recv_many(&mut calls, MAX_ROUND) => {
                    if taken == 0 { break; }
                    for call in calls.drain(..) { self.call(call, drain_until.is_some()).await?; }
                }
                () = tokio::time::sleep_until(wake) => self.step(Event::Tick).await?,
                _ = clock.tick() => self.step(Event::Clock(unix_millis())).await?,
                _ = checkpoints.changed() => self.checkpointed(&checkpoints),
                _ = &mut draining, if drain_until.is_none() => {
                    drain_until = Some(Instant::now() + self.drain);
                    self.inputs.phase.send_replace(Phase::Draining);
                }
                () = std::future::ready(()), if self.expiring => self.expiring = self.archive.expire()?,
            }
            self.flush().await?;
            self.checkpoint_if_due(&checkpoints)?;
        }
        self.end().await
    }

    pub(crate) fn now(&self) -> Millis {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn wake_at(&self, drain_until: Option<Instant>) -> Instant {
        let far = Instant::now() + CLOCK_PERIOD;
        let deadline = self
            .machine
            .next_deadline()
            .map(|at| self.started + Duration::from_millis(at));
        [deadline, drain_until]
            .into_iter()
            .flatten()
            .fold(far, Instant::min)
    }

    pub(crate) async fn step(&mut self, event: Event) -> Result<(), Error> {
        let effects = self.machine.step(self.now(), event);
        self.perform(effects).await
    }

    async fn session_input(&mut self, input: FromSession) -> Result<(), Error> {
        match input {
            FromSession::Joined {
                session,
                hello,
                version,
                outbox,
                meter,
            } => {
                let name = hello.name.clone();
                let slot = Slot {
                    name,
                    outbox,
                    meter,
                    version,
                    joined_at_ms: unix_millis(),
                    sends: Vec::new(),
                };
                self.sessions.insert(session, slot);
                self.step(Event::Joined { session, hello }).await
            }
            FromSession::Messages { session, messages } => {
                self.messages_received += messages.len() as u64;
                for message in messages {
                    self.message(session, message).await?;
                }
                Ok(())
            }
            FromSession::Left { session, error } => {
                if let Some(status) = error
                    && let Some(held_back) = self.lines.count(self.now(), Line::Failed)
                {
                    tracing::warn!(session, %status, held_back, "a session ended by an error");
                }
                self.sessions.remove(&session);
                self.step(Event::Left(session)).await
            }
        }
    }

    /// Outcomes expired: they go in slices.
    pub(crate) fn expiring(&mut self) {
        self.expiring = true;
    }

    /// Hands this round's appends to the journal, then releases its sends, one batch per participant.
    async fn flush(&mut self) -> Result<(), Error> {
        loop {
            if !self.records.is_empty() {
                self.journal.append(&self.records);
                self.records.clear();
            }
            let mut cut = Vec::new();
            for session in std::mem::take(&mut self.touched) {
                let Some(slot) = self
                    .sessions
                    .get_mut(&session)
                    .filter(|slot| !slot.sends.is_empty())
                else {
                    continue;
                };
                let floor = self.machine.floor(&slot.name);
                if !slot.outbox.push(&mut slot.sends, floor, self.machine.position()) {
                    cut.push(session);
                }
            }
            if cut.is_empty() {
                return Ok(());
            }
            for session in cut {
                self.cut(session).await?;
            }
        }
    }

    /// A session that does not drain ends; what is due goes when it joins again.
    async fn cut(&mut self, session: SessionId) -> Result<(), Error> {
        let Some(slot) = self.sessions.remove(&session) else {
            return Ok(());
        };
        if let Some(held_back) = self.lines.count(self.now(), Line::NotDraining) {
            tracing::warn!(
                participant = %slot.name,
                session,
                held_back,
                "the session does not drain and is cut; it may join again"
            );
        }
        let bound = slot.outbox.max_bytes();
        let why = format!("more than max_outbox_bytes {bound} wait for this session; join again");
        slot.outbox.end(Status::resource_exhausted(why));
        self.step(Event::Left(session)).await
    }

    fn checkpointed(&mut self, checkpoints: &watch::Receiver<CheckpointStatus>) {
        let status = *checkpoints.borrow();
        self.archive.checkpointed(status.archive_end);
    }

    fn checkpoint_if_due(&mut self, checkpoints: &watch::Receiver<CheckpointStatus>) -> Result<(), Error> {
        let status = *checkpoints.borrow();
        let records = self.machine.position().saturating_sub(status.lsn);
        let due = is_due(records, self.journal.log_bytes(), self.checkpoint_records);
        if !due || status.running.is_some() || !self.machine.is_serving() {
            return Ok(());
        }
        self.archive.checkpointed(status.archive_end);
        let mut records = Records::new();
        for record in self.machine.fold().records() {
            push_record(&mut records, &record, false);
        }
        let (archive, archive_drop_before) = self.archive.checkpoint();
        let lsn = self.machine.position();
        tracing::debug!(
            lsn,
            records = records.len(),
            outcomes = archive.len(),
            "checkpoint"
        );
        Ok(self.journal.checkpoint(Checkpoint {
            lsn,
            records,
            archive,
            archive_drop_before,
        })?)
    }

    async fn end(self) -> Result<(), Error> {
        for slot in self.sessions.values() {
            slot.outbox.end(Status::unavailable(
                "the coordinator is shutting down; join again",
            ));
        }
        let left = self.machine.in_progress();
        if left > 0 {
            tracing::info!(
                left,
                "the drain ended with transactions in progress; the next start goes on with them"
            );
        }
        let journal = self.journal.clone();
        drop(self);
        tokio::task::spawn_blocking(move || journal.close()).await??;
        Ok(())
    }
}

/// Whether so many records and bytes of log ask for a checkpoint.
fn is_due(records: u64, bytes: u64, checkpoint_records: u64) -> bool {
    records >= checkpoint_records || (records > 0 && bytes >= CHECKPOINT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_by_records_or_by_bytes_but_not_without_records() {
        assert!(is_due(50, 1, 50));
        assert!(is_due(1, CHECKPOINT_BYTES, 50));
        assert!(!is_due(49, CHECKPOINT_BYTES - 1, 50));
        assert!(!is_due(0, CHECKPOINT_BYTES, 50));
    }
}
