//! Retention (section 6): how long the outcomes of finished transactions stay.
//!
//! The archive outside holds them; here is only how many there are for each second of
//! max(created, decided), which is what the bound needs to know how far to jump. One second is the step of
//! a jump: "just far enough for one more" means to the end of the oldest second.

use alloc::collections::BTreeMap;

use super::{Coordinator, Effect, Refusal, Timer};
use crate::{AbortReason, Limits, Millis, Outcome, Record, UnixMillis};

/// How many outcomes an archive holds, by the second of max(created, decided).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Archived {
    /// Outcomes and, among them, fences.
    pub seconds: BTreeMap<u64, (u32, u32)>,
    /// The latest `decided` among them.
    pub last_decided: UnixMillis,
}

impl Archived {
    /// Counts one outcome.
    pub fn add(&mut self, retained_by: UnixMillis, decided: UnixMillis, fence: bool) {
        let (outcomes, fences) = self.seconds.entry(retained_by / 1_000).or_default();
        *outcomes += 1;
        *fences += u32::from(fence);
        self.last_decided = self.last_decided.max(decided);
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Retention {
    archived: Archived,
    total: u64,
    fences: u64,
    /// Fences whose ABORT is not durable yet.
    fences_begun: u64,
    /// Outcomes that a RETAINED on its way will free.
    freeing: u64,
    max_outcomes: u64,
    max_fences: u64,
}

impl Retention {
    pub(super) fn new(archived: Archived, limits: &Limits) -> Self {
        let sum = |part: fn(&(u32, u32)) -> u32| archived.seconds.values().map(|s| u64::from(part(s))).sum();
        Self {
            total: sum(|second| second.0),
            fences: sum(|second| second.1),
            fences_begun: 0,
            archived,
            freeing: 0,
            max_outcomes: limits.max_retained_outcomes,
            max_fences: limits.max_fences,
        }
    }

    pub(super) fn add(&mut self, outcome: &Outcome) {
        let fence = outcome.aborted == Some(AbortReason::Fence);
        self.archived.add(outcome.retained_by(), outcome.decided, fence);
        self.total += 1;
        self.fences += u64::from(fence);
    }

    pub(super) fn fence_begun(&mut self) {
        self.fences_begun += 1;
    }

    /// Drops the count of whole seconds below the mark, and of what lies below it in its own second not:
    /// the archive drops by outcome, so the count may run high by less than a second's worth.
    fn expire(&mut self, since: UnixMillis) {
        while let Some(entry) = self.archived.seconds.first_entry() {
            if (entry.key() + 1) * 1_000 > since {
                break;
            }
            let (outcomes, fences) = entry.remove();
            self.total -= u64::from(outcomes);
            self.fences -= u64::from(fences);
        }
        self.freeing = 0;
    }

    /// The end of the oldest second that holds an outcome.
    fn oldest(&self) -> Option<(UnixMillis, u64)> {
        self.archived
            .seconds
            .first_key_value()
            .map(|(second, n)| ((second + 1) * 1_000, u64::from(n.0)))
    }
}

impl Coordinator {
    /// Whether one more transaction has room among the retained outcomes; jumps ahead if that makes room.
    pub(super) fn admit_outcome(&mut self, fence: bool) -> Result<(), Refusal> {
        let fences = self.retention.fences + self.retention.fences_begun;
        if fence && fences >= self.retention.max_fences {
            return Err(Refusal::Exhausted {
                bound: "max_fences",
                value: self.retention.max_fences,
            });
        }
        let max = self.retention.max_outcomes;
        let room = (max + self.retention.freeing).saturating_sub(self.retention.total);
        if self.has_fewer_unfinished(room) {
            return Ok(());
        }
        let exhausted = Refusal::Exhausted {
            bound: "max_retained_outcomes",
            value: max,
        };
        if self.retention.freeing > 0 {
            return Err(exhausted);
        }
        // The earlier of two clocks: a wall clock set ahead must not empty the archive.
        let now = self.wall().min(self.started + self.now);
        let latest = now.saturating_sub(self.limits.max_deadline_ms + MARGIN_MS);
        match self.retention.oldest() {
            Some((until, outcomes)) if until <= latest && until > self.fold.retained_since => {
                self.retention.freeing = outcomes;
                self.append(Record::Retained(until), true);
                Ok(())
            }
            Some(_) | None => Err(exhausted),
        }
    }

    /// Whether fewer than this many transactions are not finished.
    fn has_fewer_unfinished(&self, than: u64) -> bool {
        let at_most = (self.fold.open.len() + self.running.len()) as u64;
        if at_most < than {
            return true;
        }
        // A COMMITTING one is in both; counted only near the bound.
        let both = self
            .running
            .values()
            .filter(|xid| self.fold.open.contains_key(xid))
            .count();
        at_most - (both as u64) < than
    }

    /// An outcome is finished and leaves for the archive.
    pub(super) fn archive(&mut self, outcome: Outcome) {
        if outcome.aborted == Some(AbortReason::Fence) {
            self.retention.fences_begun = self.retention.fences_begun.saturating_sub(1);
        }
        if outcome.retained_by() < self.fold.retained_since {
            return; // It goes at once: the mark passed it while it was not finished.
        }
        self.retention.add(&outcome);
        self.effects.push(Effect::Archive(outcome));
    }

    /// At start: what the archive still holds below the mark counts no more.
    pub(super) fn forget_expired(&mut self) {
        self.retention.expire(self.fold.retained_since);
    }

    /// RETAINED is durable.
    pub(super) fn retained_durable(&mut self, since: UnixMillis) {
        self.retention.expire(since);
        self.effects.push(Effect::Expire(since));
    }

    pub(super) fn retention_due(&mut self) {
        self.timers
            .insert((self.now + self.limits.retention_check_ms, Timer::Retention));
        // The monotonic clock moves the mark: a wall clock set ahead must not empty the archive.
        let target = (self.started + self.now).saturating_sub(self.limits.retention_ms);
        let due = self.retention.oldest().is_some_and(|(until, _)| until <= target);
        if due && self.retention.freeing == 0 && target > self.fold.retained_since {
            let freed = self.retention.archived.seconds.range(..target / 1_000);
            self.retention.freeing = freed.map(|(_, n)| u64::from(n.0)).sum();
            self.append(Record::Retained(target), true);
        }
    }
}

/// Added to the longest deadline: how near to now the bound may push the mark (section 6).
const MARGIN_MS: Millis = 60_000;
