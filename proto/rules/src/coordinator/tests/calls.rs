//! Rows R1 to R7 of section 7, for all three calls, with the fingerprint.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::super::Event;
use super::bench::{START, execute};
use super::rows::{aborting, committed, committing, deciding, preparing};
use super::{Archive, Bench, operator, tid, xid};
use crate::{Decision, Limits, Quarantined, Record, Wait};

const NOTHING: [&str; 0] = [];

/// SERVING on a log of one earlier start and these records behind it.
fn second_start(extra: Vec<Record>) -> Bench {
    let mut records = Bench::new("a b").log;
    records.extend(extra);
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, START + 60_000);
    bench.forces();
    bench.joins("a");
    bench.joins("b");
    bench
}

fn damaged(id: Option<&str>) -> Record {
    Record::Quarantined(Quarantined {
        xid: None,
        transaction_id: id.map(tid),
        bytes: Arc::from(*b"?"),
    })
}

#[test]
fn before_serving_every_call_is_refused() {
    let mut bench = Bench::recovering(Vec::new(), Archive::default(), Limits::DEFAULT, START);
    assert_eq!(bench.execute("T1", "a b"), ["r1 ! Recovering"]);
    assert_eq!(bench.gets("T1"), ["r2 ! Recovering"]);
    assert_eq!(bench.aborts("T1"), ["r3 ! Recovering"]);
    assert_eq!(bench.forgets("1/1", "a"), ["r4 ! Recovering"]);
    assert_eq!(bench.joins("a"), ["a refused Recovering"]);
    assert_eq!(bench.forces(), ["serving"]);
}

#[test]
fn r1_running_get_says_in_progress_and_execute_attaches() {
    let mut bench = preparing();
    assert_eq!(bench.gets("T1"), ["r2 = InProgress Preparing"]);
    assert_eq!(bench.execute("T1", "a b"), NOTHING);
    bench.says("a", "YES 1/1");
    bench.says("b", "YES 1/1");
    assert_eq!(bench.gets("T1"), ["r4 = InProgress Deciding"]);
    assert_eq!(bench.execute("T1", "a b"), NOTHING);
    let told = bench.forces();
    let told: Vec<_> = told.iter().filter(|line| line.starts_with('r')).collect();
    assert_eq!(
        told,
        [
            "r1 = Committed Committing",
            "r3 = Committed Committing",
            "r5 = Committed Committing"
        ]
    );
}

#[test]
fn r1_abort_not_durable_is_in_progress() {
    let mut bench = aborting();
    assert_eq!(bench.gets("T1"), ["r2 = InProgress Aborting"]);
    assert_eq!(bench.execute("T1", "a b"), NOTHING);
    assert_eq!(bench.aborts("T1"), NOTHING);
    let told = bench.forces();
    assert_eq!(
        told.iter()
            .filter(|line| line.ends_with("= Aborted Aborted NO_FUNDS"))
            .count(),
        3
    );
}

#[test]
fn r1_abort_of_what_is_deciding_attaches_and_hears_committed() {
    let mut bench = deciding();
    assert_eq!(bench.aborts("T1"), NOTHING);
    assert!(bench.forces().contains(&"r2 = Committed Committing".into()));
}

