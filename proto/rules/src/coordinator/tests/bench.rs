//! A coordinator on a bench: a log, an archive, named sessions, and a clock that moves only when told.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Archived, Coordinator, Effect, Event, Execute, Identity, SessionId};
use super::script::{parse_message, parse_xid, render};
use crate::{
    AbortReason, Fingerprint, Hello, Incarnation, Limits, Lineage, Lsn, Millis, Name, Operator, Outcome,
    Quarantined, Record, ToCoordinator, TransactionId, UnixMillis, Wait, Xid,
};

/// The lineage of the bench's log.
pub(super) const LOG: Lineage = Lineage(0x10c);

/// The wall clock at the bench's first start.
pub(super) const START: UnixMillis = 1_000_000_000;

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn tid(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap()
}

/// An attempt of the bench's log; the bits of a start are made from its counter.
pub(super) fn xid(counter: u64, seq: u64) -> Xid {
    Xid {
        lineage: LOG,
        incarnation: Incarnation {
            counter,
            bits: bits(counter),
        },
        seq,
    }
}

fn bits(counter: u64) -> u64 {
    0xb175_0000 + counter
}

pub(super) fn operator() -> Operator {
    Operator {
        who: Arc::from("ops"),
        why: Arc::from("test"),
    }
}

/// The lineage under which a participant joins when a test does not say: its first letter.
pub(super) fn lineage_of(participant: &str) -> Lineage {
    Lineage(u128::from(participant.as_bytes()[0]) - 0x57)
}

/// What stands in for the archive: finished outcomes by attempt. What else a start finds beside the log stands here too.
#[derive(Clone, Default)]
pub(super) struct Archive {
    pub(super) outcomes: BTreeMap<Xid, Outcome>,
    /// What of it does not decode.
    pub(super) quarantined: Vec<Quarantined>,
    /// What is known beside the log of where it ended.
    pub(super) tail_lost: Option<Lsn>,
}

impl Archive {
    /// Performs an effect, if it is the archive's.
    pub(super) fn perform(&mut self, effect: &Effect) {
        if let Effect::Archive(outcome) = effect {
            self.outcomes.insert(outcome.xid, outcome.clone());
        }
        if let Effect::Expire(since) = effect {
            self.outcomes.retain(|_, outcome| outcome.retained_by() >= *since);
        }
    }

    pub(super) fn by_id(&self, id: &TransactionId) -> Option<Outcome> {
        self.outcomes
            .values()
            .rev()
            .find(|outcome| outcome.transaction_id == *id)
            .cloned()
    }

    /// What a start is told of it.
    pub(super) fn summary(&self) -> Archived {
        let mut summary = Archived::default();
        for outcome in self.outcomes.values() {
            let fence = outcome.aborted == Some(AbortReason::Fence);
            summary.add(outcome.retained_by(), outcome.decided, fence);
        }
        summary
    }
}

#[derive(Clone)]
pub(super) struct Bench {
    pub(super) machine: Coordinator,
    pub(super) limits: Limits,
    pub(super) now: Millis,
    pub(super) started: UnixMillis,
    /// All that was appended, from LSN 1.
    pub(super) log: Vec<Record>,
    pub(super) archive: Archive,
    /// The effects of the last event, whole.
    pub(super) effects: Vec<Effect>,
    /// The last event.
    pub(super) event: Option<Event>,
    /// When each id was first used.
    created: BTreeMap<String, UnixMillis>,
    labels: BTreeMap<SessionId, String>,
    requests: u64,
    connections: u64,
}

impl Bench {
    /// A new log, SERVING, with these participants joined.
    pub(super) fn new(participants: &str) -> Self {
        Self::with_limits(participants, Limits::DEFAULT)
    }

    pub(super) fn with_limits(participants: &str, limits: Limits) -> Self {
        let mut bench = Self::recovering(Vec::new(), Archive::default(), limits, START);
        bench.forces();
        for participant in participants.split_whitespace() {
            bench.joins(participant);
        }
        bench.forces();
        bench
    }

