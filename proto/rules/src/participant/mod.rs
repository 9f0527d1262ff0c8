//! The participant's side: section 4 of PROTOCOL.md, with its share of 5 (inquiry), 6 (floor) and 8 (sessions).
//!
//! [`Participant`] keeps every branch of one participant. Messages and completions of resource calls come in
//! through [`Participant::step`], and what is to be done comes out, in order. A completion *is* the durable
//! event, so YES cannot leave before PREPARED is durable, nor ACK before COMMITTED (S5); nothing but a decision
//! or an operator moves a branch out of PREPARED (S8); COMMIT is asked of the resource once per branch and start
//! (S9). At most one call per branch is under way: an ABORT that comes while it prepares is remembered.
//!
//! Messages without a session are dropped: joining again repeats whatever is due, on both sides.
//!
//! What is not here: what an operation means, what it holds, and records; they are the resource's.

mod branch;
mod completions;
mod event;
mod rows;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::{
    Backoff, BranchState, Decision, Floor, Hello, Heuristic, Incarnation, Limits, Lineage, Lsn, Millis, Name,
    Operator, ToCoordinator, ToParticipant, TransactionId, Xid,
};
use branch::{Entry, State};
pub use event::{
    Alarm, AlarmCode, Branch, Effect, Event, Identity, Recovered, RecoveredBranch, RecoveredState, Refusal,
};

/// The most coordinator lineages of which a participant keeps floor and position, former ones included.
pub const MAX_LINEAGES: usize = 64;

/// The code of a NO vote past `max_waiting_prepares` or `max_participant_branches`.
pub const RESOURCE_EXHAUSTED: &str = "RESOURCE_EXHAUSTED";

/// What is kept of one coordinator log.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Known {
    floor: Floor,
    position: Lsn,
    /// (counter, seq, bits) of COMMITTED and FORGOTTEN branches: the order in which a floor drops them.
    tombstones: BTreeSet<(u64, u64, u64)>,
}

/// A branch in doubt, for operators.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Doubt {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// When it became PREPARED, on the machine's clock; 0 if it was so at the start.
    pub since: Millis,
}

/// All branches of one participant.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Participant {
    limits: Limits,
    name: Name,
    identity: Identity,
    connection: u64,
    /// The coordinator log of the session that is up.
    session: Option<Lineage>,
    known: BTreeMap<Lineage, Known>,
    branches: BTreeMap<Xid, Entry>,
    by_transaction: BTreeSet<(TransactionId, Xid)>,
    waiting: BTreeSet<Xid>,
    /// When inquiries and reports go again; empty without a session.
    asks: BTreeSet<(Millis, Xid)>,
    /// When a branch in doubt becomes an alarm (P13).
    alarms: BTreeSet<(Millis, Xid)>,
    /// What the present step asks for; empty between steps.
    effects: Vec<Effect>,
}

impl Participant {
    /// The machine of a participant that has replayed its log, put its holds back, and forced its new
    /// incarnation (section 2). It takes work from here on.
    #[must_use]
    pub fn recover(limits: Limits, name: Name, recovered: Recovered) -> Self {
        let mut machine = Self {
            limits,
            name,
            identity: recovered.identity,
            connection: 0,
            session: None,
            known: BTreeMap::new(),
            branches: BTreeMap::new(),
            by_transaction: BTreeSet::new(),
            waiting: BTreeSet::new(),
            asks: BTreeSet::new(),
            alarms: BTreeSet::new(),
            effects: Vec::new(),
        };
        for (lineage, floor) in recovered.floors {
            let known = machine.known.entry(lineage).or_default();
            known.floor = known.floor.max(floor);
        }
        for (lineage, position) in recovered.positions {
            let known = machine.known.entry(lineage).or_default();
            known.position = known.position.max(position);
        }
        for RecoveredBranch {
            xid,
            transaction_id,
            state,
        } in recovered.branches
        {
            assert!(
                !machine.branches.contains_key(&xid),
                "a log shows each branch once: {xid}"
            );
            let state = match state {
                RecoveredState::Prepared { operation } => State::Prepared { operation },
                RecoveredState::Committed => State::Committed,
                RecoveredState::Heuristic(what) => State::Heuristic { what },
                RecoveredState::Forgotten { committed } => State::Forgotten { committed },
            };
            machine.insert(xid, transaction_id, state);
            machine.entered(0, xid);
        }
        machine
    }