#[test]
fn r1_an_abort_that_is_refused_aborts_nothing() {
    let limits = Limits {
        max_attached_callers: 1,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::with_limits("a b", limits);
    bench.execute("T1", "a b");
    let refused = ["r2 ! Exhausted { bound: \"max_attached_callers\", value: 1 }"];
    assert_eq!(bench.aborts("T1"), refused);
    assert_eq!(bench.gets("T1"), ["r3 = InProgress Preparing"]);
}

#[test]
fn r2_a_retained_outcome_answers_every_call() {
    let mut bench = committed();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committed"]);
    assert_eq!(
        bench.execute("T1", "a b"),
        ["r3 = Committed Committed"],
        "nothing runs again"
    );
    assert_eq!(
        bench.executes("T1", "a b", Wait::Completed),
        ["r4 = Committed Committed"]
    );
    assert_eq!(bench.aborts("T1"), ["r5 = Committed Committed"]);
    let mut bench = aborting();
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Aborted Aborted NO_FUNDS"]);
    assert_eq!(bench.execute("T1", "a b"), ["r3 = Aborted Aborted NO_FUNDS"]);
    assert_eq!(bench.aborts("T1"), ["r4 = Aborted Aborted NO_FUNDS"]);
}

#[test]
fn r2_while_committing_decided_is_answered_and_completed_attaches() {
    let mut bench = committing();
    assert_eq!(bench.execute("T1", "a b"), ["r2 = Committed Committing"]);
    assert_eq!(bench.aborts("T1"), ["r3 = Committed Committing"]);
    assert_eq!(bench.executes("T1", "a b", Wait::Completed), NOTHING);
    bench.says("a", "ACK 1/1");
    assert_eq!(
        bench.says("b", "ACK 1/1"),
        ["append END 1/1", "r4 = Committed Committed"]
    );
    assert_eq!(
        bench.gets("T1"),
        ["r5 = Committed Committed"],
        "END is not durable yet"
    );
}

#[test]
fn r2_outcomes_survive_a_restart() {
    let mut bench = committed();
    bench.crashes();
    bench.forces();
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committed"]);
}

#[test]
fn r3_a_quarantined_record_that_shows_the_id_is_unknown() {
    let mut bench = second_start(vec![damaged(Some("T1"))]);
    assert_eq!(bench.gets("T1"), ["r1 = Unknown"]);
    assert_eq!(bench.execute("T1", "a b"), ["r2 = Unknown"], "nothing is run");
    assert_eq!(bench.aborts("T1"), ["r3 = Unknown"]);
    assert_eq!(bench.gets("T2"), ["r4 = NotFound"]);
}

#[test]
fn r3_it_stays_unknown_after_an_operator_resolved_the_attempt() {
    let quarantined = Quarantined {
        xid: Some(xid(1, 1)),
        transaction_id: Some(tid("T1")),
        bytes: Arc::from([]),
    };
    let resolved = Record::Resolved {
        xid: xid(1, 1),
        decision: Decision::Commit,
        voters: Vec::new(),
        by: operator(),
    };
    let mut bench = second_start(vec![Record::Quarantined(quarantined), resolved]);
    assert_eq!(
        bench.execute("T1", "a b"),
        ["r1 = Unknown"],
        "a second attempt could commit beside it"
    );
}

#[test]
fn r3_a_quarantined_record_without_an_id_hides_all_that_may_be_older_than_this_start() {
    let mut bench = second_start(vec![damaged(None)]);
    let ahead = Limits::DEFAULT.max_created_ahead_ms;
    // It may have been asked for before this start, by a caller whose clock is as far ahead as R5 lets it be.
    let before = START + 60_000 + ahead;
    assert_eq!(bench.gets_of("T1", Some(before)), ["r1 = Unknown"]);
    assert_eq!(bench.gets_of("T1", None), ["r2 = Unknown"]);
    let old = execute("T1", "a b", before, Wait::Decided);
    assert_eq!(bench.runs(old), ["r3 = Unknown"]);
    bench.passes(1);
    let new = execute("T2", "a b", before + 1, Wait::Decided);
    assert_eq!(bench.runs(new), ["a < PREPARE 6/1 T2", "b < PREPARE 6/1 T2"]);
}

#[test]
fn r3_a_clock_that_was_set_back_uncovers_no_id_of_an_earlier_start() {
    let mut records = committed().log;
    records.push(damaged(None));
    let set_back = START - 3_600_000;
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, set_back);
    bench.forces();
    assert_eq!(bench.gets_of("T9", Some(START)), ["r1 = Unknown"]);
}

