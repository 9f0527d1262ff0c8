//! Recovery: the log becomes the machine again, and a checkpoint is the fold of durable records.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::super::{Effect, Fold};
use super::bench::START;
use super::rows::{aborting, committed, committing, deciding, preparing};
use super::{Archive, Bench, LOG};
use crate::{Limits, Quarantined, Record};

const NOTHING: [&str; 0] = [];

#[test]
fn a_new_log_begins_with_its_lineage_and_start_forced_before_it_serves() {
    let mut bench = Bench::recovering(Vec::new(), Archive::default(), Limits::DEFAULT, START);
    assert_eq!(bench.shown(), ["append! LINEAGE", "append! INCARNATION 1"]);
    assert!(!bench.machine.is_serving());
    assert_eq!(
        bench.step(super::super::Event::Durable(1)),
        NOTHING,
        "LINEAGE alone is not enough"
    );
    assert_eq!(bench.forces(), ["serving"]);
    assert_eq!(bench.machine.fold().birth, START - 5_000);
    assert_eq!(bench.machine.lineage(), LOG);
}

#[test]
fn s12_incarnations_only_rise_and_attempts_are_never_minted_again() {
    let mut bench = preparing();
    for counter in 2..5 {
        bench.crashes();
        assert_eq!(bench.shown(), [alloc::format!("append! INCARNATION {counter}")]);
        bench.forces();
        bench.joins("a");
        bench.joins("b");
        let sent = bench.execute(&alloc::format!("T{counter}"), "a");
        assert_eq!(sent, [alloc::format!("a < PREPARE {counter}/1 T{counter}")]);
    }
}

#[test]
fn while_recovering_nothing_happens() {
    let mut bench = committing();
    bench.crashes();
    assert_eq!(bench.shown(), ["append! INCARNATION 2"]);
    assert_eq!(bench.passes(600_000), NOTHING);
    assert_eq!(bench.machine.next_deadline(), None);
    assert_eq!(bench.joins("a"), ["a refused Recovering"]);
    assert_eq!(bench.says("a", "ACK 1/1"), NOTHING);
}

#[test]
fn a_commit_in_the_log_goes_on_and_asks_for_every_ack_again() {
    let mut bench = committing();
    bench.says("a", "ACK 1/1");
    bench.crashes();
    assert_eq!(bench.forces(), ["serving"]);
    assert_eq!(
        bench.joins("a"),
        ["a welcome", "a < COMMIT 1/1"],
        "acknowledgements are volatile"
    );
    assert_eq!(bench.gets("T1"), ["r2 = Committed Committing"]);
    bench.says("a", "ACK 1/1");
    bench.joins("b");
    assert_eq!(bench.says("b", "ACK 1/1"), ["append END 1/1"]);
}

#[test]
fn a_commit_that_reached_the_disk_unnoticed_is_found_and_one_that_did_not_is_not() {
    let mut found = deciding();
    found.crashes_keeping(found.log.len() as u64);
    found.forces();
    assert_eq!(found.gets("T1"), ["r2 = Committed Committing"]);
    let mut lost = deciding();
    lost.crashes();
    lost.forces();
    assert_eq!(lost.gets("T1"), ["r2 = NotFound"]);
}

#[test]
fn a_commit_without_yes_voters_whose_end_was_lost_ends_at_once() {
    let mut bench = preparing();
    bench.says("a", "READ_ONLY 1/1");
    bench.says("b", "READ_ONLY 1/1");
    bench.forces();
    bench.crashes();
    assert_eq!(bench.forces(), ["serving", "append END 1/1"]);
    assert_eq!(bench.forces(), ["archive 1/1 T1"]);
}

#[test]
fn a_lineage_that_took_the_name_before_the_crash_makes_a_hazard_after_it() {
    let mut bench = committing();
    bench.leaves("a");
    bench.joins_as("a", crate::Lineage(0x99), 1);
    // PARTICIPANT is kept, HEURISTIC is lost.
    bench.crashes_keeping(bench.log.len() as u64 - 1);
    let due = [
        "serving",
        "alarm LINEAGE_CHANGED a 1/1",
        "append! HEURISTIC 1/1 a Hazard damage",
    ];
    assert_eq!(bench.forces(), due);
}

#[test]
fn replay_hands_finished_outcomes_to_the_archive() {
    let mut bench = committed();
    bench.crashes();
    assert_eq!(bench.shown(), ["archive 1/1 T1", "append! INCARNATION 2"]);
    let mut bench = aborting();
    bench.forces();
    bench.crashes();
    assert_eq!(bench.shown(), ["archive 1/1 T1", "append! INCARNATION 2"]);
}

#[test]
fn a_checkpoint_is_the_fold_of_durable_records_not_of_the_live_machine() {
    let mut bench = committing();
    let fold = bench.machine.fold().clone();
    bench.says("a", "ACK 1/1");
    bench.says("b", "ACK 1/1");
    bench.execute("T2", "a b");
    bench.says("a", "NO 1/2 X");
    assert!(*bench.machine.fold() == fold);
    bench.forces();
    assert!(*bench.machine.fold() != fold);
}

