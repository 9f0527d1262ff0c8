//! The configurations that every test run explores to the end, with their pinned counts.
//!
//! Each finds no broken invariant, sees exactly what it should see, and has exactly so many states and steps. A
//! change of the machines that changes a count is looked at (what may happen now that could not, or the reverse?),
//! and then the number here is changed with it. Larger bounds: the flags of the binary `covenant-model`.

use anyhow::Result;
use covenant_model::{Bounds, Budget, explore};

/// What a configuration has.
struct Pinned<'a> {
    states: usize,
    steps: usize,
    seen: &'a [&'a str],
}

fn holds(bounds: Bounds, pinned: &Pinned) -> Result<()> {
    let threads = std::thread::available_parallelism()?.get();
    let mut findings = explore(bounds, threads, false, &mut |_| ())?;
    assert!(findings.broken.is_empty(), "{:#?}", findings.broken);
    findings.seen.sort_unstable();
    let mut seen = pinned.seen.to_vec();
    seen.sort_unstable();
    assert_eq!(findings.seen, seen, "what is seen");
    assert_eq!(
        (findings.states, findings.steps),
        (pinned.states, pinned.steps),
        "(states, steps)"
    );
    Ok(())
}

fn bounds(contents: &[&str], budget: Budget) -> Bounds {
    Bounds {
        contents: contents.iter().map(|content| (*content).to_owned()).collect(),
        transactions: 1,
        budget,
        positions: false,
    }
}

#[test]
fn without_faults_every_order_commits() -> Result<()> {
    let budget = Budget {
        participant_crashes: vec![0; 2],
        ..Budget::default()
    };
    holds(
        bounds(&["yy"], budget),
        &Pinned {
            states: 34,
            steps: 52,
            seen: &["told COMMITTED", "a quiet end after every fault of the run"],
        },
    )
}
