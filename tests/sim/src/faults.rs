//! What goes wrong, and how it is put right again.

use covenant_fault::CrashPoint;
use covenant_ledger::simulated::Shown;
use covenant_rules::{Decision, Lineage, Operator, Outcome, Record, ToCoordinator, ToParticipant, Xid};

use crate::node::{Micros, Node};
use crate::seen::Seen;
use crate::setup::Death;
use crate::world::{Armed, Happening, World};

/// Something that goes wrong at its time; small numbers choose among what there is then.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A node dies and comes back.
    Crash {
        /// Which.
        node: Node,
        /// How.
        death: Death,
        /// For how long it is gone.
        down_us: Micros,
    },
    /// The next crash point of this name at this node is where it dies.
    CrashAt {
        /// Where.
        point: CrashPoint,
        /// Which.
        node: Node,
        /// How.
        death: Death,
        /// For how long it is gone.
        down_us: Micros,
    },
    /// The power of a node goes, whether its process runs or not.
    PowerLoss {
        /// Which.
        node: Node,
        /// How many records behind the forced ones reached the platter.
        keep: usize,
        /// For how long it is gone.
        down_us: Micros,
    },
    /// A connection breaks.
    Cut {
        /// Whose.
        who: usize,
        /// Whether what was on its way up and down is lost.
        loses: (bool, bool),
        /// Whether the coordinator notices only by its keep-alive.
        half_open: bool,
    },
    /// One direction is held back for so long.
    Partition {
        /// Whose.
        who: usize,
        /// Which direction.
        towards_coordinator: bool,
        /// For how long.
        for_us: Micros,
    },
    /// The end of a partition.
    Rejoin(usize, bool),
    /// The keep-alive of a participant's session runs out, if it is cut off.
    KeepAlive(usize),
    /// The next force of this node fails.
    FailForce(Node),
    /// The next force of this node takes so much longer.
    SlowForce(Node, Micros),
    /// The wall clock of a node jumps by so many milliseconds.
    ClockJump(Node, i64),
    /// Something that a participant was sent before arrives once more.
    Again(usize, usize),
    /// A participant asks for an attempt that it need not know, of this log or another.
    Asks(usize, usize),
    /// An operator decides a branch in doubt.
    ByHand(usize, usize, Decision),
    /// A checkpoint.
    Checkpoint(Node),
    /// A participant's disk is replaced by an empty one.
    NewDisk(usize),
    /// The coordinator's disk is replaced by an empty one.
    WipeCoordinator,
    /// A decision record of the coordinator stops to decode; with `hidden` not even its attempt shows.
    Damage {
        /// Which one.
        which: usize,
        /// Whether its envelope is damaged too.
        hidden: bool,
    },
    /// An operator decides what damaged records hide; without such a fault he waits for the end of all others.
    Resolve,
    /// A COMMITTED, ABORTED or FORGOTTEN record of a participant stops to decode; its envelope shows what it did.
    DamageBranch(usize, usize),
}

/// Who decides by hand here.
#[must_use]
pub fn operator() -> Operator {
    Operator {
        who: "ops".into(),
        why: "simulated".into(),
    }
}

impl World {
    /// Lets something go wrong now.
    pub fn fault(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        match fault {
            Fault::Crash { node, death, down_us } => {
                self.kill(node, death);
                self.after(down_us, Happening::Restart(node));
            }
            Fault::CrashAt {
                point,
                node,
                death,
                down_us,
            } => self.armed.push(Armed {
                point,
                node,
                transaction_id: None,
                death,
                down_us: Some(down_us),
            }),
            Fault::PowerLoss { node, keep, down_us } => {
                self.lose_power(node, keep);
                self.after(down_us, Happening::Restart(node));
            }
            Fault::Cut {
                who,
                loses,
                half_open,
            } => {
                self.see(&Seen::Fault);
                self.cut(who, loses.0, loses.1, half_open);
            }
            Fault::Partition {
                who,
                towards_coordinator,
                for_us,
            } => {
                self.see(&Seen::Fault);
                self.partition(who, towards_coordinator);
                self.after(for_us, Happening::Fault(Fault::Rejoin(who, towards_coordinator)));
                let keep_alive = self.setup.timing.keep_alive_us;
                self.after(keep_alive, Happening::Fault(Fault::KeepAlive(who)));
            }
            Fault::Rejoin(who, towards_coordinator) => self.rejoin(who, towards_coordinator),
            Fault::KeepAlive(who) => self.keep_alive(who),
            Fault::FailForce(Node::Coordinator) => self.coordinator.fail_force = true,
            Fault::FailForce(Node::Participant(who)) => self.participants[who].fail_force = true,
            Fault::SlowForce(Node::Coordinator, us) => self.coordinator.slow_force_us = us,
            Fault::SlowForce(Node::Participant(who), us) => self.participants[who].slow_force_us = us,
            Fault::ClockJump(node, ms) => self.jump(node, ms),
            Fault::Again(who, which) => self.again(who, which),
            Fault::Asks(who, which) => self.asks(who, which),
            Fault::ByHand(who, which, what) => self.by_hand(who, which, what),
            Fault::Checkpoint(node) => self.checkpoint(node),
            Fault::NewDisk(who) => self.new_disk(who),
            Fault::WipeCoordinator => self.wipe_coordinator(),
            Fault::Damage { which, hidden } => self.damage(which, hidden),
            Fault::Resolve => self.resolve_damage(),
            Fault::DamageBranch(who, which) => self.damage_branch(who, which),
        }
    }

