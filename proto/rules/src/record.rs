//! What the coordinator's log stores (section 2), as plain values.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{
    AbortReason, Decision, Fingerprint, Heuristic, Incarnation, Lineage, Name, TransactionId, UnixMillis,
    Vote, Xid,
};

/// Who decided something by hand, and why.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Operator {
    /// The actor's identity; at most 256 bytes.
    pub who: Arc<str>,
    /// The reason given; at most 1024 bytes.
    pub why: Arc<str>,
}

/// One branch as a decision record knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BranchRecord {
    /// Whose branch.
    pub participant: Name,
    /// The lineage that was asked, if it was.
    pub lineage: Option<Lineage>,
    /// The counted vote, if there was one.
    pub vote: Option<Vote>,
    /// What was decided by hand at the branch and is forgotten since; never `Mixed`.
    pub forgotten: Option<Heuristic>,
}

/// A decided attempt: the content of COMMIT and ABORT records and of retained outcomes.
///
/// The specification asks a COMMIT for its YES voters only; the others stand here too, so that an outcome can
/// be shown with all its branches after a restart. Only YES voters are ever sent a COMMIT.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// What was asked; `None` for a fence, which matches everything.
    pub fingerprint: Option<Fingerprint>,
    /// The caller's first time for the id.
    pub created: UnixMillis,
    /// When the coordinator decided; never runs backwards within a log.
    pub decided: UnixMillis,
    /// `None`: COMMIT. `Some`: ABORT, and why.
    pub aborted: Option<AbortReason>,
    /// All branches, sorted by participant.
    pub branches: Vec<BranchRecord>,
    /// What was decided by hand beside it, of all branches.
    pub heuristic: Option<Heuristic>,
}

impl Outcome {
    /// COMMIT or ABORT.
    #[must_use]
    pub fn decision(&self) -> Decision {
        if self.aborted.is_some() {
            Decision::Abort
        } else {
            Decision::Commit
        }
    }

    /// The YES voters with their lineages: whom a COMMIT names (Q1).
    pub fn yes_voters(&self) -> impl Iterator<Item = (&Name, Lineage)> {
        self.branches
            .iter()
            .filter_map(|branch| match (&branch.vote, branch.lineage) {
                (Some(Vote::Yes), Some(lineage)) => Some((&branch.participant, lineage)),
                (Some(Vote::Yes | Vote::No(_) | Vote::ReadOnly) | None, _) => None,
            })
    }

    /// Whether it is a COMMIT that names this lineage as YES voter (Q1).
    #[must_use]
    pub fn commits(&self, lineage: Lineage) -> bool {
        self.aborted.is_none() && self.yes_voters().any(|(_, voter)| voter == lineage)
    }

    /// The time by which retention goes: max(created, decided) (section 6).
    #[must_use]
    pub fn retained_by(&self) -> UnixMillis {
        self.created.max(self.decided)
    }
}

/// A stored record that did not decode: kept, shown, and in the way of presumption (Q5, R3).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Quarantined {
    /// The attempt, if the envelope still shows it.
    pub xid: Option<Xid>,
    /// The caller's id, if the envelope still shows it.
    pub transaction_id: Option<TransactionId>,
    /// The bytes as they were found.
    pub bytes: Arc<[u8]>,
}

/// One record of the coordinator's log (section 2).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    /// **Forced.** The log's birth.
    Lineage {
        /// This log.
        lineage: Lineage,
        /// 5 s before the making, for clocks that lag.
        birth: UnixMillis,
        /// Lineages whose records this log continues (a restore).
        former: Vec<Lineage>,
    },
    /// **Forced.** One start.
    Incarnation(Incarnation),
    /// Lazy. A name is now held by this lineage.
    Participant {
        /// The name.
        name: Name,
        /// Its lineage from here on.
        lineage: Lineage,
    },
    /// **Forced** before anything says so: COMMIT (C6).
    Commit(Outcome),
    /// Appended with a force at once (C4): ABORT.
    Abort(Outcome),
    /// Lazy. Every YES voter is resolved (C10).
    End(Xid),
    /// **Forced.** A branch was decided by hand, or its state was lost (C12, C13).
    Heuristic {
        /// The attempt.
        xid: Xid,
        /// Whose branch.
        participant: Name,
        /// The reporting lineage.
        lineage: Lineage,
        /// `Commit`, `Abort` or `Hazard`.
        what: Heuristic,
        /// Whether it differs from the decision; `None` until that is durable or can be presumed.
        damage: Option<bool>,
        /// The outcome, if it had been archived before: the transaction is not finished any more.
        outcome: Option<Outcome>,
    },
    /// **Forced.** The heuristic of a branch may be forgotten.
    Forget {
        /// The attempt.
        xid: Xid,
        /// Whose branch.
        participant: Name,
        /// Who said so; `None` when there was no damage.
        by: Option<Operator>,
    },
    /// Lazy. The branch acknowledged FORGET, or a hazard was cleared by a late ACK.
    ForgetDone {
        /// The attempt.
        xid: Xid,
        /// Whose branch.
        participant: Name,
    },
    /// **Forced.** An operator's decision over a quarantined record (Q1, Q3).
    Resolved {
        /// The attempt.
        xid: Xid,
        /// What participants are answered from here on.
        decision: Decision,
        /// With COMMIT: the lineages of the branches that it commits, and no other one is answered COMMIT.
        voters: Vec<Lineage>,
        /// Who and why.
        by: Operator,
    },
    /// **Forced** before an outcome below it goes (section 6).
    Retained(UnixMillis),
    /// **Forced.** A position beyond this log's end is known: its tail was lost (section 5).
    Suspect {
        /// Who knows it; `None`: the data directory itself, beside the log.
        participant: Option<Name>,
        /// The position.
        position: u64,
    },
    /// **Forced.** An operator cleared SUSPECT.
    SuspectCleared(Operator),
    /// Only in checkpoints: bytes that did not decode are carried on.
    Quarantined(Quarantined),
}

impl Record {
    /// The attempt a record is about, for its envelope.
    #[must_use]
    pub fn xid(&self) -> Option<Xid> {
        match self {
            Self::Commit(outcome) | Self::Abort(outcome) => Some(outcome.xid),
            Self::End(xid)
            | Self::Heuristic { xid, .. }
            | Self::Forget { xid, .. }
            | Self::ForgetDone { xid, .. }
            | Self::Resolved { xid, .. } => Some(*xid),
            Self::Quarantined(quarantined) => quarantined.xid,
            Self::Lineage { .. }
            | Self::Incarnation(_)
            | Self::Participant { .. }
            | Self::Retained(_)
            | Self::Suspect { .. }
            | Self::SuspectCleared(_) => None,
        }
    }

    /// The caller's id a record is about, for its envelope.
    #[must_use]
    pub fn transaction_id(&self) -> Option<&TransactionId> {
        match self {
            Self::Commit(outcome) | Self::Abort(outcome) => Some(&outcome.transaction_id),
            Self::Heuristic { outcome, .. } => outcome.as_ref().map(|outcome| &outcome.transaction_id),
            Self::Quarantined(quarantined) => quarantined.transaction_id.as_ref(),
            Self::Lineage { .. }
            | Self::Incarnation(_)
            | Self::Participant { .. }
            | Self::End(_)
            | Self::Forget { .. }
            | Self::ForgetDone { .. }
            | Self::Resolved { .. }
            | Self::Retained(_)
            | Self::Suspect { .. }
            | Self::SuspectCleared(_) => None,
        }
    }
}
