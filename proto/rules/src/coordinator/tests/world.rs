//! The random world: one coordinator on a log that may lose its tail, five participant lineages under three
//! names, links that keep order and are cut at will, and callers.
//!
//! A crash keeps the durable records and any prefix of those appended behind them; it may damage a decision
//! record, and the next start may replay a checkpoint and what follows, or everything.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Coordinator, Effect, Event, Execute, SessionId};
use super::bench::{START, execute, recover};
use super::checks::Truth;
use super::disk::Checkpoint;
use super::model::Participant;
use super::network::Link;
use super::recovery::replayed;
use super::{Archive, name, operator, tid};
use crate::{AbortReason, Floor, Limits, Lineage, Lsn, Millis, Record, TransactionId, UnixMillis, Wait, Xid};

/// One thing that happens. Small numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Execute {
        id: u8,
        other: bool,
        completed: bool,
    },
    Get {
        id: u8,
    },
    AbortCall {
        id: u8,
    },
    /// One frame arrives at a participant, or from it.
    Down {
        link: u8,
    },
    Up {
        link: u8,
    },
    /// All that is on its way arrives, and is answered, and so on.
    Flow,
    /// All but the last few appended records become durable.
    Force {
        but: u8,
    },
    Pass {
        ms: u16,
    },
    Dial {
        who: u8,
    },
    Cut {
        link: u8,
    },
    /// A participant says something again that it said before, this start or an earlier one.
    Again {
        who: u8,
        what: u8,
    },
    Inquire {
        who: u8,
        what: u8,
    },
    ByHand {
        who: u8,
        which: u8,
        commit: bool,
    },
    /// A prepared branch vanishes from its participant's disk.
    Lose {
        who: u8,
        which: u8,
    },
    Forget {
        which: u8,
    },
    Crash {
        keep: u8,
        damage: Damage,
        from_checkpoint: bool,
    },
    Checkpoint,
    /// A participant claims a position that this log never had.
    Suspect {
        who: u8,
    },
}

/// What a crash does to one durable decision record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Damage {
    None,
    /// Attempt and id still show.
    Payload(u8),
    /// Nothing shows.
    Whole(u8),
}

/// What each id runs: participants and what they do with it (`y`es, `n`o, `r`ead only).
const CONTENTS: [&[(&str, u8)]; 5] = [
    &[("a", b'y'), ("b", b'y')],
    &[("a", b'y'), ("b", b'y'), ("c", b'y')],
    &[("a", b'y'), ("b", b'r')],
    &[("a", b'y'), ("b", b'n')],
    &[("a", b'r'), ("b", b'r')],
];
/// The name of each participant lineage.
pub(super) const NAMES: [&str; 5] = ["a", "a", "b", "b", "c"];

pub(super) struct World {
    pub(super) machine: Coordinator,
    pub(super) participants: Vec<Participant>,
    pub(super) truth: Truth,
    pub(super) now: Millis,
    pub(super) started: UnixMillis,
    pub(super) log: Vec<Record>,
    pub(super) durable: usize,
    pub(super) archive: Archive,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) links: BTreeMap<SessionId, Link>,
    /// The session each participant believes in.
    pub(super) sessions: Vec<Option<SessionId>>,
    pub(super) created: BTreeMap<u8, UnixMillis>,
    pub(super) next_session: SessionId,
    pub(super) next_request: u64,
    /// The floor of each name in this start: it only rises.
    pub(super) floors: BTreeMap<&'static str, Floor>,
}

impl World {
    pub(super) fn new() -> Self {
        let (machine, effects) = recover(&Limits::DEFAULT, &Archive::default(), Vec::new(), 0, START);
        let participants = NAMES
            .iter()
            .enumerate()
            .map(|(at, whose)| Participant::new(name(whose), Lineage(0xa0 + at as u128)))
            .collect();
        let mut world = Self {
            machine,
            participants,
            truth: Truth::default(),
            now: 0,
            started: START,
            log: Vec::new(),
            durable: 0,
            archive: Archive::default(),
            checkpoint: None,
            links: BTreeMap::new(),
            sessions: alloc::vec![None; NAMES.len()],
            created: BTreeMap::new(),
            next_session: 1,
            next_request: 1,
            floors: BTreeMap::new(),
        };
        world.perform(effects);
        world.force(0);
        for who in [0, 2, 4] {
            world.dial(who, 0);
        }
        world.flow();
        world
    }

