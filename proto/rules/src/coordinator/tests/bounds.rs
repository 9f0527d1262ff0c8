//! What is in progress at once: each bound is refused by its name, runs nothing, and is given back.

use alloc::vec::Vec;

use super::super::Event;
use super::{Bench, tid};
use crate::Limits;

const NOTHING: [&str; 0] = [];

#[test]
fn bounds_are_refused_by_name_and_run_nothing() {
    let limits = Limits {
        max_in_progress: 2,
        max_in_progress_per_participant: 1,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a b c", limits);
    bench.execute("T1", "a");
    let refused = ["r2 ! Exhausted { bound: \"max_in_progress_per_participant\", value: 1 }"];
    assert_eq!(bench.execute("T2", "a b"), refused);
    bench.execute("T3", "b");
    assert_eq!(
        bench.execute("T4", "c"),
        ["r4 ! Exhausted { bound: \"max_in_progress\", value: 2 }"]
    );
    assert_eq!(bench.gets("T4"), ["r5 = NotFound"]);
    bench.says("a", "NO 1/1 X");
    bench.forces();
    assert_eq!(
        bench.execute("T5", "a"),
        ["a < PREPARE 1/3 T5"],
        "and runs again below the bound"
    );
}

#[test]
fn one_participant_that_does_not_answer_leaves_room_for_the_operations_of_others() {
    let limits = Limits {
        max_in_progress_bytes: 4,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a b c", limits);
    bench.execute("T1", "a");
    bench.execute("T2", "a");
    let refused = ["r3 ! Exhausted { bound: \"max_in_progress_bytes of one participant\", value: 2 }"];
    assert_eq!(bench.execute("T3", "a b"), refused);
    assert_eq!(
        bench.execute("T4", "b c"),
        ["b < PREPARE 1/3 T4", "c < PREPARE 1/3 T4"]
    );
    // A vote gives its share back, and so does the end of a transaction that it never answered.
    bench.says("a", "YES 1/1");
    assert_eq!(bench.execute("T5", "a"), ["a < PREPARE 1/4 T5"]);
    bench.says("b", "NO 1/3 X");
    bench.says("c", "NO 1/3 X");
    bench.passes(Limits::DEFAULT.max_deadline_ms);
    bench.forces();
    assert_eq!(bench.machine.in_progress_bytes(), 0);
    bench.execute("T6", "a");
    assert_eq!(bench.execute("T7", "a"), ["a < PREPARE 1/6 T7"]);
}

#[test]
fn the_bytes_of_operations_are_bounded_until_no_prepare_can_be_sent_any_more() {
    // The bench's operation of a participant is its name: a byte each.
    let limits = Limits {
        max_in_progress_bytes: 3,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a b c", limits);
    bench.execute("T1", "a b");
    let refused = ["r2 ! Exhausted { bound: \"max_in_progress_bytes\", value: 3 }"];
    assert_eq!(bench.execute("T2", "a b"), refused);
    assert_eq!(bench.gets("T2"), ["r3 = NotFound"]);
    // A counted vote frees its operation, and C3 sends the other's again.
    bench.says("a", "YES 1/1");
    assert_eq!(bench.machine.in_progress_bytes(), 1);
    assert_eq!(
        bench.joins("b"),
        ["b replaced", "b2 welcome", "b2 < PREPARE 1/1 T1"]
    );
    bench.execute("T2", "a b");
    assert_eq!(bench.machine.in_progress_bytes(), 3);
    // So do a decision, either way, and a heuristic that counts as a vote (C5).
    bench.says("b2", "YES 1/1");
    assert_eq!(bench.machine.in_progress_bytes(), 2, "T1 is DECIDING");
    bench.says("a", "REPORT 1/2 COMMIT");
    bench.forces();
    assert_eq!(bench.machine.in_progress_bytes(), 1);
    bench.says("b2", "NO 1/2 X");
    assert_eq!(bench.machine.in_progress_bytes(), 0, "T2 is ABORTING");
}

#[test]
fn a_caller_that_left_frees_its_place_and_changes_nothing_else() {
    let limits = Limits {
        max_attached_callers: 2,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a b", limits);
    bench.execute("T1", "a b");
    bench.execute("T1", "a b");
    let refused = ["r3 ! Exhausted { bound: \"max_attached_callers\", value: 2 }"];
    assert_eq!(bench.execute("T1", "a b"), refused);
    let attached = |bench: &Bench| bench.machine.attached_callers(&tid("T1")).collect::<Vec<_>>();
    assert_eq!(attached(&bench), [1, 2]);
    let left = Event::CallerLeft {
        request: 1,
        transaction_id: tid("T1"),
    };
    assert_eq!(bench.step(left), NOTHING);
    assert_eq!(bench.execute("T1", "a b"), NOTHING, "attached");
    assert_eq!(attached(&bench), [2, 4]);
    bench.says("a", "YES 1/1");
    bench.says("b", "YES 1/1");
    let told = bench.forces();
    assert_eq!(
        told[..2],
        ["r2 = Committed Committing", "r4 = Committed Committing"],
        "the transaction goes on, and who stayed hears of it"
    );
}
