//! A participant's node: the shipped machine, the ledger's shipped core as its resource, its log, and what the
//! SDK's driver does around them.

use covenant_fault::CrashPoint;
use covenant_ledger::simulated::{Checkpoint, SimulatedLedger, StoredRecord};
use covenant_rules::coordinator::SessionId;
use covenant_rules::participant::{Branch, Effect, Event, Recovered};
use covenant_rules::{
    Decision, Hello, Lineage, Lsn, Operator, Participant, ToCoordinator, ToParticipant, Xid,
};

use crate::disk::Disk;
use crate::matrix::Message;
use crate::network::Up;
use crate::node::{Clock, Micros, Node, name_of};
use crate::seen::Seen;
use crate::world::{Happening, World};

/// A call of the resource.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Prepare(Branch),
    Commit(Xid),
    Abort(Xid),
    Resolve(Xid, Decision, Operator),
    Forget(Xid),
}

/// A running participant.
pub(crate) struct Process {
    pub(crate) id: u64,
    /// The machine, once this start is durable.
    pub(crate) machine: Option<Participant>,
    pub(crate) ledger: SimulatedLedger,
    pub(crate) lineage: Lineage,
    pub(crate) recovered: Option<(Recovered, Lsn)>,
    started: Micros,
    pub(crate) session: Option<SessionId>,
    pub(crate) dials: u32,
    outgoing: Vec<ToCoordinator>,
    /// Completions and the record that each waits for.
    pub(crate) waiting: Vec<(Lsn, Event)>,
    tick_at: Option<Micros>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) called: bool,
}

/// A participant: its disk, and its process if one runs.
pub(crate) struct ParticipantNode {
    pub(crate) process: Option<Process>,
    pub(crate) disk: Disk<StoredRecord>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) clock: Clock,
    pub(crate) fail_force: bool,
    pub(crate) slow_force_us: Micros,
    /// What a participant was sent, for late copies.
    pub(crate) received: Vec<ToParticipant>,
    /// What it said last to join, for late copies.
    pub(crate) hello: Option<Hello>,
}

impl ParticipantNode {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            process: None,
            disk: Disk::default(),
            checkpoint: Checkpoint::default(),
            clock,
            fail_force: false,
            slow_force_us: 0,
            received: Vec::new(),
            hello: None,
        }
    }
}

impl World {
    /// Starts a participant process on what its disk holds.
    pub(crate) fn start_participant(&mut self, who: usize) {
        let node = Node::Participant(who);
        self.open_log(node);
        if self.reach(node, CrashPoint::PStartSynced, None) {
            return;
        }
        self.trace.line(node, &|| "replays its log".to_owned());
        if self.reach(node, CrashPoint::PReplayMid, None) {
            return;
        }
        let (new_lineage, bits) = (Lineage(0xA000 + u128::from(self.identity())), self.rng.u64(..));
        let own = &self.participants[who];
        let replayed =
            SimulatedLedger::replay(&own.checkpoint, &own.disk.records, self.setup.floor_tombstones);
        let mut ledger = match replayed {
            Ok(ledger) => ledger,
            Err(error) => panic!("{node} does not start: {error}"),
        };
        let checkpointed = self.participants[who].checkpoint.lsn > 0;
        self.see(&Seen::Replayed {
            who,
            ledger: &ledger,
            checkpointed,
        });
        let at = self.participants[who].clock.wall_ms(self.now);
        let (recovered, mut start) = match ledger.start(new_lineage, bits, at) {
            Ok(started) => started,
            Err(error) => panic!("{node} does not start: {error}"),
        };
        // A crash during the first start may have taken some of them.
        start = self.open_accounts(&mut ledger, at).unwrap_or(start);
        let id = self.process();
        let lineage = recovered.identity.lineage;
        let counter = recovered.identity.incarnation.counter;
        self.participants[who].process = Some(Process {
            id,
            machine: None,
            ledger,
            lineage,
            recovered: Some((recovered, start)),
            started: self.now,
            session: None,
            dials: 0,
            outgoing: Vec::new(),
            waiting: Vec::new(),
            tick_at: None,
            checkpoint: None,
            called: false,
        });
        self.trace.line(node, &|| format!("starts as {counter}"));
        self.write_appended(who);
        self.force_if_wanted(node);
    }

