//! Section 6: how long outcomes stay, and the participants' floors.

use super::bench::{START, execute};
use super::rows::committed;
use super::{Bench, name};
use crate::{Floor, Limits, Wait};

const NOTHING: [&str; 0] = [];

/// Room for three outcomes.
fn three() -> Limits {
    Limits {
        max_retained_outcomes: 3,
        max_in_progress: 10,
        ..Limits::DEFAULT
    }
}

/// Runs `id` at `a` and finishes it.
fn finish(bench: &mut Bench, id: &str, seq: u64) {
    bench.execute(id, "a");
    bench.says("a", &alloc::format!("YES 1/{seq}"));
    bench.forces();
    bench.says("a", &alloc::format!("ACK 1/{seq}"));
    bench.forces();
}

#[test]
fn the_mark_moves_with_the_monotonic_clock_and_outcomes_go_after_it_is_durable() {
    let mut bench = committed();
    let week = Limits::DEFAULT.retention_ms;
    bench.passes(week);
    let due = START + 1_000;
    let mut appended = bench.shown();
    while appended.is_empty() {
        appended = bench.passes(Limits::DEFAULT.retention_check_ms);
    }
    assert_eq!(appended.len(), 1);
    assert!(appended[0].starts_with("append! RETAINED"), "{appended:?}");
    assert_eq!(
        bench.gets_of("T1", Some(START)),
        ["r2 = Committed Committed"],
        "not durable yet"
    );
    let told = bench.forces();
    assert!(told[0].starts_with("expire "), "{told:?}");
    assert!(bench.machine.fold().retained_since >= due);
    assert_eq!(bench.gets_of("T1", Some(START)), ["r3 = Expired"]);
    let again = execute("T1", "a b", START, Wait::Decided);
    assert_eq!(bench.runs(again), ["r4 = Expired"], "nothing is run");
}