/// What `records()` of a fold replays to.
pub(super) fn replayed(fold: &Fold) -> (Fold, Vec<crate::Outcome>) {
    let mut again = Fold::default();
    let mut finished = Vec::new();
    for record in fold.records() {
        finished.extend(again.apply(record));
    }
    (again, finished)
}

#[test]
fn a_checkpoint_replays_to_the_same_fold() {
    for bench in [
        Bench::new("a b"),
        preparing(),
        committing(),
        committed(),
        aborting(),
    ] {
        let fold = bench.machine.fold();
        assert_eq!(replayed(fold), (fold.clone(), vec![]));
    }
}

#[test]
fn a_checkpoint_keeps_a_branch_whose_heuristic_came_back_after_its_forget() {
    let mut bench = committing();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    bench.forces();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    let fold = bench.machine.fold();
    assert_eq!(fold.heuristics.len(), 1);
    assert_eq!(replayed(fold), (fold.clone(), vec![]));
}

#[test]
fn a_start_needs_no_time_but_what_it_is_given() {
    let bench = committing();
    let twin = || {
        Bench::recovering(
            bench.log.clone(),
            Archive::default(),
            Limits::DEFAULT,
            START + 9_000,
        )
    };
    assert!(
        twin().machine == twin().machine,
        "the same records make the same machine"
    );
    let appended = |bench: &Bench| {
        bench
            .effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Append { .. }))
            .count()
    };
    assert_eq!(appended(&twin()), 1);
    assert!(matches!(twin().log.last(), Some(Record::Incarnation(_))));
}

#[test]
fn s12_a_start_whose_incarnation_does_not_decode_keeps_its_counter() {
    let hidden = || {
        Record::Quarantined(Quarantined {
            xid: None,
            transaction_id: None,
            bytes: Arc::from(*b"?"),
        })
    };
    let mut used = BTreeSet::from([1]);
    let mut bench = Bench::new("a");
    // Starts; then those after the first stop decoding one after the other, the latest first or last.
    for damaged in [vec![], vec![0], vec![], vec![0, 1], vec![]] {
        let mut log = bench.log.clone();
        let starts: Vec<usize> = (2..log.len())
            .filter(|at| matches!(log[*at], Record::Incarnation(_)))
            .collect();
        for back in damaged {
            log[starts[starts.len() - 1 - back]] = hidden();
        }
        bench.restarts_on(log);
        bench.forces();
        let counter = bench.machine.incarnation().counter;
        assert!(
            used.iter().all(|earlier| *earlier < counter),
            "{counter} after {used:?}"
        );
        used.insert(counter);
    }
    assert_eq!(used.len(), 6);
}

#[test]
fn section_5_a_log_that_lost_its_tail_is_suspect_at_once_and_before_its_start_is_noted() {
    let mut bench = preparing();
    bench.crashes();
    let known = Archive {
        tail_lost: Some(99),
        ..Archive::default()
    };
    let mut bench = Bench::recovering(bench.log.clone(), known, Limits::DEFAULT, bench.wall());
    assert!(bench.machine.is_suspect());
    let begun = ["alarm SUSPECT", "append! SUSPECT - 99", "append! INCARNATION 100"];
    assert_eq!(bench.shown(), begun);
    // The force reached SUSPECT and the process died: the next start is told nothing of the tail.
    let suspect = bench.log.len() as u64 - 1;
    bench.crashes_keeping(suspect);
    assert!(bench.machine.is_suspect());
    assert_eq!(bench.shown(), ["append! INCARNATION 100"]);
    assert_eq!(bench.forces(), ["serving"]);
    bench.joins("a");
    assert_eq!(
        bench.says("a", "INQUIRE 1/1"),
        ["alarm SUSPECT a 1/1", "a < UNKNOWN 1/1"],
        "no presumption (Q4)"
    );
    assert_eq!(bench.execute("T9", "a"), ["r1 = Unknown"], "nothing is run (R3)");
}

#[test]
fn s12_starts_that_went_with_a_second_lost_tail_keep_their_counters() {
    let known = |forced| Archive {
        tail_lost: Some(forced),
        ..Archive::default()
    };
    let first = Bench::new("a").log;
    let mut bench = Bench::recovering(first, known(99), Limits::DEFAULT, START);
    bench.forces();
    let kept = bench.log.clone();
    for _ in 0..3 {
        bench.restarts_on(bench.log.clone());
        bench.forces();
    }
    let lost_at = bench.log.len() as u64;
    let used = bench.machine.incarnation().counter;
    let bench = Bench::recovering(kept, known(lost_at), Limits::DEFAULT, START);
    assert!(
        bench.machine.incarnation().counter > used,
        "{} after {used}",
        bench.machine.incarnation().counter
    );
}
