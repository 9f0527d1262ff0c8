//! The ledger's crash points (section 9): which of them a journal's stage is, for whichever transactions.
//!
//! While a plan is armed, the kind and the transaction of every appended record are remembered by LSN until the
//! record is durable; the journal's probe then finds what an entry holds and ends the process where the plan says
//! so. Without a plan nothing is remembered and the journal has no probe.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use covenant_fault::{CrashPlan, CrashPoint, crash};
use covenant_journal::{Probe, Stage};
use covenant_proto::log::v1::LedgerRecordKind as Kind;
use covenant_rules::{Lsn, TransactionId};

/// An armed plan and what was appended under it.
pub(crate) struct Armed {
    plan: CrashPlan,
    appended: Mutex<BTreeMap<Lsn, (Kind, Option<TransactionId>)>>,
}

impl Armed {
    /// The plan, unless it is empty.
    pub(crate) fn new(plan: CrashPlan) -> Option<Arc<Self>> {
        (!plan.is_empty()).then(|| {
            Arc::new(Self {
                plan,
                appended: Mutex::default(),
            })
        })
    }

    /// Remembers a record that is about to be appended.
    pub(crate) fn note(&self, lsn: Lsn, kind: Kind, transaction_id: Option<TransactionId>) {
        self.appended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(lsn, (kind, transaction_id));
    }

    /// The hook for the journal.
    pub(crate) fn probe(self: &Arc<Self>) -> Probe {
        let armed = Arc::clone(self);
        Arc::new(move |stage, first, last| {
            if let Some(point) = armed.reached(stage, first, last) {
                crash(point);
            }
        })
    }

    /// The first crash point of the plan that this stage of these records is.
    fn reached(&self, stage: Stage, first: Lsn, last: Lsn) -> Option<CrashPoint> {
        let of_the_journal = match stage {
            Stage::StartSynced => Some(CrashPoint::PStartSynced),
            Stage::ReplayMid => Some(CrashPoint::PReplayMid),
            Stage::CheckpointMid => Some(CrashPoint::PCheckpointMid),
            Stage::Written | Stage::Forced => None,
        };
        if let Some(point) = of_the_journal {
            return self.plan.hit(point, None).then_some(point);
        }
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = appended
            .range(first..=last)
            .find_map(|(_, (kind, transaction_id))| {
                let point = point_of(stage, *kind)?;
                self.plan
                    .hit(point, transaction_id.as_ref().map(TransactionId::as_str))
                    .then_some(point)
            });
        if stage == Stage::Forced {
            *appended = appended.split_off(&(last + 1));
        }
        reached
    }
}

fn point_of(stage: Stage, kind: Kind) -> Option<CrashPoint> {
    match (stage, kind) {
        (Stage::Written, Kind::Prepared) => Some(CrashPoint::PPreparedAppended),
        (Stage::Forced, Kind::Prepared) => Some(CrashPoint::PPreparedForced),
        (Stage::Written, Kind::Committed) => Some(CrashPoint::PCommittedAppended),
        (Stage::Forced, Kind::Committed) => Some(CrashPoint::PCommittedForced),
        (Stage::Written, Kind::Aborted) => Some(CrashPoint::PAbortedAppended),
        (Stage::Forced, Kind::HeuristicCommit | Kind::HeuristicAbort) => Some(CrashPoint::PHeuristicForced),
        (Stage::Forced, Kind::Forgotten) => Some(CrashPoint::PForgottenForced),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn armed(plan: &str) -> Arc<Armed> {
        Armed::new(CrashPlan::parse([plan]).unwrap()).unwrap()
    }

    fn id(text: &str) -> Option<TransactionId> {
        Some(TransactionId::new(text).unwrap())
    }

    #[test]
    fn a_point_is_reached_by_its_stage_its_kind_and_its_transaction() {
        let armed = armed("p.prepared.forced:T2");
        armed.note(1, Kind::Prepared, id("T1"));
        armed.note(2, Kind::Committed, id("T2"));
        armed.note(3, Kind::Prepared, id("T2"));
        assert_eq!(armed.reached(Stage::Written, 1, 3), None);
        assert_eq!(armed.reached(Stage::Forced, 1, 2), None);
        assert_eq!(
            armed.reached(Stage::Forced, 3, 3),
            Some(CrashPoint::PPreparedForced)
        );
        assert!(armed.appended.lock().unwrap().is_empty());
    }

    #[test]
    fn every_point_of_the_resource_has_its_stage_and_record() {
        let appended = [
            ("p.prepared.appended", Stage::Written, Kind::Prepared),
            ("p.prepared.forced", Stage::Forced, Kind::Prepared),
            ("p.committed.appended", Stage::Written, Kind::Committed),
            ("p.committed.forced", Stage::Forced, Kind::Committed),
            ("p.aborted.appended", Stage::Written, Kind::Aborted),
            ("p.heuristic.forced", Stage::Forced, Kind::HeuristicCommit),
            ("p.heuristic.forced", Stage::Forced, Kind::HeuristicAbort),
            ("p.forgotten.forced", Stage::Forced, Kind::Forgotten),
            ("p.start.synced", Stage::StartSynced, Kind::Floor),
            ("p.replay.mid", Stage::ReplayMid, Kind::Floor),
            ("p.checkpoint.mid", Stage::CheckpointMid, Kind::Floor),
        ];
        for (point, stage, kind) in appended {
            let armed = armed(point);
            armed.note(1, kind, None);
            armed.note(2, Kind::Floor, None);
            let reached = armed.reached(stage, 1, 2).map(CrashPoint::name);
            assert_eq!(reached, Some(point), "{stage:?} {kind:?}");
        }
    }

    #[test]
    fn without_an_id_every_transaction_counts() {
        let armed = armed("p.aborted.appended");
        armed.note(7, Kind::Aborted, id("T1"));
        assert_eq!(
            armed.reached(Stage::Written, 5, 9),
            Some(CrashPoint::PAbortedAppended)
        );
        assert_eq!(armed.reached(Stage::CheckpointMid, 9, 9), None);
    }

    #[test]
    fn an_empty_plan_arms_nothing() {
        assert!(Armed::new(CrashPlan::default()).is_none());
    }
}
