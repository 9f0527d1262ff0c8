//! C13 and FORGET: what was decided by hand stands beside the outcome until it is forgotten.

use alloc::vec;

use super::bench::{START, lineage_of};
use super::rows::{aborting, committed, committing, preparing};
use super::script::parse_xid;
use super::{Archive, Bench, LOG, name, operator, tid};
use crate::{Hello, Incarnation, Limits, Lineage, Record};

const NOTHING: [&str; 0] = [];

/// `T1` COMMITTING, `b` resolved, and `a` committed or aborted by hand: the report is durable.
fn reported(what: &str) -> Bench {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.says("a", &alloc::format!("REPORT 1/1 {what}"));
    bench.forces();
    bench
}

#[test]
fn c13_a_report_is_forced_once_and_acknowledged_after_it() {
    let mut bench = committing();
    assert_eq!(
        bench.says("a", "REPORT 1/1 COMMIT"),
        ["append! HEURISTIC 1/1 a Commit agrees"]
    );
    assert_eq!(bench.says("a", "REPORT 1/1 COMMIT"), NOTHING, "on its way");
    assert_eq!(
        bench.forces(),
        ["a < REPORT_RECORDED 1/1", "append! FORGET 1/1 a"]
    );
    assert_eq!(
        bench.says("a", "REPORT 1/1 COMMIT"),
        ["a < REPORT_RECORDED 1/1"],
        "once per content"
    );
}

#[test]
fn c13_without_damage_forget_goes_by_itself_and_only_its_ack_resolves() {
    let mut bench = reported("COMMIT");
    assert_eq!(bench.says("a", "ACK 1/1"), NOTHING, "an ACK of COMMIT does not");
    assert_eq!(
        bench.says("a", "FORGET_ACK 1/1"),
        NOTHING,
        "nor the ACK of a FORGET that was not sent"
    );
    assert_eq!(bench.forces(), ["a < FORGET 1/1"]);
    assert_eq!(
        bench.says("a", "FORGET_ACK 1/1"),
        ["append FORGET_DONE 1/1 a", "append END 1/1"]
    );
    assert_eq!(bench.says("a", "FORGET_ACK 1/1"), NOTHING);
    assert_eq!(bench.forces(), ["archive 1/1 T1 heuristic Commit"]);
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committed heuristic Commit"]);
}

#[test]
fn c13_with_damage_an_alarm_until_an_operators_forget_and_no_commit_any_more() {
    let mut bench = reported("ABORT");
    assert_eq!(
        bench.shown(),
        ["a < REPORT_RECORDED 1/1", "alarm HEURISTIC_DAMAGE a 1/1"]
    );
    assert_eq!(bench.passes(30_000), NOTHING, "COMMIT is not sent to it");
    assert_eq!(bench.joins("a"), ["a replaced", "a2 welcome"]);
    assert_eq!(bench.forgets("1/1", "a"), ["append! FORGET 1/1 a by operator"]);
    assert_eq!(bench.forces(), ["r2 = Forgotten", "a2 < FORGET 1/1"]);
    assert_eq!(
        bench.says("a2", "FORGET_ACK 1/1"),
        ["append FORGET_DONE 1/1 a", "append END 1/1"]
    );
    assert_eq!(bench.forces(), ["archive 1/1 T1 heuristic Abort"]);
}

#[test]
fn a_branch_decided_by_hand_holds_back_no_floor_also_after_a_restart() {
    let mut bench = reported("ABORT");
    let floor = |bench: &Bench, of: &str| {
        let floor = bench.machine.floor(&name(of));
        (floor.counter, floor.seq)
    };
    assert_eq!(floor(&bench, "a"), (1, 2), "no COMMIT of 1/1 goes to it any more");
    bench.crashes();
    bench.forces();
    assert_eq!(bench.machine.in_progress(), 1, "nobody let it be forgotten");
    assert_eq!(floor(&bench, "a"), (2, 1));
    assert_eq!(floor(&bench, "b"), (1, 1), "its ACK went with the crash");
}

