//! Rows C1 to C15 of section 3, one test or more each, as golden scripts.

use super::bench::lineage_of;
use super::script::parse_xid;
use super::{Bench, name};
use crate::{Lineage, ToParticipant, Wait};

/// `T1` over `a` and `b`, PREPARING.
pub(super) fn preparing() -> Bench {
    let mut bench = Bench::new("a b");
    bench.execute("T1", "a b");
    bench
}

/// `T1` over `a` and `b`, DECIDING: both voted YES and COMMIT is appended.
pub(super) fn deciding() -> Bench {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    bench.says("b", "YES 1/1");
    bench
}

/// `T1` over `a` and `b`, COMMITTING: COMMIT is durable and both owe an ACK.
pub(super) fn committing() -> Bench {
    let mut bench = deciding();
    bench.forces();
    bench
}

/// `T1` over `a` and `b`, ABORTING: `a` voted YES, `b` NO, and ABORT is appended.
pub(super) fn aborting() -> Bench {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    bench.says("b", "NO 1/1 NO_FUNDS");
    bench
}

/// `T1` over `a` and `b`, finished and archived as COMMITTED.
pub(super) fn committed() -> Bench {
    let mut bench = committing();
    bench.says("a", "ACK 1/1");
    bench.says("b", "ACK 1/1");
    bench.forces();
    bench
}

const NOTHING: [&str; 0] = [];

#[test]
fn c1_execute_sends_prepare_to_every_branch() {
    let mut bench = Bench::new("a b");
    assert_eq!(
        bench.execute("T1", "a b"),
        ["a < PREPARE 1/1 T1", "b < PREPARE 1/1 T1"]
    );
}

#[test]
fn c1_one_that_is_away_gets_prepare_when_it_joins_until_the_deadline() {
    let mut bench = Bench::new("a b");
    bench.leaves("b");
    assert_eq!(bench.execute("T1", "a b"), ["a < PREPARE 1/1 T1"]);
    bench.passes(4_999);
    assert_eq!(bench.joins("b"), ["b2 welcome", "b2 < PREPARE 1/1 T1"]);
    bench.leaves("b2");
    bench.passes(1);
    assert_eq!(
        bench.joins("b"),
        ["b3 welcome"],
        "after the deadline nothing is asked any more"
    );
}

