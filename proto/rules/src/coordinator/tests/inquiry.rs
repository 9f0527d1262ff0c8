//! Rows Q1 to Q7 of section 5: what a participant is told of its branch. First match wins.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::bench::{START, lineage_of};
use super::rows::{aborting, committed, committing, deciding, preparing};
use super::script::parse_xid;
use super::{Archive, Bench, LOG, name, operator, tid, xid};
use crate::{Decision, Hello, Incarnation, Limits, Lineage, Quarantined, Record, ToCoordinator, Xid};

const NOTHING: [&str; 0] = [];

/// A record of the first start that did not decode.
fn damaged(shown: Option<Xid>, id: Option<&str>) -> Record {
    Record::Quarantined(Quarantined {
        xid: shown,
        transaction_id: id.map(tid),
        bytes: Arc::from(*b"?"),
    })
}

/// A log of one start with `a` and `b`, and these records behind; SERVING in its second start.
fn second_start(extra: Vec<Record>) -> Bench {
    let mut records = Bench::new("a b").log;
    records.extend(extra);
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, START + 60_000);
    bench.forces();
    bench.joins("a");
    bench.joins("b");
    bench
}

/// SUSPECT: `b` knew a position beyond this log's end.
fn suspects(bench: &mut Bench) -> Vec<alloc::string::String> {
    bench.hello(Hello {
        name: name("b"),
        lineage: lineage_of("b"),
        incarnation: Incarnation { counter: 2, bits: 7 },
        connection: 1,
        positions: vec![(LOG, 1_000)],
    })
}

#[test]
fn q1_commit_to_the_yes_voters_of_a_durable_commit() {
    let mut bench = committing();
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < COMMIT 1/1"]);
    let mut bench = committed();
    assert_eq!(
        bench.says("b", "INQUIRE 1/1"),
        ["b < COMMIT 1/1"],
        "from the archive"
    );
}

#[test]
fn q1_commit_survives_a_restart_and_names_lineages_not_names() {
    let mut bench = committing();
    bench.crashes();
    bench.forces();
    bench.joins_as("a", Lineage(0x99), 1);
    assert_eq!(
        bench.says("a", "INQUIRE 1/1"),
        ["a < ABORT 1/1"],
        "Q7: the COMMIT does not name it"
    );
    bench.joins("b");
    assert_eq!(bench.says("b", "INQUIRE 1/1"), ["b < COMMIT 1/1"]);
}

#[test]
fn q1_commit_of_a_former_lineage() {
    let old = committing();
    let mut records = old.log;
    let former = vec![LOG];
    records.push(Record::Lineage {
        lineage: Lineage(0xbeef),
        birth: START,
        former,
    });
    let mut bench = Bench::recovering(records, Archive::default(), Limits::DEFAULT, START + 60_000);
    bench.forces();
    bench.joins("a");
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < COMMIT 1/1"]);
    let other = ["alarm FOREIGN_LINEAGE a 1/2", "a < UNKNOWN 1/2"];
    assert_eq!(
        bench.says("a", "INQUIRE 1/2"),
        other,
        "a former lineage's silence presumes nothing"
    );
}

#[test]
fn q1_commit_by_an_operators_decision() {
    let resolved = Record::Resolved {
        xid: xid(1, 1),
        decision: Decision::Commit,
        voters: vec![lineage_of("a")],
        by: operator(),
    };
    let mut bench = second_start(vec![damaged(Some(xid(1, 1)), Some("T1")), resolved]);
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < COMMIT 1/1"]);
    let unnamed = ["b < ABORT 1/1"];
    assert_eq!(
        bench.says("b", "INQUIRE 1/1"),
        unnamed,
        "it names `a` alone: `b` may have been counted as READ_ONLY and prepared since (C3)"
    );
    suspects(&mut bench);
    assert_eq!(
        bench.says("b2", "INQUIRE 1/1"),
        ["b2 < ABORT 1/1"],
        "an operator's decision is no presumption"
    );
}

#[test]
fn q2_a_foreign_lineage_is_never_answered_abort() {
    let mut bench = Bench::new("a");
    let foreign = Xid {
        lineage: Lineage(0xf0),
        ..xid(1, 1)
    };
    let due = ["alarm FOREIGN_LINEAGE a f0:1/1", "a < UNKNOWN f0:1/1"];
    assert_eq!(bench.tells("a", ToCoordinator::Inquire(foreign)), due);
}

#[test]
fn q3_abort_by_an_operators_decision_even_under_suspect() {
    let resolved = Record::Resolved {
        xid: xid(1, 1),
        decision: Decision::Abort,
        voters: Vec::new(),
        by: operator(),
    };
    let mut bench = second_start(vec![damaged(Some(xid(1, 1)), Some("T1")), resolved]);
    suspects(&mut bench);
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < ABORT 1/1"]);
}

