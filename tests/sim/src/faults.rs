//! What goes wrong, and how it is put right again.

use covenant_fault::CrashPoint;
use covenant_ledger::simulated::Shown;
use covenant_rules::{Decision, Lineage, Operator, Record, ToCoordinator, ToParticipant, TransactionId, Xid};

use crate::node::{Micros, Node};
use crate::seen::Seen;
use crate::world::{Armed, Death, Happening, World};

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
            Fault::DamageBranch(who, which) => self.damage_branch(who, which),
        }
    }

    /// Ends a node's process in this way; nothing brings it back by itself.
    pub fn kill(&mut self, node: Node, death: Death) {
        if self.running(node).is_some() {
            self.die(node, death);
        }
    }

    /// The same for a process that may only just be starting.
    pub(crate) fn die(&mut self, node: Node, death: Death) {
        let process = self.running(node);
        self.trace.line(node, &|| format!("dies: {death:?}"));
        match node {
            Node::Coordinator => self.coordinator.process = None,
            Node::Participant(who) => self.participants[who].process = None,
        }
        self.see(&Seen::Died(node));
        let (keep, power) = match death {
            Death::Process => (usize::MAX, false),
            Death::ProcessTorn(keep) => (keep, false),
            Death::Power => (0, true),
            Death::PowerTorn(keep) => (keep, true),
        };
        self.take_back(node, keep, power);
        let Some(process) = process else {
            return;
        };
        self.drop_ends(node, process);
        if node == Node::Coordinator {
            self.break_calls();
        }
    }

    /// What a death does to the disk: what is not kept is gone, and what the platter kept is durable.
    fn take_back(&mut self, node: Node, keep: usize, power: bool) {
        match node {
            Node::Coordinator => {
                let disk = &mut self.coordinator.disk;
                let before = disk.forced;
                let lost = if power {
                    disk.power_lost(keep)
                } else {
                    disk.process_died(keep)
                };
                for (_, record) in lost.iter().rev() {
                    self.sometimes.lost(record);
                    self.see(&Seen::Lost(record));
                }
                self.sometimes.found(before, &self.coordinator.disk);
                self.show_durable(node, before);
            }
            Node::Participant(who) => {
                let lineage = self.disk_lineage(who);
                let disk = &mut self.participants[who].disk;
                let before = disk.forced;
                let lost = if power {
                    disk.power_lost(keep)
                } else {
                    disk.process_died(keep)
                };
                for (_, record) in lost.iter().rev() {
                    if let Some(lineage) = lineage {
                        self.see(&Seen::Unwrote { lineage, record });
                    }
                }
                self.show_durable(node, before);
            }
        }
    }

    /// Shows the records behind `before` that are durable by now, without a process that forced them.
    pub(crate) fn show_durable(&mut self, node: Node, before: covenant_rules::Lsn) {
        match node {
            Node::Coordinator => {
                for lsn in before + 1..=self.coordinator.disk.forced {
                    if let Some(record) = self.coordinator.disk.get(lsn).cloned() {
                        self.see(&Seen::Forced(&record));
                    }
                }
            }
            Node::Participant(who) => {
                let Some(lineage) = self.disk_lineage(who) else {
                    return;
                };
                for lsn in before + 1..=self.participants[who].disk.forced {
                    if let Some(record) = self.participants[who].disk.get(lsn).cloned() {
                        let record = &record;
                        self.see(&Seen::WroteDurably { who, lineage, record });
                    }
                }
            }
        }
    }

    /// Which log the disk of a participant holds.
    pub(crate) fn disk_lineage(&self, who: usize) -> Option<Lineage> {
        let own = &self.participants[who];
        own.checkpoint
            .records()
            .chain(&own.disk.records)
            .find_map(|record| match record.shown() {
                Shown::Lineage(lineage) => Some(lineage),
                _ => None,
            })
    }

    /// The power of a node goes, whether its process runs or has died before and left records in the page cache.
    pub fn lose_power(&mut self, node: Node, keep: usize) {
        if self.running(node).is_some() {
            return self.kill(node, Death::PowerTorn(keep));
        }
        self.trace.line(node, &|| "loses what was not forced".to_owned());
        self.take_back(node, keep, true);
    }

    /// Makes durable what a node's disk holds.
    pub(crate) fn sync(&mut self, node: Node) {
        let before = match node {
            Node::Coordinator => {
                let all = self.coordinator.disk.appended();
                std::mem::replace(&mut self.coordinator.disk.forced, all)
            }
            Node::Participant(who) => {
                let disk = &mut self.participants[who].disk;
                let all = disk.appended();
                std::mem::replace(&mut disk.forced, all)
            }
        };
        self.show_durable(node, before);
    }

    /// Starts a node that does not run.
    pub fn restart(&mut self, node: Node) {
        if self.running(node).is_some() {
            return;
        }
        match node {
            Node::Coordinator => self.start_coordinator(),
            Node::Participant(who) => self.start_participant(who),
        }
    }

    /// A force failed: its result is unknown, the process ends at once, and the next start decides.
    pub(crate) fn force_failed(&mut self, node: Node) {
        self.trace.line(node, &|| "a force fails".to_owned());
        self.see(&Seen::ForceFailed(node));
        let keep = self.rng.usize(0..4);
        self.kill(node, Death::PowerTorn(keep));
        let down = self.between((1_000, 1_000_000));
        self.after(down, Happening::Restart(node));
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
                "gets again: {}",
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
        let minted: Vec<Xid> = self.history.minted.keys().copied().collect();
        let Some(mut xid) = minted.get(which % minted.len().max(1)).copied() else {
            return;
        };
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
        for xid in hidden {
            let commits = self.history.commits.contains_key(&xid);
            let decision = if commits {
                Decision::Commit
            } else {
                Decision::Abort
            };
            let record = Record::Resolved {
                xid,
                decision,
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

    /// The named point of the next such moment kills this node in this way; with an id, of that transaction only.
    pub fn crash_at(&mut self, node: Node, point: CrashPoint, id: Option<&TransactionId>, death: Death) {
        self.armed.push(Armed {
            point,
            node,
            transaction_id: id.cloned(),
            death,
            down_us: None,
        });
    }

    /// The crash point that was reached last, and where.
    #[must_use]
    pub fn crashed_at(&self) -> Option<(CrashPoint, Node)> {
        self.crashed_at
    }
}
