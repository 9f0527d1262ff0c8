//! The world: nodes, disks, network, clocks and callers in one thread, and the one queue of what happens next.
//!
//! Nothing here reads a real clock or a real source of randomness: the same [`Setup`] and the same calls give the
//! same run. Each happening is taken, the shipped machine of its node steps, and its effects are performed as the
//! shells of the servers do it: appends first, sends of one step as one frame with floor and position behind them.

use std::collections::{BTreeMap, BTreeSet};

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::{Reply, RequestId, SessionId};
use covenant_rules::participant::Event as ParticipantEvent;
use covenant_rules::{Lsn, TransactionId};

use crate::calls::Under;
use crate::checks::{Check, Violation, all_checks};
use crate::coordinator::CoordinatorNode;
use crate::faults::Fault;
use crate::history::History;
use crate::network::{Down, Link, Up};
use crate::node::{Clock, Micros, Node};
use crate::participant::ParticipantNode;
use crate::seen::Seen;
use crate::setup::{Death, Setup};
use crate::sometimes::Sometimes;
use crate::stops::Stop;
use crate::trace::Trace;
use crate::workload::Caller;

/// A crash point that waits for its moment.
#[derive(Clone, Debug)]
pub(crate) struct Armed {
    pub(crate) point: CrashPoint,
    pub(crate) node: Node,
    pub(crate) transaction_id: Option<TransactionId>,
    pub(crate) death: Death,
    /// For how long it is gone; without, nothing brings it back by itself.
    pub(crate) down_us: Option<Micros>,
}

/// What a caller got.
#[derive(Clone, Debug)]
pub enum Answer {
    /// What the coordinator said.
    Said(Reply),
    /// The connection broke: UNKNOWN, if the call may have been sent.
    Broken,
}

/// Something that happens at its time.
pub(crate) enum Happening {
    Up(SessionId, Up),
    Down(SessionId, Down),
    ForceDone {
        node: Node,
        process: u64,
    },
    LazyForce {
        node: Node,
        process: u64,
    },
    Tick {
        node: Node,
        process: u64,
    },
    Clock {
        process: u64,
    },
    Dial {
        who: usize,
        process: u64,
    },
    DialTimeout(SessionId),
    Complete {
        who: usize,
        process: u64,
        event: ParticipantEvent,
    },
    CallAgain {
        who: usize,
        process: u64,
        call: crate::participant::Call,
    },
    CheckpointDone {
        node: Node,
        process: u64,
    },
    Asks(RequestId, crate::calls::Ask),
    Answers(RequestId, Answer),
    CallerActs(usize),
    CallerAborts(usize),
    /// The caller waits no longer for the answer to the call with this number.
    CallerImpatient(usize, u32),
    Fault(Fault),
    Restart(Node),
}

/// The cluster. See the module's documentation.
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) now: Micros,
    next: u64,
    queue: BTreeMap<(Micros, u64), Happening>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) coordinator: CoordinatorNode,
    pub(crate) participants: Vec<ParticipantNode>,
    pub(crate) links: BTreeMap<SessionId, Link>,
    pub(crate) next_session: SessionId,
    pub(crate) next_process: u64,
    pub(crate) next_identity: u64,
    /// Directions that are down: a participant's number, and whether towards the coordinator.
    pub(crate) partitioned: BTreeSet<(usize, bool)>,
    pub(crate) next_request: RequestId,
    /// Calls on their way or attached.
    pub(crate) calls: BTreeMap<RequestId, Under>,
    pub(crate) answers: BTreeMap<RequestId, Answer>,
    pub(crate) callers: Vec<Caller>,
    pub(crate) armed: Vec<Armed>,
    pub(crate) stops: Vec<Stop>,
    pub(crate) crashed_at: Option<(CrashPoint, Node)>,
    pub(crate) healed: bool,
    pub(crate) history: History,
    checks: Vec<Box<dyn Check>>,
    pub(crate) violation: Option<Violation>,
    pub(crate) sometimes: Sometimes,
    pub(crate) trace: Trace,
    steps: u64,
}