#[test]
fn c1_prepare_carries_the_operation_of_its_branch() {
    let mut bench = Bench::new("a b");
    bench.execute("T1", "a b");
    let operation = |effect: &super::super::Effect| {
        if let super::super::Effect::Send {
            message: ToParticipant::Prepare { operation, .. },
            ..
        } = effect
        {
            return Some(operation.to_vec());
        }
        None
    };
    let operations: alloc::vec::Vec<_> = bench.effects.iter().filter_map(operation).collect();
    assert_eq!(operations, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn c2_the_first_counted_vote_stands_and_a_contrary_one_is_an_alarm() {
    let mut bench = preparing();
    assert_eq!(bench.says("a", "YES 1/1"), NOTHING);
    assert_eq!(
        bench.says("a", "YES 1/1"),
        NOTHING,
        "the same vote again is no news"
    );
    assert_eq!(bench.says("a", "NO 1/1 LATER"), ["alarm CONTRARY_VOTE a 1/1"]);
    assert_eq!(bench.says("a", "READ_ONLY 1/1"), ["alarm CONTRARY_VOTE a 1/1"]);
    assert_eq!(bench.says("b", "YES 1/1"), ["append! COMMIT 1/1 T1: a b"]);
}

#[test]
fn c2_read_only_voters_are_no_part_of_the_decision() {
    let mut bench = preparing();
    assert_eq!(bench.says("a", "READ_ONLY 1/1"), NOTHING);
    assert_eq!(bench.says("b", "YES 1/1"), ["append! COMMIT 1/1 T1: b"]);
    assert_eq!(bench.forces(), ["r1 = Committed Committing", "b < COMMIT 1/1"]);
}

#[test]
fn c3_prepare_again_on_joining_while_no_vote_is_counted() {
    let mut bench = preparing();
    assert_eq!(
        bench.joins("a"),
        ["a replaced", "a2 welcome", "a2 < PREPARE 1/1 T1"]
    );
    bench.says("a2", "YES 1/1");
    assert_eq!(
        bench.joins("a"),
        ["a2 replaced", "a3 welcome"],
        "its vote is counted"
    );
}

#[test]
fn c4_no_aborts_and_tells_all_but_no_and_read_only_voters() {
    let mut bench = Bench::new("a b c d");
    bench.execute("T1", "a b c d");
    bench.says("a", "YES 1/1");
    bench.says("b", "READ_ONLY 1/1");
    let said = bench.says("c", "NO 1/1 NO_FUNDS");
    assert_eq!(
        said,
        ["append! ABORT 1/1 T1 NO_FUNDS", "a < ABORT 1/1", "d < ABORT 1/1"]
    );
}

#[test]
fn c4_the_deadline_aborts() {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    assert_eq!(bench.passes(4_999), NOTHING);
    assert_eq!(bench.machine.next_deadline(), Some(5_000));
    let due = [
        "append! ABORT 1/1 T1 DEADLINE_EXCEEDED",
        "a < ABORT 1/1",
        "b < ABORT 1/1",
    ];
    assert_eq!(bench.passes(1), due);
}

#[test]
fn c4_a_caller_aborts_while_preparing() {
    let mut bench = preparing();
    let due = [
        "append! ABORT 1/1 T1 ABORTED_BY_CALLER",
        "a < ABORT 1/1",
        "b < ABORT 1/1",
    ];
    assert_eq!(bench.aborts("T1"), due);
    assert_eq!(
        bench.forces(),
        [
            "r1 = Aborted Aborted ABORTED_BY_CALLER",
            "r2 = Aborted Aborted ABORTED_BY_CALLER",
            "archive 1/1 T1"
        ]
    );
}

#[test]
fn c4_a_heuristic_abort_aborts_behind_its_own_record() {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    let due = [
        "append! HEURISTIC 1/1 a Abort unjudged",
        "append! ABORT 1/1 T1 HEURISTIC_ABORT",
        "a < ABORT 1/1",
        "b < ABORT 1/1",
    ];
    assert_eq!(bench.says("a", "REPORT 1/1 ABORT"), due);
}

#[test]
fn c4_another_lineage_aborts_even_after_a_yes() {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    bench.leaves("a");
    let due = [
        "append PARTICIPANT a 99",
        "append! ABORT 1/1 T1 PARTICIPANT_LINEAGE_CHANGED",
        "b < ABORT 1/1",
        "a2 welcome",
    ];
    assert_eq!(bench.joins_as("a", Lineage(0x99), 1), due);
}

#[test]
fn c4_another_lineage_of_a_branch_never_asked_is_asked() {
    let mut bench = Bench::new("a b");
    bench.leaves("a");
    bench.execute("T1", "a b");
    let due = ["append PARTICIPANT a 99", "a2 welcome", "a2 < PREPARE 1/1 T1"];
    assert_eq!(bench.joins_as("a", Lineage(0x99), 1), due);
}

#[test]
fn c5_a_heuristic_commit_counts_as_yes_once_it_is_durable() {
    let mut bench = preparing();
    bench.says("b", "YES 1/1");
    assert_eq!(
        bench.says("a", "REPORT 1/1 COMMIT"),
        ["append! HEURISTIC 1/1 a Commit unjudged"]
    );
    assert_eq!(
        bench.forces(),
        ["a < REPORT_RECORDED 1/1", "append! COMMIT 1/1 T1: a b"]
    );
}

#[test]
fn c5_a_counted_vote_stands_over_a_heuristic_commit() {
    let mut bench = preparing();
    bench.says("a", "READ_ONLY 1/1");
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    assert_eq!(bench.says("b", "YES 1/1"), ["append! COMMIT 1/1 T1: b"]);
}

#[test]
fn c6_nothing_leaves_before_commit_is_durable() {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    assert_eq!(bench.says("b", "YES 1/1"), ["append! COMMIT 1/1 T1: a b"]);
    assert_eq!(bench.passes(60_000), NOTHING, "no deadline acts in DECIDING");
    assert_eq!(bench.joins("a"), ["a replaced", "a2 welcome"]);
    let due = ["r1 = Committed Committing", "a2 < COMMIT 1/1", "b < COMMIT 1/1"];
    assert_eq!(bench.forces(), due);
}

#[test]
fn c6_a_durable_record_before_it_frees_nothing() {
    let mut bench = deciding();
    let before = bench.log.len() as u64 - 1;
    assert_eq!(bench.step(super::super::Event::Durable(before)), NOTHING);
}

#[test]
fn c7_while_deciding_an_abort_attaches_and_reports_wait() {
    let mut bench = deciding();
    assert_eq!(bench.aborts("T1"), NOTHING);
    assert_eq!(bench.gets("T1"), ["r3 = InProgress Deciding"]);
    assert_eq!(bench.says("a", "REPORT 1/1 ABORT"), NOTHING, "remembered");
    let due = [
        "r1 = Committed Committing",
        "r2 = Committed Committing",
        "a < COMMIT 1/1",
        "b < COMMIT 1/1",
        "append! HEURISTIC 1/1 a Abort damage",
    ];
    assert_eq!(bench.forces(), due);
}

#[test]
fn c7_a_lineage_that_goes_while_deciding_is_a_hazard_once_decided() {
    let mut bench = deciding();
    bench.leaves("a");
    assert_eq!(
        bench.joins_as("a", Lineage(0x99), 1),
        ["append PARTICIPANT a 99", "a2 welcome"]
    );
    let due = [
        "r1 = Committed Committing",
        "b < COMMIT 1/1",
        "alarm LINEAGE_CHANGED a 1/1",
        "append! HEURISTIC 1/1 a Hazard damage",
    ];
    assert_eq!(bench.forces(), due);
}

#[test]
fn c8_callers_hear_aborted_only_after_abort_is_durable() {
    let mut bench = preparing();
    bench.executes("T1", "a b", Wait::Completed);
    bench.says("b", "NO 1/1 NO_FUNDS");
    assert_eq!(bench.gets("T1"), ["r3 = InProgress Aborting"]);
    let due = [
        "r1 = Aborted Aborted NO_FUNDS",
        "r2 = Aborted Aborted NO_FUNDS",
        "archive 1/1 T1",
    ];
    assert_eq!(bench.forces(), due);
}

#[test]
fn c8_a_duplicate_is_told_as_unknown() {
    let mut bench = preparing();
    bench.says("b", "NO 1/1 DUPLICATE_TRANSACTION");
    let due = ["r1 = Unknown Aborted DUPLICATE_TRANSACTION", "archive 1/1 T1"];
    assert_eq!(bench.forces(), due);
    assert_eq!(bench.gets("T1"), ["r2 = Unknown Aborted DUPLICATE_TRANSACTION"]);
    assert_eq!(
        bench.execute("T1", "a b"),
        ["r3 = Unknown Aborted DUPLICATE_TRANSACTION"]
    );
}

#[test]
fn c9_without_yes_voters_commit_ends_at_once() {
    let mut bench = preparing();
    bench.says("a", "READ_ONLY 1/1");
    assert_eq!(bench.says("b", "READ_ONLY 1/1"), ["append! COMMIT 1/1 T1:"]);
    assert_eq!(bench.forces(), ["r1 = Committed Committing", "append END 1/1"]);
    assert_eq!(bench.forces(), ["archive 1/1 T1"]);
}

#[test]
fn c9_commit_goes_to_the_lineage_that_voted_only() {
    let mut bench = deciding();
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    bench.forces();
    assert!(!bench.shown().iter().any(|line| line.starts_with("a2 < COMMIT")));
    // The voting lineage may always join for its unresolved branches, for decisions only.
    bench.leaves("a2");
    assert_eq!(bench.joins("a"), ["a3 welcome", "a3 < COMMIT 1/1"]);
}

#[test]
fn c10_all_acks_end_it_and_answer_wait_completed() {
    let mut bench = committing();
    assert_eq!(
        bench.executes("T1", "a b", Wait::Completed),
        NOTHING,
        "attached until END"
    );
    assert_eq!(bench.says("a", "ACK 1/1"), NOTHING);
    assert_eq!(
        bench.says("a", "ACK 1/1"),
        NOTHING,
        "an ACK again resolves nobody else"
    );
    assert_eq!(
        bench.says("b", "ACK 1/1"),
        ["append END 1/1", "r2 = Committed Committed"]
    );
    assert_eq!(bench.forces(), ["archive 1/1 T1"]);
}

#[test]
fn c10_an_ack_of_another_lineage_resolves_nothing() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    assert_eq!(bench.says("a2", "ACK 1/1"), ["alarm FITS_NO_ROW a 1/1"]);
}

#[test]
fn c11_commit_again_with_growing_pauses_without_end_until_the_ack() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    let mut pauses = alloc::vec::Vec::new();
    for _ in 0..9 {
        let pause = bench.machine.next_deadline().unwrap() - bench.now;
        assert_eq!(bench.passes(pause), ["a < COMMIT 1/1"]);
        pauses.push(pause);
    }
    assert!(pauses[0] <= 200 && pauses[5] > 2_000, "it grows: {pauses:?}");
    assert!(
        pauses.iter().all(|pause| *pause <= 10_000),
        "it is capped: {pauses:?}"
    );
    assert!(pauses[8] >= 7_500, "it stays near its cap: {pauses:?}");
    bench.says("a", "ACK 1/1");
    assert_eq!(bench.passes(120_000), NOTHING);
}

