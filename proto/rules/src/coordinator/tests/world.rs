//! The random world: one coordinator on a log that may lose its tail, five participant lineages under three
//! names, links that keep order and are cut at will, and callers.
//!
//! A crash keeps the durable records and any prefix of those appended behind them; it may damage a decision
//! record, and the next start may replay a checkpoint and what follows, or everything.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Coordinator, Effect, Event, Execute, SessionId};
use super::bench::{START, execute, recover};
use super::checks::Truth;
use super::model::Participant;
use super::recovery::replayed;
use super::{Archive, LOG, name, operator, tid};
use crate::{
    AbortReason, Decision, Floor, Heuristic, Hello, Incarnation, Limits, Lineage, Lsn, Millis, Quarantined, Record,
    ToCoordinator, ToParticipant, TransactionId, UnixMillis, Wait, Xid,
};

/// One thing that happens. Small numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Execute { id: u8, other: bool, completed: bool },
    Get { id: u8 },
    AbortCall { id: u8 },
    /// One frame arrives at a participant, or from it.
    Down { link: u8 },
    Up { link: u8 },
    /// All that is on its way arrives, and is answered, and so on.
    Flow,
    /// All but the last few appended records become durable.
    Force { but: u8 },
    Pass { ms: u16 },
    Dial { who: u8 },
    Cut { link: u8 },
    /// A participant says something again that it said before, this start or an earlier one.
    Again { who: u8, what: u8 },
    Inquire { who: u8, what: u8 },
    ByHand { who: u8, which: u8, commit: bool },
    /// A prepared branch vanishes from its participant's disk.
    Lose { who: u8, which: u8 },
    Forget { which: u8 },
    Crash { keep: u8, damage: Damage, from_checkpoint: bool },
    Checkpoint,
    /// A participant claims a position that this log never had.
    Suspect { who: u8 },
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

enum Down {
    Welcome,
    Message(ToParticipant),
    Floor(Floor, Lsn),
}

struct Link {
    who: usize,
    down: VecDeque<Down>,
    up: VecDeque<ToCoordinator>,
}

/// The durable state as a checkpoint wrote it.
struct Checkpoint {
    records: Vec<Record>,
    archive: Archive,
    lsn: usize,
}

/// What each id runs: participants and what they do with it (`y`es, `n`o, `r`ead only).
const CONTENTS: [&[(&str, u8)]; 5] = [
    &[("a", b'y'), ("b", b'y')],
    &[("a", b'y'), ("b", b'y'), ("c", b'y')],
    &[("a", b'y'), ("b", b'r')],
    &[("a", b'y'), ("b", b'n')],
    &[("a", b'r'), ("b", b'r')],
];
const NAMES: [&str; 5] = ["a", "a", "b", "b", "c"];

