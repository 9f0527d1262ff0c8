//! The bytes of operations that undecided transactions hold, of each participant and together.

use alloc::collections::BTreeMap;

use crate::Name;

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Held {
    total: usize,
    by_participant: BTreeMap<Name, usize>,
}

impl Held {
    pub(super) fn total(&self) -> usize {
        self.total
    }

    pub(super) fn of(&self, participant: &Name) -> usize {
        self.by_participant.get(participant).copied().unwrap_or(0)
    }

    pub(super) fn hold(&mut self, participant: &Name, bytes: usize) {
        if bytes > 0 {
            self.total += bytes;
            *self.by_participant.entry(participant.clone()).or_default() += bytes;
        }
    }

    pub(super) fn free(&mut self, participant: &Name, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let left = self.of(participant).checked_sub(bytes);
        let left = left.expect("what is freed was held");
        self.total -= bytes;
        if left == 0 {
            self.by_participant.remove(participant);
        } else {
            self.by_participant.insert(participant.clone(), left);
        }
    }
}
