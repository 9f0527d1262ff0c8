//! Every state of one transaction meets every event, without a wildcard: a new state or event must be
//! written in here. `T1` has branches at `a` and `b`; the events come from `a`.

use alloc::vec;
use alloc::vec::Vec;

use super::super::{Event, State};
use super::rows::{aborting, committed, committing, deciding, preparing};
use super::{Bench, tid, xid};
use crate::{Quarantined, ToCoordinator, Vote, Wait};

/// What is known of `T1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Nothing,
    Preparing,
    Deciding,
    Committing,
    Committed,
    Aborting,
    Aborted,
}

const STATES: [At; 7] = [
    At::Nothing,
    At::Preparing,
    At::Deciding,
    At::Committing,
    At::Committed,
    At::Aborting,
    At::Aborted,
];

/// Every kind of event, and every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    Clock,
    Execute,
    ExecuteCompleted,
    ExecuteOther,
    Get,
    Abort,
    Joined,
    Left,
    Yes,
    No,
    ReadOnly,
    Ack,
    LostState,
    Inquire,
    ReportCommit,
    ReportAbort,
    ForgetAck,
    Forget,
    CallerLeft,
    Quarantined,
    Durable,
    Tick,
    DeadlineTick,
}

const EVENTS: [On; 23] = [
    On::Clock,
    On::Execute,
    On::ExecuteCompleted,
    On::ExecuteOther,
    On::Get,
    On::Abort,
    On::Joined,
    On::Left,
    On::Yes,
    On::No,
    On::ReadOnly,
    On::Ack,
    On::LostState,
    On::Inquire,
    On::ReportCommit,
    On::ReportAbort,
    On::ForgetAck,
    On::Forget,
    On::CallerLeft,
    On::Quarantined,
    On::Durable,
    On::Tick,
    On::DeadlineTick,
];

/// Where the machine's own word for a state stands in the table.
fn of_state(state: State) -> At {
    match state {
        State::Preparing => At::Preparing,
        State::Deciding => At::Deciding,
        State::Committing => At::Committing,
        State::Committed => At::Committed,
        State::Aborting => At::Aborting,
        State::Aborted => At::Aborted,
    }
}

/// Where an event of the machine stands in the table.
fn of_event(event: &Event) -> &'static [On] {
    match event {
        Event::Clock(_) => &[On::Clock],
        Event::Execute { .. } => &[On::Execute, On::ExecuteCompleted, On::ExecuteOther],
        Event::Get { .. } => &[On::Get],
        Event::Abort { .. } => &[On::Abort],
        Event::Joined { .. } => &[On::Joined],
        Event::Left(_) => &[On::Left],
        Event::Message { message, .. } => match message {
            ToCoordinator::Vote(_, Vote::Yes) => &[On::Yes],
            ToCoordinator::Vote(_, Vote::No(_)) => &[On::No],
            ToCoordinator::Vote(_, Vote::ReadOnly) => &[On::ReadOnly],
            ToCoordinator::Ack(_) => &[On::Ack],
            ToCoordinator::LostState(_) => &[On::LostState],
            ToCoordinator::Inquire(_) => &[On::Inquire],
            ToCoordinator::Report(..) => &[On::ReportCommit, On::ReportAbort],
            ToCoordinator::ForgetAck(_) => &[On::ForgetAck],
        },
        Event::Forget { .. } => &[On::Forget],
        Event::CallerLeft { .. } => &[On::CallerLeft],
        Event::Quarantined(_) => &[On::Quarantined],
        Event::Durable(_) => &[On::Durable],
        Event::Tick => &[On::Tick, On::DeadlineTick],
    }
}

fn bench(at: At) -> Bench {
    match at {
        // An attempt of this log that left no record: it was PREPARING when the process died.
        At::Nothing => {
            let mut bench = preparing();
            bench.crashes();
            bench.forces();
            bench.joins("a");
            bench.joins("b");
            bench
        }
        At::Preparing => preparing(),
        At::Deciding => deciding(),
        At::Committing => committing(),
        At::Committed => committed(),
        At::Aborting => aborting(),
        At::Aborted => {
            let mut bench = aborting();
            bench.forces();
            bench
        }
    }
}

