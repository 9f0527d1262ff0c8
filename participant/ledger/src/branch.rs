//! One branch as the log knows it: prepared, or a tombstone. An aborted one leaves nothing.

use std::sync::Arc;

use covenant_rules::{Lsn, Operator, TransactionId, UnixMillis, Xid};

use crate::operation::Movements;
use crate::record::{ByHand, Prepared, Record};

/// Where a branch stands in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It holds what its operation needs.
    Prepared {
        operation: Arc<[u8]>,
        movements: Arc<Movements>,
        position: Lsn,
        prepared_at: UnixMillis,
    },
    /// A tombstone (P17).
    Committed { committed_at: UnixMillis },
    /// Decided by hand (P18); once forgotten, a tombstone (P20).
    ByHand {
        commit: bool,
        by: Operator,
        at: UnixMillis,
        forgotten: bool,
    },
}

/// One branch that the log still knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Branch {
    pub(crate) transaction_id: TransactionId,
    pub(crate) phase: Phase,
}

/// A branch that holds something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedBranch<'a> {
    pub(crate) xid: Xid,
    pub(crate) transaction_id: &'a TransactionId,
    pub(crate) movements: &'a Movements,
    pub(crate) prepared_at: UnixMillis,
}

impl Branch {
    /// What a checkpoint stores of it.
    pub(crate) fn records(&self, xid: Xid) -> impl Iterator<Item = Record> + use<> {
        let transaction_id = self.transaction_id.clone();
        let mut forgotten_too = None;
        let record = match &self.phase {
            Phase::Prepared {
                operation,
                movements,
                position,
                prepared_at,
            } => Record::Prepared(Prepared {
                xid,
                transaction_id,
                operation: Arc::clone(operation),
                movements: Arc::clone(movements),
                position: *position,
                prepared_at: *prepared_at,
            }),
            Phase::Committed { committed_at } => Record::Committed {
                xid,
                transaction_id,
                committed_at: *committed_at,
            },
            Phase::ByHand {
                commit,
                by,
                at,
                forgotten,
            } => {
                forgotten_too = forgotten.then_some(Record::Forgotten(xid));
                Record::Heuristic(ByHand {
                    xid,
                    transaction_id,
                    commit: *commit,
                    by: by.clone(),
                    at: *at,
                })
            }
        };
        std::iter::once(record).chain(forgotten_too)
    }

    /// Whether a floor above it may drop it (section 6).
    pub(crate) fn is_tombstone(&self) -> bool {
        match self.phase {
            Phase::Committed { .. } => true,
            Phase::ByHand { forgotten, .. } => forgotten,
            Phase::Prepared { .. } => false,
        }
    }

    /// Where it stands, in the words of section 4.
    pub(crate) fn state_name(&self) -> &'static str {
        match &self.phase {
            Phase::Prepared { .. } => "PREPARED",
            Phase::Committed { .. } => "COMMITTED",
            Phase::ByHand { forgotten: true, .. } => "FORGOTTEN",
            Phase::ByHand { commit: true, .. } => "HEURISTIC_COMMIT",
            Phase::ByHand { commit: false, .. } => "HEURISTIC_ABORT",
        }
    }
}