#[test]
fn q4_suspect_presumes_nothing_from_the_moment_it_is_found() {
    let mut bench = second_start(vec![]);
    assert_eq!(bench.says("a", "INQUIRE 1/7"), ["a < ABORT 1/7"]);
    let found = [
        "alarm SUSPECT b",
        "append! SUSPECT b 1000",
        "b replaced",
        "b2 welcome",
    ];
    assert_eq!(suspects(&mut bench), found);
    let unknown = ["alarm SUSPECT a 1/7", "a < UNKNOWN 1/7"];
    assert_eq!(bench.says("a", "INQUIRE 1/7"), unknown, "before it is durable");
    bench.forces();
    assert_eq!(bench.says("a", "INQUIRE 1/7"), unknown);
    bench.crashes();
    bench.forces();
    bench.joins("a");
    assert_eq!(
        bench.says("a", "INQUIRE 1/7"),
        unknown,
        "until an operator clears it"
    );
    let mut records = bench.log.clone();
    records.push(Record::SuspectCleared(operator()));
    bench.restarts_on(records);
    bench.forces();
    bench.joins("a");
    assert_eq!(bench.says("a", "INQUIRE 1/7"), ["a < ABORT 1/7"]);
}

#[test]
fn q4_suspect_still_answers_commit() {
    let mut bench = committing();
    suspects(&mut bench);
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < COMMIT 1/1"]);
}

#[test]
fn q4_an_attempt_never_minted_is_unknown() {
    let mut bench = preparing();
    let due = ["alarm NEVER_MINTED a 1/2", "a < UNKNOWN 1/2"];
    assert_eq!(bench.says("a", "INQUIRE 1/2"), due, "seq at the next");
    let due = ["alarm NEVER_MINTED a 2/1", "a < UNKNOWN 2/1"];
    assert_eq!(
        bench.says("a", "INQUIRE 2/1"),
        due,
        "a start that is not in the log"
    );
    let copied = Xid {
        incarnation: Incarnation { counter: 1, bits: 1 },
        ..xid(1, 1)
    };
    let due = ["alarm NEVER_MINTED a 1/1", "a < UNKNOWN 1/1"];
    assert_eq!(
        bench.tells("a", ToCoordinator::Inquire(copied)),
        due,
        "a start of a copied directory"
    );
}

#[test]
fn q4_a_start_that_was_lost_is_unknown() {
    let mut bench = Bench::new("a b");
    bench.crashes_keeping(1);
    bench.forces();
    assert_eq!(bench.log.len(), 2, "LINEAGE was kept, and this start");
    bench.joins("a");
    let due = ["alarm NEVER_MINTED a 5/1", "a < UNKNOWN 5/1"];
    assert_eq!(bench.says("a", "INQUIRE 5/1"), due);
}

#[test]
fn q5_a_quarantined_record_of_this_attempt_is_unknown() {
    let mut bench = second_start(vec![damaged(Some(xid(1, 1)), Some("T1"))]);
    assert_eq!(bench.says("a", "INQUIRE 1/1"), ["a < UNKNOWN 1/1"]);
    assert_eq!(
        bench.says("a", "INQUIRE 1/2"),
        ["a < ABORT 1/2"],
        "the others are served"
    );
}

#[test]
fn q5_a_record_without_an_attempt_hides_all_unknown_ones_of_earlier_starts() {
    let commit = committing().log.last().cloned().unwrap();
    let mut bench = second_start(vec![commit, damaged(None, None)]);
    assert_eq!(bench.says("a", "INQUIRE 1/2"), ["a < UNKNOWN 1/2"]);
    assert_eq!(
        bench.says("a", "INQUIRE 1/1"),
        ["a < COMMIT 1/1"],
        "known otherwise"
    );
    // Nobody can have asked for it before this start (R3).
    bench.passes(crate::Limits::DEFAULT.max_created_ahead_ms + 1);
    bench.execute("T9", "a b");
    bench.says("b", "NO 7/1 X");
    bench.forces();
    assert_eq!(bench.says("a", "INQUIRE 7/1"), ["a < ABORT 7/1"], "of this start");
}

#[test]
fn q6_pending_while_it_is_not_decided_durably() {
    assert_eq!(preparing().says("a", "INQUIRE 1/1"), ["a < PENDING 1/1"]);
    assert_eq!(deciding().says("a", "INQUIRE 1/1"), ["a < PENDING 1/1"]);
}

#[test]
fn q7_otherwise_abort_by_presumption() {
    assert_eq!(aborting().says("a", "INQUIRE 1/1"), ["a < ABORT 1/1"]);
    let mut bench = preparing();
    bench.crashes();
    bench.forces();
    bench.joins("a");
    assert_eq!(
        bench.says("a", "INQUIRE 1/1"),
        ["a < ABORT 1/1"],
        "no record: presumed"
    );
    let mut bench = Bench::new("a b c");
    bench.execute("T1", "a b");
    bench.says("a", "YES 1/1");
    bench.says("b", "READ_ONLY 1/1");
    bench.forces();
    assert_eq!(
        bench.says("c", "INQUIRE 1/1"),
        ["c < ABORT 1/1"],
        "a COMMIT does not name it"
    );
    assert_eq!(
        bench.says("b", "INQUIRE 1/1"),
        ["b < ABORT 1/1"],
        "a READ_ONLY voter neither"
    );
}

#[test]
fn an_inquiry_changes_nothing() {
    let mut bench = deciding();
    let before = bench.machine.clone();
    bench.says("a", "INQUIRE 1/1");
    assert!(bench.machine == before);
    assert_eq!(bench.says("b", "NO 1/1 X"), ["alarm CONTRARY_VOTE b 1/1"]);
    assert_eq!(bench.passes(0), NOTHING);
    assert_eq!(parse_xid("1/1"), xid(1, 1));
}
