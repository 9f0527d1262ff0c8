//! Every state against every event, without a wildcard: what is sent, asked and left behind.

use alloc::string::String;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[derive(Clone, Copy, Debug)]
enum At {
    Unknown,
    BelowFloor,
    Waiting,
    Preparing,
    PreparingAborted,
    Prepared,
    Aborting,
    Committing,
    Committed,
    Resolving,
    HeuristicCommit,
    HeuristicAbort,
    Forgetting,
    Forgotten,
}

const STATES: [At; 14] = [
    At::Unknown,
    At::BelowFloor,
    At::Waiting,
    At::Preparing,
    At::PreparingAborted,
    At::Prepared,
    At::Aborting,
    At::Committing,
    At::Committed,
    At::Resolving,
    At::HeuristicCommit,
    At::HeuristicAbort,
    At::Forgetting,
    At::Forgotten,
];

/// The branch under test is attempt 2 of "T1"; `Waiting` has attempt 1 in front of it.
fn machine(at: At) -> Participant {
    let mut machine = joined();
    let mut steps = |events: &[Event]| {
        for event in events {
            machine.step(0, event.clone());
        }
    };
    let x = xid(2);
    let resolve = |what| Event::Resolve {
        request: 5,
        xid: x,
        what,
        by: operator(),
    };
    let commit = frame(ToParticipant::Commit(x));
    let abort = frame(ToParticipant::Abort(x));
    let forget = frame(ToParticipant::Forget(x));
    let yes = Event::Prepared(x, Vote::Yes);
    let hold = [frame(prepare(1, "T1")), Event::Prepared(xid(1), Vote::Yes)];
    let ask = frame(prepare(2, "T1"));
    match at {
        At::Unknown => {}
        At::BelowFloor => steps(&[floor(3)]),
        At::Waiting => {
            steps(&hold);
            steps(&[ask]);
        }
        At::Preparing => steps(&[ask]),
        At::PreparingAborted => steps(&[ask, abort]),
        At::Prepared => steps(&[ask, yes]),
        At::Aborting => steps(&[ask, yes, abort]),
        At::Committing => steps(&[ask, yes, commit]),
        At::Committed => steps(&[ask, yes, commit, Event::Committed(x)]),
        At::Resolving => steps(&[ask, yes, resolve(Decision::Commit)]),
        At::HeuristicCommit => steps(&[ask, yes, resolve(Decision::Commit), Event::Resolved(x)]),
        At::HeuristicAbort => steps(&[ask, yes, resolve(Decision::Abort), Event::Resolved(x)]),
        At::Forgetting => steps(&[ask, yes, resolve(Decision::Commit), Event::Resolved(x), forget]),
        At::Forgotten => {
            steps(&[
                ask,
                yes,
                resolve(Decision::Commit),
                Event::Resolved(x),
                forget,
                Event::Forgotten(x),
            ]);
        }
    }
    machine
}