#[test]
fn r3_suspect_runs_nothing_but_knows_what_it_knows() {
    let mut records = committed().log;
    records.push(Record::Suspect {
        participant: Some(super::name("a")),
        position: 99,
    });
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, START + 60_000);
    bench.forces();
    assert_eq!(bench.gets_of("T1", Some(START)), ["r1 = Committed Committed"]);
    assert_eq!(bench.execute("T2", "a b"), ["r2 = Unknown"]);
    assert_eq!(bench.aborts("T2"), ["r3 = Unknown"]);
}

#[test]
fn r4_created_before_the_birth_is_unknown_and_nothing_runs() {
    let mut bench = Bench::new("a b");
    let old = execute("T1", "a b", START - 5_001, Wait::Decided);
    assert_eq!(bench.runs(old), ["r1 = Unknown"]);
    assert_eq!(bench.gets_of("T1", Some(START - 5_001)), ["r2 = Unknown"]);
    assert_eq!(bench.aborts_of("T1", Some(START - 5_001)), ["r3 = Unknown"]);
    let lagging = execute("T1", "a b", START - 5_000, Wait::Decided);
    assert_eq!(bench.runs(lagging), ["a < PREPARE 1/1 T1", "b < PREPARE 1/1 T1"]);
}

#[test]
fn r4_created_before_retained_since_is_expired_and_nothing_runs() {
    let mut records = Bench::new("a b").log;
    records.push(Record::Retained(START + 10_000));
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, START + 60_000);
    bench.forces();
    let old = execute("T1", "a b", START + 9_999, Wait::Decided);
    assert_eq!(bench.runs(old), ["r1 = Expired"]);
    assert_eq!(bench.gets_of("T1", Some(START + 9_999)), ["r2 = Expired"]);
    assert_eq!(bench.aborts_of("T1", Some(START + 9_999)), ["r3 = Expired"]);
}

#[test]
fn r5_created_too_far_ahead_is_refused() {
    let mut bench = Bench::new("a b");
    let ahead = START + 60_001;
    let refused = "CreatedAhead { created: 1000060001, now: 1000000000, max_ahead_ms: 60000 }";
    let run = bench.runs(execute("T1", "a b", ahead, Wait::Decided));
    assert_eq!(run, [alloc::format!("r1 ! {refused}")]);
    assert_eq!(
        bench.gets_of("T1", Some(ahead)),
        [alloc::format!("r2 ! {refused}")]
    );
    assert_eq!(
        bench.aborts_of("T1", Some(ahead)),
        [alloc::format!("r3 ! {refused}")]
    );
    bench.step(super::super::Event::Clock(START + 1));
    let run = bench.runs(execute("T1", "a b", ahead, Wait::Decided));
    assert_eq!(
        run,
        ["a < PREPARE 1/1 T1", "b < PREPARE 1/1 T1"],
        "by the clock as last told"
    );
}

#[test]
fn r6_a_participant_that_never_joined_is_refused() {
    let mut bench = Bench::new("a");
    assert_eq!(bench.execute("T1", "a b"), ["r1 ! ParticipantUnknown(b)"]);
    assert_eq!(bench.gets("T1"), ["r2 = NotFound"]);
    bench.leaves("a");
    assert_eq!(
        bench.execute("T1", "a"),
        NOTHING,
        "one that is away has joined once"
    );
}

#[test]
fn r7_an_id_that_never_ran_is_not_found() {
    let mut bench = Bench::new("a b");
    assert_eq!(bench.gets("T1"), ["r1 = NotFound"]);
    assert_eq!(bench.gets_of("T1", None), ["r2 = NotFound"]);
    assert_eq!(bench.aborts_of("T1", None), ["r3 = NotFound"]);
    assert_eq!(
        bench.execute("T1", "a b"),
        ["a < PREPARE 1/1 T1", "b < PREPARE 1/1 T1"]
    );
}