    pub(crate) fn participant_step(&mut self, who: usize, event: Event) {
        let (now, clock) = (self.now, self.participants[who].clock);
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        let (id, local) = (process.id, clock.elapsed_ms(process.started, now));
        let Some(machine) = &mut process.machine else {
            return;
        };
        for effect in machine.step(local, event) {
            self.participant_effect(who, effect);
            if !self.lives(Node::Participant(who), id) {
                return;
            }
        }
        self.participant_stepped(who);
    }

    /// The end of a round: one frame, forces, the next tick.
    pub(crate) fn participant_stepped(&mut self, who: usize) {
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        if std::mem::take(&mut process.called)
            && let Some(process) = self.participants[who].process.take()
        {
            let (lineage, ledger) = (process.lineage, &process.ledger);
            self.see(&Seen::Stepped { who, lineage, ledger });
            self.participants[who].process = Some(process);
        }
        self.flush_up(who);
        self.force_if_wanted(Node::Participant(who));
        self.arm_participant_tick(who);
    }

    fn flush_up(&mut self, who: usize) {
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        let messages = std::mem::take(&mut process.outgoing);
        if let Some(session) = process.session.filter(|_| !messages.is_empty()) {
            self.send_up(session, Up::Frame(messages));
        }
    }

    fn participant_effect(&mut self, who: usize, effect: Effect) {
        let node = Node::Participant(who);
        match effect {
            Effect::Hello(hello) => self.dialled(who, hello),
            Effect::Send(message) => self.participant_says(who, message),
            Effect::Prepare(branch) => self.resource_call(who, Call::Prepare(branch)),
            Effect::Commit(xid) => self.resource_call(who, Call::Commit(xid)),
            Effect::Abort(xid) => self.resource_call(who, Call::Abort(xid)),
            Effect::Resolve { xid, what, by } => self.resource_call(who, Call::Resolve(xid, what, by)),
            Effect::Forget(xid) => self.resource_call(who, Call::Forget(xid)),
            Effect::Floor { lineage, floor } => {
                let Some(process) = &mut self.participants[who].process else {
                    return;
                };
                let raised = process.ledger.raise_floor(lineage, floor);
                assert!(raised.is_ok(), "a floor follows from everything: {raised:?}");
                self.write_appended(who);
            }
            Effect::Answer { result, .. } => {
                self.trace
                    .line(node, &|| format!("tells the operator {result:?}"));
            }
            Effect::Alarm(alarm) => {
                self.sometimes.alarm(alarm.code.as_str());
                self.trace
                    .line(node, &|| format!("ALARM {}", alarm.code.as_str()));
            }
        }
    }

    fn participant_says(&mut self, who: usize, message: ToCoordinator) {
        let node = Node::Participant(who);
        self.trace.line(node, &|| {
            format!("-> c   {}", crate::show::to_coordinator(&message, &self.history))
        });
        let Some(lineage) = self.lineage_of(who) else {
            return;
        };
        self.see(&Seen::Said {
            who,
            lineage,
            message: &message,
        });
        if let Some(session) = self.participants[who].process.as_ref().and_then(|p| p.session) {
            self.stop(session, Message::to_coordinator(&message));
        }
        let point = match &message {
            ToCoordinator::Vote(xid, _) => Some((CrashPoint::PVoteSent, *xid)),
            ToCoordinator::Ack(xid) => Some((CrashPoint::PAckSent, *xid)),
            _ => None,
        };
        if let Some(process) = &mut self.participants[who].process {
            process.outgoing.push(message);
        }
        let Some((point, xid)) = point.filter(|_| !self.armed.is_empty()) else {
            return;
        };
        let id = self.history.minted.get(&xid).cloned();
        if self.armed_for(node, point, id.as_ref()) {
            self.flush_up(who);
            self.reach(node, point, id.as_ref());
        }
    }

