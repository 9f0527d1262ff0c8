//! The coordinator's crash points (section 9): where `--crash-at` ends the process.
//!
//! Points of a record (`appended`, `forced`) are hit on the journal's own thread, between its write, its force
//! and the news of it. Points of a message (`sent_some`) wait until the frame has left through the socket.
//! Without a plan all of it costs one test for emptiness.

use std::sync::{Arc, Mutex, PoisonError};

use covenant_fault::{CrashPlan, CrashPoint, Side, crash};
use covenant_journal::{Probe, Stage};
use covenant_rules::{Lsn, Record, ToParticipant};

use crate::Error;

/// The plan, and the records whose points are armed.
#[derive(Clone, Default)]
pub(crate) struct Crash {
    plan: CrashPlan,
    records: Arc<Mutex<Vec<(Lsn, Stage, CrashPoint)>>>,
}

impl Crash {
    /// Takes a plan of the coordinator's points.
    ///
    /// # Errors
    /// A point that this process never reaches: it would make a test prove nothing.
    pub(crate) fn new(plan: CrashPlan) -> Result<Self, Error> {
        Ok(Self {
            plan: plan.of_side(Side::Coordinator)?,
            records: Arc::default(),
        })
    }

    pub(crate) fn is_planned(&self) -> bool {
        !self.plan.is_empty()
    }

    /// Ends the process if this point is planned.
    pub(crate) fn at(&self, point: CrashPoint, transaction_id: Option<&str>) {
        if !self.plan.is_empty() && self.plan.hit(point, transaction_id) {
            crash(point);
        }
    }

    /// Arms the points of a record that is about to be handed to the journal.
    pub(crate) fn arm(&self, lsn: Lsn, record: &Record, transaction_id: Option<&str>) {
        let (appended, forced) = points(record);
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for (stage, point) in [(Stage::Written, appended), (Stage::Forced, forced)] {
            if let Some(point) = point.filter(|point| self.plan.hit(*point, transaction_id)) {
                records.push((lsn, stage, point));
            }
        }
    }

    /// The sent point of a message, if it is planned.
    pub(crate) fn sent_point(
        &self,
        message: &ToParticipant,
        transaction_id: Option<&str>,
    ) -> Option<CrashPoint> {
        let point = match message {
            ToParticipant::Prepare { .. } => CrashPoint::CPrepareSentSome,
            ToParticipant::Commit(_) => CrashPoint::CCommitSentSome,
            ToParticipant::Abort(_) => CrashPoint::CAbortSentSome,
            ToParticipant::Pending(_)
            | ToParticipant::Unknown(_)
            | ToParticipant::ReportRecorded(_)
            | ToParticipant::Forget(_) => return None,
        };
        self.plan.hit(point, transaction_id).then_some(point)
    }

    /// The hook for the journal.
    pub(crate) fn probe(&self) -> Option<Probe> {
        if self.plan.is_empty() {
            return None;
        }
        let this = self.clone();
        Some(Arc::new(move |stage, first, last| match stage {
            Stage::StartSynced => this.at(CrashPoint::CStartSynced, None),
            Stage::ReplayMid => this.at(CrashPoint::CReplayMid, None),
            Stage::CheckpointMid => this.at(CrashPoint::CCheckpointMid, None),
            Stage::Written | Stage::Forced => {
                let records = this.records.lock().unwrap_or_else(PoisonError::into_inner);
                let reached = records
                    .iter()
                    .find(|(lsn, at, _)| *at == stage && (first..=last).contains(lsn));
                if let Some((_, _, point)) = reached {
                    crash(*point);
                }
            }
        }))
    }
}

/// The points after the record is in the file, and after it is forced.
fn points(record: &Record) -> (Option<CrashPoint>, Option<CrashPoint>) {
    match record {
        Record::Commit(_) => (Some(CrashPoint::CCommitAppended), Some(CrashPoint::CCommitForced)),
        Record::Abort(_) => (Some(CrashPoint::CAbortAppended), Some(CrashPoint::CAbortForced)),
        Record::End(_) => (Some(CrashPoint::CEndAppended), None),
        Record::Heuristic { .. } => (None, Some(CrashPoint::CHeuristicForced)),
        Record::Forget { .. } => (None, Some(CrashPoint::CForgetForced)),
        Record::Retained(_) => (None, Some(CrashPoint::CRetainedForced)),
        Record::Lineage { .. }
        | Record::Incarnation(_)
        | Record::Participant { .. }
        | Record::ForgetDone { .. }
        | Record::Resolved { .. }
        | Record::Suspect { .. }
        | Record::SuspectCleared(_)
        | Record::Quarantined(_) => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_takes_the_points_of_a_coordinator_and_no_others() {
        for point in CrashPoint::ALL {
            let taken = Crash::new(CrashPlan::parse([point.name()]).unwrap());
            assert_eq!(taken.is_ok(), point.name().starts_with("c."), "{point}");
        }
        let mixed = CrashPlan::parse(["c.votes.all", "p.vote.sent:T1"]).unwrap();
        let refused = Crash::new(mixed).err().unwrap().to_string();
        assert!(refused.contains("p.vote.sent"), "{refused}");
        assert!(Crash::new(CrashPlan::default()).is_ok());
    }
}