impl World {
    /// A cluster whose coordinator serves and whose participants have joined, with their accounts open.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        assert!(setup.participants > 0, "a cluster has participants");
        let clock = |at: usize| setup.clocks.get(at).copied().unwrap_or(Clock::EXACT);
        let participants = (0..setup.participants)
            .map(|who| ParticipantNode::new(clock(who + 1)))
            .collect();
        let mut world = Self {
            now: 0,
            next: 0,
            queue: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(setup.seed),
            coordinator: CoordinatorNode::new(clock(0)),
            participants,
            links: BTreeMap::new(),
            next_session: 1,
            next_process: 1,
            next_identity: 1,
            partitioned: BTreeSet::new(),
            next_request: 1,
            calls: BTreeMap::new(),
            answers: BTreeMap::new(),
            callers: Vec::new(),
            armed: Vec::new(),
            stops: Vec::new(),
            crashed_at: None,
            healed: false,
            history: History {
                openings: setup.accounts.clone(),
                ..History::default()
            },
            checks: all_checks(),
            violation: None,
            sometimes: Sometimes::default(),
            trace: Trace::new(setup.trace),
            steps: 0,
            setup,
        };
        world.start_coordinator();
        for who in 0..world.setup.participants {
            world.start_participant(who);
        }
        let ready = world.run_until(10_000, World::all_joined);
        assert!(ready, "a new cluster comes up");
        // What joining appended lazily is forced: a story begins with a clean disk.
        world.run_for(
            world
                .setup
                .timing
                .lazy_us
                .saturating_add(world.setup.timing.force_us.1)
                * 2
                / 1_000,
        );
        world
    }

    /// True time since the beginning, in microseconds.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.now
    }

    /// How many happenings there were.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The ground truth.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The first invariant that did not hold, if one did not: nothing happens any more.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// What happened so far, a line each, if the setup asked for it.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What was seen at least once.
    #[must_use]
    pub fn sometimes(&self) -> &Sometimes {
        &self.sometimes
    }

    /// Takes what happens next; false: nothing is left to happen, or an invariant is broken.
    pub fn step(&mut self) -> bool {
        if self.violation.is_some() {
            return false;
        }
        let Some(((at, _), happening)) = self.queue.pop_first() else {
            return false;
        };
        self.now = self.now.max(at);
        self.history.now = self.now;
        self.trace.now = self.now;
        self.steps += 1;
        self.take(happening);
        true
    }

    /// Runs for so many milliseconds of true time.
    pub fn run_for(&mut self, ms: u64) {
        self.run_until(ms, |_| false);
    }

    /// Runs until it is so, at most for so many milliseconds of true time; whether it is.
    pub fn run_until(&mut self, limit_ms: u64, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + limit_ms * 1_000;
        loop {
            if is_so(self) {
                return true;
            }
            if self.queue.first_key_value().is_none_or(|((at, _), _)| *at > end) || !self.step() {
                self.now = self.now.max(end);
                (self.history.now, self.trace.now) = (self.now, self.now);
                return is_so(self);
            }
        }
    }

    pub(crate) fn after(&mut self, delay: Micros, happening: Happening) {
        self.at(self.now + delay, happening);
    }

    pub(crate) fn at(&mut self, at: Micros, happening: Happening) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), happening);
    }

    pub(crate) fn between(&mut self, (from, to): (Micros, Micros)) -> Micros {
        if from >= to { from } else { self.rng.u64(from..=to) }
    }

    pub(crate) fn process(&mut self) -> u64 {
        self.next_process += 1;
        self.next_process
    }

    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Up(session, up) => self.up_arrives(session, up),
            Happening::Down(session, down) => self.down_arrives(session, down),
            Happening::ForceDone { node, process } if self.lives(node, process) => match node {
                Node::Coordinator => self.coordinator_forced(),
                Node::Participant(who) => self.participant_forced(who),
            },
            Happening::LazyForce { node, process } if self.lives(node, process) => self.lazy_due(node),
            Happening::Tick { node, process } if self.lives(node, process) => match node {
                Node::Coordinator => self.coordinator_tick(),
                Node::Participant(who) => self.participant_tick(who),
            },
            Happening::Clock { process } if self.lives(Node::Coordinator, process) => self.clock_told(),
            Happening::Dial { who, process } if self.lives(Node::Participant(who), process) => self.dial(who),
            Happening::DialTimeout(session) => self.dial_timed_out(session),
            Happening::Complete { who, process, event } if self.lives(Node::Participant(who), process) => {
                self.participant_step(who, event);
            }
            Happening::CallAgain { who, process, call } if self.lives(Node::Participant(who), process) => {
                self.resource_call(who, call);
                self.participant_stepped(who);
            }
            Happening::CheckpointDone { node, process } if self.lives(node, process) => {
                self.checkpointed(node)
            }
            Happening::Asks(request, ask) => self.ask_arrives(request, ask),
            Happening::Answers(request, answer) => self.answer_arrives(request, answer),
            Happening::CallerActs(caller) => self.caller_acts(caller),
            Happening::CallerImpatient(caller, tries) => self.caller_impatient(caller, tries),
            Happening::CallerAborts(caller) => self.caller_aborts(caller),
            Happening::Fault(fault) => self.fault(fault),
            Happening::Restart(node) => self.restart(node),
            Happening::ForceDone { .. }
            | Happening::LazyForce { .. }
            | Happening::Tick { .. }
            | Happening::Clock { .. }
            | Happening::Dial { .. }
            | Happening::Complete { .. }
            | Happening::CallAgain { .. }
            | Happening::CheckpointDone { .. } => {}
        }
    }

    /// Whether this process of the node is the one that runs.
    pub(crate) fn lives(&self, node: Node, process: u64) -> bool {
        self.running(node) == Some(process)
    }

    pub(crate) fn running(&self, node: Node) -> Option<u64> {
        match node {
            Node::Coordinator => self.coordinator.process.as_ref().map(|process| process.id),
            Node::Participant(who) => self.participants[who].process.as_ref().map(|process| process.id),
        }
    }

    /// Shows an observation to the ground truth and to every checker.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) {
        self.history.note(seen);
        self.sometimes.note(&self.history, seen);
        if self.violation.is_some() {
            return;
        }
        for check in &mut self.checks {
            let Err(detail) = check.see(&self.history, seen) else {
                continue;
            };
            let (invariant, step) = (check.invariant(), self.steps);
            self.trace
                .line(Node::Coordinator, &|| format!("VIOLATION {invariant}: {detail}"));
            match &mut self.violation {
                Some(violation) => violation.also.push(invariant),
                None => {
                    self.violation = Some(Violation {
                        invariant,
                        seed: self.setup.seed,
                        step,
                        detail,
                        also: Vec::new(),
                    });
                }
            }
        }
    }

    /// Shows a quiet world to every checker.
    pub(crate) fn see_quiet(&mut self) {
        let mut checks = std::mem::take(&mut self.checks);
        for check in &mut checks {
            if let (Err(detail), None) = (check.quiet(self), &self.violation) {
                self.violation = Some(Violation {
                    invariant: check.invariant(),
                    seed: self.setup.seed,
                    step: self.steps,
                    detail,
                    also: Vec::new(),
                });
            }
        }
        self.checks = checks;
    }

    /// Kills the node if a crash point waits for this; whether it did.
    pub(crate) fn reach(&mut self, node: Node, point: CrashPoint, id: Option<&TransactionId>) -> bool {
        let hit = |armed: &Armed| {
            armed.point == point
                && armed.node == node
                && armed.transaction_id.as_ref().is_none_or(|of| Some(of) == id)
        };
        let Some(at) = self.armed.iter().position(hit) else {
            return false;
        };
        let armed = self.armed.remove(at);
        self.trace.line(node, &|| format!("crash point {}", point.name()));
        self.crashed_at = Some((point, node));
        self.die(node, armed.death);
        if let Some(down) = armed.down_us {
            self.after(down, Happening::Restart(node));
        }
        true
    }

    /// Begins a force if one is wanted and none is under way.
    pub(crate) fn force_if_wanted(&mut self, node: Node) {
        let begun = match node {
            Node::Coordinator => self.coordinator.disk.begin_force(),
            Node::Participant(who) => self.participants[who].disk.begin_force(),
        };
        let (Some(process), Some(_)) = (self.running(node), begun) else {
            return;
        };
        let takes = self.between(self.setup.timing.force_us) + self.slow(node);
        self.after(takes, Happening::ForceDone { node, process });
    }

    fn slow(&mut self, node: Node) -> Micros {
        let slow = match node {
            Node::Coordinator => &mut self.coordinator.slow_force_us,
            Node::Participant(who) => &mut self.participants[who].slow_force_us,
        };
        std::mem::take(slow)
    }

    pub(crate) fn lazy_append(&mut self, node: Node) {
        if let Some(process) = self.running(node) {
            let delay = self.setup.timing.lazy_us;
            self.after(delay, Happening::LazyForce { node, process });
        }
    }

    fn lazy_due(&mut self, node: Node) {
        match node {
            Node::Coordinator => {
                let disk = &mut self.coordinator.disk;
                disk.wanted = disk.wanted.max(disk.appended());
            }
            Node::Participant(who) => {
                let disk = &mut self.participants[who].disk;
                disk.wanted = disk.wanted.max(disk.appended());
            }
        }
        self.force_if_wanted(node);
    }

    /// The last durable record of a node's log.
    #[must_use]
    pub fn durable(&self, node: Node) -> Lsn {
        match node {
            Node::Coordinator => self.coordinator.disk.forced,
            Node::Participant(who) => self.participants[who].disk.forced,
        }
    }
}
