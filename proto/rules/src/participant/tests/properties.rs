//! Arbitrary messages, in any order and number, against a participant with a small resource behind it that
//! may crash. The world is hostile: the "coordinator" here says anything about any attempt. What must hold
//! anyway is the participant's own part: S5, S8, S9 and its side of S15 (P2, P3).

use alloc::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec as many;
use proptest::prelude::*;

use super::*;
use crate::NoReason;

/// Attempts 1, 2, 3 are of "T0", 4, 5, 6 of "T1".
const ATTEMPTS: u64 = 6;

fn transaction_of(seq: u64) -> TransactionId {
    id(if seq <= ATTEMPTS / 2 { "T0" } else { "T1" })
}

#[derive(Clone, Debug)]
enum Step {
    Message(u8, u64),
    /// The call at this place among those under way completes; a prepare so: 0 YES, 1 NO, 2 READ_ONLY.
    Complete(usize, u8),
    Operator(u64, bool),
    Floor(u64),
    Cut,
    Join,
    Wait(Millis),
    /// The process dies; a call under way became durable or not.
    Crash(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seq = || 1..=ATTEMPTS;
    many(
        prop_oneof![
            12 => (0u8..7, seq()).prop_map(|(kind, seq)| Step::Message(kind, seq)),
            8 => (0usize..4, prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2)])
                .prop_map(|(call, vote)| Step::Complete(call, vote)),
            1 => (seq(), any::<bool>()).prop_map(|(seq, commit)| Step::Operator(seq, commit)),
            1 => (1..=ATTEMPTS + 1).prop_map(Step::Floor),
            1 => Just(Step::Cut),
            2 => Just(Step::Join),
            1 => (1u64..20_000).prop_map(Step::Wait),
            1 => any::<bool>().prop_map(Step::Crash),
        ],
        1..120,
    )
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    Prepared,
    Committed,
    Heuristic(Decision),
    Forgotten(Decision),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Prepare,
    Commit,
    Abort,
    Resolve(Decision),
    Forget,
}

/// The machine, the durable state of its resource, the calls under way, and what was ever said.
struct World {
    machine: Participant,
    now: Millis,
    session: bool,
    stored: BTreeMap<u64, Stored>,
    floor: Floor,
    calls: Vec<(u64, Call)>,
    effects: BTreeMap<u64, u32>,
    decided: BTreeSet<(u64, Decision)>,
    commits_asked: BTreeSet<u64>,
}

impl World {
    fn new() -> Self {
        Self {
            machine: joined(),
            now: 0,
            session: true,
            stored: BTreeMap::new(),
            floor: Floor::default(),
            calls: vec![],
            effects: BTreeMap::new(),
            decided: BTreeSet::new(),
            commits_asked: BTreeSet::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Message(kind, seq) => self.deliver(kind, seq),
            Step::Complete(call, vote) => {
                if !self.calls.is_empty() {
                    self.complete(call % self.calls.len(), vote);
                }
            }
            Step::Operator(seq, commit) => {
                let what = if commit { Decision::Commit } else { Decision::Abort };
                self.step(Event::Resolve {
                    request: seq,
                    xid: xid(seq),
                    what,
                    by: operator(),
                });
            }
            Step::Floor(seq) => self.step(floor(seq)),
            Step::Cut => {
                self.session = false;
                self.step(Event::SessionEnded);
            }
            Step::Join => self.join(),
            Step::Wait(pause) => {
                self.now += pause;
                self.step(Event::Tick);
                assert!(
                    self.machine.next_deadline().is_none_or(|at| at > self.now),
                    "a due time is left over"
                );
            }
            Step::Crash(durable) => self.crash(durable),
        }
        self.check_immobility();
    }

    fn deliver(&mut self, kind: u8, seq: u64) {
        let x = xid(seq);
        let message = match kind {
            0 | 1 => ToParticipant::Prepare {
                xid: x,
                transaction_id: transaction_of(seq),
                operation: operation("debit 1"),
            },
            2 => ToParticipant::Commit(x),
            3 => ToParticipant::Abort(x),
            4 => ToParticipant::Forget(x),
            5 => ToParticipant::Pending(x),
            _ => ToParticipant::ReportRecorded(x),
        };
        if self.session {
            match &message {
                ToParticipant::Commit(_) => drop(self.decided.insert((seq, Decision::Commit))),
                ToParticipant::Abort(_) => drop(self.decided.insert((seq, Decision::Abort))),
                ToParticipant::Prepare { .. }
                | ToParticipant::Pending(_)
                | ToParticipant::Unknown(_)
                | ToParticipant::ReportRecorded(_)
                | ToParticipant::Forget(_) => {}
            }
        }
        self.step(frame(message));
    }

