//! The end of a story: faults end, everything comes back, and within a bound the world is quiet; then it is checked.

use covenant_rules::coordinator::State;
use covenant_rules::{Limits, Name, TransactionId, UnixMillis, Wait, Xid};

use crate::calls::{Ask, Does, Transaction};
use crate::node::Node;
use crate::world::{Happening, World};

/// How long a healed world may take until it is quiet: some rounds of the slowest retry and the longest deadline.
const QUIET_MS: u64 = 240_000;
/// How often it is looked at.
const LOOK_MS: u64 = 500;

impl World {
    /// A transaction as a script asks for it, created now by an exact clock.
    ///
    /// # Panics
    /// If the id is none.
    #[must_use]
    pub fn transaction(&self, id: &str, branches: &[(usize, Does)]) -> Transaction {
        let transaction_id = match TransactionId::new(id) {
            Ok(id) => id,
            Err(error) => panic!("the id {id:?} is none: {error}"),
        };
        Transaction {
            transaction_id,
            created: self.wall(),
            branches: branches.to_vec(),
            timeout_ms: self.setup.limits.default_deadline_ms,
            wait: Wait::Decided,
        }
    }

    /// What an exact wall clock shows.
    #[must_use]
    pub fn wall(&self) -> UnixMillis {
        crate::node::Clock::EXACT.wall_ms(self.now)
    }

    /// Runs until an armed crash point was reached, at most so long; whether one was.
    pub fn run_until_crashed(&mut self, limit_ms: u64) -> bool {
        self.crashed_at = None;
        self.run_until(limit_ms, |world| world.crashed_at.is_some())
    }

    /// Whether every participant has joined a serving coordinator.
    #[must_use]
    pub fn all_joined(&self) -> bool {
        let Some(machine) = self.coordinator() else {
            return false;
        };
        let joined = machine.participants().filter(|one| one.session.is_some()).count();
        machine.is_serving() && joined == self.participants.len()
    }

    /// How many participants there are.
    #[must_use]
    pub fn participants(&self) -> usize {
        self.participants.len()
    }

    /// The bounds and times of all machines.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.setup.limits
    }

    /// How many outcomes the archive holds.
    #[must_use]
    pub fn outcomes(&self) -> usize {
        self.coordinator
            .process
            .as_ref()
            .map_or(0, |process| process.archive.by_xid.len())
    }

    /// Tombstones that a ledger keeps until a floor is worth a record.
    #[must_use]
    pub fn floor_slack(&self) -> usize {
        self.setup.floor_tombstones + 1
    }

    /// Branches of a participant's log that nobody will come back for: of logs of coordinators that are gone.
    #[must_use]
    pub fn foreign_branches(&self, who: usize) -> usize {
        let (Some(own), present) = (self.lineage_of(who), self.history.lineage()) else {
            return 0;
        };
        let foreign = |(xid, lineage): &&(Xid, _)| *lineage == own && Some(xid.lineage) != present;
        self.history.branches.keys().filter(foreign).count()
    }

    /// Branches of a participant's log at or above the floor that it was told last.
    #[must_use]
    pub fn branches_above_floor(&self, who: usize) -> usize {
        let (Some(own), Some(machine)) = (self.lineage_of(who), self.participant(who)) else {
            return 0;
        };
        let above = |(xid, lineage): &&(Xid, _)| {
            *lineage == own
                && !xid.is_below(machine.floor(xid.lineage))
                && Some(xid.lineage) == self.history.lineage()
        };
        self.history.branches.keys().filter(above).count()
    }

    /// Ends all faults, brings everything back, and runs until the world is quiet, or should be; then it is checked.
    /// Whether it became quiet and every invariant holds.
    pub fn settle(&mut self) -> bool {
        self.heal();
        let end = self.now + QUIET_MS * 1_000;
        while self.now < end && self.violation.is_none() {
            if self.unrest().is_none() {
                break;
            }
            self.run_for(LOOK_MS);
            self.operators_forget();
        }
        if self.violation.is_none() {
            self.see_quiet();
        }
        self.violation.is_none()
    }

    fn heal(&mut self) {
        self.healed = true;
        self.armed.clear();
        self.coordinator.fail_force = false;
        for who in 0..self.participants.len() {
            self.participants[who].fail_force = false;
            self.rejoin(who, true);
            self.rejoin(who, false);
        }
        self.resolve_damage();
        self.restart(Node::Coordinator);
        for who in 0..self.participants.len() {
            self.restart(Node::Participant(who));
        }
        for number in 0..self.callers.len() {
            let pause = self.between((0, 2_000_000));
            self.after(pause, Happening::CallerActs(number));
        }
    }

    /// Operators let every heuristic with damage be forgotten.
    pub(crate) fn operators_forget(&mut self) {
        for (xid, participant) in self.unforgotten_damage() {
            self.ask(Ask::Forget(xid, participant));
        }
    }

    /// Heuristics that are not known to agree with the decision, and that no operator has let go.
    pub(crate) fn unforgotten_damage(&self) -> Vec<(Xid, Name)> {
        let Some(machine) = self.coordinator() else {
            return Vec::new();
        };
        let entries = machine.fold().heuristics.iter();
        let damaged = entries.filter(|(_, entry)| entry.damage != Some(false) && entry.forget.is_none());
        damaged.map(|(key, _)| key.clone()).collect()
    }

    /// What is still under way in a healed world, if anything is: what the checks of liveness ask for, and beyond them
    /// that everybody has joined, waits for nobody and has forced what it wrote.
    #[must_use]
    pub fn unrest(&self) -> Option<String> {
        let Some(machine) = self.coordinator() else {
            return Some("the coordinator does not run".to_owned());
        };
        let mut undecided = machine
            .running_after(None)
            .filter(|view| view.state != Some(State::Committed));
        if !self.all_joined() {
            return Some("not every participant has joined a serving coordinator".to_owned());
        }
        if let Some(view) = undecided.next() {
            return Some(format!("{} is {:?}", view.transaction_id, view.state));
        }
        let fold = machine.fold();
        let mut open = fold.heuristics.keys().map(|(xid, _)| xid).chain(fold.open.keys());
        if let Some(xid) = open.next() {
            return Some(format!("{} is not finished", self.history.shown(*xid)));
        }
        let asks = self.callers.iter().find(|caller| !caller.heard_healed);
        if let Some(caller) = asks {
            let id = &caller.transaction.transaction_id;
            return Some(format!("the caller of {id} has heard nothing"));
        }
        if !self.calls.is_empty() {
            return Some(format!("{} calls have no answer", self.calls.len()));
        }
        if self.coordinator.disk.forced != self.coordinator.disk.appended() {
            return Some("the coordinator's log is not forced".to_owned());
        }
        (0..self.participants.len()).find_map(|who| {
            let unrest = self.unrest_of(who)?;
            Some(format!("{}: {unrest}", Node::Participant(who)))
        })
    }

    fn unrest_of(&self, who: usize) -> Option<&'static str> {
        let present = self.history.lineage();
        let Some(machine) = self.participant(who) else {
            return Some("it does not run");
        };
        if machine.in_doubt().any(|doubt| Some(doubt.xid.lineage) == present) {
            return Some("a branch is in doubt");
        }
        // A PREPARE that waits ends with its ABORT, which may be under way, or with its session (P3).
        if machine.waiting() > 0 {
            return Some("a PREPARE waits");
        }
        if !self.is_idle(who) {
            return Some("its resource is at work");
        }
        let disk = &self.participants[who].disk;
        (disk.forced != disk.appended()).then_some("its log is not forced")
    }
}
