//! Seeds: those that found something once, and a fresh batch; the same seed gives the same run; nothing is vacuous.
//!
//! What they cannot show is in the crate's documentation. A seed that fails is printed with the command that replays
//! it; put its number into `seeds.txt` with a word on what it found.

use std::hash::{DefaultHasher, Hash, Hasher};

use covenant_sim::batch::{Batch, replay, sentence};
use covenant_sim::{Violation, run, run_traced};

/// The seeds of the fresh batch.
const FRESH: (u64, u64) = (0, 3_000);
/// Threads of a batch.
const JOBS: u64 = 2;
/// The fewest transactions and faults of a seed.
const FEWEST: (u64, u64) = (10, 5);

fn all(violations: &[Violation]) -> String {
    violations.iter().map(sentence).collect::<Vec<_>>().join("\n")
}

#[test]
fn seeds_that_found_something_stay_clean() {
    let kept = include_str!("../seeds.txt").lines();
    let numbers = kept.filter_map(|line| line.split('#').next()?.trim().parse::<u64>().ok());
    let violations: Vec<Violation> = numbers.filter_map(|seed| run(seed).violation).collect();
    assert!(violations.is_empty(), "{}", all(&violations));
}

#[test]
fn a_fresh_batch_breaks_no_invariant_and_sees_everything_that_must_happen_sometimes() {
    let batch = Batch::run(FRESH.0, FRESH.1, JOBS, &|_| ());
    assert!(batch.violations.is_empty(), "{}", all(&batch.violations));
    assert_eq!(
        batch.never(),
        Vec::<&str>::new(),
        "never seen: the batch proves nothing of it"
    );
    let (transactions, faults) = batch.fewest;
    assert!(transactions >= FEWEST.0, "a seed had {transactions} transactions");
    assert!(faults >= FEWEST.1, "a seed had {faults} faults");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| {
        let report = run_traced(seed);
        let mut hasher = DefaultHasher::new();
        report.trace.hash(&mut hasher);
        (hasher.finish(), report.trace.len(), report.steps)
    };
    for seed in 0..50 {
        let once = hash(seed);
        assert!(once.1 > 100, "seed {seed} has a trace of {} lines", once.1);
        assert_eq!(
            once,
            hash(seed),
            "seed {seed} ran twice and differed; see {}",
            replay(seed)
        );
    }
}
