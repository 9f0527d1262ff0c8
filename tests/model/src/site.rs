//! One participant: the shipped machine over the least resource that can keep its promises.
//!
//! The resource's disk is the fold of its durable records and the list of those that are appended behind them.
//! A crash keeps the durable ones and any prefix of the list. A record that somebody waits for completes the
//! machine's call when it is forced; ABORTED, NO and READ_ONLY complete at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use covenant_rules::{
    BranchState, Decision, Floor, Hello, Incarnation, Lineage, Lsn, Millis, NoReason, ToCoordinator, Vote,
    Xid,
    participant::{
        AlarmCode, Branch, Effect, Event, Identity, Participant, Recovered, RecoveredBranch, RecoveredState,
    },
};

use crate::bounds::limits;
use crate::names::name_of;
use crate::truth::Truth;
use crate::world::LOG;

/// One participant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Site {
    pub(crate) place: usize,
    pub(crate) machine: Participant,
    pub(crate) disk: Disk,
    now: Millis,
    start: u64,
}

/// What its resource stores.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) branches: BTreeMap<Xid, Stored>,
    pub(crate) floor: Floor,
    position: Lsn,
    /// Appended and not durable, oldest first.
    pub(crate) pending: Vec<Entry>,
}

/// One branch on disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stored {
    Prepared(Branch),
    Committed(Branch),
    Heuristic(Branch, Decision),
    Forgotten(Branch, Decision),
}

/// One record (section 2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Entry {
    Prepared(Branch),
    Committed(Xid),
    Aborted(Xid),
    Heuristic(Xid, Decision),
    Forgotten(Xid),
    Floor(Floor),
}

impl Entry {
    pub(crate) fn xid(&self) -> Option<Xid> {
        match self {
            Self::Prepared(branch) => Some(branch.xid),
            Self::Committed(xid) | Self::Aborted(xid) | Self::Heuristic(xid, _) | Self::Forgotten(xid) => {
                Some(*xid)
            }
            Self::Floor(_) => None,
        }
    }

    /// What its force completes; nobody waits for the others.
    fn completes(&self) -> Option<Event> {
        match self {
            Self::Prepared(branch) => Some(Event::Prepared(branch.xid, Vote::Yes)),
            Self::Committed(xid) => Some(Event::Committed(*xid)),
            Self::Heuristic(xid, _) => Some(Event::Resolved(*xid)),
            Self::Forgotten(xid) => Some(Event::Forgotten(*xid)),
            Self::Aborted(_) | Self::Floor(_) => None,
        }
    }
}

impl Stored {
    fn branch(&self) -> &Branch {
        match self {
            Self::Prepared(branch)
            | Self::Committed(branch)
            | Self::Heuristic(branch, _)
            | Self::Forgotten(branch, _) => branch,
        }
    }

    /// Whether a floor may drop it.
    fn is_tombstone(&self) -> bool {
        matches!(self, Self::Committed(_) | Self::Forgotten(..))
    }
}

impl Disk {
    /// The fold of one more durable record.
    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Prepared(branch) => {
                self.position = self.position.max(branch.position);
                self.branches.insert(branch.xid, Stored::Prepared(branch));
            }
            Entry::Committed(xid) => self.turn(xid, Stored::Committed),
            Entry::Aborted(xid) => {
                self.branches.remove(&xid);
            }
            Entry::Heuristic(xid, what) => self.turn(xid, |branch| Stored::Heuristic(branch, what)),
            Entry::Forgotten(xid) => {
                let what = match self.branches.get(&xid) {
                    Some(Stored::Heuristic(_, what)) => *what,
                    _ => Decision::Abort,
                };
                self.turn(xid, |branch| Stored::Forgotten(branch, what));
            }
            Entry::Floor(floor) => self.floor = self.floor.max(floor),
        }
        // Tombstones go by the fold of what is durable (section 6).
        let floor = self.floor;
        self.branches
            .retain(|xid, stored| !(stored.is_tombstone() && xid.is_below(floor)));
    }

    fn turn(&mut self, xid: Xid, into: impl FnOnce(Branch) -> Stored) {
        if let Some(stored) = self.branches.get(&xid) {
            let branch = stored.branch().clone();
            self.branches.insert(xid, into(branch));
        }
    }

    /// Everything that a start finds.
    fn recovered(&self, identity: Identity) -> Recovered {
        let branch = |stored: &Stored| {
            let state = match stored {
                Stored::Prepared(branch) => RecoveredState::Prepared {
                    operation: branch.operation.clone(),
                },
                Stored::Committed(_) => RecoveredState::Committed,
                Stored::Heuristic(_, what) => RecoveredState::Heuristic(*what),
                Stored::Forgotten(_, what) => RecoveredState::Forgotten {
                    committed: *what == Decision::Commit,
                },
            };
            let of = stored.branch();
            RecoveredBranch {
                xid: of.xid,
                transaction_id: of.transaction_id.clone(),
                state,
            }
        };
        Recovered {
            identity,
            floors: vec![(LOG, self.floor)],
            positions: vec![(LOG, self.position)],
            branches: self.branches.values().map(branch).collect(),
        }
    }
}

impl Site {
    pub(crate) fn new(place: usize) -> Self {
        let (disk, start) = (Disk::default(), 1);
        Self {
            place,
            machine: recover(place, start, &disk),
            disk,
            now: 0,
            start,
        }
    }

