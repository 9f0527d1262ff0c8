//! The coordinator's node: the shipped machine, its log, its archive, and what the shipped shell does around them.

use std::collections::{BTreeMap, BTreeSet};

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::{Archived, Effect, Event, Identity, RequestId, SessionId};
use covenant_rules::{
    Coordinator, Lineage, Lsn, Name, Outcome, Record, ToParticipant, TransactionId, UnixMillis, Xid,
};

use crate::disk::Disk;
use crate::matrix::Message;
use crate::node::{Clock, Micros, Node, name_of};
use crate::seen::Seen;
use crate::world::{Answer, Happening, World};

/// Finished outcomes, as the archive of the server keeps them.
#[derive(Clone, Default, Debug)]
pub struct Outcomes {
    pub(crate) by_xid: BTreeMap<Xid, Outcome>,
    by_id: BTreeMap<TransactionId, Vec<Xid>>,
}

impl Outcomes {
    fn add(&mut self, outcome: Outcome) {
        let attempts = self.by_id.entry(outcome.transaction_id.clone()).or_default();
        attempts.push(outcome.xid);
        self.by_xid.insert(outcome.xid, outcome);
    }

    /// A COMMIT before an ABORT, the latest before an earlier one (R2).
    pub(crate) fn by_id(&self, id: &TransactionId) -> Option<Outcome> {
        let attempts = self.by_id.get(id)?.iter().filter_map(|xid| self.by_xid.get(xid));
        let ranked = attempts
            .enumerate()
            .max_by_key(|(at, one)| (one.aborted.is_none(), *at));
        ranked.map(|(_, outcome)| outcome.clone())
    }

    fn expire(&mut self, since: UnixMillis) {
        self.by_xid.retain(|_, outcome| outcome.retained_by() >= since);
        let by_xid = &self.by_xid;
        self.by_id.retain(|_, attempts| {
            attempts.retain(|xid| by_xid.contains_key(xid));
            !attempts.is_empty()
        });
    }

    fn counted(&self) -> Archived {
        let mut archived = Archived::default();
        for outcome in self.by_xid.values() {
            let fence = outcome.aborted == Some(covenant_rules::AbortReason::Fence);
            archived.add(outcome.retained_by(), outcome.decided, fence);
        }
        archived
    }
}

/// A checkpoint on the disk, or on its way to it.
#[derive(Clone, Default, Debug)]
pub struct Checkpoint {
    pub(crate) lsn: Lsn,
    pub(crate) records: Vec<Record>,
    pub(crate) archive: Outcomes,
}

/// A running coordinator.
pub(crate) struct Process {
    pub(crate) id: u64,
    pub(crate) machine: Coordinator,
    pub(crate) archive: Outcomes,
    started: Micros,
    sends: BTreeMap<SessionId, Vec<ToParticipant>>,
    pub(crate) replaced: BTreeSet<SessionId>,
    tick_at: Option<Micros>,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// The coordinator: its disk, and its process if one runs.
pub(crate) struct CoordinatorNode {
    pub(crate) process: Option<Process>,
    pub(crate) disk: Disk<Record>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) clock: Clock,
    pub(crate) fail_force: bool,
    pub(crate) slow_force_us: Micros,
}

impl CoordinatorNode {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            process: None,
            disk: Disk::default(),
            checkpoint: Checkpoint::default(),
            clock,
            fail_force: false,
            slow_force_us: 0,
        }
    }
}

impl World {
    pub(crate) fn identity(&mut self) -> u64 {
        self.next_identity += 1;
        self.next_identity
    }