fn happens(bench: &mut Bench, on: On) -> Vec<alloc::string::String> {
    match on {
        On::Clock => bench.step(Event::Clock(bench.wall() + 1)),
        On::Execute => bench.execute("T1", "a b"),
        On::ExecuteCompleted => bench.executes("T1", "a b", Wait::Completed),
        On::ExecuteOther => bench.execute("T1", "a"),
        On::Get => bench.gets("T1"),
        On::Abort => bench.aborts("T1"),
        On::Joined => bench.joins("a"),
        On::Left => bench.leaves("a"),
        On::Yes => bench.says("a", "YES 1/1"),
        On::No => bench.says("a", "NO 1/1 X"),
        On::ReadOnly => bench.says("a", "READ_ONLY 1/1"),
        On::Ack => bench.says("a", "ACK 1/1"),
        On::LostState => bench.says("a", "LOST_STATE 1/1"),
        On::Inquire => bench.says("a", "INQUIRE 1/1"),
        On::ReportCommit => bench.says("a", "REPORT 1/1 COMMIT"),
        On::ReportAbort => bench.says("a", "REPORT 1/1 ABORT"),
        On::ForgetAck => bench.says("a", "FORGET_ACK 1/1"),
        On::Forget => bench.forgets("1/1", "a"),
        On::CallerLeft => bench.step(Event::CallerLeft {
            request: 1,
            transaction_id: tid("T1"),
        }),
        On::Quarantined => bench.step(Event::Quarantined(Quarantined {
            xid: Some(xid(1, 1)),
            transaction_id: Some(tid("T1")),
            bytes: alloc::sync::Arc::from([]),
        })),
        On::Durable => bench.forces(),
        On::Tick => bench.passes(1),
        On::DeadlineTick => bench.passes(5_000),
    }
}

/// The effects, or `SAME`: none, and the machine is as it was but for its clock.
const SAME: &[&str] = &[];

fn expected(at: At, on: On) -> Vec<&'static str> {
    let lines: &[&str] = match on {
        On::Clock | On::Left | On::CallerLeft | On::Quarantined | On::ForgetAck | On::Tick => SAME,
        On::Execute => execute(at),
        On::ExecuteCompleted => execute_completed(at),
        On::ExecuteOther => execute_other(at),
        On::Get => get(at),
        On::Abort => abort(at),
        On::Joined => joined(at),
        On::Yes => yes(at),
        On::No => no(at),
        On::ReadOnly => read_only(at),
        On::Ack => ack(at),
        On::LostState => lost_state(at),
        On::Inquire => inquire(at),
        On::ReportCommit => report_commit(at),
        On::ReportAbort => report_abort(at),
        On::Forget => &["r2 ! NoHeuristic"],
        On::Durable => durable(at),
        On::DeadlineTick => deadline(at),
    };
    lines.to_vec()
}

/// R1, R2, R7; C1.
fn execute(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["a < PREPARE 2/1 T1", "b < PREPARE 2/1 T1"],
        At::Preparing | At::Deciding | At::Aborting => &[],
        At::Committing => &["r2 = Committed Committing"],
        At::Committed => &["r2 = Committed Committed"],
        At::Aborted => &["r2 = Aborted Aborted NO_FUNDS"],
    }
}

fn execute_completed(at: At) -> &'static [&'static str] {
    match at {
        At::Committing => &[],
        At::Nothing | At::Preparing | At::Deciding | At::Aborting | At::Committed | At::Aborted => {
            execute(at)
        }
    }
}

/// The fingerprint is compared first.
fn execute_other(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["a < PREPARE 2/1 T1"],
        At::Preparing | At::Deciding | At::Committing | At::Committed | At::Aborting | At::Aborted => {
            &["r2 ! OtherContent"]
        }
    }
}

