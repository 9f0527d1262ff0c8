//! How nodes die and come back, and what that does to their disks.

use covenant_fault::CrashPoint;
use covenant_ledger::simulated::Shown;
use covenant_rules::{Lineage, Lsn, TransactionId};

use crate::node::Node;
use crate::seen::Seen;
use crate::setup::Death;
use crate::world::{Armed, Happening, World};

impl World {
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
                    let id = self.id_of(record);
                    self.trace.line(node, &|| {
                        format!("loses {}", crate::show::record(record, id.as_ref()))
                    });
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
                    self.trace.line(node, &|| {
                        format!("loses {}", crate::show::stored(record, &self.history))
                    });
                    if let Some(lineage) = lineage {
                        self.see(&Seen::Unwrote { lineage, record });
                    }
                }
                self.show_durable(node, before);
            }
        }
    }

    /// Shows the records behind `before` that are durable by now, without a process that forced them.
    pub(crate) fn show_durable(&mut self, node: Node, before: Lsn) {
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

    /// The last records of a participant's disk are gone, though they were forced: the disk is an older copy of itself.
    pub fn lose_tail(&mut self, who: usize, records: Lsn) {
        let node = Node::Participant(who);
        self.kill(node, Death::Process);
        self.see(&Seen::Fault);
        self.trace
            .line(node, &|| "its disk is replaced by an older copy".to_owned());
        let disk = &mut self.participants[who].disk;
        disk.forced = disk.forced.saturating_sub(records).max(disk.base);
        self.take_back(node, 0, true);
    }

    /// A start opens the log: what a death left in the page cache becomes durable before it is read.
    pub(crate) fn open_log(&mut self, node: Node) {
        self.trace.line(node, &|| "opens its log".to_owned());
        if !self.setup.sync_at_start {
            return;
        }
        let found: Vec<String> = match node {
            Node::Coordinator => {
                let disk = &self.coordinator.disk;
                let found = (disk.forced + 1..=disk.appended()).filter_map(|lsn| disk.get(lsn));
                let shown = |record| crate::show::record(record, self.id_of(record).as_ref());
                found.map(shown).collect()
            }
            Node::Participant(who) => {
                let disk = &self.participants[who].disk;
                let found = (disk.forced + 1..=disk.appended()).filter_map(|lsn| disk.get(lsn));
                found
                    .map(|record| crate::show::stored(record, &self.history))
                    .collect()
            }
        };
        for record in found {
            self.trace.line(node, &|| format!("syncs {record}"));
        }
        self.sync(node);
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
