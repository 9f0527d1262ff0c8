//! One test per row of section 4, P1 to P11: PREPARE, its vote, and ABORT.

use super::*;
use crate::NoReason;

#[test]
fn p1_prepare_below_the_floor_is_refused() {
    let mut machine = joined();
    machine.step(0, floor(10));
    assert_eq!(
        no_code(&machine.step(0, frame(prepare(9, "T1")))),
        NoReason::BELOW_FLOOR
    );
    assert_eq!(
        machine.step(0, frame(prepare(10, "T1"))),
        prepare_effect(10, "T1")
    );
}

#[test]
fn p2_an_effect_of_another_attempt_is_a_duplicate_from_the_moment_commit_arrives() {
    let mut machine = prepared(1);
    machine.step(0, frame(ToParticipant::Commit(xid(1))));
    assert_eq!(
        no_code(&machine.step(0, frame(prepare(2, "T1")))),
        NoReason::DUPLICATE_TRANSACTION
    );
    machine.step(0, Event::Committed(xid(1)));
    assert_eq!(
        no_code(&machine.step(0, frame(prepare(2, "T1")))),
        NoReason::DUPLICATE_TRANSACTION
    );
    let mut machine = by_hand(1, Decision::Commit);
    assert_eq!(
        no_code(&machine.step(0, frame(prepare(2, "T1")))),
        NoReason::DUPLICATE_TRANSACTION
    );
    let mut machine = by_hand(1, Decision::Abort);
    assert_eq!(machine.step(0, frame(prepare(2, "T1"))), prepare_effect(2, "T1"));
}

#[test]
fn p3_a_retry_waits_for_the_attempt_that_is_held_and_runs_when_that_aborts() {
    let mut machine = prepared(1);
    assert_eq!(machine.step(0, frame(prepare(2, "T1"))), vec![]);
    assert_eq!(machine.waiting(), 1);
    assert_eq!(
        machine.step(0, frame(ToParticipant::Abort(xid(1)))),
        vec![Effect::Abort(xid(1))]
    );
    assert_eq!(machine.step(0, Event::Aborted(xid(1))), prepare_effect(2, "T1"));
    assert_eq!(machine.waiting(), 0);
}

#[test]
fn p3_a_retry_is_refused_as_duplicate_when_the_held_attempt_commits() {
    let mut machine = prepared(1);
    machine.step(0, frame(prepare(2, "T1")));
    let effects = machine.step(0, frame(ToParticipant::Commit(xid(1))));
    assert_eq!(effects[0], Effect::Commit(xid(1)));
    assert_eq!(no_code(&effects[1..]), NoReason::DUPLICATE_TRANSACTION);
}

#[test]
fn p3_waiting_is_dropped_by_abort_and_when_the_session_ends() {
    let mut machine = prepared(1);
    machine.step(0, frame(prepare(2, "T1")));
    assert_eq!(machine.step(0, frame(ToParticipant::Abort(xid(2)))), vec![]);
    assert_eq!((machine.waiting(), machine.branches()), (0, 1));
    machine.step(0, frame(prepare(3, "T1")));
    machine.step(0, Event::SessionEnded);
    assert_eq!((machine.waiting(), machine.branches()), (0, 1));
}

#[test]
fn p3_waiting_is_bounded_and_past_the_bound_the_vote_is_no() {
    let mut machine = prepared(1);
    for seq in 2..4 {
        assert_eq!(machine.step(0, frame(prepare(seq, "T1"))), vec![]);
    }
    let effects = machine.step(0, frame(prepare(4, "T1")));
    assert_eq!(no_code(&effects), RESOURCE_EXHAUSTED);
    assert_eq!(machine.state(xid(4)), BranchState::Unknown);
}

#[test]
fn p3_of_several_that_wait_one_is_prepared_at_a_time() {
    let mut machine = prepared(1);
    machine.step(0, frame(prepare(2, "T1")));
    machine.step(0, frame(prepare(3, "T1")));
    machine.step(0, frame(ToParticipant::Abort(xid(1))));
    assert_eq!(machine.step(0, Event::Aborted(xid(1))), prepare_effect(2, "T1"));
    assert_eq!(machine.waiting(), 1);
    let effects = machine.step(
        0,
        Event::Prepared(xid(2), Vote::No(NoReason::new("CLOSED", "closed"))),
    );
    assert_eq!(effects[1..], prepare_effect(3, "T1"));
}