fn get(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["r2 = NotFound"],
        At::Preparing => &["r2 = InProgress Preparing"],
        At::Deciding => &["r2 = InProgress Deciding"],
        At::Aborting => &["r2 = InProgress Aborting"],
        At::Committing | At::Committed | At::Aborted => execute(at),
    }
}

/// C4, C7, R7.
fn abort(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["append! ABORT 2/1 T1 FENCED_BEFORE_EXECUTE"],
        At::Preparing => &[
            "append! ABORT 1/1 T1 ABORTED_BY_CALLER",
            "a < ABORT 1/1",
            "b < ABORT 1/1",
        ],
        At::Deciding | At::Aborting => &[],
        At::Committing | At::Committed | At::Aborted => execute(at),
    }
}

/// C3, C11.
fn joined(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing => &["a replaced", "a2 welcome", "a2 < PREPARE 1/1 T1"],
        At::Committing => &["a replaced", "a2 welcome", "a2 < COMMIT 1/1"],
        At::Nothing | At::Deciding | At::Committed | At::Aborting | At::Aborted => {
            &["a replaced", "a2 welcome"]
        }
    }
}

/// C2, C14.
fn yes(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing | At::Deciding => &[],
        At::Committing | At::Committed => &["a < COMMIT 1/1"],
        At::Nothing | At::Aborting | At::Aborted => &["a < ABORT 1/1"],
    }
}

/// C4, C2, C14.
fn no(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing => &["append! ABORT 1/1 T1 X", "b < ABORT 1/1"],
        At::Deciding => &["alarm CONTRARY_VOTE a 1/1"],
        At::Nothing | At::Committing | At::Committed | At::Aborting | At::Aborted => &[],
    }
}

fn read_only(at: At) -> &'static [&'static str] {
    match at {
        At::Deciding => &["alarm CONTRARY_VOTE a 1/1"],
        At::Preparing | At::Nothing | At::Committing | At::Committed | At::Aborting | At::Aborted => &[],
    }
}

/// C10, C14, C15.
fn ack(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing | At::Deciding | At::Aborting => &["alarm FITS_NO_ROW a 1/1"],
        At::Nothing | At::Committing | At::Committed | At::Aborted => &[],
    }
}

/// C12, C15.
fn lost_state(at: At) -> &'static [&'static str] {
    match at {
        At::Committing => &["alarm LOST_STATE a 1/1", "append! HEURISTIC 1/1 a Hazard damage"],
        At::Nothing | At::Preparing | At::Deciding | At::Committed | At::Aborting | At::Aborted => {
            &["alarm FITS_NO_ROW a 1/1"]
        }
    }
}

/// Q1, Q6, Q7.
fn inquire(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing | At::Deciding => &["a < PENDING 1/1"],
        At::Committing | At::Committed => &["a < COMMIT 1/1"],
        At::Nothing | At::Aborting | At::Aborted => &["a < ABORT 1/1"],
    }
}

/// C5, C7, C13.
fn report_commit(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["append! HEURISTIC 1/1 a Commit damage"],
        At::Preparing => &["append! HEURISTIC 1/1 a Commit unjudged"],
        At::Deciding => &[],
        At::Committing => &["append! HEURISTIC 1/1 a Commit agrees"],
        At::Committed => &["append! HEURISTIC 1/1 a Commit agrees with outcome"],
        At::Aborting => &["append! HEURISTIC 1/1 a Commit unjudged with outcome"],
        At::Aborted => &["append! HEURISTIC 1/1 a Commit damage with outcome"],
    }
}

/// C4, C7, C13.
fn report_abort(at: At) -> &'static [&'static str] {
    match at {
        At::Nothing => &["append! HEURISTIC 1/1 a Abort agrees"],
        At::Preparing => &[
            "append! HEURISTIC 1/1 a Abort unjudged",
            "append! ABORT 1/1 T1 HEURISTIC_ABORT",
            "a < ABORT 1/1",
            "b < ABORT 1/1",
        ],
        At::Deciding => &[],
        At::Committing => &["append! HEURISTIC 1/1 a Abort damage"],
        At::Committed => &["append! HEURISTIC 1/1 a Abort damage with outcome"],
        At::Aborting => &["append! HEURISTIC 1/1 a Abort unjudged with outcome"],
        At::Aborted => &["append! HEURISTIC 1/1 a Abort agrees with outcome"],
    }
}