    /// Starts a coordinator process on what its disk holds.
    pub(crate) fn start_coordinator(&mut self) {
        self.open_log(Node::Coordinator);
        if self.reach(Node::Coordinator, CrashPoint::CStartSynced, None) {
            return;
        }
        let (new_lineage, bits) = (Lineage(0xC000 + u128::from(self.identity())), self.rng.u64(..));
        let node = &mut self.coordinator;
        let checkpoint = node.checkpoint.clone();
        let records: Vec<Record> = checkpoint
            .records
            .iter()
            .chain(&node.disk.records)
            .cloned()
            .collect();
        let identity = Identity {
            new_lineage,
            bits,
            started: node.clock.wall_ms(self.now),
            archived: checkpoint.archive.counted(),
            tail_lost: None,
            quarantined: Vec::new(),
        };
        self.trace
            .line(Node::Coordinator, &|| "replays its log".to_owned());
        if self.reach(Node::Coordinator, CrashPoint::CReplayMid, None) {
            return;
        }
        let last = self.coordinator.disk.appended();
        let (machine, effects) = Coordinator::recover(self.setup.limits.clone(), identity, records, last);
        let mut archive = checkpoint.archive;
        archive.expire(machine.fold().retained_since);
        let (lineage, incarnation) = (machine.lineage(), machine.incarnation());
        let id = self.process();
        self.coordinator.process = Some(Process {
            id,
            machine,
            archive,
            started: self.now,
            sends: BTreeMap::new(),
            replaced: BTreeSet::new(),
            tick_at: None,
            checkpoint: None,
        });
        self.trace.line(Node::Coordinator, &|| {
            format!("starts as {}", incarnation.counter)
        });
        let checkpointed = self.coordinator.checkpoint.lsn > 0;
        self.see(&Seen::CoordinatorStarted {
            lineage,
            incarnation,
            checkpointed,
        });
        self.after(1_000_000, Happening::Clock { process: id });
        self.coordinator_perform(effects);
    }

    pub(crate) fn coordinator_step(&mut self, event: Event) -> usize {
        let now = self.now;
        let clock = self.coordinator.clock;
        let Some(process) = &mut self.coordinator.process else {
            return 0;
        };
        let local = clock.elapsed_ms(process.started, now);
        let effects = process.machine.step(local, event);
        let count = effects.len();
        self.coordinator_perform(effects);
        count
    }

    fn coordinator_perform(&mut self, effects: Vec<Effect>) {
        let Some(id) = self.running(Node::Coordinator) else {
            return;
        };
        for effect in effects {
            self.coordinator_effect(effect);
            if !self.lives(Node::Coordinator, id) {
                return;
            }
        }
        self.coordinator_flush();
        if self.lives(Node::Coordinator, id) {
            self.force_if_wanted(Node::Coordinator);
            self.arm_coordinator_tick();
        }
    }

