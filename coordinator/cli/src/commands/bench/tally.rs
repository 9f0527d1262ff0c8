//! What callers count: outcomes, latencies, and the money that must have moved.

use std::collections::BTreeMap;
use std::time::Duration;

use covenant_client::{Error, Outcome};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::load::Intent;
use super::pace::Ran;

/// The digits that a latency keeps.
const DIGITS: u8 = 3;

/// The longest latency that is told apart from longer ones, an hour, in microseconds.
const MAX_LATENCY_US: u64 = 3_600_000_000;

/// The most different reasons that are kept apart.
const MAX_REASONS: usize = 32;

/// How many transactions ended how.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcomes {
    pub(super) committed: u64,
    pub(super) aborted: u64,
    /// It may have been committed or not, as far as its caller knows.
    pub(super) unknown: u64,
    /// The coordinator refused it, or was not reached: nothing was run.
    pub(super) refused: u64,
    /// Its turn never came in the open loop.
    pub(super) not_started: u64,
}

impl Outcomes {
    /// Transactions that have a definite outcome.
    pub(super) fn decided(&self) -> u64 {
        self.committed + self.aborted
    }
}

/// What one caller process hands over.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) outcomes: Outcomes,
    /// What each ledger but the first and the last was paid, for certain and at the most.
    pub(super) moved: Moved,
    /// The same of the last ledger, which some transactions only look at.
    pub(super) moved_to_last: Moved,
    /// Why, of whatever did not commit.
    pub(super) reasons: BTreeMap<String, u64>,
    /// Latencies in microseconds with how many had them, no more exact than the histogram.
    pub(super) latencies: Vec<(u64, u64)>,
    /// From the first start to the last end, in microseconds.
    pub(super) elapsed_us: u64,
    /// What the process used, in microseconds.
    pub(super) cpu_us: u64,
}

/// Money that was moved, in minor units.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) at_least: u64,
    pub(super) at_most: u64,
}

impl Moved {
    fn count(&mut self, committed: bool) {
        self.at_least += u64::from(committed);
        self.at_most += 1;
    }

    fn add(&mut self, other: Self) {
        self.at_least += other.at_least;
        self.at_most += other.at_most;
    }
}

/// How one transaction ended.
pub(super) struct Ended {
    pub(super) intent: Intent,
    pub(super) outcome: Result<Outcome, Error>,
}

/// A tally that grows.
pub(super) struct Counting {
    pub(super) tally: Tally,
    pub(super) latencies: Histogram<u64>,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            tally: Tally::default(),
            latencies: histogram(),
        }
    }
}

/// An empty histogram of microseconds.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_LATENCY_US, DIGITS).expect("the bounds are those of a histogram")
}

impl Counting {
    pub(super) fn record(&mut self, ran: Ran<Ended>, latency: Duration) {
        let outcomes = &mut self.tally.outcomes;
        let mut moves = None;
        let reason = match ran {
            Ran::NotStarted => {
                outcomes.not_started += 1;
                None
            }
            Ran::Done(Ended { intent, outcome }) => match outcome {
                Ok(Outcome::Committed(_)) => {
                    outcomes.committed += 1;
                    moves = Some((intent, true));
                    None
                }
                Ok(Outcome::Aborted(view)) => {
                    outcomes.aborted += 1;
                    view.reason.map(|reason| reason.code)
                }
                Ok(other) => {
                    outcomes.unknown += 1;
                    moves = Some((intent, false));
                    Some(other.word().to_owned())
                }
                Err(error) => {
                    outcomes.refused += 1;
                    Some(crate::exit::Failure::from(error).code)
                }
            },
        };
        match moves {
            Some((Intent::Moves, committed)) => {
                self.tally.moved.count(committed);
                self.tally.moved_to_last.count(committed);
            }
            Some((Intent::LastLooks, committed)) => self.tally.moved.count(committed),
            // One that is meant to abort moves nothing: if it did, the sums say so.
            Some((Intent::Aborts, _)) | None => {}
        }
        if let Some(reason) = reason {
            add_reason(&mut self.tally.reasons, reason, 1);
        }
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(micros);
    }

    /// The tally with its latencies, to be handed over.
    pub(super) fn finish(mut self, elapsed: Duration, cpu_us: u64) -> Tally {
        let pairs = self.latencies.iter_recorded();
        self.tally.latencies = pairs
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect();
        self.tally.elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.tally.cpu_us = cpu_us;
        self.tally
    }

    /// Takes what another process counted.
    pub(super) fn add(&mut self, other: Tally) {
        let (mine, theirs) = (&mut self.tally.outcomes, other.outcomes);
        mine.committed += theirs.committed;
        mine.aborted += theirs.aborted;
        mine.unknown += theirs.unknown;
        mine.refused += theirs.refused;
        mine.not_started += theirs.not_started;
        self.tally.moved.add(other.moved);
        self.tally.moved_to_last.add(other.moved_to_last);
        for (reason, count) in other.reasons {
            add_reason(&mut self.tally.reasons, reason, count);
        }
        for (micros, count) in other.latencies {
            self.latencies.saturating_record_n(micros, count);
        }
        self.tally.elapsed_us = self.tally.elapsed_us.max(other.elapsed_us);
        self.tally.cpu_us += other.cpu_us;
    }
}

fn add_reason(reasons: &mut BTreeMap<String, u64>, reason: String, count: u64) {
    let reason = if reasons.len() < MAX_REASONS || reasons.contains_key(&reason) {
        reason
    } else {
        "OTHER".to_owned()
    };
    *reasons.entry(reason).or_default() += count;
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_client::View;

    fn ended(intent: Intent, outcome: Outcome) -> Ran<Ended> {
        Ran::Done(Ended {
            intent,
            outcome: Ok(outcome),
        })
    }

    #[test]
    fn what_another_process_counted_is_what_it_hands_over() {
        let mut counting = Counting::default();
        let committed = || Outcome::Committed(Box::<View>::default());
        for (micros, intent) in [(1_000, Intent::Moves), (2_000, Intent::LastLooks)] {
            counting.record(ended(intent, committed()), Duration::from_micros(micros));
        }
        let aborted = Outcome::Aborted(Box::<View>::default());
        counting.record(ended(Intent::Aborts, aborted), Duration::from_micros(3_000));
        counting.record(Ran::NotStarted, Duration::from_secs(1));
        let handed_over = counting.finish(Duration::from_secs(2), 5);
        let text = serde_json::to_string(&handed_over).unwrap();
        let mut sum = Counting::default();
        sum.add(serde_json::from_str(&text).unwrap());
        sum.add(handed_over);
        assert_eq!(
            (sum.tally.outcomes.committed, sum.tally.outcomes.decided()),
            (4, 6)
        );
        assert_eq!(sum.tally.outcomes.not_started, 2);
        assert_eq!(
            (sum.tally.moved.at_least, sum.tally.moved_to_last.at_least),
            (4, 2)
        );
        assert_eq!((sum.tally.elapsed_us, sum.tally.cpu_us), (2_000_000, 10));
        assert_eq!(sum.latencies.len(), 8);
        assert!(sum.latencies.max().abs_diff(1_000_000) <= 1_000);
    }
}
