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
    assert_eq!(
        (findings.states, findings.steps, findings.seen),
        (pinned.states, pinned.steps, seen),
        "states, steps, and what is seen"
    );
    Ok(())
}

const COMMITTED: &str = "told COMMITTED";
const ABORTED: &str = "told ABORTED";
const QUIET_END: &str = "a quiet end after every fault of the run";
const ALL_CRASHED: &str = "a commit during which every node crashed";
const COMMIT_FOUND: &str = "a restart finds a COMMIT whose force never returned";
const COMMIT_LOST: &str = "a restart does not find a COMMIT that was appended";
const PRESUMPTION: &str = "an inquiry is answered by presumption";
const BELOW_FLOOR: &str = "COMMIT below the floor";
const DAMAGE: &str = "heuristic damage";
const AGREEMENT: &str = "a heuristic that agrees with the decision";
const READ_ONLY_MIX: &str = "a read-only mix commits";
const HELD_RETRY: &str = "a retry waits for its first attempt's hold";
const DUPLICATE: &str = "a duplicate is told as UNKNOWN";

/// One id, and a budget for participants that do not crash.
fn bounds(contents: &[&str], budget: Budget) -> Bounds {
    let mut budget = budget;
    let participants = contents.first().map_or(0, |content| content.len());
    budget.participant_crashes.resize(participants, 0);
    Bounds {
        contents: contents.iter().map(|content| (*content).to_owned()).collect(),
        transactions: 1,
        budget,
        positions: false,
    }
}

#[test]
fn without_faults_every_order_commits() -> Result<()> {
    let mut bounds = bounds(&["yy", "yr", "rr"], Budget::default());
    bounds.transactions = 2;
    let seen = &[COMMITTED, QUIET_END, READ_ONLY_MIX];
    holds(
        bounds,
        &Pinned {
            states: 1_314,
            steps: 2_808,
            seen,
        },
    )
}

#[test]
fn refusals_aborts_time_and_cut_sessions_break_nothing() -> Result<()> {
    let budget = Budget {
        cuts: 1,
        coordinator_ticks: 1,
        participant_ticks: 1,
        aborts: 1,
        refusals: 1,
        ..Budget::default()
    };
    let seen = &[COMMITTED, ABORTED, QUIET_END, READ_ONLY_MIX];
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 267_118,
            steps: 895_493,
            seen,
        },
    )
}

#[test]
fn two_crashes_of_the_coordinator_and_one_of_each_participant_break_nothing() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 2,
        participant_crashes: vec![1, 1],
        ..Budget::default()
    };
    let seen = &[
        COMMITTED,
        QUIET_END,
        ALL_CRASHED,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
        READ_ONLY_MIX,
    ];
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 288_531,
            steps: 909_519,
            seen,
        },
    )
}

#[test]
fn an_id_that_is_sent_again_after_crashes_takes_effect_once() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 1,
        participant_crashes: vec![1, 1],
        retries: 1,
        ..Budget::default()
    };
    let seen = &[
        COMMITTED,
        QUIET_END,
        ALL_CRASHED,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
        HELD_RETRY,
    ];
    holds(
        bounds(&["yy"], budget),
        &Pinned {
            states: 306_615,
            steps: 891_962,
            seen,
        },
    )
}

#[test]
fn two_ids_and_a_crash_of_the_coordinator_keep_the_floors() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 1,
        ..Budget::default()
    };
    let mut bounds = bounds(&["yy"], budget);
    bounds.transactions = 2;
    let seen = &[
        COMMITTED,
        QUIET_END,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
        BELOW_FLOOR,
    ];
    holds(
        bounds,
        &Pinned {
            states: 64_141,
            steps: 177_199,
            seen,
        },
    )
}

