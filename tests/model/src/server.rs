//! The coordinator: the shipped machine, its log, and the archive that is rebuilt from the log at every start.
//!
//! Append follows the machine's effects at once; a force is a step of its own, one record at a time. Several
//! records forced by one call are the same as one after the other: the machine takes them in a loop.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use covenant_rules::{
    Lsn, Millis, Name, Operator, Outcome, Record, ToCoordinator, TransactionId, Xid,
    coordinator::{Archived, Coordinator, Effect, Event, Identity},
};

use crate::bounds::limits;
use crate::truth::Truth;
use crate::world::{LOG, STARTED};

/// The coordinator's process and what it stores.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Server {
    pub(crate) machine: Coordinator,
    pub(crate) log: Log,
    archive: BTreeMap<Xid, Outcome>,
    now: Millis,
    /// The number of this process.
    pub(crate) process: u8,
}

/// All records ever appended and not lost. Hashed by what came in, once, and not record by record each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) records: Vec<Arc<Record>>,
    hashes: Vec<u64>,
    pub(crate) durable: usize,
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.durable == other.durable && self.records == other.records
    }
}

impl Eq for Log {}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.durable.hash(state);
        self.records.len().hash(state);
        self.hashes.last().hash(state);
    }
}

impl Log {
    fn push(&mut self, record: Record) {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.hashes.last(), &record).hash(&mut hasher);
        self.hashes.push(hasher.finish());
        self.records.push(Arc::new(record));
    }

    fn cut(&mut self, len: usize) {
        self.records.truncate(len);
        self.hashes.truncate(len);
        self.durable = len;
    }

    pub(crate) fn pending(&self) -> &[Arc<Record>] {
        &self.records[self.durable..]
    }

    pub(crate) fn holds(&self, is: impl Fn(&Record) -> bool) -> bool {
        self.records.iter().any(|record| is(record))
    }
}

impl Server {
    /// A new data directory.
    pub(crate) fn new(truth: &mut Truth) -> Self {
        let (machine, effects) = Coordinator::recover(limits(), identity(1), [], 0);
        let mut server = Self {
            machine,
            log: Log::default(),
            archive: BTreeMap::new(),
            now: 0,
            process: 1,
        };
        server.store(&effects, truth);
        server
    }

    /// Takes one event. What it stores is stored; messages and answers are for the caller.
    pub(crate) fn step(&mut self, event: Event, truth: &mut Truth) -> Vec<Effect> {
        let effects = self.machine.step(self.now, event);
        self.store(&effects, truth);
        effects
    }

    fn store(&mut self, effects: &[Effect], truth: &mut Truth) {
        for effect in effects {
            match effect {
                Effect::Append { record, .. } => {
                    truth.coordinator_does(effect, None, self.process);
                    self.log.push(record.clone());
                }
                Effect::Archive(outcome) => {
                    self.archive.insert(outcome.xid, outcome.clone());
                }
                _ => {}
            }
        }
    }

    /// What the archive holds under an id: its last attempt.
    pub(crate) fn known(&self, id: &TransactionId) -> Option<Outcome> {
        let of_id = |outcome: &&Outcome| outcome.transaction_id == *id;
        self.archive.values().rfind(of_id).cloned()
    }

    /// What a caller that asks for this id would hear.
    pub(crate) fn asked(&self, id: &TransactionId) -> Vec<Effect> {
        let event = Event::Get {
            request: 0,
            transaction_id: id.clone(),
            created: Some(STARTED),
            known: self.known(id),
        };
        self.machine.clone().step(self.now, event)
    }

    /// A message of a session, with what the archive knows of its attempt.
    pub(crate) fn message(&self, session: u64, message: ToCoordinator) -> Event {
        let wanted = self.machine.wants_archive(&message);
        let known = wanted.and_then(|xid| self.archive.get(&xid).cloned());
        Event::Message {
            session,
            message,
            known,
        }
    }

    /// Forces the next record.
    pub(crate) fn force(&mut self, truth: &mut Truth) -> Vec<Effect> {
        truth.durable(&self.log.records[self.log.durable]);
        self.log.durable += 1;
        let lsn = self.log.durable as Lsn;
        self.step(Event::Durable(lsn), truth)
    }

    /// Dies, keeping this many of the records appended behind the durable ones, and starts again. What it reads
    /// is synced before it acts (section 2).
    pub(crate) fn crash(&mut self, kept: usize, truth: &mut Truth) {
        for record in self.log.pending().iter().take(kept) {
            truth.durable(record);
        }
        self.log.cut(self.log.durable + kept);
        self.process += 1;
        self.now = 0;
        self.archive.clear();
        let records = self.log.records.iter().map(|record| (**record).clone());
        let last = self.log.records.len() as Lsn;
        let (machine, effects) = Coordinator::recover(limits(), identity(self.process), records, last);
        self.machine = machine;
        self.store(&effects, truth);
    }

    /// Time jumps to the machine's next deadline.
    pub(crate) fn tick(&mut self, at: Millis, truth: &mut Truth) -> Vec<Effect> {
        self.now = at;
        self.step(Event::Tick, truth)
    }

    /// The damage that waits for an operator's FORGET.
    pub(crate) fn damage(&self) -> Option<(Xid, Name)> {
        let waits = |(xid, name): &(Xid, Name)| {
            let on_its_way = self.log.pending().iter().any(|record| {
                matches!(&**record, Record::Forget { xid: of, participant, .. } if of == xid && participant == name)
            });
            !on_its_way && !self.undecided(*xid)
        };
        let heuristics = self.machine.fold().heuristics.iter();
        heuristics
            .filter(|(_, entry)| entry.damage == Some(true) && entry.forget.is_none())
            .map(|(key, _)| key.clone())
            .find(waits)
    }

    /// Whether this process runs the attempt and has not decided it durably.
    pub(crate) fn undecided(&self, xid: Xid) -> bool {
        self.machine.is_running(xid) && !self.machine.fold().open.contains_key(&xid)
    }
}

/// What a start of this process brings along. The archive is rebuilt from the log.
fn identity(process: u8) -> Identity {
    Identity {
        new_lineage: LOG,
        bits: u64::from(process),
        started: STARTED,
        archived: Archived::default(),
        tail_lost: None,
        quarantined: Vec::new(),
    }
}

/// Who decides by hand here.
pub(crate) fn operator() -> Operator {
    Operator {
        who: Arc::from("operator"),
        why: Arc::from(""),
    }
}