    /// A start on a log of which nothing was forced yet: RECOVERING.
    pub(super) fn recovering(records: Vec<Record>, archive: Archive, limits: Limits, at: UnixMillis) -> Self {
        let last = records.len() as Lsn;
        let (machine, effects) = recover(&limits, &archive, records.clone(), last, at);
        let mut bench = Self {
            machine,
            limits,
            now: 0,
            started: at,
            log: records,
            archive,
            effects: Vec::new(),
            event: None,
            created: BTreeMap::new(),
            labels: BTreeMap::new(),
            requests: 0,
            connections: 0,
        };
        bench.perform(effects);
        bench
    }

    pub(super) fn step(&mut self, event: Event) -> Vec<String> {
        self.event = Some(event.clone());
        let effects = self.machine.step(self.now, event);
        self.perform(effects)
    }

    /// Takes an event without a word about it; how many effects it has.
    pub(super) fn takes(&mut self, event: Event) -> usize {
        self.effects = self.machine.step(self.now, event);
        self.keep();
        self.effects.len()
    }

    fn perform(&mut self, effects: Vec<Effect>) -> Vec<String> {
        self.effects = effects;
        self.keep();
        self.shown()
    }

    /// What the log and the archive get of the last event.
    fn keep(&mut self) {
        for effect in &self.effects {
            self.archive.perform(effect);
            if let Effect::Append { lsn, record, .. } = effect {
                self.log.push(record.clone());
                assert_eq!(*lsn, self.log.len() as Lsn, "LSNs come without gaps");
            }
        }
    }

    /// The effects of the last event as lines.
    pub(super) fn shown(&self) -> Vec<String> {
        render(&self.effects, &self.labels)
    }

    /// All that was appended becomes durable.
    pub(super) fn forces(&mut self) -> Vec<String> {
        self.step(Event::Durable(self.log.len() as Lsn))
    }

    /// Time passes.
    pub(super) fn passes(&mut self, ms: Millis) -> Vec<String> {
        self.now += ms;
        self.step(Event::Tick)
    }

    /// A participant joins with the lineage of its letter; its sessions are called `a`, `a2`, `a3`.
    pub(super) fn joins(&mut self, participant: &str) -> Vec<String> {
        self.joins_as(participant, lineage_of(participant), 1)
    }

    pub(super) fn joins_as(&mut self, participant: &str, lineage: Lineage, counter: u64) -> Vec<String> {
        self.connections += 1;
        let hello = Hello {
            name: name(participant),
            lineage,
            incarnation: Incarnation { counter, bits: 7 },
            connection: self.connections,
            positions: Vec::new(),
        };
        self.hello(hello)
    }

    pub(super) fn hello(&mut self, hello: Hello) -> Vec<String> {
        let before = self
            .labels
            .values()
            .filter(|label| label.starts_with(hello.name.as_str()))
            .count();
        let again = if before == 0 {
            String::new()
        } else {
            format!("{}", before + 1)
        };
        let session = self.labels.len() as SessionId + 1;
        self.labels.insert(session, format!("{}{again}", hello.name));
        self.step(Event::Joined { session, hello })
    }

    pub(super) fn session(&self, label: &str) -> SessionId {
        *self.labels.iter().find(|(_, known)| *known == label).unwrap().0
    }

    pub(super) fn leaves(&mut self, label: &str) -> Vec<String> {
        self.step(Event::Left(self.session(label)))
    }

    /// A session says something, as in `YES 1/1`.
    pub(super) fn says(&mut self, label: &str, text: &str) -> Vec<String> {
        self.tells(label, parse_message(text))
    }

    pub(super) fn tells(&mut self, label: &str, message: ToCoordinator) -> Vec<String> {
        let wanted = self.machine.wants_archive(&message);
        let known = wanted.and_then(|xid| self.archive.outcomes.get(&xid).cloned());
        self.step(Event::Message {
            session: self.session(label),
            message,
            known,
        })
    }

    pub(super) fn wall(&self) -> UnixMillis {
        self.started + self.now
    }

    pub(super) fn created(&mut self, id: &str) -> UnixMillis {
        let now = self.wall();
        *self.created.entry(id.to_string()).or_insert(now)
    }

    fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Execute of `id` with a branch at each of these participants, in sorted order.
    pub(super) fn execute(&mut self, id: &str, participants: &str) -> Vec<String> {
        self.executes(id, participants, Wait::Decided)
    }