    /// Performs one operation and checks everything that comes of it.
    pub(super) fn run(&mut self, op: Op) {
        match op {
            Op::Execute { id, other, completed } => self.execute(id, other, completed),
            Op::Get { id } => self.get(id),
            Op::AbortCall { id } => self.abort_call(id),
            Op::Down { link } => {
                if let Some(session) = pick(self.links.keys(), link) {
                    self.down(session);
                }
            }
            Op::Up { link } => {
                if let Some(session) = pick(self.links.keys(), link) {
                    self.up(session);
                }
            }
            Op::Flow => self.flow(),
            Op::Force { but } => self.force(usize::from(but)),
            Op::Pass { ms } => self.pass(Millis::from(ms)),
            Op::Dial { who } => self.dial(usize::from(who) % NAMES.len(), 0),
            Op::Cut { link } => {
                if let Some(session) = pick(self.links.keys(), link) {
                    self.cut(session);
                }
            }
            Op::Again { who, what } => self.again(usize::from(who) % NAMES.len(), what),
            Op::Inquire { who, what } => self.inquire(usize::from(who) % NAMES.len(), what),
            Op::ByHand { who, which, commit } => self.by_hand(usize::from(who) % NAMES.len(), which, commit),
            Op::Lose { who, which } => {
                let participant = &mut self.participants[usize::from(who) % NAMES.len()];
                if let Some(xid) = pick(participant.prepared().iter(), which) {
                    participant.branches.remove(&xid);
                    self.truth.seen.insert("lost state");
                }
            }
            Op::Forget { which } => {
                let waiting: Vec<_> = self.machine.fold().heuristics.keys().cloned().collect();
                if let Some((xid, participant)) = pick(waiting.iter(), which) {
                    let request = self.request();
                    self.step(Event::Forget {
                        request,
                        xid,
                        participant,
                        by: operator(),
                    });
                }
            }
            Op::Crash {
                keep,
                damage,
                from_checkpoint,
            } => self.crash(usize::from(keep), damage, from_checkpoint),
            Op::Checkpoint => {
                self.checkpoint = Some(Checkpoint {
                    records: self.machine.fold().records(),
                    archive: self.archive.clone(),
                    lsn: self.durable,
                });
            }
            Op::Suspect { who } => {
                self.truth.suspected = true;
                self.dial(usize::from(who) % NAMES.len(), 1_000_000);
            }
        }
        self.truth.ends(&self.participants);
    }

    pub(super) fn wall(&self) -> UnixMillis {
        self.started + self.now
    }

    pub(super) fn request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    pub(super) fn step(&mut self, event: Event) {
        let effects = self.machine.step(self.now, event);
        self.perform(effects);
    }

    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        let aborting = effects.iter().filter_map(aborted).collect::<BTreeSet<_>>();
        let mut sent = BTreeSet::new();
        for effect in &effects {
            let to = session(effect)
                .and_then(|session| self.links.get(&session))
                .map(|link| link.who);
            let to = to.map(|who| &self.participants[who]);
            self.truth.effect(&self.machine, effect, to, &aborting);
            self.archive.perform(effect);
            if let Effect::Append { record, .. } = effect {
                self.log.push(record.clone());
            }
            if let Some(session) = session(effect) {
                sent.insert(session);
            }
            self.transmit(effect);
        }
        self.ride_floors(&sent);
    }

    fn execute(&mut self, id: u8, other: bool, completed: bool) {
        let id = id % 5;
        let content = CONTENTS[usize::from(if other { (id + 1) % 5 } else { id })];
        let created = *self.created.entry(id).or_insert(self.started + self.now);
        let participants: Vec<&str> = content.iter().map(|(whose, _)| *whose).collect();
        let wait = if completed { Wait::Completed } else { Wait::Decided };
        let mut execute: Execute = execute("T", &participants.join(" "), created, wait);
        execute.transaction_id = tid_of(id);
        for (branch, (_, does)) in execute.branches.iter_mut().zip(content) {
            branch.1 = Arc::from([*does]);
            execute.fingerprint.0[15] = execute.fingerprint.0[15].wrapping_mul(31).wrapping_add(*does);
        }
        let known = self.archive.by_id(&execute.transaction_id);
        let request = self.request();
        self.step(Event::Execute {
            request,
            execute,
            known,
        });
    }

    fn get(&mut self, id: u8) {
        let transaction_id = tid_of(id % 5);
        let created = self.created.get(&(id % 5)).copied();
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Get {
            request,
            transaction_id,
            created,
            known,
        });
    }

    fn abort_call(&mut self, id: u8) {
        let transaction_id = tid_of(id % 5);
        let created = Some(*self.created.entry(id % 5).or_insert(self.started + self.now));
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Abort {
            request,
            transaction_id,
            created,
            by: AbortReason::Caller,
            known,
        });
    }

    pub(super) fn force(&mut self, but: usize) {
        let upto = self.log.len().saturating_sub(but).max(self.durable);
        for at in self.durable..upto {
            self.truth.durable(&self.log[at]);
        }
        self.durable = upto;
        self.step(Event::Durable(upto as Lsn));
        let fold = self.machine.fold();
        assert!(
            replayed(fold) == (fold.clone(), Vec::new()),
            "a checkpoint is the fold"
        );
    }

    pub(super) fn pass(&mut self, ms: Millis) {
        self.now += ms;
        self.step(Event::Tick);
    }
}

/// The id of a number.
fn tid_of(id: u8) -> TransactionId {
    tid(["T0", "T1", "T2", "T3", "T4"][usize::from(id)])
}

/// The item that a small number means.
pub(super) fn pick<'a, T: Clone + 'a>(items: impl ExactSizeIterator<Item = &'a T>, which: u8) -> Option<T> {
    let len = items.len();
    let mut items = items;
    if len == 0 {
        None
    } else {
        items.nth(usize::from(which) % len).cloned()
    }
}

fn aborted(effect: &Effect) -> Option<Xid> {
    if let Effect::Append {
        record: Record::Abort(outcome),
        ..
    } = effect
    {
        Some(outcome.xid)
    } else {
        None
    }
}

/// The session that a message goes to.
fn session(effect: &Effect) -> Option<SessionId> {
    if let Effect::Send { session, .. } = effect {
        Some(*session)
    } else {
        None
    }
}