#[test]
fn c11_commit_at_once_when_the_participant_joins() {
    let mut bench = committing();
    bench.leaves("a");
    assert_eq!(bench.joins("a"), ["a2 welcome", "a2 < COMMIT 1/1"]);
}

#[test]
fn c11_one_that_joins_again_and_again_does_not_put_off_the_others() {
    let mut bench = committing();
    let due = bench.machine.next_deadline().unwrap();
    while bench.now + 20 < due {
        bench.passes(20);
        bench.joins("a");
    }
    let sent = bench.passes(due - bench.now);
    assert!(sent.iter().any(|line| line == "b < COMMIT 1/1"), "{sent:?}");
}

#[test]
fn c12_lost_state_is_a_hazard_that_a_later_ack_clears() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    let due = ["alarm LOST_STATE a 1/1", "append! HEURISTIC 1/1 a Hazard damage"];
    assert_eq!(bench.says("a", "LOST_STATE 1/1"), due);
    assert_eq!(bench.says("a", "LOST_STATE 1/1"), NOTHING, "once");
    assert_eq!(bench.forces(), ["alarm HEURISTIC_DAMAGE a 1/1"]);
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committing heuristic Hazard"]);
    assert_eq!(
        bench.says("a", "ACK 1/1"),
        ["append FORGET_DONE 1/1 a", "append END 1/1"]
    );
    assert_eq!(bench.forces(), ["archive 1/1 T1"], "no heuristic is left of it");
}

