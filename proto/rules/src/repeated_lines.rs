//! How many lines a log gets of what a peer can repeat, for both drivers.
//!
//! A peer may repeat what raises an alarm with every frame, ten thousand branches that nobody knows ask again with
//! every back-off, and a participant that is refused dials for ever. Of each code at most [`RepeatedLines::MAX`] lines are written in [`RepeatedLines::PERIOD_MS`]; the next
//! line of that code says how many were held back.

use alloc::collections::BTreeMap;

use crate::Millis;

/// The lines of each code. `C` says what a line is about; there are few of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RepeatedLines<C> {
    codes: BTreeMap<C, Lines>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Lines {
    since: Millis,
    written: u64,
    held_back: u64,
}

impl<C: Ord> RepeatedLines<C> {
    /// The most lines of one code in one period.
    pub const MAX: u64 = 20;

    /// The period, in milliseconds.
    pub const PERIOD_MS: Millis = 60_000;

    /// None was written yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            codes: BTreeMap::new(),
        }
    }

    /// Counts one. `None`: it gets no line. `Some`: it does, and so many of its code were held back before it.
    pub fn count(&mut self, now: Millis, code: C) -> Option<u64> {
        let lines = self.codes.entry(code).or_default();
        if now.saturating_sub(lines.since) >= Self::PERIOD_MS {
            lines.since = now;
            lines.written = 0;
        }
        if lines.written == Self::MAX {
            lines.held_back += 1;
            return None;
        }
        lines.written += 1;
        Some(core::mem::take(&mut lines.held_back))
    }
}

impl<C: Ord> Default for RepeatedLines<C> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_has_few_lines_hides_no_other_code_and_loses_no_count() {
        let mut all = RepeatedLines::<char>::new();
        let mut before = 0;
        for period in 1..4 {
            let now = period * RepeatedLines::<char>::PERIOD_MS;
            assert_eq!(all.count(now, 'a'), Some(before));
            let lines = (1..1_000).filter(|_| all.count(now + 1, 'a').is_some());
            assert_eq!(lines.count() as u64, RepeatedLines::<char>::MAX - 1);
            assert_eq!(all.count(now + 1, 'b'), Some(0));
            before = 1_000 - RepeatedLines::<char>::MAX;
        }
    }
}