    pub(super) fn executes(&mut self, id: &str, participants: &str, wait: Wait) -> Vec<String> {
        let created = self.created(id);
        let execute = execute(id, participants, created, wait);
        self.runs(execute)
    }

    pub(super) fn runs(&mut self, execute: Execute) -> Vec<String> {
        let known = self.archive.by_id(&execute.transaction_id);
        let request = self.request();
        self.step(Event::Execute {
            request,
            execute,
            known,
        })
    }

    pub(super) fn gets(&mut self, id: &str) -> Vec<String> {
        let created = Some(self.created(id));
        self.gets_of(id, created)
    }

    pub(super) fn gets_of(&mut self, id: &str, created: Option<UnixMillis>) -> Vec<String> {
        let transaction_id = tid(id);
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Get {
            request,
            transaction_id,
            created,
            known,
        })
    }

    pub(super) fn aborts(&mut self, id: &str) -> Vec<String> {
        let created = Some(self.created(id));
        self.aborts_of(id, created)
    }

    pub(super) fn aborts_of(&mut self, id: &str, created: Option<UnixMillis>) -> Vec<String> {
        let transaction_id = tid(id);
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Abort {
            request,
            transaction_id,
            created,
            by: AbortReason::Caller,
            known,
        })
    }

    /// An operator lets the heuristic of a branch be forgotten.
    pub(super) fn forgets(&mut self, attempt: &str, participant: &str) -> Vec<String> {
        let request = self.request();
        let xid = parse_xid(attempt);
        self.step(Event::Forget {
            request,
            xid,
            participant: name(participant),
            by: operator(),
        })
    }

    /// The process dies; what was not forced is lost. The next start is RECOVERING until it forces.
    pub(super) fn crashes(&mut self) {
        self.crashes_keeping(self.machine.position());
    }

    /// The process dies; the log keeps its first `kept` records.
    pub(super) fn crashes_keeping(&mut self, kept: Lsn) {
        self.log.truncate(usize::try_from(kept).unwrap());
        let records = self.log.clone();
        self.restarts_on(records);
    }

    /// A start on these records with an archive derived from them.
    pub(super) fn restarts_on(&mut self, records: Vec<Record>) {
        let at = self.wall() + 1_000;
        let mut next = Self::recovering(records, Archive::default(), self.limits.clone(), at);
        next.created = core::mem::take(&mut self.created);
        next.requests = self.requests;
        next.connections = self.connections;
        *self = next;
    }
}

/// An Execute with a branch at each of these participants; its fingerprint is made of their names.
pub(super) fn execute(id: &str, participants: &str, created: UnixMillis, wait: Wait) -> Execute {
    let branch = |participant: &str| (name(participant), Arc::from(participant.as_bytes()));
    let mut fingerprint = [0; 16];
    for (at, byte) in participants.bytes().take(16).enumerate() {
        fingerprint[at] = byte;
    }
    Execute {
        transaction_id: tid(id),
        created,
        fingerprint: Fingerprint(fingerprint),
        branches: participants.split_whitespace().map(branch).collect(),
        timeout_ms: 5_000,
        wait,
    }
}

/// A start on these records.
pub(super) fn recover(
    limits: &Limits,
    archive: &Archive,
    records: Vec<Record>,
    last: Lsn,
    at: UnixMillis,
) -> (Coordinator, Vec<Effect>) {
    let mut counter = records.iter().filter_map(match_start).max().unwrap_or(0) + 1;
    // One of them may hide a start (S12).
    let hides = |record: &Record| matches!(record, Record::Quarantined(hidden) if hidden.xid.is_none());
    if records.iter().any(hides) {
        counter = counter.max(last + 1);
    }
    let identity = Identity {
        new_lineage: LOG,
        bits: bits(counter),
        started: at,
        archived: archive.summary(),
        tail_lost: archive.tail_lost,
        quarantined: archive.quarantined.clone(),
    };
    Coordinator::recover(limits.clone(), identity, records, last)
}

fn match_start(record: &Record) -> Option<u64> {
    if let Record::Incarnation(start) = record {
        Some(start.counter)
    } else {
        None
    }
}