#[test]
fn c12_an_ack_clears_a_hazard_that_is_not_durable_yet() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.says("a", "LOST_STATE 1/1");
    bench.says("a", "ACK 1/1");
    bench.forces();
    assert!(bench.machine.fold().heuristics.is_empty());
    assert!(bench.archive.outcomes.contains_key(&parse_xid("1/1")));
}

#[test]
fn c12_a_report_on_its_way_is_not_replaced_by_a_hazard() {
    let mut bench = committing();
    bench.says("a", "REPORT 1/1 ABORT");
    bench.leaves("a");
    assert_eq!(
        bench.joins_as("a", Lineage(0x99), 1),
        ["append PARTICIPANT a 99", "a2 welcome"]
    );
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committing heuristic Abort"]);
}

#[test]
fn c12_commit_still_goes_to_a_hazard_when_its_lineage_joins() {
    let mut bench = committing();
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    bench.forces();
    assert_eq!(bench.joins("a"), ["a3 welcome", "a3 < COMMIT 1/1"]);
    assert_eq!(bench.says("a3", "ACK 1/1"), ["append FORGET_DONE 1/1 a"]);
}

#[test]
fn c14_after_the_decision_a_late_yes_is_an_inquiry_and_the_rest_is_nothing() {
    let mut bench = aborting();
    assert_eq!(bench.says("a", "YES 1/1"), ["a < ABORT 1/1"]);
    assert_eq!(bench.says("b", "NO 1/1 X"), NOTHING);
    assert_eq!(bench.says("b", "READ_ONLY 1/1"), NOTHING);
    let mut bench = committing();
    assert_eq!(bench.says("a", "YES 1/1"), ["a < COMMIT 1/1"]);
    assert_eq!(bench.says("b", "NO 1/1 X"), NOTHING);
    let mut bench = committed();
    assert_eq!(bench.says("a", "YES 1/1"), ["a < COMMIT 1/1"]);
    assert_eq!(bench.says("a", "ACK 1/1"), NOTHING);
}

#[test]
fn c15_what_fits_no_row_is_an_alarm_and_changes_nothing() {
    let mut bench = Bench::new("a b c");
    bench.execute("T1", "a b");
    let before = bench.machine.clone();
    assert_eq!(
        bench.says("c", "YES 1/1"),
        ["alarm FITS_NO_ROW c 1/1"],
        "no branch there"
    );
    assert_eq!(
        bench.says("a", "ACK 1/1"),
        ["alarm FITS_NO_ROW a 1/1"],
        "no COMMIT was sent"
    );
    assert_eq!(bench.says("a", "LOST_STATE 1/1"), ["alarm FITS_NO_ROW a 1/1"]);
    assert_eq!(bench.says("a", "REPORT 1/1 HAZARD"), ["alarm FITS_NO_ROW a 1/1"]);
    assert!(bench.machine == before);
}

#[test]
fn c15_a_vote_of_a_lineage_that_was_not_asked_is_not_counted() {
    let mut bench = Bench::new("a b");
    bench.leaves("a");
    bench.execute("T1", "a b");
    bench.says("b", "YES 1/1");
    // Never asked: PREPARE waits for `a`.
    bench.joins_as("c", lineage_of("a"), 1);
    assert_eq!(bench.says("c", "YES 1/1"), ["alarm FITS_NO_ROW c 1/1"]);
    let view = bench.machine.find_view(&super::tid("T1")).unwrap();
    assert_eq!(view.branches[0].participant, name("a"));
    assert_eq!(view.branches[0].state, crate::BranchState::Preparing);
}