    fn join(&mut self) {
        if self.session {
            self.step(Event::SessionEnded);
        }
        self.step(Event::Dialed);
        self.session = true;
        self.step(Event::Welcomed {
            lineage: HOME,
            incarnation: COORDINATOR,
        });
    }

    /// Makes a call durable, as a resource that keeps its contract does.
    fn store(&mut self, seq: u64, call: Call) {
        match call {
            Call::Prepare => drop(self.stored.insert(seq, Stored::Prepared)),
            Call::Commit => self.apply(seq, Stored::Committed),
            Call::Abort => drop(self.stored.remove(&seq)),
            Call::Resolve(Decision::Commit) => self.apply(seq, Stored::Heuristic(Decision::Commit)),
            Call::Resolve(Decision::Abort) => {
                self.stored.insert(seq, Stored::Heuristic(Decision::Abort));
            }
            Call::Forget => {
                let Some(Stored::Heuristic(what)) = self.stored.get(&seq).copied() else {
                    panic!("forget without a heuristic: {seq}")
                };
                self.stored.insert(seq, Stored::Forgotten(what));
            }
        }
    }

    fn apply(&mut self, seq: u64, state: Stored) {
        assert_eq!(
            self.stored.insert(seq, state),
            Some(Stored::Prepared),
            "S2: an effect without PREPARED: {seq}"
        );
        *self.effects.entry(seq).or_default() += 1;
        assert_eq!(self.effects[&seq], 1, "S9: a second effect of {seq}");
        let of_transaction = (1..=ATTEMPTS).filter(|other| transaction_of(*other) == transaction_of(seq));
        let total: u32 = of_transaction.filter_map(|other| self.effects.get(&other)).sum();
        assert_eq!(
            total, 1,
            "S15: two attempts of one transaction took effect: {:?}",
            self.effects
        );
    }

    /// P2 at the resource: it knows the effects of tombstones that a floor has dropped.
    fn vote(&self, seq: u64, vote: u8) -> Vote {
        let has_effect = |other: &u64| transaction_of(*other) == transaction_of(seq);
        if self.effects.keys().any(has_effect) {
            return Vote::No(NoReason::new(NoReason::DUPLICATE_TRANSACTION, ""));
        }
        match vote {
            0 => Vote::Yes,
            1 => Vote::No(NoReason::new("CLOSED", "")),
            _ => Vote::ReadOnly,
        }
    }

    fn complete(&mut self, at: usize, vote: u8) {
        let (seq, call) = self.calls.remove(at);
        let event = match call {
            Call::Prepare => {
                let vote = self.vote(seq, vote);
                if vote == Vote::Yes {
                    self.store(seq, call);
                }
                return self.step(Event::Prepared(xid(seq), vote));
            }
            Call::Commit => Event::Committed(xid(seq)),
            Call::Abort => Event::Aborted(xid(seq)),
            Call::Resolve(_) => Event::Resolved(xid(seq)),
            Call::Forget => Event::Forgotten(xid(seq)),
        };
        self.store(seq, call);
        self.step(event);
    }

    fn crash(&mut self, durable: bool) {
        for (seq, call) in core::mem::take(&mut self.calls) {
            if durable && (call != Call::Prepare || self.vote(seq, 0) == Vote::Yes) {
                self.store(seq, call);
            }
        }
        let floor = self.floor;
        let below = |seq: u64| xid(seq).is_below(floor);
        let mut start = recovered(vec![]);
        start.floors = vec![(HOME, floor)];
        for (seq, stored) in &self.stored {
            let state = match stored {
                Stored::Prepared => RecoveredState::Prepared {
                    operation: operation("debit 1"),
                },
                Stored::Heuristic(what) => RecoveredState::Heuristic(*what),
                Stored::Committed | Stored::Forgotten(_) if below(*seq) => continue,
                Stored::Committed => RecoveredState::Committed,
                Stored::Forgotten(what) => RecoveredState::Forgotten {
                    committed: *what == Decision::Commit,
                },
            };
            let branch = RecoveredBranch {
                xid: xid(*seq),
                transaction_id: transaction_of(*seq),
                state,
            };
            start.branches.push(branch);
        }
        self.machine = participant(start);
        self.session = false;
        self.commits_asked.clear();
    }

