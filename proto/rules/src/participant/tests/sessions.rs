//! Floors (section 6) and sessions (section 8) at the participant.

use super::*;

#[test]
fn section_6_a_floor_only_rises_and_drops_tombstones_but_no_doubt_and_no_heuristic() {
    let branch = |seq, state| RecoveredBranch {
        xid: xid(seq),
        transaction_id: id(&std::format!("T{seq}")),
        state,
    };
    let mut machine = participant(recovered(vec![
        branch(1, RecoveredState::Committed),
        branch(2, RecoveredState::Forgotten { committed: true }),
        branch(
            3,
            RecoveredState::Prepared {
                operation: operation(""),
            },
        ),
        branch(4, RecoveredState::Heuristic(Decision::Abort)),
        branch(5, RecoveredState::Committed),
    ]));
    join(&mut machine, 0);
    let effect = |seq| Effect::Floor {
        lineage: HOME,
        floor: Floor {
            counter: COORDINATOR.counter,
            seq,
        },
    };
    assert_eq!(machine.step(0, floor(5)), vec![effect(5)]);
    assert_eq!(machine.step(0, floor(4)), vec![]);
    assert_eq!(machine.step(0, floor(5)), vec![]);
    let states = [1, 2, 3, 4, 5].map(|seq| machine.state(xid(seq)));
    assert_eq!(
        states,
        [
            BranchState::Unknown,
            BranchState::Unknown,
            BranchState::Prepared,
            BranchState::HeuristicAbort,
            BranchState::Committed
        ]
    );
}

#[test]
fn section_6_a_floor_is_of_one_coordinator_lineage() {
    let foreign = Xid {
        lineage: Lineage(8 << 96),
        ..xid(1)
    };
    let branch = RecoveredBranch {
        xid: foreign,
        transaction_id: id("T1"),
        state: RecoveredState::Committed,
    };
    let mut machine = participant(recovered(vec![branch]));
    join(&mut machine, 0);
    machine.step(0, floor(100));
    assert_eq!(machine.state(foreign), BranchState::Committed);
    let effects = machine.step(0, frame(ToParticipant::Commit(foreign)));
    assert_eq!(effects, sent(ToCoordinator::Ack(foreign)));
}

#[test]
fn section_8_hello_counts_connections_and_says_the_highest_position_of_each_lineage() {
    let mut start = recovered(vec![]);
    start.positions = vec![(HOME, 7), (Lineage(1), 2), (HOME, 5)];
    let mut machine = participant(start);
    for connection in 1..3 {
        let effects = machine.step(0, Event::Dialed);
        let [Effect::Hello(hello)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(hello.connection, connection);
        assert_eq!(hello.positions, [(Lineage(1), 2), (HOME, 7)]);
        machine.step(0, Event::SessionEnded);
    }
}

#[test]
fn section_8_a_frame_without_a_session_is_dropped() {
    let mut machine = prepared(1);
    machine.step(0, Event::SessionEnded);
    let before = machine.clone();
    assert_eq!(machine.step(0, frame(ToParticipant::Abort(xid(1)))), vec![]);
    assert_eq!(machine, before);
}

#[test]
fn section_8_a_vote_that_became_durable_while_away_is_asked_about_on_joining() {
    let mut machine = joined();
    machine.step(0, frame(prepare(1, "T1")));
    machine.step(0, Event::SessionEnded);
    assert_eq!(machine.step(0, Event::Prepared(xid(1), Vote::Yes)), vec![]);
    assert_eq!(join(&mut machine, 0), sent(ToCoordinator::Inquire(xid(1))));
}

#[test]
fn the_kept_coordinator_lineages_are_bounded() {
    let mut machine = joined();
    for other in 0..MAX_LINEAGES as u128 {
        machine.step(0, Event::SessionEnded);
        let effects = machine.step(
            0,
            Event::Welcomed {
                lineage: Lineage(other),
                incarnation: COORDINATOR,
            },
        );
        let expected = other + 1 >= MAX_LINEAGES as u128;
        assert_eq!(!effects.is_empty(), expected, "{other}: {effects:?}");
        machine.step(
            0,
            Event::Frame {
                messages: vec![],
                floor: None,
                position: 1,
            },
        );
    }
    machine.step(0, Event::SessionEnded);
    let effects = machine.step(0, Event::Dialed);
    assert!(matches!(&effects[..], [Effect::Hello(hello)] if hello.positions.len() < MAX_LINEAGES));
}