    /// Takes one event and says what is to be done, in order. `now` never runs backwards.
    pub fn step(&mut self, now: Millis, event: Event) -> Vec<Effect> {
        match event {
            Event::Dialed => self.dialed(),
            Event::Welcomed { lineage, incarnation } => self.welcomed(now, lineage, incarnation),
            Event::SessionEnded => self.session_ended(),
            Event::Frame {
                messages,
                floor,
                position,
            } => self.frame(now, messages, floor, position),
            Event::Prepared(xid, vote) => self.prepared(now, xid, vote),
            Event::Committed(xid) => self.committed(now, xid),
            Event::Aborted(xid) => self.aborted(xid),
            Event::Resolved(xid) => self.resolved(now, xid),
            Event::Forgotten(xid) => self.forgotten(now, xid),
            Event::Resolve {
                request,
                xid,
                what,
                by,
            } => self.resolve(request, xid, what, by),
            Event::Tick => self.tick(now),
        }
        core::mem::take(&mut self.effects)
    }

    /// When [`Event::Tick`] is due next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        let ask = self.asks.first().map(|(at, _)| *at);
        let alarm = self.alarms.first().map(|(at, _)| *at);
        ask.into_iter().chain(alarm).min()
    }

    /// The branches that voted YES and do not know the decision, in the order of their xids.
    pub fn in_doubt(&self) -> impl Iterator<Item = Doubt> {
        self.branches
            .iter()
            .filter(|(_, entry)| entry.branch_state() == BranchState::Prepared)
            .map(|(xid, entry)| Doubt {
                xid: *xid,
                transaction_id: entry.transaction_id.clone(),
                since: entry.since,
            })
    }

    /// The state of a branch; `Unknown` if it is not kept here.
    #[must_use]
    pub fn state(&self, xid: Xid) -> BranchState {
        self.branches
            .get(&xid)
            .map_or(BranchState::Unknown, Entry::branch_state)
    }

    /// The caller's id of a branch that is kept here.
    #[must_use]
    pub fn transaction_id(&self, xid: Xid) -> Option<&TransactionId> {
        self.branches.get(&xid).map(|entry| &entry.transaction_id)
    }

    /// The floor of a coordinator lineage (section 6); zero for one that is not known.
    #[must_use]
    pub fn floor(&self, lineage: Lineage) -> Floor {
        self.known
            .get(&lineage)
            .map_or(Floor::default(), |known| known.floor)
    }

    /// How many branches are kept, tombstones and waiting ones included.
    #[must_use]
    pub fn branches(&self) -> usize {
        self.branches.len()
    }

    /// How many PREPAREs wait for another attempt of their transaction (P3).
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn dialed(&mut self) {
        assert!(self.session.is_none(), "one session at a time");
        self.connection += 1;
        let positions = self.known.iter().filter(|(_, known)| known.position > 0);
        let hello = Hello {
            name: self.name.clone(),
            lineage: self.identity.lineage,
            incarnation: self.identity.incarnation,
            connection: self.connection,
            positions: positions
                .map(|(lineage, known)| (*lineage, known.position))
                .collect(),
        };
        self.effects.push(Effect::Hello(hello));
    }

    /// Section 8, "On joining": inquiries (P13) and reports (P18) go at once.
    fn welcomed(&mut self, now: Millis, lineage: Lineage, _incarnation: Incarnation) {
        assert!(self.session.is_none(), "one session at a time");
        self.session = Some(lineage);
        if self.known.contains_key(&lineage) || self.known.len() < MAX_LINEAGES {
            self.known.entry(lineage).or_default();
        } else {
            self.alarm(
                AlarmCode::TooManyLineages,
                None,
                "floor and position of this coordinator are not kept",
            );
        }
        let due: Vec<Xid> = self
            .branches
            .iter()
            .filter(|(_, entry)| entry.speaks())
            .map(|(xid, _)| *xid)
            .collect();
        for xid in due {
            self.entry(xid).deliveries = 0;
            self.speak(now, xid);
        }
    }

    /// P3: what waits is dropped; the coordinator sends its PREPAREs again on joining (C3).
    fn session_ended(&mut self) {
        self.session = None;
        self.asks.clear();
        for xid in core::mem::take(&mut self.waiting) {
            self.remove(xid);
        }
    }

    fn frame(&mut self, now: Millis, messages: Vec<ToParticipant>, floor: Option<Floor>, position: Lsn) {
        // Floor and position need no lineage of their own: a frame comes on the stream whose Welcome named this one.
        let Some(lineage) = self.session else { return };
        for message in messages {
            self.message(now, message);
        }
        let Some(known) = self.known.get_mut(&lineage) else {
            return;
        };
        known.position = known.position.max(position);
        if let Some(floor) = floor.filter(|floor| *floor > known.floor) {
            known.floor = floor;
            let kept = known.tombstones.split_off(&(floor.counter, floor.seq, 0));
            for (counter, seq, bits) in core::mem::replace(&mut known.tombstones, kept) {
                self.remove(Xid {
                    lineage,
                    incarnation: Incarnation { counter, bits },
                    seq,
                });
            }
            self.effects.push(Effect::Floor { lineage, floor });
        }
    }

    /// P14 and P21: an operator decides.
    fn resolve(&mut self, request: u64, xid: Xid, what: Decision, by: Operator) {
        let refusal = match self.state(xid) {
            BranchState::Unknown => Some(Refusal::NotFound),
            BranchState::Prepared if what == Decision::Commit => self
                .other_attempt(xid, |entry| entry.may_hold() || entry.has_effect())
                .map(Refusal::OtherAttempt),
            BranchState::Prepared => None,
            state @ (BranchState::Preparing
            | BranchState::Committing
            | BranchState::Committed
            | BranchState::Aborted
            | BranchState::ReadOnly
            | BranchState::Resolving
            | BranchState::HeuristicCommit
            | BranchState::HeuristicAbort
            | BranchState::Forgotten) => Some(Refusal::NotPrepared(state)),
        };
        if let Some(refusal) = refusal {
            self.effects.push(Effect::Answer {
                request,
                result: Err(refusal),
            });
            return;
        }
        self.leave_doubt(xid, State::Resolving { what, request });
        self.effects.push(Effect::Resolve { xid, what, by });
    }

    /// P13: time releases nothing. It only asks again and tells people.
    fn tick(&mut self, now: Millis) {
        while let Some((at, xid)) = self.alarms.first().copied().filter(|(at, _)| *at <= now) {
            self.alarms.remove(&(at, xid));
            self.alarm(
                AlarmCode::InDoubtTooLong,
                Some(xid),
                "the decision has not come; the branch keeps its holds",
            );
        }
        while let Some((_, xid)) = self.asks.first().copied().filter(|(at, _)| *at <= now) {
            self.speak(now, xid);
        }
    }

    /// Sends the inquiry or the report of a branch, and plans the next one.
    fn speak(&mut self, now: Millis, xid: Xid) {
        let entry = self.entry(xid);
        let message = if let State::Heuristic { what } = &entry.state {
            ToCoordinator::Report(xid, by_hand(*what))
        } else {
            ToCoordinator::Inquire(xid)
        };
        self.send(message);
        self.ask_later(now, xid);
    }

    /// Plans the next inquiry or report by the back-off; without a session, joining does it.
    fn ask_later(&mut self, now: Millis, xid: Xid) {
        if self.session.is_none() {
            return;
        }
        let backoff = Backoff {
            base_ms: self.limits.retry_base_ms,
            cap_ms: self.limits.retry_cap_ms,
        };
        let entry = self.branches.get_mut(&xid).expect("the caller holds this branch");
        self.asks.remove(&(entry.ask_at, xid));
        entry.ask_at = now.saturating_add(backoff.pause(xid, self.name.as_str(), entry.deliveries));
        entry.deliveries = entry.deliveries.saturating_add(1);
        self.asks.insert((entry.ask_at, xid));
    }

    /// What a new state plans: the alarm of a doubt, the next report, the end of a tombstone.
    fn entered(&mut self, now: Millis, xid: Xid) {
        let alarm_at = now.saturating_add(self.limits.in_doubt_alarm_ms);
        let entry = self.entry(xid);
        match &entry.state {
            State::Prepared { .. } => {
                entry.since = now;
                self.alarms.insert((alarm_at, xid));
                self.ask_later(now, xid);
            }
            State::Heuristic { .. } => self.ask_later(now, xid),
            State::Committed | State::Forgotten { .. } => self.bury(xid),
            State::Waiting { .. }
            | State::Preparing { .. }
            | State::Aborting
            | State::Committing
            | State::Resolving { .. }
            | State::Forgetting { .. } => {}
        }
    }

    /// A tombstone goes when the floor passes it (section 6), or at once if it has.
    fn bury(&mut self, xid: Xid) {
        let known = self.known.entry(xid.lineage).or_default();
        if xid.is_below(known.floor) {
            self.remove(xid);
        } else {
            known
                .tombstones
                .insert((xid.incarnation.counter, xid.seq, xid.incarnation.bits));
        }
    }

    /// Moves a branch out of PREPARED or HEURISTIC_x: no inquiry, report or alarm goes any more.
    fn leave_doubt(&mut self, xid: Xid, state: State) {
        let alarm_ms = self.limits.in_doubt_alarm_ms;
        let entry = self.entry(xid);
        let (alarm_at, ask_at) = (entry.since.saturating_add(alarm_ms), entry.ask_at);
        entry.state = state;
        entry.deliveries = 0;
        self.alarms.remove(&(alarm_at, xid));
        self.asks.remove(&(ask_at, xid));
    }

    /// Another attempt of the same transaction that `is` so, the first by xid.
    fn other_attempt(&self, xid: Xid, is: impl Fn(&Entry) -> bool) -> Option<Xid> {
        let id = &self.branches.get(&xid)?.transaction_id;
        self.attempts(id)
            .find(|other| *other != xid && is(&self.branches[other]))
    }

    fn attempts(&self, id: &TransactionId) -> impl Iterator<Item = Xid> {
        self.by_transaction
            .range((id.clone(), FIRST_XID)..=(id.clone(), LAST_XID))
            .map(|(_, xid)| *xid)
    }

    fn insert(&mut self, xid: Xid, transaction_id: TransactionId, state: State) {
        self.by_transaction.insert((transaction_id.clone(), xid));
        let before = self.branches.insert(xid, Entry::new(transaction_id, state));
        assert!(
            before.is_none(),
            "a branch is inserted while it is unknown: {xid}"
        );
    }

    fn remove(&mut self, xid: Xid) -> Entry {
        let entry = self.branches.remove(&xid).expect("only what is kept is removed");
        self.by_transaction.remove(&(entry.transaction_id.clone(), xid));
        entry
    }

    fn entry(&mut self, xid: Xid) -> &mut Entry {
        self.branches.get_mut(&xid).expect("the caller holds this branch")
    }

    fn send(&mut self, message: ToCoordinator) {
        if self.session.is_some() {
            self.effects.push(Effect::Send(message));
        }
    }

    fn alarm(&mut self, code: AlarmCode, xid: Option<Xid>, detail: &'static str) {
        self.effects.push(Effect::Alarm(Alarm { code, xid, detail }));
    }
}

/// A decision of an operator as the report of a branch.
fn by_hand(what: Decision) -> Heuristic {
    match what {
        Decision::Commit => Heuristic::Commit,
        Decision::Abort => Heuristic::Abort,
    }
}

const FIRST_XID: Xid = Xid {
    lineage: Lineage(0),
    incarnation: Incarnation { counter: 0, bits: 0 },
    seq: 0,
};
const LAST_XID: Xid = Xid {
    lineage: Lineage(u128::MAX),
    incarnation: Incarnation {
        counter: u64::MAX,
        bits: u64::MAX,
    },
    seq: u64::MAX,
};
