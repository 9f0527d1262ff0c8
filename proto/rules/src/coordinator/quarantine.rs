//! What stored bytes that did not decode stand in the way of: presumption (Q5) and callers' answers (R3).
//!
//! Derived from the fold's quarantined records and from what the archive found damaged; a question costs a look-up,
//! however many there are. Nothing leaves here while the process lives: only an operator's RESOLVED decides for an
//! attempt, and it is looked at first.

use alloc::collections::BTreeSet;

use crate::{Quarantined, TransactionId, Xid};

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Quarantine {
    attempts: BTreeSet<Xid>,
    ids: BTreeSet<TransactionId>,
    /// One shows no attempt: it may be about any.
    without_attempt: bool,
    /// One shows no id: it may be about any.
    without_id: bool,
}

impl Quarantine {
    pub(super) fn insert(&mut self, quarantined: &Quarantined) {
        match quarantined.xid {
            Some(xid) => drop(self.attempts.insert(xid)),
            None => self.without_attempt = true,
        }
        match &quarantined.transaction_id {
            Some(id) => drop(self.ids.insert(id.clone())),
            None => self.without_id = true,
        }
    }

    /// Whether one shows this attempt.
    pub(super) fn shows_attempt(&self, xid: Xid) -> bool {
        self.attempts.contains(&xid)
    }

    /// Whether one shows this id.
    pub(super) fn shows_id(&self, id: &TransactionId) -> bool {
        self.ids.contains(id)
    }

    /// Whether one shows no attempt.
    pub(super) fn hides_an_attempt(&self) -> bool {
        self.without_attempt
    }

    /// Whether one shows no id.
    pub(super) fn hides_an_id(&self) -> bool {
        self.without_id
    }
}