    /// This start is durable, and so is all that replay read: it takes work.
    pub(crate) fn participant_started(&mut self, who: usize, recovered: Recovered) {
        let (lineage, incarnation) = (recovered.identity.lineage, recovered.identity.incarnation);
        self.see(&Seen::Joined {
            who,
            lineage,
            incarnation,
        });
        let machine = Participant::recover(self.setup.limits.clone(), name_of(who), recovered);
        if let Some(process) = &mut self.participants[who].process {
            process.machine = Some(machine);
        }
        self.dial(who);
    }

    pub(crate) fn participant_tick(&mut self, who: usize) {
        let (now, clock) = (self.now, self.participants[who].clock);
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        process.tick_at = None;
        let due = process.machine.as_ref().and_then(Participant::next_deadline);
        if due.is_some_and(|due| due <= clock.elapsed_ms(process.started, now)) {
            self.participant_step(who, Event::Tick);
        } else {
            self.arm_participant_tick(who);
        }
    }

    fn arm_participant_tick(&mut self, who: usize) {
        let clock = self.participants[who].clock;
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        let Some(due) = process.machine.as_ref().and_then(Participant::next_deadline) else {
            return;
        };
        let at = clock.at(process.started, due);
        if process.tick_at.is_none_or(|armed| at < armed) {
            process.tick_at = Some(at);
            let process = process.id;
            let node = Node::Participant(who);
            self.at(at, Happening::Tick { node, process });
        }
    }

    /// An operator decides a prepared branch by hand (P14).
    pub fn resolve(&mut self, who: usize, xid: Xid, what: Decision) {
        let Some(lineage) = self.lineage_of(who) else {
            return;
        };
        self.trace.line(Node::Participant(who), &|| {
            format!(
                "an operator decides {} of {}",
                crate::show::decision(what),
                self.history.shown(xid)
            )
        });
        self.see(&Seen::ByHand { lineage, xid });
        let by = crate::faults::operator();
        let request = self.identity();
        self.participant_step(
            who,
            Event::Resolve {
                request,
                xid,
                what,
                by,
            },
        );
    }

    /// The fold of what is durable, built by a replay of it; it is installed after a while.
    pub(crate) fn checkpoint_participant(&mut self, who: usize) {
        let node = Node::Participant(who);
        let own = &self.participants[who];
        let durable =
            SimulatedLedger::replay(&own.checkpoint, own.disk.durable(), self.setup.floor_tombstones);
        let folded = match durable {
            Ok(durable) => durable.checkpoint(&own.checkpoint),
            Err(error) => panic!("what is durable at {node} does not fold: {error}"),
        };
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        if process.machine.is_none() || process.checkpoint.is_some() {
            return;
        }
        process.checkpoint = Some(folded);
        let process = process.id;
        self.trace.line(node, &|| "begins a checkpoint".to_owned());
        if self.reach(node, CrashPoint::PCheckpointMid, None) {
            return;
        }
        self.after(3_000, Happening::CheckpointDone { node, process });
    }

    pub(crate) fn participant_checkpointed(&mut self, who: usize) {
        let own = &mut self.participants[who];
        let Some(checkpoint) = own.process.as_mut().and_then(|process| process.checkpoint.take()) else {
            return;
        };
        self.trace.line(Node::Participant(who), &|| {
            format!("checkpoint at {}", checkpoint.lsn)
        });
        own.disk.checkpointed(checkpoint.lsn);
        own.checkpoint = checkpoint;
    }

    /// The log of the process that runs.
    #[must_use]
    pub fn lineage_of(&self, who: usize) -> Option<Lineage> {
        self.participants[who]
            .process
            .as_ref()
            .map(|process| process.lineage)
    }

    /// A participant's machine, if its process runs and its start is durable.
    #[must_use]
    pub fn participant(&self, who: usize) -> Option<&Participant> {
        self.participants[who].process.as_ref()?.machine.as_ref()
    }

    /// A participant's ledger, if its process runs.
    #[must_use]
    pub fn ledger(&self, who: usize) -> Option<&SimulatedLedger> {
        self.participants[who]
            .process
            .as_ref()
            .map(|process| &process.ledger)
    }

    /// Whether no call of the resource is under way at a participant.
    #[must_use]
    pub fn is_idle(&self, who: usize) -> bool {
        let process = self.participants[who].process.as_ref();
        process.is_some_and(|process| process.waiting.is_empty() && process.machine.is_some())
    }
}