    fn jump(&mut self, node: Node, ms: i64) {
        self.see(&Seen::Fault);
        self.trace
            .line(node, &|| format!("its wall clock jumps by {ms} ms"));
        match node {
            Node::Coordinator => self.coordinator.clock.wall_error_ms += ms,
            Node::Participant(who) => self.participants[who].clock.wall_error_ms += ms,
        }
    }

    /// A late copy of what a participant was sent arrives in the session that it believes in.
    fn again(&mut self, who: usize, which: usize) {
        let received = &self.participants[who].received;
        let Some(message) = received.get(which % received.len().max(1)).cloned() else {
            return;
        };
        self.repeat(who, message);
    }

    /// Something reaches a participant that the coordinator did not just send.
    pub fn repeat(&mut self, who: usize, message: ToParticipant) {
        let Some(lineage) = self.lineage_of(who) else {
            return;
        };
        self.see(&Seen::Fault);
        self.trace.line(Node::Participant(who), &|| {
            format!(
                "gets besides: {}",
                crate::show::to_participant(&message, &self.history)
            )
        });
        self.see(&Seen::Received {
            who,
            lineage,
            message: &message,
        });
        self.participant_step(
            who,
            covenant_rules::participant::Event::Frame {
                messages: vec![message],
                floor: None,
                position: 0,
            },
        );
    }

    /// An inquiry that no branch of this participant has cause for.
    fn asks(&mut self, who: usize, which: usize) {
        let resolved = &self.history.resolved;
        let minted: Vec<Xid> = if resolved.is_empty() {
            self.history.minted.keys().copied().collect()
        } else {
            resolved.keys().copied().collect()
        };
        let Some(mut xid) = minted.get(which % minted.len().max(1)).copied() else {
            return;
        };
        // Who acknowledged COMMIT or FORGET never asks again, and its outcome may have expired since.
        let own = self.lineage_of(who).and_then(|own| self.history.branch(xid, own));
        if own.is_some_and(|branch| branch.committed_durably || branch.forgotten_durably) {
            return;
        }
        match which / 64 % 8 {
            0 => xid.lineage = Lineage(0xF0),
            1 => xid.seq += 1_000,
            2 => xid.incarnation.bits ^= 1,
            3 => xid.incarnation.counter += 100,
            _ => {}
        }
        let Some(session) = self.participants[who]
            .process
            .as_ref()
            .and_then(|process| process.session)
        else {
            return;
        };
        let inquiry = ToCoordinator::Inquire(xid);
        self.see(&Seen::Fault);
        self.trace.line(Node::Participant(who), &|| {
            format!("asks: {}", crate::show::to_coordinator(&inquiry, &self.history))
        });
        self.send_up(session, crate::network::Up::Frame(vec![inquiry]));
    }

    fn by_hand(&mut self, who: usize, which: usize, what: Decision) {
        let Some(machine) = self.participant(who) else {
            return;
        };
        let in_doubt: Vec<Xid> = machine.in_doubt().map(|doubt| doubt.xid).collect();
        if let Some(xid) = in_doubt.get(which % in_doubt.len().max(1)) {
            self.resolve(who, *xid, what);
        }
    }

    /// Begins a checkpoint at a node.
    pub fn checkpoint(&mut self, node: Node) {
        match node {
            Node::Coordinator => self.checkpoint_coordinator(),
            Node::Participant(who) => self.checkpoint_participant(who),
        }
    }