    fn coordinator_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Append { lsn, record, force } => self.coordinator_append(lsn, record, force),
            Effect::Send { session, message } => self.coordinator_send(session, message),
            Effect::Reply { request, reply } => self.coordinator_reply(request, reply),
            Effect::Welcome(session) => self.welcome(session),
            Effect::RefuseJoin(session, refusal) => {
                self.trace.line(Node::Coordinator, &|| {
                    format!(
                        "refuses session {session}: {}",
                        crate::show::join_refusal(refusal)
                    )
                });
                self.end_session(session, 0);
            }
            Effect::Replaced(session) => {
                self.trace
                    .line(Node::Coordinator, &|| format!("session {session} is replaced"));
                if let Some(process) = &mut self.coordinator.process {
                    process.replaced.insert(session);
                }
                self.end_session(session, 0);
            }
            Effect::Serving => {
                self.trace.line(Node::Coordinator, &|| "serves".to_owned());
                self.see(&Seen::Serving);
            }
            Effect::Archive(outcome) => {
                self.see(&Seen::Archived(&outcome));
                if let Some(process) = &mut self.coordinator.process {
                    process.archive.add(outcome);
                }
            }
            Effect::Expire(since) => {
                self.see(&Seen::Expired(since));
                if let Some(process) = &mut self.coordinator.process {
                    process.archive.expire(since);
                }
            }
            Effect::Changed(_) => {}
            Effect::Alarm(alarm) => {
                self.sometimes.alarm(alarm.code.as_str());
                self.trace
                    .line(Node::Coordinator, &|| format!("ALARM {}", alarm.code.as_str()));
            }
        }
    }

    fn coordinator_append(&mut self, lsn: Lsn, record: Record, force: bool) {
        let id = self.id_of(&record);
        let before = match &record {
            Record::Commit(_) => Some(CrashPoint::CVotesAll),
            Record::End(_) => Some(CrashPoint::CAcksAll),
            _ => None,
        };
        if before.is_some_and(|point| self.reach(Node::Coordinator, point, id.as_ref())) {
            return;
        }
        let at = self.coordinator.disk.append(record.clone());
        assert!(at == lsn, "the machine appends {lsn} and the disk has {at}");
        self.trace.line(Node::Coordinator, &|| {
            let how = if force { "appends" } else { "appends lazily" };
            format!("{how} {}", crate::show::record(&record, id.as_ref()))
        });
        self.see(&Seen::Appended(lsn, &record));
        if force {
            self.coordinator.disk.wanted = lsn;
        } else {
            self.lazy_append(Node::Coordinator);
        }
        let after = match &record {
            Record::Commit(_) => Some(CrashPoint::CCommitAppended),
            Record::Abort(_) => Some(CrashPoint::CAbortAppended),
            Record::End(_) => Some(CrashPoint::CEndAppended),
            _ => None,
        };
        if let Some(point) = after {
            self.reach(Node::Coordinator, point, id.as_ref());
        }
    }

    /// The caller's id that a record is about.
    pub(crate) fn id_of(&self, record: &Record) -> Option<TransactionId> {
        let of_attempt = || record.xid().and_then(|xid| self.history.minted.get(&xid));
        record.transaction_id().or_else(of_attempt).cloned()
    }

    fn coordinator_send(&mut self, session: SessionId, message: ToParticipant) {
        let Some(link) = self.links.get(&session) else {
            return;
        };
        let (who, lineage) = (link.who, link.lineage);
        let point = match &message {
            ToParticipant::Prepare { .. } => Some(CrashPoint::CPrepareSentSome),
            ToParticipant::Commit(_) => Some(CrashPoint::CCommitSentSome),
            ToParticipant::Abort(_) => Some(CrashPoint::CAbortSentSome),
            _ => None,
        };
        self.trace.line(Node::Coordinator, &|| {
            let to = Node::Participant(who);
            format!(
                "-> {to}  {}",
                crate::show::to_participant(&message, &self.history)
            )
        });
        self.see(&Seen::Sent {
            who,
            lineage,
            message: &message,
        });
        self.stop(session, Message::to_participant(&message));
        let xid = crate::show::xid_of(&message);
        if let Some(process) = &mut self.coordinator.process {
            process.sends.entry(session).or_default().push(message);
        }
        let Some(point) = point.filter(|_| !self.armed.is_empty()) else {
            return;
        };
        let id = self.history.minted.get(&xid).cloned();
        let waits = self.armed.iter().any(|armed| armed.point == point);
        if waits && self.armed_for(Node::Coordinator, point, id.as_ref()) {
            self.coordinator_flush();
            self.reach(Node::Coordinator, point, id.as_ref());
        }
    }

    pub(crate) fn armed_for(&self, node: Node, point: CrashPoint, id: Option<&TransactionId>) -> bool {
        self.armed.iter().any(|armed| {
            armed.point == point
                && armed.node == node
                && armed.transaction_id.as_ref().is_none_or(|of| Some(of) == id)
        })
    }

    /// Releases all sends of this round, one frame per session, with the floor and the position behind them.
    fn coordinator_flush(&mut self) {
        let Some(process) = &mut self.coordinator.process else {
            return;
        };
        let sends = std::mem::take(&mut process.sends);
        for (session, messages) in sends {
            let (Some(link), Some(process)) = (self.links.get(&session), &self.coordinator.process) else {
                continue;
            };
            let (who, lineage) = (link.who, link.lineage);
            let (floor, position) = (process.machine.floor(&name_of(who)), process.machine.position());
            self.see(&Seen::FloorSent { who, lineage, floor });
            self.send_down(session, crate::network::Down::Frame(messages, floor, position));
        }
    }

    fn coordinator_reply(&mut self, request: RequestId, reply: covenant_rules::coordinator::Reply) {
        if let covenant_rules::coordinator::Reply::Transaction(view) = &reply {
            self.see(&Seen::Told(view));
        }
        let whom = self.whom(request);
        self.trace.line(Node::Coordinator, &|| {
            format!("tells {whom} {}", crate::show::reply(&reply))
        });
        let delay = self.between(self.setup.timing.network_us) + self.answer_delay(request);
        self.after(delay, Happening::Answers(request, Answer::Said(reply)));
    }

    /// A force is done: its records are durable, then the machine hears of it.
    pub(crate) fn coordinator_forced(&mut self) {
        if std::mem::take(&mut self.coordinator.fail_force) {
            self.force_failed(Node::Coordinator);
            return;
        }
        let process = self.running(Node::Coordinator);
        let forced = self.coordinator.disk.end_force();
        let upto = *forced.end();
        if !self.coordinator_made_durable(forced) || self.running(Node::Coordinator) != process {
            return;
        }
        self.coordinator_step(Event::Durable(upto));
    }

    /// Whether the process lives on.
    fn coordinator_made_durable(&mut self, lsns: std::ops::RangeInclusive<Lsn>) -> bool {
        let mut killed = false;
        for lsn in lsns {
            let Some(record) = self.coordinator.disk.get(lsn).cloned() else {
                continue;
            };
            let id = self.id_of(&record);
            self.trace.line(Node::Coordinator, &|| {
                format!("forced {}", crate::show::record(&record, id.as_ref()))
            });
            self.see(&Seen::Forced(&record));
            let point = match &record {
                Record::Commit(_) => CrashPoint::CCommitForced,
                Record::Abort(_) => CrashPoint::CAbortForced,
                Record::Heuristic { .. } => CrashPoint::CHeuristicForced,
                Record::Forget { .. } => CrashPoint::CForgetForced,
                Record::Retained(_) => CrashPoint::CRetainedForced,
                _ => continue,
            };
            killed = killed || self.reach(Node::Coordinator, point, id.as_ref());
        }
        !killed
    }

    pub(crate) fn coordinator_tick(&mut self) {
        let (now, clock) = (self.now, self.coordinator.clock);
        let Some(process) = &mut self.coordinator.process else {
            return;
        };
        process.tick_at = None;
        let due = process.machine.next_deadline();
        if due.is_some_and(|due| due <= clock.elapsed_ms(process.started, now)) {
            self.coordinator_step(Event::Tick);
        } else {
            self.arm_coordinator_tick();
        }
    }

    fn arm_coordinator_tick(&mut self) {
        let clock = self.coordinator.clock;
        let Some(process) = &mut self.coordinator.process else {
            return;
        };
        let Some(due) = process.machine.next_deadline() else {
            return;
        };
        let at = clock.at(process.started, due);
        if process.tick_at.is_none_or(|armed| at < armed) {
            process.tick_at = Some(at);
            let process = process.id;
            let node = Node::Coordinator;
            self.at(at, Happening::Tick { node, process });
        }
    }

    pub(crate) fn clock_told(&mut self) {
        let wall = self.coordinator.clock.wall_ms(self.now);
        if let Some(process) = self.running(Node::Coordinator) {
            self.after(1_000_000, Happening::Clock { process });
        }
        self.coordinator_step(Event::Clock(wall));
    }

    /// Takes a picture of the durable fold; it is installed after a while, if the process lives so long.
    pub(crate) fn checkpoint_coordinator(&mut self) {
        let Some(process) = &mut self.coordinator.process else {
            return;
        };
        if process.checkpoint.is_some() || !process.machine.is_serving() {
            return;
        }
        process.checkpoint = Some(Checkpoint {
            lsn: process.machine.position(),
            records: process.machine.fold().records(),
            archive: process.archive.clone(),
        });
        let process = process.id;
        self.trace
            .line(Node::Coordinator, &|| "begins a checkpoint".to_owned());
        if self.reach(Node::Coordinator, CrashPoint::CCheckpointMid, None) {
            return;
        }
        let node = Node::Coordinator;
        self.after(3_000, Happening::CheckpointDone { node, process });
    }

    pub(crate) fn coordinator_checkpointed(&mut self) {
        let Some(checkpoint) = self
            .coordinator
            .process
            .as_mut()
            .and_then(|p| p.checkpoint.take())
        else {
            return;
        };
        self.trace
            .line(Node::Coordinator, &|| format!("checkpoint at {}", checkpoint.lsn));
        self.coordinator.disk.checkpointed(checkpoint.lsn);
        self.coordinator.checkpoint = checkpoint;
    }

    /// The coordinator's machine, if its process runs.
    #[must_use]
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.process.as_ref().map(|process| &process.machine)
    }

    /// Whether a heuristic of this branch waits to be forgotten at the coordinator.
    #[must_use]
    pub fn has_heuristic(&self, xid: Xid, participant: &Name) -> bool {
        let machine = self.coordinator();
        machine.is_some_and(|machine| machine.fold().heuristic_entry(xid, participant).is_some())
    }
}
