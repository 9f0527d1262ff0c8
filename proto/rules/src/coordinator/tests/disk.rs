//! The random world's disk: crashes, damage, restarts, and the repair after which everything must end.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::{Event, State};
use super::bench::recover;
use super::world::{Damage, NAMES, World, pick};
use super::{Archive, operator};
use crate::{Decision, Incarnation, Limits, Lsn, Outcome, Quarantined, Record, Xid};

/// The durable state as a checkpoint wrote it.
pub(super) struct Checkpoint {
    pub(super) records: Vec<Record>,
    pub(super) archive: Archive,
    pub(super) lsn: usize,
}

impl World {
    pub(super) fn crash(&mut self, keep: usize, damage: Damage, from_checkpoint: bool) {
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
    pub(super) fn damage(&mut self, damage: Damage) {
        let from = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.lsn);
        let decision = |at: &usize| matches!(&self.log[*at], Record::Commit(_) | Record::Abort(_));
        let decisions: Vec<usize> = (from..self.log.len()).filter(decision).collect();
        let (which, whole) = match damage {
            Damage::None => return,
            Damage::Payload(which) => (which, false),
            Damage::Whole(which) => (which, true),
        };
        let Some(at) = pick(decisions.iter(), which) else {
            return;
        };
        let shown = self.log[at].clone();
        self.truth.damaged.extend(shown.xid());
        self.truth.damage_unseen |= whole;
        self.log[at] = Record::Quarantined(Quarantined {
            xid: shown.xid().filter(|_| !whole),
            transaction_id: shown.transaction_id().cloned().filter(|_| !whole),
            bytes: Arc::from(*b"?"),
        });
    }

    pub(super) fn restart(&mut self, from_checkpoint: bool) {
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
        if self.log.contains(&Record::Incarnation(Incarnation {
            counter,
            bits: 0xb175_0000 + counter,
        })) {
            assert!(
                self.machine.incarnation().counter > counter,
                "S12: incarnations only rise"
            );
        }
        self.perform(effects);
    }

    /// The faults end: L1, then everything is repaired, joined and forgotten: L2, L3.
    pub(super) fn heal(&mut self) {
        self.force(0);
        self.pass(Limits::DEFAULT.max_deadline_ms);
        let preparing = self
            .machine
            .running_after(None)
            .any(|view| view.state == Some(State::Preparing));
        assert!(!preparing, "L1: it stays PREPARING");
        self.force(0);
        for who in 0..NAMES.len() {
            self.dial(who, 0);
        }
        self.flow();
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
        assert!(
            self.machine.fold().open.is_empty(),
            "L4: finished, and not archived"
        );
        for participant in &self.participants {
            assert_eq!(
                participant.prepared(),
                [],
                "L2: in doubt at {} for ever",
                participant.name
            );
        }
    }

    /// One lineage has its name for itself, joins, and both talk until they are quiet.
    pub(super) fn visit(&mut self, who: usize) {
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
    pub(super) fn operators_forget(&mut self) {
        let waiting: Vec<_> = self.machine.fold().heuristics.keys().cloned().collect();
        for (xid, participant) in waiting {
            let request = self.request();
            self.step(Event::Forget {
                request,
                xid,
                participant,
                by: operator(),
            });
        }
    }

    /// Operators decide what damage hides, by what is true, and clear SUSPECT.
    pub(super) fn operators_repair(&mut self) {
        self.crash(0, Damage::None, false);
        self.force(0);
        let hidden = self
            .truth
            .damaged
            .iter()
            .copied()
            .chain(self.truth.minted.keys().copied());
        let hidden: BTreeSet<Xid> = if self.truth.damage_unseen {
            hidden.collect()
        } else {
            self.truth.damaged.clone()
        };
        for xid in hidden {
            let commit = self.truth.commits.get(&xid);
            let voters = commit.into_iter().flat_map(Outcome::yes_voters);
            let voters = voters.map(|(_, lineage)| lineage).collect();
            let decision = commit.map_or(Decision::Abort, Outcome::decision);
            self.truth.resolved.insert(xid, decision);
            self.log.push(Record::Resolved {
                xid,
                decision,
                voters,
                by: operator(),
            });
        }
        self.log.push(Record::SuspectCleared(operator()));
        let all = self.log.len() - self.durable;
        self.crash(all, Damage::None, false);
        self.force(0);
    }
}
