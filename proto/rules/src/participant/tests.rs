//! Tests of the participant machine: the rows by name, every state against every event, and properties over
//! arbitrary event orders. They cannot show what a resource or a driver does with the effects.

extern crate std;

mod decisions;
mod properties;
mod rows;
mod sessions;
mod table;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::{ToCoordinator, ToParticipant, Vote};

const HOME: Lineage = Lineage(7 << 96);
const COORDINATOR: Incarnation = Incarnation { counter: 3, bits: 30 };

fn xid(seq: u64) -> Xid {
    Xid {
        lineage: HOME,
        incarnation: COORDINATOR,
        seq,
    }
}

fn id(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap()
}

fn operation(text: &str) -> Arc<[u8]> {
    Arc::from(text.as_bytes())
}

fn operator() -> Operator {
    Operator {
        who: Arc::from("ann"),
        why: Arc::from("the coordinator is lost"),
    }
}

fn recovered(branches: Vec<RecoveredBranch>) -> Recovered {
    let incarnation = Incarnation { counter: 1, bits: 10 };
    Recovered {
        identity: Identity {
            lineage: Lineage(9),
            incarnation,
        },
        floors: vec![],
        positions: vec![],
        branches,
    }
}

fn limits() -> Limits {
    Limits {
        max_waiting_prepares: 2,
        max_participant_branches: 8,
        ..Limits::DEFAULT
    }
}

fn participant(recovered: Recovered) -> Participant {
    Participant::recover(limits(), Name::new("ledger-a").unwrap(), recovered)
}

/// A participant with a session and no branch.
fn joined() -> Participant {
    let mut machine = participant(recovered(vec![]));
    join(&mut machine, 0);
    machine
}

fn join(machine: &mut Participant, now: Millis) -> Vec<Effect> {
    machine.step(now, Event::Dialed);
    machine.step(
        now,
        Event::Welcomed {
            lineage: HOME,
            incarnation: COORDINATOR,
        },
    )
}

fn prepare(seq: u64, id_text: &str) -> ToParticipant {
    ToParticipant::Prepare {
        xid: xid(seq),
        transaction_id: id(id_text),
        operation: operation("debit 1"),
    }
}

fn frame(message: ToParticipant) -> Event {
    Event::Frame {
        messages: vec![message],
        floor: None,
        position: 0,
    }
}

fn floor(seq: u64) -> Event {
    let floor = Floor {
        counter: COORDINATOR.counter,
        seq,
    };
    Event::Frame {
        messages: vec![],
        floor: Some(floor),
        position: 0,
    }
}

/// A branch of transaction "T1" that is PREPARED, at time 0.
fn prepared(seq: u64) -> Participant {
    let mut machine = joined();
    machine.step(0, frame(prepare(seq, "T1")));
    machine.step(0, Event::Prepared(xid(seq), Vote::Yes));
    machine
}

fn sent(message: ToCoordinator) -> Vec<Effect> {
    vec![Effect::Send(message)]
}

fn no_code(effects: &[Effect]) -> &str {
    match effects {
        [Effect::Send(ToCoordinator::Vote(_, Vote::No(reason)))] => &reason.code,
        other => panic!("not one NO: {other:?}"),
    }
}

fn alarm_code(effects: &[Effect]) -> AlarmCode {
    match effects {
        [Effect::Alarm(alarm), ..] => alarm.code,
        other => panic!("no alarm first: {other:?}"),
    }
}

fn prepare_effect(seq: u64, id_text: &str) -> Vec<Effect> {
    let branch = Branch {
        xid: xid(seq),
        transaction_id: id(id_text),
        operation: operation("debit 1"),
        position: 0,
    };
    vec![Effect::Prepare(branch)]
}

/// A branch of "T1" decided by hand.
fn by_hand(seq: u64, what: Decision) -> Participant {
    let mut machine = prepared(seq);
    machine.step(
        1,
        Event::Resolve {
            request: 5,
            xid: xid(seq),
            what,
            by: operator(),
        },
    );
    machine.step(1, Event::Resolved(xid(seq)));
    machine
}
