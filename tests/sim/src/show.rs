//! How the trace writes messages, records and answers: in the words of the specification.

use covenant_ledger::simulated::{Shown, StoredRecord};
use covenant_rules::coordinator::{JoinRefusal, Refusal, Reply, View};
use covenant_rules::{
    Decision, Heuristic, Outcome, OutcomeKind, Record, ToCoordinator, ToParticipant, TransactionId, Vote, Xid,
};

use crate::calls::Ask;
use crate::history::History;

/// The attempt that a message is about.
#[must_use]
pub fn xid_of(message: &ToParticipant) -> Xid {
    match message {
        ToParticipant::Prepare { xid, .. }
        | ToParticipant::Commit(xid)
        | ToParticipant::Abort(xid)
        | ToParticipant::Pending(xid)
        | ToParticipant::Unknown(xid)
        | ToParticipant::ReportRecorded(xid)
        | ToParticipant::Forget(xid) => *xid,
    }
}

/// A message to a participant.
#[must_use]
pub fn to_participant(message: &ToParticipant, history: &History) -> String {
    let what = match message {
        // The attempt may not be known yet; one of a log that is not the coordinator's never will be.
        ToParticipant::Prepare {
            xid, transaction_id, ..
        } if history.lineage() == Some(xid.lineage) => {
            return format!("PREPARE {}", attempt(*xid, Some(transaction_id)));
        }
        ToParticipant::Prepare { .. } => "PREPARE",
        ToParticipant::Commit(_) => "COMMIT",
        ToParticipant::Abort(_) => "ABORT",
        ToParticipant::Pending(_) => "PENDING",
        ToParticipant::Unknown(_) => "UNKNOWN",
        ToParticipant::ReportRecorded(_) => "REPORT RECORDED",
        ToParticipant::Forget(_) => "FORGET",
    };
    format!("{what} {}", history.shown(xid_of(message)))
}

/// A message to the coordinator.
#[must_use]
pub fn to_coordinator(message: &ToCoordinator, history: &History) -> String {
    let (what, xid) = match message {
        ToCoordinator::Vote(xid, Vote::Yes) => ("YES".to_owned(), xid),
        ToCoordinator::Vote(xid, Vote::No(reason)) => (format!("NO({})", reason.code), xid),
        ToCoordinator::Vote(xid, Vote::ReadOnly) => ("READ_ONLY".to_owned(), xid),
        ToCoordinator::Ack(xid) => ("ACK".to_owned(), xid),
        ToCoordinator::LostState(xid) => ("LOST_STATE".to_owned(), xid),
        ToCoordinator::Inquire(xid) => ("INQUIRE".to_owned(), xid),
        ToCoordinator::Report(xid, what) => (format!("REPORT {}", heuristic(*what)), xid),
        ToCoordinator::ForgetAck(xid) => ("FORGET ACK".to_owned(), xid),
    };
    format!("{what} {}", history.shown(*xid))
}

fn heuristic(what: Heuristic) -> &'static str {
    match what {
        Heuristic::Commit => "HEURISTIC_COMMIT",
        Heuristic::Abort => "HEURISTIC_ABORT",
        Heuristic::Mixed => "MIXED",
        Heuristic::Hazard => "HAZARD",
    }
}

fn attempt(xid: Xid, id: Option<&TransactionId>) -> String {
    let id = id.map_or("?", TransactionId::as_str);
    format!("{id}#{}.{}", xid.incarnation.counter, xid.seq)
}

fn outcome(outcome: &Outcome) -> String {
    let about = attempt(outcome.xid, Some(&outcome.transaction_id));
    match &outcome.aborted {
        None => format!("COMMIT {about}"),
        Some(reason) => format!("ABORT {about} ({})", reason.code()),
    }
}

/// A record of the coordinator.
#[must_use]
pub fn record(record: &Record, id: Option<&TransactionId>) -> String {
    match record {
        Record::Lineage { .. } => "LINEAGE".to_owned(),
        Record::Incarnation(start) => format!("INCARNATION {}", start.counter),
        Record::Participant { name, .. } => format!("PARTICIPANT {name}"),
        Record::Commit(of) | Record::Abort(of) => outcome(of),
        Record::End(xid) => format!("END {}", attempt(*xid, id)),
        Record::Heuristic {
            xid,
            participant,
            what,
            damage,
            ..
        } => {
            let judged = match damage {
                Some(true) => ", damage",
                Some(false) => ", no damage",
                None => "",
            };
            let kind = heuristic(*what);
            format!("HEURISTIC {} {participant} {kind}{judged}", attempt(*xid, id))
        }
        Record::Forget { xid, participant, .. } => format!("FORGET {} {participant}", attempt(*xid, id)),
        Record::ForgetDone { xid, participant } => format!("FORGET_DONE {} {participant}", attempt(*xid, id)),
        Record::Resolved { xid, decision, .. } => {
            format!("RESOLVED({}) {}", self::decision(*decision), attempt(*xid, id))
        }
        Record::Retained(since) => format!("RETAINED {since}"),
        Record::Suspect {
            participant,
            position,
        } => {
            let who = participant.as_ref().map_or("the log", |name| name.as_str());
            format!("SUSPECT {who} knows {position}")
        }
        Record::SuspectCleared(_) => "SUSPECT cleared".to_owned(),
        Record::Quarantined(_) => "bytes that do not decode".to_owned(),
    }
}