#[test]
fn c13_forget_again_until_it_is_acknowledged() {
    let mut bench = reported("COMMIT");
    bench.forces();
    let mut sent = 0;
    while sent < 8 {
        let pause = bench.machine.next_deadline().unwrap() - bench.now;
        assert!(pause <= Limits::DEFAULT.retry_cap_ms, "capped");
        sent += usize::from(bench.passes(pause) == ["a < FORGET 1/1"]);
    }
    assert_eq!(bench.joins("a"), ["a replaced", "a2 welcome", "a2 < FORGET 1/1"]);
    bench.says("a2", "FORGET_ACK 1/1");
    bench.forces();
    assert_eq!(bench.passes(30_000), NOTHING);
}

#[test]
fn c13_forget_that_is_acknowledged_is_not_sent_again_while_forget_done_is_not_durable() {
    let mut bench = reported("COMMIT");
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    assert_eq!(bench.passes(30_000), NOTHING, "not by its timer");
    assert_eq!(bench.joins("a"), ["a replaced", "a2 welcome"], "not on joining");
    assert_eq!(bench.forces(), ["archive 1/1 T1 heuristic Commit"]);
    assert_eq!(bench.joins("a"), ["a2 replaced", "a3 welcome"]);
}

#[test]
fn c13_forget_goes_again_after_a_crash_that_took_forget_done() {
    let mut bench = reported("COMMIT");
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    bench.crashes();
    bench.forces();
    assert_eq!(bench.joins("a"), ["a welcome", "a < FORGET 1/1"]);
}

#[test]
fn c13_a_report_about_a_finished_transaction_holds_it_open_again() {
    let mut bench = committed();
    let due = ["append! HEURISTIC 1/1 a Abort damage with outcome"];
    assert_eq!(bench.says("a", "REPORT 1/1 ABORT"), due);
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committed heuristic Abort"]);
    bench.crashes();
    bench.forces();
    bench.joins("a");
    assert_eq!(bench.gets("T1"), ["r3 = Committed Committed heuristic Abort"]);
    bench.forgets("1/1", "a");
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    assert_eq!(bench.forces(), ["archive 1/1 T1 heuristic Abort"]);
}

#[test]
fn c13_a_report_behind_an_end_that_is_not_durable_is_not_lost() {
    let mut bench = committing();
    bench.says("a", "ACK 1/1");
    bench.says("b", "ACK 1/1");
    let due = ["append! HEURISTIC 1/1 a Abort damage with outcome"];
    assert_eq!(bench.says("a", "REPORT 1/1 ABORT"), due);
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committed heuristic Abort"]);
    assert_eq!(bench.machine.fold().open.len(), 1, "not finished");
}

#[test]
fn c13_a_report_while_aborting_is_judged_once_abort_is_durable() {
    let mut bench = aborting();
    let due = ["append! HEURISTIC 1/1 a Commit unjudged with outcome"];
    assert_eq!(bench.says("a", "REPORT 1/1 COMMIT"), due);
    assert_eq!(bench.forgets("1/1", "a"), ["r2 ! NoHeuristic"]);
    let told = bench.forces();
    let judged = "append! HEURISTIC 1/1 a Commit damage with outcome";
    assert_eq!(told[2..], ["a < REPORT_RECORDED 1/1", judged]);
    assert_eq!(
        bench.forces(),
        ["a < REPORT_RECORDED 1/1", "alarm HEURISTIC_DAMAGE a 1/1"]
    );
}

#[test]
fn c13_a_report_about_an_unknown_attempt_is_judged_by_presumption() {
    let mut bench = preparing();
    bench.crashes();
    bench.forces();
    bench.joins("a");
    assert_eq!(
        bench.says("a", "REPORT 1/1 ABORT"),
        ["append! HEURISTIC 1/1 a Abort agrees"]
    );
    assert_eq!(
        bench.forces(),
        ["a < REPORT_RECORDED 1/1", "append! FORGET 1/1 a"]
    );
    assert_eq!(bench.forces(), ["a < FORGET 1/1"]);
    assert_eq!(bench.says("a", "FORGET_ACK 1/1"), ["append FORGET_DONE 1/1 a"]);
    bench.forces();
    assert!(bench.machine.fold().heuristics.is_empty());
}

