//! One test per row of section 4, P12 to P21: COMMIT, time, operators, heuristics, and what fits no row.

use super::*;

#[test]
fn p12_p15_the_ack_follows_the_durable_committed() {
    let mut machine = prepared(1);
    assert_eq!(
        machine.step(0, frame(ToParticipant::Commit(xid(1)))),
        vec![Effect::Commit(xid(1))]
    );
    assert_eq!(machine.state(xid(1)), BranchState::Committing);
    assert_eq!(
        machine.step(0, Event::Committed(xid(1))),
        sent(ToCoordinator::Ack(xid(1)))
    );
    assert_eq!(
        (machine.state(xid(1)), machine.next_deadline()),
        (BranchState::Committed, None)
    );
}

#[test]
fn p13_time_only_inquires_and_alarms_once() {
    let mut machine = prepared(1);
    let (mut inquiries, mut alarms) = (0, 0);
    while let Some(at) = machine.next_deadline().filter(|at| *at <= 60_000) {
        for effect in machine.step(at, Event::Tick) {
            if effect == Effect::Send(ToCoordinator::Inquire(xid(1))) {
                inquiries += 1;
            } else {
                assert_eq!(alarm_code(&[effect]), AlarmCode::InDoubtTooLong);
                alarms += 1;
            }
        }
        assert!(
            machine.next_deadline().is_some_and(|next| next > at),
            "the machine asks without a pause"
        );
        machine.step(at, frame(ToParticipant::Unknown(xid(1))));
    }
    assert!((10..20).contains(&inquiries), "{inquiries} inquiries in a minute");
    assert_eq!((alarms, machine.state(xid(1))), (1, BranchState::Prepared));
    assert_eq!(
        machine.in_doubt().map(|doubt| doubt.xid).collect::<Vec<_>>(),
        [xid(1)]
    );
}

#[test]
fn p13_every_branch_in_doubt_inquires_on_joining_and_none_while_away() {
    let branches = [1, 2].map(|seq| RecoveredBranch {
        xid: xid(seq),
        transaction_id: id("T1"),
        state: RecoveredState::Prepared {
            operation: operation("debit 1"),
        },
    });
    let mut machine = participant(recovered(branches.to_vec()));
    assert_eq!(machine.next_deadline(), Some(limits().in_doubt_alarm_ms));
    let inquiries: Vec<_> = [1, 2]
        .map(|seq| Effect::Send(ToCoordinator::Inquire(xid(seq))))
        .to_vec();
    assert_eq!(join(&mut machine, 0), inquiries);
    machine.step(0, Event::SessionEnded);
    assert_eq!(machine.step(9_000, Event::Tick), vec![]);
    assert_eq!(join(&mut machine, 9_000), inquiries);
}

#[test]
fn p14_an_operator_resolves_and_the_report_goes_when_it_is_durable() {
    let mut machine = prepared(1);
    let event = Event::Resolve {
        request: 5,
        xid: xid(1),
        what: Decision::Abort,
        by: operator(),
    };
    let effects = machine.step(1, event);
    assert_eq!(
        effects,
        vec![Effect::Resolve {
            xid: xid(1),
            what: Decision::Abort,
            by: operator()
        }]
    );
    for message in [ToParticipant::Commit(xid(1)), ToParticipant::Abort(xid(1))] {
        assert_eq!(machine.step(1, frame(message)), vec![]);
    }
    let effects = machine.step(1, Event::Resolved(xid(1)));
    let report = ToCoordinator::Report(xid(1), Heuristic::Abort);
    assert_eq!(
        effects,
        vec![
            Effect::Answer {
                request: 5,
                result: Ok(())
            },
            Effect::Send(report)
        ]
    );
    assert_eq!(machine.state(xid(1)), BranchState::HeuristicAbort);
}

#[test]
fn p14_to_commit_is_refused_beside_another_attempt_with_an_effect_or_a_hold() {
    let other = |state| RecoveredBranch {
        xid: xid(1),
        transaction_id: id("T1"),
        state,
    };
    for state in [
        RecoveredState::Committed,
        RecoveredState::Prepared {
            operation: operation("debit 1"),
        },
    ] {
        let doubt = RecoveredBranch {
            xid: xid(2),
            ..other(RecoveredState::Prepared {
                operation: operation(""),
            })
        };
        let mut machine = participant(recovered(vec![other(state), doubt]));
        let event = |what, request| Event::Resolve {
            request,
            xid: xid(2),
            what,
            by: operator(),
        };
        let result = Err(Refusal::OtherAttempt(xid(1)));
        assert_eq!(
            machine.step(0, event(Decision::Commit, 5)),
            vec![Effect::Answer { request: 5, result }]
        );
        assert!(matches!(
            machine.step(0, event(Decision::Abort, 6))[..],
            [Effect::Resolve { .. }]
        ));
    }
}

