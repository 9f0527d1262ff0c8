//! Both machines on a bench: a coordinator and its participants, with nothing between them.
//!
//! No clock, no disk, no bytes: what it costs is what the rules cost. Every append is durable at once, every frame
//! arrives, every resource says YES. Transactions that are under way together share frames and forces, as they do under
//! load.
//!
//! It cannot say what a transfer costs: transport, log and ledger are the larger part of that (`covenant bench`).

use std::collections::VecDeque;
use std::sync::Arc;

use covenant_rules::coordinator::{self, Archived, Effect, Event, Execute, Reply, SessionId};
use covenant_rules::participant::{self, Recovered};
use covenant_rules::{
    Coordinator, Fingerprint, Incarnation, Limits, Lineage, Lsn, Millis, Name, OutcomeKind, Participant,
    ToCoordinator, ToParticipant, TransactionId, UnixMillis, Vote, Wait,
};

/// The wall clock of the bench.
const START: UnixMillis = 1_800_000_000_000;

/// The bytes of an operation; a ledger's has about as many.
pub const OPERATION_BYTES: usize = 64;

struct Member {
    name: Name,
    session: SessionId,
    machine: Participant,
    /// On the way to it.
    down: Vec<ToParticipant>,
    /// On the way from it.
    up: Vec<ToCoordinator>,
}

/// A coordinator and participants that have joined it.
pub struct Machines {
    coordinator: Coordinator,
    members: Vec<Member>,
    now: Millis,
    appended: Lsn,
    durable: Lsn,
    /// Transactions executed so far.
    executed: u64,
    committed: u64,
    operation: Arc<[u8]>,
}

impl Machines {
    /// All of them on new logs, with so many participants, joined.
    ///
    /// # Panics
    /// If the coordinator does not serve afterwards.
    #[must_use]
    pub fn new(participants: usize) -> Self {
        let identity = coordinator::Identity {
            new_lineage: Lineage(1),
            bits: 7,
            started: START,
            archived: Archived::default(),
            tail_lost: None,
            quarantined: Vec::new(),
        };
        // The bench never ends: retention by number has no part in it.
        let limits = Limits {
            max_retained_outcomes: u64::MAX,
            max_in_progress_per_participant: Limits::DEFAULT.max_in_progress,
            ..Limits::DEFAULT
        };
        let (coordinator, effects) = Coordinator::recover(limits.clone(), identity, [], 0);
        let mut machines = Self {
            coordinator,
            members: (0..participants).map(|number| member(number, &limits)).collect(),
            now: 0,
            appended: 0,
            durable: 0,
            executed: 0,
            committed: 0,
            operation: Arc::from([5; OPERATION_BYTES]),
        };
        machines.perform(effects);
        machines.settle();
        assert!(machines.coordinator.is_serving());
        for number in 0..participants {
            machines.join(number);
        }
        machines.settle();
        machines
    }

    /// Runs so many transactions at once over the first `branches` participants, to their ends.
    ///
    /// # Panics
    /// If one did not commit, or is not finished.
    pub fn run(&mut self, transactions: usize, branches: usize) {
        let (committed, open) = (self.committed, self.coordinator.in_progress());
        for _ in 0..transactions {
            self.execute(0..branches);
        }
        self.settle();
        assert_eq!(self.committed - committed, transactions as u64);
        assert_eq!(self.coordinator.in_progress(), open);
    }

    /// Leaves so many transactions between the last participant and the one before it in doubt: they are decided, and
    /// both went away before they heard it.
    ///
    /// # Panics
    /// If they are not.
    pub fn leave_in_doubt(&mut self, transactions: usize) {
        let committed = self.committed;
        let away = self.members.len() - 2..self.members.len();
        for _ in 0..transactions {
            self.execute(away.clone());
        }
        self.force();
        for number in away.clone() {
            self.deliver_down(number);
            self.deliver_up(number);
        }
        self.force();
        for member in &mut self.members[away] {
            member.down.clear();
            let effects = self.coordinator.step(self.now, Event::Left(member.session));
            assert!(
                !effects.iter().any(|effect| matches!(effect, Effect::Send { .. })),
                "nobody is there"
            );
        }
        assert_eq!(self.committed - committed, transactions as u64);
        assert_eq!(self.coordinator.in_progress(), transactions);
    }

    fn execute(&mut self, members: std::ops::Range<usize>) {
        self.executed += 1;
        let request = self.executed;
        let mut fingerprint = [0; 16];
        fingerprint[..8].copy_from_slice(&request.to_be_bytes());
        let branches = self.members[members].iter();
        let execute = Execute {
            transaction_id: id(request),
            created: START,
            fingerprint: Fingerprint(fingerprint),
            branches: branches
                .map(|member| (member.name.clone(), Arc::clone(&self.operation)))
                .collect(),
            timeout_ms: Limits::DEFAULT.default_deadline_ms,
            wait: Wait::Decided,
        };
        self.step(Event::Execute {
            request,
            execute,
            known: None,
        });
    }