/// C8, C9.
fn durable(at: At) -> &'static [&'static str] {
    match at {
        At::Deciding => &["r1 = Committed Committing", "a < COMMIT 1/1", "b < COMMIT 1/1"],
        At::Aborting => &["r1 = Aborted Aborted NO_FUNDS", "archive 1/1 T1"],
        At::Nothing | At::Preparing | At::Committing | At::Committed | At::Aborted => &[],
    }
}

/// C4, C11: a deadline acts only in PREPARING.
fn deadline(at: At) -> &'static [&'static str] {
    match at {
        At::Preparing => &[
            "append! ABORT 1/1 T1 DEADLINE_EXCEEDED",
            "a < ABORT 1/1",
            "b < ABORT 1/1",
        ],
        At::Committing => &["a < COMMIT 1/1", "b < COMMIT 1/1"],
        At::Nothing | At::Deciding | At::Committed | At::Aborting | At::Aborted => &[],
    }
}

/// Whether the event changes the machine although it has no effect to show.
fn changes_silently(at: At, on: On) -> bool {
    let attaches = matches!(at, At::Preparing | At::Deciding | At::Aborting);
    match on {
        On::Clock | On::Left | On::Quarantined | On::Tick | On::DeadlineTick => true,
        On::Execute | On::CallerLeft => attaches,
        On::ExecuteCompleted => attaches || at == At::Committing,
        On::Abort => matches!(at, At::Deciding | At::Aborting),
        On::Yes | On::ReadOnly => at == At::Preparing,
        On::Ack => at == At::Committing,
        On::ReportCommit | On::ReportAbort => at == At::Deciding,
        On::ExecuteOther
        | On::Get
        | On::Joined
        | On::No
        | On::LostState
        | On::Inquire
        | On::ForgetAck
        | On::Forget
        | On::Durable => false,
    }
}

#[test]
fn every_state_meets_every_event() {
    for at in STATES {
        for on in EVENTS {
            let mut bench = bench(at);
            let before = bench.machine.clone();
            let state = bench.machine.find_view(&tid("T1")).and_then(|view| view.state);
            let archived = bench.archive.by_id(&tid("T1"));
            let state = state.or(archived.and_then(|outcome| bench.machine.view_of_outcome(&outcome).state));
            assert_eq!(state.map_or(At::Nothing, of_state), at);
            let lines = happens(&mut bench, on);
            assert!(of_event(bench.event.as_ref().unwrap()).contains(&on), "{on:?}");
            assert_eq!(lines, expected(at, on), "{at:?} x {on:?}");
            if lines.is_empty() && !changes_silently(at, on) {
                assert!(bench.machine == before, "{at:?} x {on:?} changed something");
            }
        }
    }
}

#[test]
fn alarms_and_answers_change_nothing() {
    let quiet = [
        On::Get,
        On::ExecuteOther,
        On::Inquire,
        On::LostState,
        On::No,
        On::ReadOnly,
        On::Ack,
        On::Forget,
    ];
    for at in STATES {
        for on in quiet {
            let mut bench = bench(at);
            let before = bench.machine.clone();
            let lines = happens(&mut bench, on);
            let only_told = |line: &alloc::string::String| {
                line.starts_with("alarm") || line.starts_with('r') || line.starts_with("a < PENDING")
            };
            if !lines.is_empty() && lines.iter().all(only_told) {
                assert!(bench.machine == before, "{at:?} x {on:?} changed something");
            }
        }
    }
}

#[test]
fn nothing_known_is_not_found_and_presumed_aborted_at_once() {
    let mut bench = bench(At::Nothing);
    assert!(bench.machine.find_view(&tid("T1")).is_none());
    let both = vec![bench.gets("T1"), bench.says("b", "INQUIRE 1/1")];
    assert_eq!(both, [["r2 = NotFound"], ["b < ABORT 1/1"]]);
}