#[test]
fn p14_a_waiting_retry_does_not_refuse_the_operator_and_runs_after_an_abort_by_hand() {
    let mut machine = prepared(1);
    machine.step(0, frame(prepare(2, "T1")));
    machine.step(
        0,
        Event::Resolve {
            request: 5,
            xid: xid(1),
            what: Decision::Abort,
            by: operator(),
        },
    );
    let effects = machine.step(0, Event::Resolved(xid(1)));
    assert_eq!(effects[2..], prepare_effect(2, "T1"));
}

#[test]
fn p16_prepare_and_commit_again_are_answered_by_the_force() {
    let mut machine = joined();
    machine.step(0, frame(prepare(1, "T1")));
    assert_eq!(machine.step(0, frame(prepare(1, "T1"))), vec![]);
    assert_eq!(machine.step(0, frame(ToParticipant::Commit(xid(1)))), vec![]);
    machine.step(0, Event::Prepared(xid(1), Vote::Yes));
    machine.step(0, frame(ToParticipant::Commit(xid(1))));
    assert_eq!(machine.step(0, frame(prepare(1, "T1"))), vec![]);
    assert_eq!(machine.step(0, frame(ToParticipant::Commit(xid(1)))), vec![]);
}

#[test]
fn p17_a_committed_branch_acknowledges_again_without_a_second_effect() {
    let mut machine = prepared(1);
    machine.step(0, frame(ToParticipant::Commit(xid(1))));
    machine.step(0, Event::Committed(xid(1)));
    for message in [ToParticipant::Commit(xid(1)), prepare(1, "T1")] {
        assert_eq!(machine.step(0, frame(message)), sent(ToCoordinator::Ack(xid(1))));
    }
}

#[test]
fn p18_a_heuristic_reports_to_everything_until_forget() {
    let mut machine = by_hand(1, Decision::Commit);
    let report = sent(ToCoordinator::Report(xid(1), Heuristic::Commit));
    for message in [
        ToParticipant::Commit(xid(1)),
        ToParticipant::Abort(xid(1)),
        prepare(1, "T1"),
    ] {
        assert_eq!(machine.step(1, frame(message)), report);
    }
    let at = machine.next_deadline().unwrap();
    assert_eq!(machine.step(at, Event::Tick), report);
    machine.step(at, Event::SessionEnded);
    assert_eq!(machine.next_deadline(), None);
    assert_eq!(join(&mut machine, at), report);
    machine.step(at, frame(ToParticipant::ReportRecorded(xid(1))));
    assert!(
        machine.next_deadline().unwrap() >= at + limits().retry_cap_ms * 3 / 4,
        "a recorded report is urgent"
    );
}

#[test]
fn p19_forget_is_acknowledged_when_forgotten_is_durable() {
    let mut machine = by_hand(1, Decision::Commit);
    assert_eq!(
        machine.step(1, frame(ToParticipant::Forget(xid(1)))),
        vec![Effect::Forget(xid(1))]
    );
    assert_eq!(machine.step(1, frame(ToParticipant::Forget(xid(1)))), vec![]);
    assert_eq!(
        machine.step(1, Event::Forgotten(xid(1))),
        sent(ToCoordinator::ForgetAck(xid(1)))
    );
    assert_eq!(
        (machine.state(xid(1)), machine.next_deadline()),
        (BranchState::Forgotten, None)
    );
}

#[test]
fn p20_the_forgotten_acknowledges_forget_and_nothing_else() {
    let mut machine = by_hand(1, Decision::Commit);
    machine.step(1, frame(ToParticipant::Forget(xid(1))));
    machine.step(1, Event::Forgotten(xid(1)));
    let effects = machine.step(1, frame(ToParticipant::Forget(xid(1))));
    assert_eq!(effects, sent(ToCoordinator::ForgetAck(xid(1))));
    for message in [
        ToParticipant::Commit(xid(1)),
        ToParticipant::Abort(xid(1)),
        prepare(1, "T1"),
    ] {
        assert_eq!(machine.step(1, frame(message)), vec![]);
    }
}

#[test]
fn p21_what_fits_no_row_is_an_alarm_and_changes_nothing() {
    let other = ToParticipant::Prepare {
        xid: xid(1),
        transaction_id: id("T1"),
        operation: operation("other"),
    };
    let mut machine = prepared(1);
    for (message, code) in [
        (other, AlarmCode::OperationDiffers),
        (prepare(1, "T2"), AlarmCode::OperationDiffers),
        (ToParticipant::Forget(xid(1)), AlarmCode::UnexpectedMessage),
    ] {
        let before = machine.clone();
        assert_eq!(alarm_code(&machine.step(0, frame(message))), code);
        assert_eq!(machine, before);
    }
    machine.step(0, frame(ToParticipant::Commit(xid(1))));
    machine.step(0, Event::Committed(xid(1)));
    let effects = machine.step(0, frame(ToParticipant::Abort(xid(1))));
    assert_eq!(alarm_code(&effects), AlarmCode::ContraryDecision);
    let event = Event::Resolve {
        request: 5,
        xid: xid(1),
        what: Decision::Abort,
        by: operator(),
    };
    let result = Err(Refusal::NotPrepared(BranchState::Committed));
    assert_eq!(
        machine.step(0, event),
        vec![Effect::Answer { request: 5, result }]
    );
}