/// A record of a participant.
#[must_use]
pub fn stored(record: &StoredRecord, history: &History) -> String {
    let named = |what: &str, xid: Xid, id: &TransactionId| format!("{what} {}", attempt(xid, Some(id)));
    match record.shown() {
        Shown::Lineage(_) => "LINEAGE".to_owned(),
        Shown::Incarnation(start) => format!("INCARNATION {}", start.counter),
        Shown::Prepared(xid, id, _) => named("PREPARED", xid, id),
        Shown::Committed(xid, id) => named("COMMITTED", xid, id),
        Shown::Aborted(xid) => format!("ABORTED {}", history.shown(xid)),
        Shown::ByHand(xid, id, Decision::Commit) => named("HEURISTIC_COMMIT", xid, id),
        Shown::ByHand(xid, id, Decision::Abort) => named("HEURISTIC_ABORT", xid, id),
        Shown::Forgotten(xid) => format!("FORGOTTEN {}", history.shown(xid)),
        Shown::Floor(_, floor) => format!("FLOOR {}.{}", floor.counter, floor.seq),
        Shown::Other => "an account".to_owned(),
        Shown::Damaged => "bytes that do not decode".to_owned(),
    }
}

/// What callers are told, by name.
#[must_use]
pub fn outcome_kind(outcome: OutcomeKind) -> &'static str {
    match outcome {
        OutcomeKind::Committed => "COMMITTED",
        OutcomeKind::Aborted => "ABORTED",
        OutcomeKind::InProgress => "IN_PROGRESS",
        OutcomeKind::Unknown => "UNKNOWN",
        OutcomeKind::NotFound => "NOT_FOUND",
        OutcomeKind::Expired => "EXPIRED",
    }
}

/// A transaction as a caller is told it.
#[must_use]
pub fn view(view: &View) -> String {
    let outcome = outcome_kind(view.outcome);
    let reason = view
        .aborted
        .as_ref()
        .map_or_else(String::new, |reason| format!("({})", reason.code()));
    let beside = view.heuristic.map_or_else(String::new, |what| {
        format!(", heuristic {}", heuristic_field(what))
    });
    format!("{} {outcome}{reason}{beside}", view.transaction_id)
}

/// A decision.
#[must_use]
pub fn decision(what: Decision) -> &'static str {
    match what {
        Decision::Commit => "COMMIT",
        Decision::Abort => "ABORT",
    }
}

/// The heuristic field of an outcome (section 1).
fn heuristic_field(what: Heuristic) -> &'static str {
    match what {
        Heuristic::Commit => "COMMIT",
        Heuristic::Abort => "ABORT",
        Heuristic::Mixed => "MIXED",
        Heuristic::Hazard => "HAZARD",
    }
}

/// A call.
#[must_use]
pub fn ask(ask: &Ask, history: &History) -> String {
    match ask {
        Ask::Execute(execute) => format!("Execute {}", execute.transaction_id),
        Ask::Get(id, _) => format!("GetTransaction {id}"),
        Ask::Abort(id, _) => format!("AbortTransaction {id}"),
        Ask::Forget(xid, participant) => format!("FORGET {} {participant}", history.shown(*xid)),
    }
}

/// An answer to a call.
#[must_use]
pub fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Transaction(of) => view(of),
        Reply::Refused(why) => refusal(why),
        Reply::Forgotten => "FORGOTTEN".to_owned(),
    }
}

fn refusal(why: &Refusal) -> String {
    match why {
        Refusal::Recovering => "UNAVAILABLE: it does not serve yet".to_owned(),
        Refusal::OtherContent => "ALREADY_EXISTS: the id has other content".to_owned(),
        Refusal::CreatedAhead { .. } => "INVALID_ARGUMENT: created lies ahead".to_owned(),
        Refusal::ParticipantUnknown(name) => format!("FAILED_PRECONDITION: {name} never joined"),
        Refusal::Exhausted { bound, .. } => format!("RESOURCE_EXHAUSTED: {bound}"),
        Refusal::NoHeuristic => "FAILED_PRECONDITION: there is no heuristic to forget".to_owned(),
    }
}

/// Why a participant may not join.
#[must_use]
pub fn join_refusal(why: JoinRefusal) -> &'static str {
    match why {
        JoinRefusal::Recovering => "it does not serve yet",
        JoinRefusal::OtherLineageJoined => "another lineage of this name is joined",
        JoinRefusal::Outdated => "a newer one of the same participant is joined",
        JoinRefusal::IncarnationConflict => "another start with the same counter is joined",
        JoinRefusal::TooManyParticipants => "there is no room for another participant",
    }
}
