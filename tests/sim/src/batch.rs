//! Many seeds: run, counted and reported.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::checks::{Violation, invariants};
use crate::sometimes::{ALL, Sometimes};
use crate::{Report, run};

/// A worker takes so many seeds at a time.
const STRIDE: u64 = 64;
/// The most violations that a batch keeps: the rest are of the same few kinds.
const MAX_VIOLATIONS: usize = 32;

/// What came of a batch of seeds.
#[derive(Default)]
pub struct Batch {
    /// The first seed.
    pub from: u64,
    /// How many seeds ran.
    pub seeds: u64,
    /// What did not hold, by seed; at most 32.
    pub violations: Vec<Violation>,
    /// Transactions in all.
    pub transactions: u64,
    /// Faults in all.
    pub faults: u64,
    /// Happenings in all.
    pub steps: u64,
    /// The fewest transactions and faults of one seed.
    pub fewest: (u64, u64),
    /// What was seen how often.
    pub sometimes: Sometimes,
    /// Processor time of the workers, as far as wall time tells it.
    pub busy: Duration,
}

impl Batch {
    /// Runs seeds on so many threads; `progress` hears now and then how many are done.
    #[must_use]
    pub fn run(from: u64, seeds: u64, jobs: u64, progress: &(dyn Fn(u64) + Sync)) -> Self {
        let next = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        let sum = Mutex::new(Self {
            from,
            fewest: (u64::MAX, u64::MAX),
            ..Self::default()
        });
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    let begun = Instant::now();
                    let mut own = Vec::new();
                    loop {
                        let first = next.fetch_add(STRIDE, Ordering::Relaxed);
                        if first >= seeds {
                            break;
                        }
                        for seed in first..seeds.min(first + STRIDE) {
                            own.push((from + seed, run(from + seed)));
                        }
                        let count = own.len() as u64;
                        let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        for (seed, report) in own.drain(..) {
                            sum.add(seed, report);
                        }
                        drop(sum);
                        progress(done.fetch_add(count, Ordering::Relaxed) + count);
                    }
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.busy += begun.elapsed();
                });
            }
        });
        let mut batch = sum
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        batch.violations.sort_by_key(|violation| violation.seed);
        batch
    }

    fn add(&mut self, _: u64, report: Report) {
        self.seeds += 1;
        self.transactions += report.transactions;
        self.faults += report.faults;
        self.steps += report.steps;
        self.sometimes.add(&report.sometimes);
        match report.violation {
            Some(violation) if self.violations.len() < MAX_VIOLATIONS => self.violations.push(violation),
            Some(_) => {}
            None => {
                self.fewest.0 = self.fewest.0.min(report.transactions);
                self.fewest.1 = self.fewest.1.min(report.faults);
            }
        }
    }

    /// Seeds per minute of one worker.
    #[must_use]
    pub fn per_minute(&self) -> f64 {
        self.seeds as f64 * 60.0 / self.busy.as_secs_f64().max(f64::EPSILON)
    }

    /// The `sometimes` that were never seen.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        let seen = |what: &&&str| self.sometimes.counts.get(**what).copied().unwrap_or(0) > 0;
        ALL.iter().filter(|what| !seen(what)).copied().collect()
    }

    /// A report for people; the last line is the verdict.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<58} {value:>14}");
        };
        line("seeds", format!("{} from {}", self.seeds, self.from));
        line("transactions", self.transactions.to_string());
        line("faults", self.faults.to_string());
        line("happenings", self.steps.to_string());
        line(
            "fewest transactions and faults of a seed",
            format!("{} and {}", self.fewest.0, self.fewest.1),
        );
        line("seeds per minute and core", format!("{:.0}", self.per_minute()));
        line("invariants checked", invariants().join(" "));
        for what in ALL {
            let count = self.sometimes.counts.get(what).copied().unwrap_or(0);
            line(&format!("sometimes: {what}"), count.to_string());
        }
        for violation in &self.violations {
            let _ = writeln!(text, "{}", sentence(violation));
        }
        let verdict = if self.violations.is_empty() {
            "every invariant held"
        } else {
            "VIOLATED"
        };
        let _ = writeln!(text, "{verdict}");
        text
    }

    /// The same for programs.
    ///
    /// # Errors
    /// What serde says; none of the values can fail.
    pub fn json(&self) -> anyhow::Result<String> {
        let violation = |one: &Violation| {
            json!({
                "invariant": one.invariant, "seed": one.seed, "step": one.step,
                "detail": one.detail, "replay": replay(one.seed),
            })
        };
        let violations: Vec<_> = self.violations.iter().map(violation).collect();
        Ok(serde_json::to_string_pretty(&json!({
            "seeds": self.seeds, "from": self.from, "transactions": self.transactions, "faults": self.faults,
            "steps": self.steps, "fewest_transactions": self.fewest.0, "fewest_faults": self.fewest.1,
            "seeds_per_minute_and_core": self.per_minute().round(), "invariants": invariants(),
            "sometimes": self.sometimes.counts, "violations": violations, "holds": self.violations.is_empty(),
        }))?)
    }
}

/// The command that replays a seed with its trace.
#[must_use]
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p covenant-sim -- --seed {seed} --trace")
}

/// A violation and how to see it again.
#[must_use]
pub fn sentence(violation: &Violation) -> String {
    let Violation {
        invariant,
        seed,
        step,
        detail,
        also,
    } = violation;
    let also = if also.is_empty() {
        String::new()
    } else {
        format!(" (and {})", also.join(" "))
    };
    format!(
        "{invariant}{also} violated in seed {seed} at step {step}: {detail}\n  replay: {}",
        replay(*seed)
    )
}