#[test]
fn p4_p5_a_no_and_a_read_only_leave_no_trace() {
    for vote in [Vote::No(NoReason::new("INSUFFICIENT_FUNDS", "")), Vote::ReadOnly] {
        let mut machine = joined();
        let before = machine.clone();
        assert_eq!(machine.step(0, frame(prepare(1, "T1"))), prepare_effect(1, "T1"));
        let effects = machine.step(0, Event::Prepared(xid(1), vote.clone()));
        assert_eq!(effects, sent(ToCoordinator::Vote(xid(1), vote)));
        assert_eq!(machine, before);
    }
}

#[test]
fn p6_prepare_carries_the_position_seen_before_its_frame() {
    let mut machine = joined();
    machine.step(
        0,
        Event::Frame {
            messages: vec![],
            floor: None,
            position: 40,
        },
    );
    machine.step(
        0,
        Event::Frame {
            messages: vec![],
            floor: None,
            position: 30,
        },
    );
    let event = Event::Frame {
        messages: vec![prepare(1, "T1")],
        floor: None,
        position: 50,
    };
    let effects = machine.step(0, event);
    assert!(
        matches!(&effects[..], [Effect::Prepare(branch)] if branch.position == 40),
        "{effects:?}"
    );
}

#[test]
fn p6_past_the_bound_of_branches_the_vote_is_no() {
    let mut machine = joined();
    for seq in 1..=8 {
        assert!(
            !machine
                .step(0, frame(prepare(seq, &std::format!("T{seq}"))))
                .is_empty()
        );
    }
    assert_eq!(
        no_code(&machine.step(0, frame(prepare(9, "T9")))),
        RESOURCE_EXHAUSTED
    );
    assert_eq!(machine.branches(), 8);
}

#[test]
fn p7_abort_and_forget_of_the_unknown() {
    let mut machine = joined();
    assert_eq!(machine.step(0, frame(ToParticipant::Abort(xid(1)))), vec![]);
    let effects = machine.step(0, frame(ToParticipant::Forget(xid(1))));
    assert_eq!(effects, sent(ToCoordinator::ForgetAck(xid(1))));
}

#[test]
fn p8_commit_of_the_unknown_is_lost_state_unless_below_the_floor() {
    let mut machine = joined();
    let effects = machine.step(0, frame(ToParticipant::Commit(xid(1))));
    assert_eq!(alarm_code(&effects), AlarmCode::LostState);
    assert_eq!(effects[1..], sent(ToCoordinator::LostState(xid(1))));
    machine.step(0, floor(2));
    let effects = machine.step(0, frame(ToParticipant::Commit(xid(1))));
    assert_eq!(effects, sent(ToCoordinator::Ack(xid(1))));
}

#[test]
fn p9_yes_follows_the_durable_prepared() {
    let mut machine = joined();
    machine.step(0, frame(prepare(1, "T1")));
    assert_eq!(machine.state(xid(1)), BranchState::Preparing);
    let effects = machine.step(0, Event::Prepared(xid(1), Vote::Yes));
    assert_eq!(effects, sent(ToCoordinator::Vote(xid(1), Vote::Yes)));
    assert_eq!(machine.state(xid(1)), BranchState::Prepared);
}

#[test]
fn p10_abort_releases_a_prepared_branch() {
    let mut machine = prepared(1);
    assert_eq!(
        machine.step(0, frame(ToParticipant::Abort(xid(1)))),
        vec![Effect::Abort(xid(1))]
    );
    assert_eq!(machine.step(0, Event::Aborted(xid(1))), vec![]);
    assert_eq!(
        (machine.state(xid(1)), machine.next_deadline()),
        (BranchState::Unknown, None)
    );
}

#[test]
fn p10_abort_while_preparing_is_remembered_and_no_vote_leaves() {
    let mut machine = joined();
    machine.step(0, frame(prepare(1, "T1")));
    assert_eq!(machine.step(0, frame(ToParticipant::Abort(xid(1)))), vec![]);
    assert_eq!(
        machine.step(0, Event::Prepared(xid(1), Vote::Yes)),
        vec![Effect::Abort(xid(1))]
    );
    machine.step(0, Event::Aborted(xid(1)));
    machine.step(0, frame(prepare(2, "T1")));
    machine.step(0, frame(ToParticipant::Abort(xid(2))));
    assert_eq!(machine.step(0, Event::Prepared(xid(2), Vote::ReadOnly)), vec![]);
    assert_eq!(machine.branches(), 0);
}

#[test]
fn p11_prepare_again_is_yes_again() {
    let mut machine = prepared(1);
    let effects = machine.step(0, frame(prepare(1, "T1")));
    assert_eq!(effects, sent(ToCoordinator::Vote(xid(1), Vote::Yes)));
}
