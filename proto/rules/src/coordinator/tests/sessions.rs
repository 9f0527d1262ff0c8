//! Section 8: who may join, who replaces whom, and what goes first.

use alloc::vec::Vec;

use super::bench::lineage_of;
use super::rows::{committing, preparing};
use super::{Bench, name};
use crate::{Hello, Incarnation, Limits, Lineage};

const NOTHING: [&str; 0] = [];

fn hello(counter: u64, bits: u64, connection: u64) -> Hello {
    Hello {
        name: name("a"),
        lineage: lineage_of("a"),
        incarnation: Incarnation { counter, bits },
        connection,
        positions: Vec::new(),
    }
}

#[test]
fn a_new_name_is_recorded_and_welcomed() {
    let mut bench = Bench::new("");
    assert_eq!(bench.joins("a"), ["append PARTICIPANT a a", "a welcome"]);
    assert_eq!(
        bench.joins("a"),
        ["a replaced", "a2 welcome"],
        "the record is for a new name or lineage"
    );
}

#[test]
fn the_highest_incarnation_and_connection_wins() {
    let mut bench = Bench::new("");
    bench.hello(hello(3, 7, 5));
    assert_eq!(bench.hello(hello(3, 7, 5)), ["a2 refused Outdated"]);
    assert_eq!(bench.hello(hello(3, 7, 4)), ["a3 refused Outdated"]);
    assert_eq!(bench.hello(hello(2, 7, 9)), ["a4 refused Outdated"]);
    assert_eq!(bench.hello(hello(3, 7, 6)), ["a replaced", "a5 welcome"]);
    assert_eq!(bench.hello(hello(4, 8, 1)), ["a5 replaced", "a6 welcome"]);
}

#[test]
fn an_equal_counter_with_other_bits_is_refused_with_an_alarm() {
    let mut bench = Bench::new("");
    bench.hello(hello(3, 7, 5));
    assert_eq!(
        bench.hello(hello(3, 8, 6)),
        ["alarm INCARNATION_CONFLICT a", "a2 refused IncarnationConflict"]
    );
}

#[test]
fn frames_of_a_replaced_session_are_dropped() {
    let mut bench = preparing();
    bench.joins("a");
    let before = bench.machine.clone();
    for text in [
        "YES 1/1",
        "NO 1/1 X",
        "INQUIRE 1/1",
        "ACK 1/1",
        "REPORT 1/1 ABORT",
    ] {
        assert_eq!(bench.says("a", text), NOTHING);
    }
    assert!(bench.machine == before);
    assert_eq!(bench.leaves("a"), NOTHING);
    assert_eq!(
        bench.says("a2", "NO 1/1 X").len(),
        2,
        "its end does not end the newer one"
    );
}

#[test]
fn another_lineage_is_refused_while_the_first_lives() {
    let mut bench = preparing();
    assert_eq!(
        bench.joins_as("a", Lineage(0x99), 1),
        ["a2 refused OtherLineageJoined"]
    );
    assert_eq!(
        bench.gets("T1"),
        ["r2 = InProgress Preparing"],
        "and takes nothing over"
    );
}

#[test]
fn an_old_lineage_with_unresolved_branches_joins_for_decisions_only() {
    let mut bench = committing();
    bench.leaves("a");
    bench.joins_as("a", Lineage(0x99), 1);
    assert_eq!(bench.joins("a"), ["a3 welcome", "a3 < COMMIT 1/1"]);
    assert_eq!(
        bench.execute("T2", "a b"),
        ["a2 < PREPARE 1/2 T2", "b < PREPARE 1/2 T2"]
    );
    assert_eq!(
        bench.says("a3", "YES 1/2"),
        ["alarm FITS_NO_ROW a 1/2"],
        "it has no vote"
    );
    assert_eq!(bench.says("a3", "INQUIRE 1/2"), ["a3 < PENDING 1/2"]);
    assert_eq!(
        bench.says("a3", "YES 1/1"),
        ["a3 < COMMIT 1/1"],
        "C14: late, of its own branch"
    );
    assert_eq!(
        bench.says("a3", "ACK 1/1"),
        ["append FORGET_DONE 1/1 a"],
        "no hazard any more"
    );
    bench.forces();
    bench.leaves("a3");
    assert_eq!(
        bench.joins("a"),
        ["a4 refused OtherLineageJoined"],
        "resolved: no reason to join"
    );
}

#[test]
fn on_joining_commits_and_forgets_come_before_prepares() {
    let mut bench = Bench::new("a b");
    bench.execute("T1", "a b");
    bench.execute("T2", "a");
    bench.says("a", "YES 1/1");
    bench.says("b", "YES 1/1");
    bench.forces();
    bench.execute("T3", "a");
    bench.says("a", "YES 1/3");
    bench.forces();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    bench.leaves("a");
    bench.forces();
    let due = [
        "a2 welcome",
        "a2 < COMMIT 1/3",
        "a2 < FORGET 1/1",
        "a2 < PREPARE 1/2 T2",
    ];
    assert_eq!(bench.joins("a"), due);
}

#[test]
fn a_message_about_a_foreign_lineage_is_dropped_with_an_alarm() {
    let mut bench = preparing();
    let before = bench.machine.clone();
    for text in ["YES 1/1", "ACK 1/1", "LOST_STATE 1/1", "FORGET_ACK 1/1"] {
        let mut message = super::script::parse_message(text);
        use crate::ToCoordinator::{Ack, ForgetAck, Inquire, LostState, Report, Vote};
        match &mut message {
            Vote(xid, _) | Ack(xid) | LostState(xid) | Inquire(xid) | Report(xid, _) | ForgetAck(xid) => {
                xid.lineage = Lineage(0xf0);
            }
        }
        assert_eq!(bench.tells("a", message), ["alarm FOREIGN_LINEAGE a f0:1/1"]);
    }
    assert!(bench.machine == before);
}

#[test]
fn names_are_bounded() {
    let mut bench = Bench::with_limits(
        "a",
        Limits {
            max_participants: 1,
            ..Limits::DEFAULT
        },
    );
    assert_eq!(bench.joins("b"), ["b refused TooManyParticipants"]);
    assert_eq!(bench.joins("a"), ["a replaced", "a2 welcome"]);
}

#[test]
fn a_position_within_the_log_is_no_suspicion() {
    let mut bench = Bench::new("a b");
    let end = bench.log.len() as u64;
    let mut said = hello(2, 7, 1);
    said.positions = alloc::vec![(super::LOG, end), (Lineage(0xf0), 1_000)];
    assert_eq!(bench.hello(said), ["a replaced", "a2 welcome"]);
    assert!(!bench.machine.is_suspect());
}

#[test]
fn in_doubt_counts_the_yes_voters_that_know_no_decision() {
    let counts = |bench: &Bench| {
        let counts = |view: super::super::ParticipantView| (view.in_progress, view.in_doubt);
        bench.machine.participants().map(counts).collect::<Vec<_>>()
    };
    let mut bench = preparing();
    assert_eq!(counts(&bench), [(1, 0), (1, 0)]);
    bench.says("a", "YES 1/1");
    assert_eq!(counts(&bench), [(1, 1), (1, 0)]);
    let mut bench = committing();
    bench.says("a", "ACK 1/1");
    assert_eq!(counts(&bench), [(0, 0), (1, 1)]);
}