    pub(crate) fn checkpointed(&mut self, node: Node) {
        match node {
            Node::Coordinator => self.coordinator_checkpointed(),
            Node::Participant(who) => self.participant_checkpointed(who),
        }
    }

    /// A participant comes back with an empty disk.
    pub fn new_disk(&mut self, who: usize) {
        let node = Node::Participant(who);
        self.kill(node, Death::Process);
        self.trace
            .line(node, &|| "its disk is lost; it gets an empty one".to_owned());
        self.see(&Seen::DiskLost(node));
        self.participants[who].disk = crate::disk::Disk::default();
        self.participants[who].checkpoint = covenant_ledger::simulated::Checkpoint::default();
        self.participants[who].received.clear();
        self.after(5_000, Happening::Restart(node));
    }

    /// The coordinator comes back with an empty disk.
    pub fn wipe_coordinator(&mut self) {
        let node = Node::Coordinator;
        self.kill(node, Death::Process);
        self.trace
            .line(node, &|| "its disk is lost; it gets an empty one".to_owned());
        self.see(&Seen::DiskLost(node));
        self.coordinator.disk = crate::disk::Disk::default();
        self.coordinator.checkpoint = crate::coordinator::Checkpoint::default();
        self.after(5_000, Happening::Restart(node));
    }

    /// A durable decision above the checkpoint stops to decode; the coordinator starts again on it.
    fn damage(&mut self, which: usize, hidden: bool) {
        let disk = &self.coordinator.disk;
        let decision = |at: &usize| matches!(disk.records[*at], Record::Commit(_) | Record::Abort(_));
        let decisions: Vec<usize> = (0..disk.durable().len()).filter(decision).collect();
        let Some(at) = decisions.get(which % decisions.len().max(1)).copied() else {
            return;
        };
        self.kill(Node::Coordinator, Death::Process);
        let record = self.coordinator.disk.records[at].clone();
        let Some(xid) = record.xid() else {
            return;
        };
        self.trace.line(Node::Coordinator, &|| {
            format!(
                "what was {} does not decode",
                crate::show::record(&record, record.transaction_id())
            )
        });
        self.see(&Seen::Damaged { xid, shows: !hidden });
        self.coordinator.disk.records[at] = Record::Quarantined(covenant_rules::Quarantined {
            xid: Some(xid).filter(|_| !hidden),
            transaction_id: record.transaction_id().cloned().filter(|_| !hidden),
            bytes: (*b"?").into(),
        });
        self.after(5_000, Happening::Restart(Node::Coordinator));
    }

    fn damage_branch(&mut self, who: usize, which: usize) {
        let disk = &self.participants[who].disk;
        let ends = |at: &usize| {
            let shown = disk.records[*at].shown();
            matches!(
                shown,
                Shown::Committed(..) | Shown::Aborted(_) | Shown::Forgotten(_)
            )
        };
        let all: Vec<usize> = (0..disk.durable().len()).filter(ends).collect();
        let Some(at) = all.get(which % all.len().max(1)).copied() else {
            return;
        };
        let node = Node::Participant(who);
        self.kill(node, Death::Process);
        self.see(&Seen::Fault);
        self.trace.line(node, &|| {
            "one of its records does not decode, but for its envelope".to_owned()
        });
        let damaged = self.participants[who].disk.records[at].damaged();
        self.participants[who].disk.records[at] = damaged;
        self.after(5_000, Happening::Restart(node));
    }

    /// An operator decides what damaged records hide, by what is true (RESOLVED), with the coordinator stopped.
    pub fn resolve_damage(&mut self) {
        let hidden: Vec<Xid> = if self.history.damage_hides {
            self.history.minted.keys().copied().collect()
        } else {
            self.history.damaged.iter().copied().collect()
        };
        if hidden.is_empty() {
            return;
        }
        self.kill(Node::Coordinator, Death::Process);
        // What it found in its log is true before it decides.
        self.sync(Node::Coordinator);
        for xid in hidden {
            let commit = self.history.commits.get(&xid);
            let voters = commit.into_iter().flat_map(Outcome::yes_voters);
            let record = Record::Resolved {
                xid,
                decision: commit.map_or(Decision::Abort, Outcome::decision),
                voters: voters.map(|(_, lineage)| lineage).collect(),
                by: operator(),
            };
            self.coordinator.disk.append(record.clone());
            self.trace.line(Node::Coordinator, &|| {
                format!(
                    "an operator writes {}",
                    crate::show::record(&record, self.history.minted.get(&xid))
                )
            });
        }
        self.sync(Node::Coordinator);
        self.restart(Node::Coordinator);
    }
}