/// The events, in the order of the columns of [`expected`].
fn events() -> [(&'static str, Event); 16] {
    let x = xid(2);
    let other = ToParticipant::Prepare {
        xid: x,
        transaction_id: id("T1"),
        operation: operation("other"),
    };
    [
        ("PREPARE", frame(prepare(2, "T1"))),
        ("PREPARE, other operation", frame(other)),
        ("COMMIT", frame(ToParticipant::Commit(x))),
        ("ABORT", frame(ToParticipant::Abort(x))),
        ("FORGET", frame(ToParticipant::Forget(x))),
        ("PENDING", frame(ToParticipant::Pending(x))),
        ("UNKNOWN", frame(ToParticipant::Unknown(x))),
        ("report recorded", frame(ToParticipant::ReportRecorded(x))),
        ("prepared YES", Event::Prepared(x, Vote::Yes)),
        ("prepared READ_ONLY", Event::Prepared(x, Vote::ReadOnly)),
        ("committed", Event::Committed(x)),
        ("aborted", Event::Aborted(x)),
        ("resolved", Event::Resolved(x)),
        ("forgotten", Event::Forgotten(x)),
        (
            "operator commits",
            Event::Resolve {
                request: 6,
                xid: x,
                what: Decision::Commit,
                by: operator(),
            },
        ),
        ("session ends", Event::SessionEnded),
    ]
}

/// `effects > state after`; `!` is an assertion: our own driver never does that.
#[rustfmt::skip]
fn expected(at: At) -> [&'static str; 16] {
    match at {
        At::Unknown => ["prepare > Preparing", "prepare > Preparing", "alarm LOST > Unknown", "> Unknown", "FORGOTTEN > Unknown", "> Unknown", "> Unknown", "> Unknown", "!", "!", "!", "!", "!", "!", "NotFound > Unknown", "> Unknown"],
        At::BelowFloor => ["NO > Unknown", "NO > Unknown", "ACK > Unknown", "> Unknown", "FORGOTTEN > Unknown", "> Unknown", "> Unknown", "> Unknown", "!", "!", "!", "!", "!", "!", "NotFound > Unknown", "> Unknown"],
        At::Waiting => ["> Preparing", "alarm > Preparing", "alarm LOST > Preparing", "> Unknown", "FORGOTTEN > Preparing", "> Preparing", "> Preparing", "> Preparing", "!", "!", "!", "!", "!", "!", "NotPrepared > Preparing", "> Unknown"],
        At::Preparing => ["> Preparing", "alarm > Preparing", "> Preparing", "> Preparing", "alarm > Preparing", "> Preparing", "> Preparing", "> Preparing", "YES > Prepared", "READ_ONLY > Unknown", "!", "!", "!", "!", "NotPrepared > Preparing", "> Preparing"],
        At::PreparingAborted => ["alarm > Preparing", "alarm > Preparing", "alarm LOST > Preparing", "> Preparing", "alarm > Preparing", "> Preparing", "> Preparing", "> Preparing", "abort > Aborted", "> Unknown", "!", "!", "!", "!", "NotPrepared > Preparing", "> Preparing"],
        At::Prepared => ["YES > Prepared", "alarm > Prepared", "commit > Committing", "abort > Aborted", "alarm > Prepared", "> Prepared", "> Prepared", "> Prepared", "!", "!", "!", "!", "!", "!", "resolve > Resolving", "> Prepared"],
        At::Aborting => ["alarm > Aborted", "alarm > Aborted", "alarm LOST > Aborted", "> Aborted", "FORGOTTEN > Aborted", "> Aborted", "> Aborted", "> Aborted", "!", "!", "!", "> Unknown", "!", "!", "NotPrepared > Aborted", "> Aborted"],
        At::Committing => ["> Committing", "> Committing", "> Committing", "alarm > Committing", "alarm > Committing", "> Committing", "> Committing", "> Committing", "!", "!", "ACK > Committed", "!", "!", "!", "NotPrepared > Committing", "> Committing"],
        At::Committed => ["ACK > Committed", "ACK > Committed", "ACK > Committed", "alarm > Committed", "alarm > Committed", "> Committed", "> Committed", "> Committed", "!", "!", "!", "!", "!", "!", "NotPrepared > Committed", "> Committed"],
        At::Resolving => ["> Resolving", "> Resolving", "> Resolving", "> Resolving", "alarm > Resolving", "> Resolving", "> Resolving", "> Resolving", "!", "!", "!", "!", "done REPORT > HeuristicCommit", "!", "NotPrepared > Resolving", "> Resolving"],
        At::HeuristicCommit => ["REPORT > HeuristicCommit", "REPORT > HeuristicCommit", "REPORT > HeuristicCommit", "REPORT > HeuristicCommit", "forget > HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "!", "!", "!", "!", "!", "!", "NotPrepared > HeuristicCommit", "> HeuristicCommit"],
        At::HeuristicAbort => ["REPORT > HeuristicAbort", "REPORT > HeuristicAbort", "REPORT > HeuristicAbort", "REPORT > HeuristicAbort", "forget > HeuristicAbort", "> HeuristicAbort", "> HeuristicAbort", "> HeuristicAbort", "!", "!", "!", "!", "!", "!", "NotPrepared > HeuristicAbort", "> HeuristicAbort"],
        At::Forgetting => ["> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "> HeuristicCommit", "!", "!", "!", "!", "!", "FORGOTTEN > Forgotten", "NotPrepared > HeuristicCommit", "> HeuristicCommit"],
        At::Forgotten => ["> Forgotten", "> Forgotten", "> Forgotten", "> Forgotten", "FORGOTTEN > Forgotten", "> Forgotten", "> Forgotten", "> Forgotten", "!", "!", "!", "!", "!", "!", "NotPrepared > Forgotten", "> Forgotten"],
    }
}

fn short(effect: &Effect) -> &'static str {
    match effect {
        Effect::Hello(_) => "HELLO",
        Effect::Send(message) => match message {
            ToCoordinator::Vote(_, Vote::Yes) => "YES",
            ToCoordinator::Vote(_, Vote::No(_)) => "NO",
            ToCoordinator::Vote(_, Vote::ReadOnly) => "READ_ONLY",
            ToCoordinator::Ack(_) => "ACK",
            ToCoordinator::LostState(_) => "LOST",
            ToCoordinator::Inquire(_) => "INQUIRE",
            ToCoordinator::Report(..) => "REPORT",
            ToCoordinator::ForgetAck(_) => "FORGOTTEN",
        },
        Effect::Prepare(_) => "prepare",
        Effect::Commit(_) => "commit",
        Effect::Abort(_) => "abort",
        Effect::Resolve { .. } => "resolve",
        Effect::Forget(_) => "forget",
        Effect::Floor { .. } => "floor",
        Effect::Answer { result, .. } => match result {
            Ok(()) => "done",
            Err(Refusal::NotFound) => "NotFound",
            Err(Refusal::NotPrepared(_)) => "NotPrepared",
            Err(Refusal::OtherAttempt(_)) => "OtherAttempt",
        },
        Effect::Alarm(_) => "alarm",
    }
}

#[test]
fn every_state_meets_every_event_as_the_table_says() {
    for at in STATES {
        for ((name, event), expected) in events().into_iter().zip(expected(at)) {
            let mut machine = machine(at);
            let stepped = catch_unwind(AssertUnwindSafe(|| machine.step(0, event)));
            let Ok(effects) = stepped else {
                assert_eq!("!", expected, "{at:?}, {name}");
                continue;
            };
            let mut text: String = effects
                .iter()
                .map(|effect| std::format!("{} ", short(effect)))
                .collect();
            text.push_str(&std::format!("> {:?}", machine.state(xid(2))));
            assert_eq!(text, expected, "{at:?}, {name}");
        }
    }
}