    /// One event, with all that follows of it at once. Returns what it says. With `refuse` it says NO to what it
    /// is asked to prepare.
    pub(crate) fn step(&mut self, event: Event, refuse: bool, truth: &mut Truth) -> Vec<ToCoordinator> {
        let mut said = Vec::new();
        let mut effects: std::collections::VecDeque<_> = self.machine.step(self.now, event).into();
        while let Some(effect) = effects.pop_front() {
            let completed = match effect {
                Effect::Send(message) => {
                    truth.participant_sends(&message, self.place);
                    said.push(message);
                    None
                }
                Effect::Prepare(branch) => self.prepare(branch, refuse, truth),
                Effect::Commit(xid) => self.append(Entry::Committed(xid), truth),
                Effect::Abort(xid) => {
                    self.append(Entry::Aborted(xid), truth);
                    Some(Event::Aborted(xid))
                }
                Effect::Resolve { xid, what, .. } => self.append(Entry::Heuristic(xid, what), truth),
                Effect::Forget(xid) => self.append(Entry::Forgotten(xid), truth),
                Effect::Floor { floor, .. } => {
                    // A floor with nothing below it is worth no record.
                    let drops = |(xid, stored): (&Xid, &Stored)| stored.is_tombstone() && xid.is_below(floor);
                    if self.disk.branches.iter().any(drops) {
                        self.append(Entry::Floor(floor), truth);
                    }
                    None
                }
                Effect::Alarm(alarm) => {
                    truth.alarmed |= alarm.code != AlarmCode::InDoubtTooLong;
                    None
                }
                Effect::Hello(_) | Effect::Answer { .. } => None,
            };
            if let Some(completed) = completed {
                effects.extend(self.machine.step(self.now, completed));
            }
        }
        said
    }

    /// The first message of a new session.
    pub(crate) fn dial(&mut self) -> Option<Hello> {
        let effects = self.machine.step(self.now, Event::Dialed);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Hello(hello) => Some(hello),
            _ => None,
        })
    }

    fn prepare(&mut self, branch: Branch, refuse: bool, truth: &mut Truth) -> Option<Event> {
        let xid = branch.xid;
        if refuse {
            return Some(Event::Prepared(xid, Vote::No(NoReason::new("REFUSED", ""))));
        }
        if *branch.operation == *b"r" {
            return Some(Event::Prepared(xid, Vote::ReadOnly));
        }
        self.append(Entry::Prepared(branch), truth)
    }

    fn append(&mut self, entry: Entry, truth: &mut Truth) -> Option<Event> {
        truth.participant_appended(&entry, self.place);
        self.disk.pending.push(entry);
        None
    }

    /// Whether somebody waits for a force.
    pub(crate) fn awaits_force(&self) -> bool {
        self.disk.pending.iter().any(|entry| entry.completes().is_some())
    }

    /// Forces up to the first record that somebody waits for, and completes that call.
    pub(crate) fn force(&mut self, truth: &mut Truth) -> Vec<ToCoordinator> {
        while !self.disk.pending.is_empty() {
            let entry = self.disk.pending.remove(0);
            truth.participant_durable(&entry, self.place);
            let completes = entry.completes();
            self.disk.take(entry);
            if let Some(completed) = completes {
                return self.step(completed, false, truth);
            }
        }
        Vec::new()
    }

    /// Dies, keeping this many of the records appended behind the durable ones, and starts again.
    pub(crate) fn crash(&mut self, kept: usize, truth: &mut Truth) {
        for entry in std::mem::take(&mut self.disk.pending).into_iter().take(kept) {
            truth.participant_durable(&entry, self.place);
            self.disk.take(entry);
        }
        self.start += 1;
        self.now = 0;
        self.machine = recover(self.place, self.start, &self.disk);
    }

    /// Time jumps to the machine's next deadline.
    pub(crate) fn tick(&mut self, at: Millis, truth: &mut Truth) -> Vec<ToCoordinator> {
        self.now = at;
        self.step(Event::Tick, false, truth)
    }

    /// Whether it ever started again.
    pub(crate) fn has_crashed(&self) -> bool {
        self.start > 1
    }

    /// The attempts that are in doubt here.
    pub(crate) fn in_doubt(&self) -> Vec<Xid> {
        self.machine.in_doubt().map(|doubt| doubt.xid).collect()
    }

    /// S8: what the log shows as prepared, with nothing behind it, is prepared in the machine too.
    pub(crate) fn keeps_what_it_prepared(&self) -> bool {
        let is_prepared = |stored: &Stored| matches!(stored, Stored::Prepared(_));
        self.disk
            .branches
            .iter()
            .filter(|(_, stored)| is_prepared(stored))
            .filter(|(xid, _)| !self.disk.pending.iter().any(|entry| entry.xid() == Some(**xid)))
            .all(|(xid, _)| self.machine.state(*xid) == BranchState::Prepared)
    }
}

fn recover(place: usize, start: u64, disk: &Disk) -> Participant {
    let identity = Identity {
        lineage: lineage_of(place),
        incarnation: Incarnation {
            counter: start,
            bits: start,
        },
    };
    Participant::recover(limits(), name_of(place), disk.recovered(identity))
}

/// The lineage of a participant's data directory.
fn lineage_of(place: usize) -> Lineage {
    Lineage(0xa0 + place as u128)
}

/// The payload that a content's letter stands for.
pub(crate) fn operation(letter: u8) -> Arc<[u8]> {
    Arc::from([letter])
}