    fn step(&mut self, event: Event) {
        for effect in self.machine.step(self.now, event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send(message) => self.check_sent(&message),
            Effect::Prepare(branch) => self.call(branch.xid.seq, Call::Prepare),
            Effect::Commit(x) => {
                assert!(
                    self.decided.contains(&(x.seq, Decision::Commit)),
                    "nobody decided COMMIT for {x}"
                );
                assert!(self.commits_asked.insert(x.seq), "S9: COMMIT asked twice for {x}");
                self.call(x.seq, Call::Commit);
            }
            Effect::Abort(x) => {
                assert!(
                    self.decided.contains(&(x.seq, Decision::Abort)),
                    "nobody decided ABORT for {x}"
                );
                self.call(x.seq, Call::Abort);
            }
            Effect::Resolve { xid: x, what, .. } => self.call(x.seq, Call::Resolve(what)),
            Effect::Forget(x) => self.call(x.seq, Call::Forget),
            Effect::Floor { floor, .. } => {
                assert!(floor > self.floor, "a floor fell");
                self.floor = floor;
            }
            Effect::Hello(_) | Effect::Answer { .. } | Effect::Alarm(_) => {}
        }
    }

    fn call(&mut self, seq: u64, call: Call) {
        assert!(
            self.calls.iter().all(|(other, _)| *other != seq),
            "two calls for {seq} at once"
        );
        let attempts =
            || (1..=ATTEMPTS).filter(|other| *other != seq && transaction_of(*other) == transaction_of(seq));
        if call == Call::Prepare {
            let held = attempts().find(|other| self.stored.get(other) == Some(&Stored::Prepared));
            assert_eq!(held, None, "P3: {seq} is prepared beside another attempt");
        }
        self.calls.push((seq, call));
    }

    fn check_sent(&self, message: &ToCoordinator) {
        assert!(self.session, "a message without a session");
        let stored = |x: &Xid| self.stored.get(&x.seq).copied();
        match message {
            ToCoordinator::Vote(x, Vote::Yes) => {
                assert_eq!(stored(x), Some(Stored::Prepared), "S5: YES without PREPARED");
            }
            ToCoordinator::Ack(x) => {
                let holds = stored(x) == Some(Stored::Committed) || x.is_below(self.floor);
                assert!(holds, "S5: ACK without COMMITTED");
            }
            ToCoordinator::Report(x, what) => {
                let told = stored(x).map(|stored| match stored {
                    Stored::Heuristic(Decision::Commit) => Heuristic::Commit,
                    Stored::Heuristic(Decision::Abort) => Heuristic::Abort,
                    other @ (Stored::Prepared | Stored::Committed | Stored::Forgotten(_)) => {
                        panic!("{other:?}")
                    }
                });
                assert_eq!(told, Some(*what), "S10: a report without its record");
            }
            ToCoordinator::Inquire(x) => assert_eq!(stored(x), Some(Stored::Prepared), "{x}"),
            ToCoordinator::LostState(x) => assert_ne!(stored(x), Some(Stored::Committed), "{x}"),
            ToCoordinator::ForgetAck(x) => {
                let heuristic = matches!(stored(x), Some(Stored::Heuristic(_)));
                assert!(!heuristic, "a FORGET acknowledged before FORGOTTEN: {x}");
            }
            ToCoordinator::Vote(_, Vote::No(_) | Vote::ReadOnly) => {}
        }
    }

    /// S8: what is durably PREPARED and has no call under way is in doubt, whatever happened.
    fn check_immobility(&self) {
        for (seq, stored) in &self.stored {
            if *stored == Stored::Prepared && self.calls.iter().all(|(other, _)| other != seq) {
                assert_eq!(self.machine.state(xid(*seq)), BranchState::Prepared, "S8: {seq}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_s5_s8_s9_s15(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
    }
}