#[test]
fn c13_damage_is_not_judged_while_section_5_says_unknown() {
    let mut bench = Bench::new("a b");
    bench.hello(Hello {
        name: name("b"),
        lineage: lineage_of("b"),
        incarnation: Incarnation { counter: 2, bits: 7 },
        connection: 1,
        positions: vec![(LOG, 1_000)],
    });
    bench.forces();
    bench.says("a", "REPORT 1/1 ABORT");
    bench.forces();
    assert_eq!(bench.shown(), ["a < REPORT_RECORDED 1/1"]);
    let mut records = bench.log.clone();
    records.push(Record::SuspectCleared(operator()));
    bench.restarts_on(records);
    assert_eq!(
        bench.forces(),
        ["serving", "append! HEURISTIC 1/1 a Abort agrees"],
        "at start"
    );
}

#[test]
fn c13_a_heuristic_of_the_time_before_the_decision_is_judged_by_it() {
    let mut bench = preparing();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    assert_eq!(
        bench.forgets("1/1", "a"),
        ["r2 ! NoHeuristic"],
        "nobody can know the damage yet"
    );
    bench.says("b", "NO 1/1 X");
    let judged = "append! HEURISTIC 1/1 a Commit damage with outcome";
    assert_eq!(
        bench.forces(),
        [judged, "r1 = Aborted Aborted X heuristic Commit"]
    );
    assert_eq!(
        bench.forces(),
        ["a < REPORT_RECORDED 1/1", "alarm HEURISTIC_DAMAGE a 1/1"]
    );
}

#[test]
fn c13_a_heuristic_outlives_a_crash_before_the_decision() {
    let mut bench = preparing();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    bench.crashes();
    assert_eq!(
        bench.forces(),
        ["serving", "append! HEURISTIC 1/1 a Commit damage"]
    );
    assert_eq!(bench.forces(), ["alarm HEURISTIC_DAMAGE a 1/1"]);
}

#[test]
fn at_start_forgets_go_on_and_damage_alarms_again() {
    let mut bench = reported("ABORT");
    bench.crashes();
    assert_eq!(bench.forces(), ["serving", "alarm HEURISTIC_DAMAGE a 1/1"]);
    bench.forgets("1/1", "a");
    bench.forces();
    bench.crashes();
    assert_eq!(bench.forces(), ["serving"]);
    assert_eq!(bench.joins("b"), ["b welcome", "b < COMMIT 1/1"]);
    assert_eq!(bench.joins("a"), ["a welcome", "a < FORGET 1/1"]);
    let mut bench = reported("COMMIT");
    bench.crashes();
    assert_eq!(
        bench.forces(),
        ["serving", "append! FORGET 1/1 a"],
        "no damage and no FORGET yet"
    );
}

#[test]
fn a_forced_forget_resolves_a_heuristic_whose_lineage_is_gone() {
    let mut bench = reported("ABORT");
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    bench.forgets("1/1", "a");
    assert_eq!(
        bench.forces(),
        ["r2 = Forgotten", "append FORGET_DONE 1/1 a", "append END 1/1"]
    );
}

#[test]
fn a_lineage_that_goes_with_forget_on_its_way_is_resolved_by_the_forced_forget() {
    let mut bench = reported("ABORT");
    bench.forgets("1/1", "a");
    bench.forces();
    bench.leaves("a");
    let due = [
        "append PARTICIPANT a 99",
        "append FORGET_DONE 1/1 a",
        "append END 1/1",
        "a2 welcome",
    ];
    assert_eq!(bench.joins_as("a", Lineage(0x99), 1), due);
}

#[test]
fn an_old_lineage_that_is_back_still_hears_forget() {
    let mut bench = reported("ABORT");
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    assert_eq!(bench.joins("a"), ["a3 welcome"], "for its heuristic");
    bench.forgets("1/1", "a");
    let due = [
        "r2 = Forgotten",
        "a3 < FORGET 1/1",
        "append FORGET_DONE 1/1 a",
        "append END 1/1",
    ];
    assert_eq!(bench.forces(), due);
}

#[test]
fn an_operator_forgets_a_hazard_and_that_resolves_the_branch() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.says("a", "LOST_STATE 1/1");
    bench.forces();
    bench.forgets("1/1", "a");
    assert_eq!(
        bench.forces(),
        ["r2 = Forgotten", "append FORGET_DONE 1/1 a", "append END 1/1"]
    );
    assert_eq!(bench.forces(), ["archive 1/1 T1 heuristic Hazard"]);
    assert_eq!(bench.forgets("1/1", "a"), ["r3 ! NoHeuristic"]);
}