#[test]
fn r7_a_fence_keeps_out_an_execute_still_under_way() {
    let mut bench = Bench::new("a b");
    assert_eq!(bench.aborts("T1"), ["append! ABORT 1/1 T1 FENCED_BEFORE_EXECUTE"]);
    assert_eq!(
        bench.execute("T1", "a b"),
        NOTHING,
        "attached: a fence matches everything"
    );
    let told = [
        "r1 = Aborted Aborted FENCED_BEFORE_EXECUTE",
        "r2 = Aborted Aborted FENCED_BEFORE_EXECUTE",
        "archive 1/1 T1",
    ];
    assert_eq!(bench.forces(), told);
    assert_eq!(
        bench.execute("T1", "b"),
        ["r3 = Aborted Aborted FENCED_BEFORE_EXECUTE"]
    );
    bench.crashes();
    bench.forces();
    assert_eq!(
        bench.execute("T1", "a"),
        ["r4 = Aborted Aborted FENCED_BEFORE_EXECUTE"]
    );
}

#[test]
fn r7_a_crash_before_the_decision_leaves_no_record_and_a_new_attempt_runs() {
    let mut bench = preparing();
    bench.says("a", "YES 1/1");
    bench.crashes();
    bench.forces();
    bench.joins("a");
    bench.joins("b");
    assert_eq!(bench.gets("T1"), ["r2 = NotFound"]);
    assert_eq!(
        bench.execute("T1", "a b"),
        ["a < PREPARE 2/1 T1", "b < PREPARE 2/1 T1"]
    );
}

#[test]
fn another_fingerprint_is_refused_whatever_the_state() {
    for mut bench in [preparing(), deciding(), aborting(), committing(), committed()] {
        let said = bench.execute("T1", "a");
        assert_eq!(said, ["r2 ! OtherContent"]);
    }
    let mut bench = aborting();
    bench.forces();
    assert_eq!(bench.execute("T1", "a"), ["r2 ! OtherContent"]);
}

/// SERVING in its second start with an archive of which these items do not decode.
fn second_start_over(quarantined: Vec<Quarantined>) -> Bench {
    let archive = Archive {
        quarantined,
        ..Archive::default()
    };
    let log = Bench::new("a b").log;
    let mut bench = Bench::recovering(log, archive, Limits::DEFAULT, START + 60_000);
    bench.forces();
    bench.joins("a");
    bench
}

#[test]
fn r3_q5_an_archived_outcome_that_does_not_decode_is_unknown_by_id_and_by_attempt() {
    let shown = Quarantined {
        xid: Some(xid(1, 1)),
        transaction_id: Some(tid("T1")),
        bytes: Arc::from([]),
    };
    let mut found_later = second_start_over(Vec::new());
    assert_eq!(found_later.step(Event::Quarantined(shown.clone())), NOTHING);
    for mut bench in [second_start_over(vec![shown]), found_later] {
        assert_eq!(bench.execute("T1", "a b"), ["r1 = Unknown"], "nothing is run");
        assert_eq!(bench.aborts("T1"), ["r2 = Unknown"], "and nothing fenced");
        assert_eq!(bench.gets("T2"), ["r3 = NotFound"], "the rest is served");
        assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < UNKNOWN 1/1"]);
        assert_eq!(bench.says("a", "INQUIRE 1/2"), ["a < ABORT 1/2"]);
    }
}

#[test]
fn r3_q5_an_archived_outcome_that_shows_nothing_may_be_any_of_an_earlier_start() {
    let blind = Quarantined {
        xid: None,
        transaction_id: None,
        bytes: Arc::from([]),
    };
    let mut bench = second_start_over(vec![blind]);
    assert_eq!(bench.says("a", "INQUIRE 1/2"), ["a < UNKNOWN 1/2"]);
    assert_eq!(bench.gets_of("T3", None), ["r1 = Unknown"]);
    let new = START + 60_000 + Limits::DEFAULT.max_created_ahead_ms + 1;
    bench.passes(1);
    assert_eq!(
        bench.gets_of("T4", Some(new)),
        ["r2 = NotFound"],
        "first used in this start"
    );
    assert_eq!(
        bench.machine.fold().quarantined,
        [],
        "the archive carries it on, not the log"
    );
}