    fn step(&mut self, event: Event) {
        let effects = self.coordinator.step(self.now, event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Append { lsn, .. } => self.appended = lsn,
                Effect::Send { session, message } => {
                    let member = self.members.iter_mut().find(|member| member.session == session);
                    member.expect("a session of the bench").down.push(message);
                }
                Effect::Reply { reply, .. } => {
                    let Reply::Transaction(view) = reply else {
                        panic!("{reply:?}")
                    };
                    assert_eq!(view.outcome, OutcomeKind::Committed);
                    self.committed += 1;
                }
                Effect::Alarm(alarm) => panic!("{alarm:?}"),
                Effect::Welcome(_)
                | Effect::RefuseJoin(..)
                | Effect::Replaced(_)
                | Effect::Serving
                | Effect::Archive(_)
                | Effect::Expire(_)
                | Effect::Changed(_) => {}
            }
        }
    }

    fn join(&mut self, number: usize) {
        let (lineage, incarnation) = (self.coordinator.lineage(), self.coordinator.incarnation());
        let member = &mut self.members[number];
        let session = member.session;
        let dialed = member.machine.step(self.now, participant::Event::Dialed);
        let hello = dialed.into_iter().find_map(|effect| match effect {
            participant::Effect::Hello(hello) => Some(hello),
            _ => None,
        });
        let hello = hello.expect("who dials says HELLO");
        let effects = self.coordinator.step(self.now, Event::Joined { session, hello });
        assert!(effects.contains(&Effect::Welcome(session)), "{effects:?}");
        self.perform(effects);
        let welcomed = participant::Event::Welcomed { lineage, incarnation };
        let effects = self.members[number].machine.step(self.now, welcomed);
        self.members[number].perform(self.now, effects);
    }

    /// Forces and delivers until nothing is under way.
    fn settle(&mut self) {
        loop {
            let mut moved = self.force();
            for number in 0..self.members.len() {
                moved |= self.deliver_down(number);
                moved |= self.deliver_up(number);
            }
            if !moved {
                return;
            }
        }
    }

    fn force(&mut self) -> bool {
        let due = self.durable < self.appended;
        if due {
            self.durable = self.appended;
            self.step(Event::Durable(self.durable));
        }
        due
    }

    fn deliver_down(&mut self, number: usize) -> bool {
        let member = &mut self.members[number];
        if member.down.is_empty() {
            return false;
        }
        let frame = participant::Event::Frame {
            messages: std::mem::take(&mut member.down),
            floor: Some(self.coordinator.floor(&member.name)),
            position: self.coordinator.position(),
        };
        let effects = member.machine.step(self.now, frame);
        member.perform(self.now, effects);
        true
    }

    fn deliver_up(&mut self, number: usize) -> bool {
        let session = self.members[number].session;
        let messages = std::mem::take(&mut self.members[number].up);
        let due = !messages.is_empty();
        for message in messages {
            assert_eq!(
                self.coordinator.wants_archive(&message),
                None,
                "nothing comes late here"
            );
            self.step(Event::Message {
                session,
                message,
                known: None,
            });
        }
        due
    }
}

impl Member {
    /// What its resource completes at once; what it sends is collected.
    fn perform(&mut self, now: Millis, effects: Vec<participant::Effect>) {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            let completed = match effect {
                participant::Effect::Prepare(branch) => participant::Event::Prepared(branch.xid, Vote::Yes),
                participant::Effect::Commit(xid) => participant::Event::Committed(xid),
                participant::Effect::Send(message) => {
                    self.up.push(message);
                    continue;
                }
                participant::Effect::Floor { .. } => continue,
                other => panic!("{other:?}"),
            };
            effects.extend(self.machine.step(now, completed));
        }
    }
}

fn member(number: usize, limits: &Limits) -> Member {
    let name = Name::new(&format!("ledger-{number:02}")).expect("a name");
    let recovered = Recovered {
        identity: participant::Identity {
            lineage: Lineage(100 + number as u128),
            incarnation: Incarnation { counter: 1, bits: 9 },
        },
        floors: Vec::new(),
        positions: Vec::new(),
        branches: Vec::new(),
    };
    Member {
        session: number as SessionId + 1,
        machine: Participant::recover(limits.clone(), name.clone(), recovered),
        name,
        down: Vec::new(),
        up: Vec::new(),
    }
}

fn id(number: u64) -> TransactionId {
    TransactionId::new(&format!("transfer-{number:07}")).expect("an id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_commit_also_while_others_are_in_doubt() {
        let mut machines = Machines::new(4);
        machines.leave_in_doubt(100);
        machines.run(50, 2);
        assert_eq!(machines.committed, 150);
        let in_doubt: usize = (machines.members.iter())
            .map(|member| member.machine.in_doubt().count())
            .sum();
        assert_eq!(in_doubt, 200);
    }
}
