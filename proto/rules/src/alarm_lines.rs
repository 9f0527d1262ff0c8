//! How many lines a log gets of one alarm, for both drivers.
//!
//! A peer may repeat what raises an alarm with every frame, and ten thousand branches that nobody knows ask again with
//! every back-off. Of each code at most [`AlarmLines::MAX`] lines are written in [`AlarmLines::PERIOD_MS`]; the next
//! line of that code says how many were held back.

use alloc::collections::BTreeMap;

use crate::Millis;

/// The lines of each code. `C` is a driver's alarm code, of which there are few.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AlarmLines<C> {
    codes: BTreeMap<C, Lines>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Lines {
    since: Millis,
    written: u64,
    held_back: u64,
}

impl<C: Ord> AlarmLines<C> {
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

    /// Counts an alarm. `None`: it gets no line. `Some`: it does, and so many of its code were held back before it.
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

impl<C: Ord> Default for AlarmLines<C> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_that_repeats_has_few_lines_hides_no_other_code_and_loses_no_count() {
        let mut alarms = AlarmLines::<char>::new();
        let mut before = 0;
        for period in 1..4 {
            let now = period * AlarmLines::<char>::PERIOD_MS;
            assert_eq!(alarms.count(now, 'a'), Some(before));
            let lines = (1..1_000).filter(|_| alarms.count(now + 1, 'a').is_some());
            assert_eq!(lines.count() as u64, AlarmLines::<char>::MAX - 1);
            assert_eq!(alarms.count(now + 1, 'b'), Some(0));
            before = 1_000 - AlarmLines::<char>::MAX;
        }
    }
}
