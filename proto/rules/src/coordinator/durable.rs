//! What a durable record sets free. Nothing that depends on a record is sent or told anywhere else (S5).

use alloc::boxed::Box;

use super::{Coordinator, Effect, Reply, State, Timer, Transaction};
use crate::{Decision, Lsn, Name, Outcome, Record, Wait, Xid};

impl Coordinator {
    /// All records up to `lsn` are forced.
    pub(super) fn durable(&mut self, lsn: Lsn) {
        assert!(
            lsn <= self.appended,
            "durable {lsn} beyond the last append {}",
            self.appended
        );
        while let Some((next, _)) = self.pending.front() {
            if *next > lsn {
                break;
            }
            let Some((next, record)) = self.pending.pop_front() else {
                break;
            };
            self.durable = next;
            self.on_its_way.durable(&record);
            let finished = self.fold.apply(record.clone());
            self.release(record);
            if let Some(outcome) = finished {
                self.archive(outcome);
            }
        }
        self.durable = self.durable.max(lsn);
    }

    fn release(&mut self, record: Record) {
        match record {
            Record::Incarnation(incarnation) if incarnation == self.incarnation => self.serve(),
            Record::Commit(outcome) => self.commit_durable(&outcome),
            Record::Abort(outcome) => self.abort_durable(&outcome),
            Record::Heuristic {
                xid,
                participant,
                lineage,
                what,
                damage,
                ..
            } => {
                self.heuristic_durable(xid, &participant, lineage, what, damage);
            }
            Record::Forget { xid, participant, .. } => self.forget_durable(xid, &participant),
            Record::Suspect { .. } => self.suspecting = false,
            Record::Retained(since) => self.retained_durable(since),
            Record::Lineage { .. }
            | Record::Incarnation(_)
            | Record::Participant { .. }
            | Record::End(_)
            | Record::ForgetDone { .. }
            | Record::Resolved { .. }
            | Record::SuspectCleared(_)
            | Record::Quarantined(_) => {}
        }
    }

    /// C9: the outcome to those who wait for the decision, COMMIT to the YES voters.
    fn commit_durable(&mut self, outcome: &Outcome) {
        let xid = outcome.xid;
        let Some(transaction) = self.transactions.get_mut(&xid) else {
            return;
        };
        assert!(
            transaction.state == State::Deciding,
            "COMMIT durable in {:?}",
            transaction.state
        );
        transaction.state = State::Committing;
        let remembered = core::mem::take(&mut transaction.remembered);
        let (decided, completed) = core::mem::take(&mut transaction.callers)
            .into_iter()
            .partition(|(_, wait)| *wait == Wait::Decided);
        transaction.callers = completed;
        let decided: alloc::vec::Vec<_> = decided;
        if !decided.is_empty() {
            let view = Box::new(self.view(xid));
            for (request, _) in decided {
                self.reply(request, Reply::Transaction(view.clone()));
            }
        }
        self.send_commits(xid, None);
        self.judge(xid, Decision::Commit);
        for (participant, lineage, what) in remembered {
            self.report(&participant, lineage, xid, what, None);
        }
        self.find_hazards(xid);
        self.changed(xid);
        self.end_if_all_resolved(xid);
    }

    /// C8: now, and not before, callers hear ABORTED, or UNKNOWN of a duplicate.
    fn abort_durable(&mut self, outcome: &Outcome) {
        let xid = outcome.xid;
        self.judge(xid, Decision::Abort);
        let Some(mut transaction) = self.transactions.remove(&xid) else {
            return;
        };
        assert!(
            transaction.state == State::Aborting,
            "ABORT durable in {:?}",
            transaction.state
        );
        transaction.state = State::Aborted;
        self.stop_running(&transaction.transaction_id, xid);
        let callers = core::mem::take(&mut transaction.callers);
        let view = Box::new(self.view_of(xid, &transaction));
        for (request, _) in callers {
            self.reply(request, Reply::Transaction(view.clone()));
        }
        self.effects.push(Effect::Changed(transaction.transaction_id));
    }

    /// Replay is over and what it read is forced: unfinished work goes on (section 2).
    fn serve(&mut self) {
        self.serving = true;
        self.effects.push(Effect::Serving);
        self.timers
            .insert((self.now + self.limits.retention_check_ms, Timer::Retention));
        let open: alloc::vec::Vec<Xid> = self
            .fold
            .open
            .iter()
            .filter(|(_, open)| !open.ended)
            .map(|(xid, _)| *xid)
            .collect();
        for xid in open {
            let Some(open) = self.fold.open.get(&xid) else {
                continue;
            };
            let transaction =
                Transaction::committing(&open.outcome, |participant| open.resolved.contains(participant));
            for (participant, voter) in open.outcome.yes_voters() {
                if !open.resolved.contains(participant) && !self.decided_by_hand(xid, participant, voter) {
                    let known = self.participants.entry(participant.clone());
                    known.or_insert_with(|| super::Known::new(voter)).owed.insert(xid);
                }
            }
            self.running.insert(transaction.transaction_id.clone(), xid);
            self.transactions.insert(xid, transaction);
            self.find_hazards(xid);
            self.end_if_all_resolved(xid);
        }
        self.walk(super::forgetting::Walk::Start(None));
    }

    /// The voting lineages whose name is held by another one since (C12).
    pub(super) fn find_hazards(&mut self, xid: Xid) {
        let Some(transaction) = self.transactions.get(&xid) else {
            return;
        };
        let gone: alloc::vec::Vec<(Name, crate::Lineage)> = transaction
            .branches
            .iter()
            .filter(|branch| branch.voted_yes() && !branch.resolved)
            .filter_map(|branch| Some((branch.participant.clone(), branch.lineage?)))
            .filter(|(name, voter)| {
                self.participants
                    .get(name)
                    .is_some_and(|known| known.lineage != *voter)
            })
            .collect();
        for (participant, voter) in gone {
            self.hazard(xid, &participant, voter, super::AlarmCode::LineageChanged);
        }
    }
}