pub(super) struct World {
    machine: Coordinator,
    pub(super) participants: Vec<Participant>,
    pub(super) truth: Truth,
    now: Millis,
    started: UnixMillis,
    log: Vec<Record>,
    durable: usize,
    archive: Archive,
    checkpoint: Option<Checkpoint>,
    links: BTreeMap<SessionId, Link>,
    /// The session each participant believes in.
    sessions: Vec<Option<SessionId>>,
    created: BTreeMap<u8, UnixMillis>,
    next_session: SessionId,
    next_request: u64,
    /// The floor of each name in this start: it only rises.
    floors: BTreeMap<&'static str, Floor>,
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
                    self.step(Event::Forget { request, xid, participant, by: operator() });
                }
            }
            Op::Crash { keep, damage, from_checkpoint } => self.crash(usize::from(keep), damage, from_checkpoint),
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

    fn wall(&self) -> UnixMillis {
        self.started + self.now
    }

    fn request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    fn step(&mut self, event: Event) {
        let effects = self.machine.step(self.now, event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let aborting = effects.iter().filter_map(aborted).collect::<BTreeSet<_>>();
        let mut sent = BTreeSet::new();
        for effect in &effects {
            let to = session(effect).and_then(|session| self.links.get(&session)).map(|link| link.who);
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

    fn transmit(&mut self, effect: &Effect) {
        match effect {
            Effect::Send { session, message } => self.put(*session, Down::Message(message.clone())),
            Effect::Welcome(session) => self.put(*session, Down::Welcome),
            Effect::RefuseJoin(session, _) => self.drop_link(*session),
            // A replaced one ends; what its participant had sent on it may still arrive.
            Effect::Replaced(_)
            | Effect::Append { .. }
            | Effect::Reply { .. }
            | Effect::Serving
            | Effect::Archive(_)
            | Effect::Expire(_)
            | Effect::Changed(_)
            | Effect::Alarm(_) => {}
        }
    }

    fn put(&mut self, session: SessionId, down: Down) {
        if let Some(link) = self.links.get_mut(&session) {
            link.down.push_back(down);
        }
    }

    /// Floors and position ride behind the messages of a frame.
    fn ride_floors(&mut self, sent: &BTreeSet<SessionId>) {
        for whose in NAMES {
            let floor = self.machine.floor(&name(whose));
            if self.machine.is_serving() {
                let before = self.floors.insert(whose, floor).unwrap_or_default();
                assert!(before <= floor, "section 6: the floor of {whose} fell: {before:?} {floor:?}");
            }
        }
        for session in sent {
            let Some(link) = self.links.get_mut(session) else { continue };
            let participant = &self.participants[link.who];
            let floor = self.machine.floor(&participant.name);
            link.down.push_back(Down::Floor(floor, self.machine.position()));
            let highest = self.truth.floors.entry(participant.lineage).or_default();
            *highest = (*highest).max(floor);
        }
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
        self.step(Event::Execute { request, execute, known });
    }

    fn get(&mut self, id: u8) {
        let transaction_id = tid_of(id % 5);
        let created = self.created.get(&(id % 5)).copied();
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Get { request, transaction_id, created, known });
    }

    fn abort_call(&mut self, id: u8) {
        let transaction_id = tid_of(id % 5);
        let created = Some(*self.created.entry(id % 5).or_insert(self.started + self.now));
        let known = self.archive.by_id(&transaction_id);
        let request = self.request();
        self.step(Event::Abort { request, transaction_id, created, by: AbortReason::Caller, known });
    }

    /// One frame arrives at its participant, if that still believes in the session.
    fn down(&mut self, session: SessionId) -> bool {
        let Some(link) = self.links.get_mut(&session) else { return false };
        let Some(down) = link.down.pop_front() else { return false };
        if self.sessions[link.who] != Some(session) {
            return true;
        }
        let participant = &mut self.participants[link.who];
        let said = match down {
            Down::Welcome => participant.welcomed(),
            Down::Message(message) => participant.hears(message),
            Down::Floor(floor, position) => {
                participant.hears_floor(floor, position);
                Vec::new()
            }
        };
        self.note_prepared();
        if let Some(link) = self.links.get_mut(&session) {
            link.up.extend(said);
        }
        true
    }

    fn note_prepared(&mut self) {
        for participant in &self.participants {
            let prepared = participant.prepared();
            self.truth.prepared.extend(prepared.into_iter().map(|xid| (xid, participant.lineage)));
        }
    }

    fn up(&mut self, session: SessionId) -> bool {
        let Some(link) = self.links.get_mut(&session) else { return false };
        let Some(message) = link.up.pop_front() else { return false };
        if let ToCoordinator::Ack(xid) = message {
            self.truth.acked.insert((xid, self.participants[link.who].lineage));
        }
        let wanted = self.machine.wants_archive(&message);
        let known = wanted.and_then(|xid| self.archive.outcomes.get(&xid).cloned());
        self.step(Event::Message { session, message, known });
        true
    }

    fn flow(&mut self) {
        for _ in 0..100 {
            let sessions: Vec<SessionId> = self.links.keys().copied().collect();
            let mut moved = false;
            for session in sessions {
                while self.down(session) {
                    moved = true;
                }
                while self.up(session) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("participants and coordinator talk without end");
    }

    fn force(&mut self, but: usize) {
        let upto = self.log.len().saturating_sub(but).max(self.durable);
        for at in self.durable..upto {
            self.truth.durable(&self.log[at]);
        }
        self.durable = upto;
        self.step(Event::Durable(upto as Lsn));
        let fold = self.machine.fold();
        assert!(replayed(fold) == (fold.clone(), Vec::new()), "a checkpoint is the fold");
    }

    fn pass(&mut self, ms: Millis) {
        self.now += ms;
        self.step(Event::Tick);
    }

    fn dial(&mut self, who: usize, ahead: Lsn) {
        self.participants[who].session_ended();
        let session = self.next_session;
        self.next_session += 1;
        let link = Link { who, down: VecDeque::new(), up: VecDeque::new() };
        self.links.insert(session, link);
        self.sessions[who] = Some(session);
        let participant = &self.participants[who];
        let hello = Hello {
            name: participant.name.clone(),
            lineage: participant.lineage,
            incarnation: Incarnation { counter: 1, bits: 7 },
            connection: session,
            positions: alloc::vec![(LOG, participant.position + ahead)],
        };
        self.step(Event::Joined { session, hello });
    }

    fn cut(&mut self, session: SessionId) {
        self.drop_link(session);
        self.step(Event::Left(session));
    }

    fn drop_link(&mut self, session: SessionId) {
        if let Some(link) = self.links.remove(&session)
            && self.sessions[link.who] == Some(session)
        {
            self.sessions[link.who] = None;
            self.participants[link.who].session_ended();
        }
    }

    fn says(&mut self, who: usize, said: Vec<ToCoordinator>) {
        if let Some(link) = self.sessions[who].and_then(|session| self.links.get_mut(&session)) {
            link.up.extend(said);
        }
    }

    fn again(&mut self, who: usize, what: u8) {
        if let Some(said) = pick(self.participants[who].said.iter(), what) {
            self.says(who, alloc::vec![said]);
        }
    }

    /// An inquiry about any attempt there was, or one that never was, of this log or another.
    fn inquire(&mut self, who: usize, what: u8) {
        let minted: Vec<Xid> = self.truth.minted.keys().copied().collect();
        let mut xid = pick(minted.iter(), what).unwrap_or_else(|| super::xid(1, 1));
        match what % 8 {
            0 => xid.lineage = Lineage(0xf0),
            1 => xid.seq += 1_000,
            2 => xid.incarnation.bits += 1,
            3 => xid.incarnation.counter += 100,
            _ => {}
        }
        self.says(who, alloc::vec![ToCoordinator::Inquire(xid)]);
    }

    fn by_hand(&mut self, who: usize, which: u8, commit: bool) {
        let what = if commit { Heuristic::Commit } else { Heuristic::Abort };
        if let Some(xid) = pick(self.participants[who].prepared().iter(), which) {
            let said = self.participants[who].resolves(xid, what);
            self.note_prepared();
            self.says(who, said);
        }
    }

    fn crash(&mut self, keep: usize, damage: Damage, from_checkpoint: bool) {
        let kept = (self.durable + keep).min(self.log.len());
        for at in self.durable..kept {
            self.truth.durable(&self.log[at]);
        }
        for lost in self.log.drain(kept..) {
            if let Record::Commit(outcome) | Record::Abort(outcome) = lost {
                self.truth.decisions.remove(&outcome.xid);
            }
        }
        self.durable = kept;
        self.damage(damage);
        self.restart(from_checkpoint);
    }

    /// A decision record behind the checkpoint stops decoding.
    fn damage(&mut self, damage: Damage) {
        let from = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.lsn);
        let decision = |at: &usize| matches!(&self.log[*at], Record::Commit(_) | Record::Abort(_));
        let decisions: Vec<usize> = (from..self.log.len()).filter(decision).collect();
        let (which, whole) = match damage {
            Damage::None => return,
            Damage::Payload(which) => (which, false),
            Damage::Whole(which) => (which, true),
        };
        let Some(at) = pick(decisions.iter(), which) else { return };
        let shown = self.log[at].clone();
        self.truth.damaged.extend(shown.xid());
        self.truth.damage_unseen |= whole;
        self.log[at] = Record::Quarantined(Quarantined {
            xid: shown.xid().filter(|_| !whole),
            transaction_id: shown.transaction_id().cloned().filter(|_| !whole),
            bytes: Arc::from(*b"?"),
        });
    }

    fn restart(&mut self, from_checkpoint: bool) {
        for session in self.links.keys().copied().collect::<Vec<_>>() {
            self.drop_link(session);
        }
        self.started = self.wall() + 10;
        self.now = 0;
        self.floors.clear();
        let (mut records, lsn) = (Vec::new(), 0);
        self.archive = Archive::default();
        let mut from = lsn;
        if let Some(checkpoint) = self.checkpoint.as_ref().filter(|_| from_checkpoint) {
            records.extend(checkpoint.records.iter().cloned());
            self.archive = checkpoint.archive.clone();
            from = checkpoint.lsn;
        }
        records.extend(self.log[from..].iter().cloned());
        let last = self.log.len() as Lsn;
        let counter = self.machine.incarnation().counter;
        let (machine, effects) = recover(&Limits::DEFAULT, &self.archive, records, last, self.started);
        self.machine = machine;
        if self.log.contains(&Record::Incarnation(Incarnation { counter, bits: 0xb175_0000 + counter })) {
            assert!(self.machine.incarnation().counter > counter, "S12: incarnations only rise");
        }
        self.perform(effects);
    }

    /// The faults end: L1, then everything is repaired, joined and forgotten: L2, L3.
    pub(super) fn heal(&mut self) {
        self.force(0);
        self.pass(Limits::DEFAULT.max_deadline_ms);
        let preparing =
            self.machine.running_after(None).any(|view| view.state == Some(super::super::State::Preparing));
        assert!(!preparing, "L1: it stays PREPARING");
        self.force(0);
        self.operators_repair();
        for _ in 0..3 {
            for who in 0..NAMES.len() {
                self.visit(who);
            }
        }
        self.truth.ends(&self.participants);
        assert_eq!(self.machine.in_progress(), 0, "L3: it does not end");
        assert!(self.machine.fold().heuristics.is_empty(), "S10: not forgotten");
        assert!(self.machine.fold().open.is_empty(), "L4: finished, and not archived");
        for participant in &self.participants {
            assert_eq!(participant.prepared(), [], "L2: in doubt at {} for ever", participant.name);
        }
    }

    /// One lineage has its name for itself, joins, and both talk until they are quiet.
    fn visit(&mut self, who: usize) {
        for session in self.links.keys().copied().collect::<Vec<_>>() {
            if NAMES[self.links[&session].who] == NAMES[who] {
                self.cut(session);
            }
        }
        self.dial(who, 0);
        for _ in 0..3 {
            self.flow();
            self.force(0);
            self.operators_forget();
            self.force(0);
        }
    }

    /// Operators let every heuristic be forgotten.
    fn operators_forget(&mut self) {
        let waiting: Vec<_> = self.machine.fold().heuristics.keys().cloned().collect();
        for (xid, participant) in waiting {
            let request = self.request();
            self.step(Event::Forget { request, xid, participant, by: operator() });
        }
    }

    /// Operators decide what damage hides, by what is true, and clear SUSPECT.
    fn operators_repair(&mut self) {
        self.crash(0, Damage::None, false);
        self.force(0);
        let hidden = self.truth.damaged.iter().copied().chain(self.truth.minted.keys().copied());
        let hidden: BTreeSet<Xid> =
            if self.truth.damage_unseen { hidden.collect() } else { self.truth.damaged.clone() };
        for xid in hidden {
            let commits = self.truth.commits.contains_key(&xid);
            let decision = if commits { Decision::Commit } else { Decision::Abort };
            self.truth.resolved.insert(xid, decision);
            self.log.push(Record::Resolved { xid, decision, by: operator() });
        }
        self.log.push(Record::SuspectCleared(operator()));
        let all = self.log.len() - self.durable;
        self.crash(all, Damage::None, false);
        self.force(0);
    }
}

/// The id of a number.
fn tid_of(id: u8) -> TransactionId {
    tid(["T0", "T1", "T2", "T3", "T4"][usize::from(id)])
}

/// The item that a small number means.
fn pick<'a, T: Clone + 'a>(items: impl ExactSizeIterator<Item = &'a T>, which: u8) -> Option<T> {
    let len = items.len();
    let mut items = items;
    if len == 0 { None } else { items.nth(usize::from(which) % len).cloned() }
}

fn aborted(effect: &Effect) -> Option<Xid> {
    if let Effect::Append { record: Record::Abort(outcome), .. } = effect { Some(outcome.xid) } else { None }
}

/// The session that a message goes to.
fn session(effect: &Effect) -> Option<SessionId> {
    if let Effect::Send { session, .. } = effect { Some(*session) } else { None }
}