#[test]
fn a_branch_decided_by_hand_is_accounted_for_and_its_retry_is_a_duplicate() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 1,
        retries: 1,
        heuristics: 1,
        ..Budget::default()
    };
    let seen = &[
        COMMITTED,
        ABORTED,
        QUIET_END,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
        HELD_RETRY,
        DAMAGE,
        AGREEMENT,
        DUPLICATE,
    ];
    holds(
        bounds(&["yy"], budget),
        &Pinned {
            states: 327_632,
            steps: 911_678,
            seen,
        },
    )
}

#[test]
fn positions_accuse_no_log_that_lost_only_what_was_never_forced() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 2,
        participant_crashes: vec![1, 1],
        ..Budget::default()
    };
    let mut bounds = bounds(&["yy"], budget);
    bounds.positions = true;
    let seen = &[
        COMMITTED,
        QUIET_END,
        ALL_CRASHED,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
    ];
    holds(
        bounds,
        &Pinned {
            states: 291_139,
            steps: 955_711,
            seen,
        },
    )
}

#[test]
fn three_participants_and_a_crash_of_the_coordinator_agree() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 1,
        participant_crashes: vec![1, 0, 0],
        ..Budget::default()
    };
    let seen = &[
        COMMITTED,
        QUIET_END,
        COMMIT_FOUND,
        COMMIT_LOST,
        PRESUMPTION,
        READ_ONLY_MIX,
    ];
    holds(
        bounds(&["yyy", "yyr"], budget),
        &Pinned {
            states: 157_787,
            steps: 576_722,
            seen,
        },
    )
}

/// What crashes of every node show in any configuration.
const CRASHES: [&str; 7] = [
    COMMITTED,
    QUIET_END,
    ALL_CRASHED,
    COMMIT_FOUND,
    COMMIT_LOST,
    PRESUMPTION,
    READ_ONLY_MIX,
];

/// One crash of every node.
fn every_node_crashes() -> Budget {
    Budget {
        coordinator_crashes: 1,
        participant_crashes: vec![1, 1],
        ..Budget::default()
    }
}

#[test]
fn a_refusal_and_two_crashes_of_the_coordinator_and_one_of_each_participant_break_nothing() -> Result<()> {
    let budget = Budget {
        coordinator_crashes: 2,
        refusals: 1,
        ..every_node_crashes()
    };
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 489_906,
            steps: 1_472_974,
            seen: &[&CRASHES[..], &[ABORTED]].concat(),
        },
    )
}

#[test]
fn an_abort_by_a_caller_and_a_crash_of_every_node_break_nothing() -> Result<()> {
    let budget = Budget {
        aborts: 1,
        ..every_node_crashes()
    };
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 304_687,
            steps: 1_037_110,
            seen: &[&CRASHES[..], &[ABORTED]].concat(),
        },
    )
}

#[test]
fn a_refusal_time_and_a_crash_of_every_node_break_nothing() -> Result<()> {
    let budget = Budget {
        refusals: 1,
        coordinator_ticks: 1,
        ..every_node_crashes()
    };
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 832_658,
            steps: 2_916_263,
            seen: &[&CRASHES[..], &[ABORTED]].concat(),
        },
    )
}

#[test]
fn a_cut_session_and_a_crash_of_every_node_break_nothing() -> Result<()> {
    let budget = Budget {
        cuts: 1,
        ..every_node_crashes()
    };
    holds(
        bounds(&["yy", "yr"], budget),
        &Pinned {
            states: 888_419,
            steps: 3_317_266,
            seen: &CRASHES,
        },
    )
}

#[test]
fn a_branch_decided_by_hand_and_a_crash_of_each_participant_break_nothing() -> Result<()> {
    let budget = Budget {
        participant_crashes: vec![1, 1],
        heuristics: 1,
        ..Budget::default()
    };
    holds(
        bounds(&["yy"], budget),
        &Pinned {
            states: 1_198_380,
            steps: 4_105_982,
            seen: &[COMMITTED, ABORTED, QUIET_END, DAMAGE, AGREEMENT],
        },
    )
}