#[test]
fn a_wall_clock_set_ahead_moves_no_mark() {
    let mut bench = committed();
    bench.step(super::super::Event::Clock(
        START + 10 * Limits::DEFAULT.retention_ms,
    ));
    assert_eq!(bench.passes(60_000), NOTHING);
    let limits = Limits {
        max_retained_outcomes: 1,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a", limits);
    finish(&mut bench, "T1", 1);
    bench.step(super::super::Event::Clock(START + Limits::DEFAULT.retention_ms));
    let refused = ["r2 ! Exhausted { bound: \"max_retained_outcomes\", value: 1 }"];
    assert_eq!(bench.execute("T2", "a"), refused, "nor at the bound");
}

#[test]
fn at_the_bound_the_mark_jumps_just_far_enough_for_one_more() {
    let mut bench = Bench::with_limits("a", three());
    finish(&mut bench, "T1", 1);
    bench.passes(1_000);
    finish(&mut bench, "T2", 2);
    bench.passes(1_000);
    finish(&mut bench, "T3", 3);
    bench.passes(121_000);
    let jump = START + 1_000;
    let due = [
        alloc::format!("append! RETAINED {jump}"),
        "a < PREPARE 1/4 T4".into(),
    ];
    assert_eq!(bench.execute("T4", "a"), due);
    assert_eq!(bench.forces(), [alloc::format!("expire {jump}")]);
    assert_eq!(bench.gets("T1"), ["r5 = Expired"]);
    assert_eq!(bench.gets("T2"), ["r6 = Committed Committed"]);
}

#[test]
fn the_jump_never_comes_near_to_now() {
    let mut bench = Bench::with_limits("a", three());
    for seq in 1..=3 {
        finish(&mut bench, &alloc::format!("T{seq}"), seq);
    }
    bench.passes(120_999);
    let refused = ["r4 ! Exhausted { bound: \"max_retained_outcomes\", value: 3 }"];
    assert_eq!(bench.execute("T4", "a"), refused);
    bench.passes(1);
    assert_eq!(
        bench.execute("T4", "a").len(),
        2,
        "from now - maximum deadline - 1 min on it may"
    );
}

#[test]
fn unfinished_ones_count_once_and_are_not_expired() {
    let mut bench = Bench::with_limits("a", three());
    bench.execute("T1", "a");
    bench.says("a", "YES 1/1");
    bench.forces();
    bench.execute("T2", "a");
    bench.says("a", "YES 1/2");
    bench.forces();
    assert_eq!(
        bench.execute("T3", "a"),
        ["a < PREPARE 1/3 T3"],
        "COMMITTING counts once"
    );
    let refused = ["r4 ! Exhausted { bound: \"max_retained_outcomes\", value: 3 }"];
    assert_eq!(bench.execute("T4", "a"), refused);
    bench.says("a", "NO 1/3 X");
    bench.forces();
    bench.passes(200_000);
    bench.execute("T4", "a");
    bench.forces();
    assert_eq!(
        bench.gets("T1"),
        ["r6 = Committed Committing"],
        "not finished, however old"
    );
}

#[test]
fn an_outcome_finished_below_the_mark_goes_at_once_and_blocks_nothing() {
    let mut bench = Bench::with_limits("a b", three());
    bench.execute("T1", "b");
    bench.says("b", "YES 1/1");
    bench.forces();
    bench.passes(1_000);
    finish(&mut bench, "T2", 2);
    bench.passes(200_000);
    finish(&mut bench, "T3", 3);
    bench.execute("T4", "a");
    bench.forces();
    assert_eq!(bench.gets("T2"), ["r5 = Expired"]);
    bench.says("b", "ACK 1/1");
    assert_eq!(bench.forces(), NOTHING, "T1 was decided below the mark");
    assert_eq!(bench.gets("T1"), ["r6 = Expired"]);
    assert_eq!(bench.execute("T5", "a"), ["a < PREPARE 1/5 T5"]);
}

#[test]
fn fences_have_a_bound_of_their_own_and_count_before_they_are_durable() {
    let mut bench = Bench::with_limits(
        "a",
        Limits {
            max_fences: 2,
            ..Limits::DEFAULT
        },
    );
    bench.aborts("T1");
    bench.aborts("T2");
    let refused = ["r3 ! Exhausted { bound: \"max_fences\", value: 2 }"];
    assert_eq!(bench.aborts("T3"), refused);
    bench.forces();
    assert_eq!(
        bench.aborts("T3"),
        ["r4 ! Exhausted { bound: \"max_fences\", value: 2 }"]
    );
    bench.crashes();
    bench.forces();
    assert_eq!(
        bench.aborts("T3"),
        ["r5 ! Exhausted { bound: \"max_fences\", value: 2 }"]
    );
    assert_eq!(
        bench.execute("T1", "a"),
        ["r6 = Aborted Aborted FENCED_BEFORE_EXECUTE"]
    );
}

#[test]
fn after_a_restart_what_lies_below_the_mark_counts_no_more() {
    let mut bench = Bench::with_limits("a", three());
    for seq in 1..=3 {
        finish(&mut bench, &alloc::format!("T{seq}"), seq);
    }
    bench.passes(200_000);
    bench.execute("T4", "a");
    bench.forces();
    bench.crashes();
    bench.forces();
    bench.joins("a");
    assert_eq!(bench.execute("T5", "a"), ["a < PREPARE 2/1 T5"]);
}

#[test]
fn decided_never_runs_backwards() {
    let mut bench = Bench::new("a");
    finish(&mut bench, "T1", 1);
    bench.step(super::super::Event::Clock(START - 4_000));
    finish(&mut bench, "T2", 2);
    bench.crashes();
    bench.forces();
    bench.joins("a");
    bench.step(super::super::Event::Clock(START - 4_000));
    bench.execute("T3", "a");
    bench.says("a", "YES 2/1");
    bench.forces();
    bench.says("a", "ACK 2/1");
    bench.forces();
    let decided: alloc::vec::Vec<_> = bench
        .archive
        .outcomes
        .values()
        .map(|outcome| outcome.decided)
        .collect();
    assert_eq!(decided, [START, START, START]);
}

#[test]
fn the_floor_is_the_lowest_attempt_that_is_owed() {
    let mut bench = Bench::new("a b");
    let floor = |bench: &Bench, whose: &str| bench.machine.floor(&name(whose));
    let at = |counter, seq| Floor { counter, seq };
    bench.execute("T1", "a b");
    bench.execute("T2", "a");
    assert_eq!(floor(&bench, "a"), at(1, 1), "it may still get PREPARE");
    bench.says("a", "YES 1/1");
    bench.says("b", "READ_ONLY 1/1");
    assert_eq!(floor(&bench, "b"), at(1, 3), "READ_ONLY owes nothing");
    bench.forces();
    assert_eq!(floor(&bench, "a"), at(1, 1), "COMMIT is not acknowledged");
    bench.says("a", "ACK 1/1");
    assert_eq!(floor(&bench, "a"), at(1, 2));
    bench.says("a", "NO 1/2 X");
    assert_eq!(floor(&bench, "a"), at(1, 3));
}

#[test]
fn one_dead_participant_holds_back_nobody_elses_floor_and_restarts_keep_its_own() {
    let mut bench = Bench::new("a b");
    bench.execute("T1", "a b");
    bench.says("a", "YES 1/1");
    bench.says("b", "YES 1/1");
    bench.forces();
    bench.leaves("a");
    bench.says("b", "ACK 1/1");
    assert_eq!(bench.machine.floor(&name("b")), Floor { counter: 1, seq: 2 });
    bench.crashes();
    bench.forces();
    assert_eq!(
        bench.machine.floor(&name("a")),
        Floor { counter: 1, seq: 1 },
        "COMMIT is owed"
    );
}