#[test]
fn s8_forget_never_goes_to_the_branch_of_a_hazard() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    bench.forces();
    bench.forgets("1/1", "a");
    bench.forces();
    bench.leaves("a2");
    // FORGET_DONE is not durable yet; the branch is prepared and asks.
    assert_eq!(bench.joins("a"), ["a3 welcome"]);
    assert_eq!(bench.says("a3", "INQUIRE 1/1"), ["a3 < COMMIT 1/1"]);
}

#[test]
fn a_report_takes_the_place_of_a_hazard_and_must_be_forgotten_itself() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.says("a", "LOST_STATE 1/1");
    bench.forces();
    bench.forgets("1/1", "a");
    assert_eq!(
        bench.says("a", "REPORT 1/1 ABORT"),
        ["append! HEURISTIC 1/1 a Abort damage"]
    );
    let due = [
        "r2 = Forgotten",
        "a < REPORT_RECORDED 1/1",
        "alarm HEURISTIC_DAMAGE a 1/1",
    ];
    assert_eq!(bench.forces(), due);
    assert!(bench.machine.is_running(parse_xid("1/1")), "not resolved");
}

#[test]
fn a_heuristic_of_a_lineage_that_was_not_asked_leaves_the_branch_alone() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    bench.forces();
    bench.joins("a");
    // What it reports was never its own; by section 5 it is told ABORT.
    bench.says("a2", "REPORT 1/1 ABORT");
    bench.forces();
    bench.forces();
    bench.says("a2", "FORGET_ACK 1/1");
    bench.forces();
    assert!(bench.machine.is_running(parse_xid("1/1")));
    assert_eq!(bench.says("a3", "ACK 1/1"), ["append END 1/1"]);
}

#[test]
fn a_forget_ack_of_another_lineage_is_nothing() {
    let mut bench = reported("ABORT");
    bench.forgets("1/1", "a");
    bench.forces();
    assert_eq!(bench.says("b", "FORGET_ACK 1/1"), NOTHING);
    assert!(bench.machine.is_running(parse_xid("1/1")));
}

#[test]
fn two_branches_by_hand_both_ways_are_mixed() {
    let mut bench = committing();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.says("b", "REPORT 1/1 ABORT");
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committing heuristic Mixed"]);
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    bench.forces();
    assert_eq!(
        bench.gets("T1"),
        ["r3 = Committed Committing heuristic Mixed"],
        "the forgotten one counts"
    );
}

#[test]
fn a_foreign_report_is_dropped_with_an_alarm() {
    let mut bench = Bench::new("a");
    let mut message = super::script::parse_message("REPORT 1/1 ABORT");
    if let crate::ToCoordinator::Report(xid, _) = &mut message {
        xid.lineage = Lineage(0xf0);
    }
    assert_eq!(bench.tells("a", message), ["alarm FOREIGN_LINEAGE a f0:1/1"]);
}

#[test]
fn heuristics_not_forgotten_are_bounded() {
    let limits = Limits {
        max_heuristics: 1,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::recovering(Bench::new("a b").log, Archive::default(), limits, START + 1_000);
    bench.forces();
    bench.joins("a");
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    assert_eq!(
        bench.says("a", "REPORT 1/2 COMMIT"),
        ["alarm TOO_MANY_HEURISTICS a 1/2"]
    );
    assert!(bench.machine.find_view(&tid("T1")).is_none());
}

#[test]
fn reports_about_unknown_attempts_leave_room_for_those_about_known_ones() {
    let limits = Limits {
        max_heuristics: 2,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::recovering(Bench::new("a b").log, Archive::default(), limits, START + 1_000);
    bench.forces();
    bench.joins("a");
    bench.joins("b");
    bench.execute("T9", "a b");
    bench.says("b", "REPORT 1/1 COMMIT");
    bench.forces();
    assert_eq!(
        bench.says("b", "REPORT 1/2 COMMIT"),
        ["alarm TOO_MANY_HEURISTICS b 1/2"]
    );
    let reported = bench.says("a", "REPORT 2/1 ABORT");
    assert!(
        reported.iter().any(|effect| effect.contains("HEURISTIC")),
        "{reported:?}"
    );
    assert!(!reported.iter().any(|effect| effect.contains("TOO_MANY")));
}
