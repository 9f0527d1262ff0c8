//! Effects as short lines, and messages from short texts: what row tests are written in.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::super::{Effect, Reply, SessionId, View};
use super::{name, xid};
use crate::{Heuristic, NoReason, Outcome, Record, ToCoordinator, ToParticipant, Vote, Xid};

/// `counter/seq`, with the lineage before it if it is not the bench's log.
fn short(xid: Xid) -> String {
    let of = if xid.lineage == super::LOG {
        String::new()
    } else {
        format!("{:x}:", xid.lineage.0)
    };
    format!("{of}{}/{}", xid.incarnation.counter, xid.seq)
}

/// The inverse of [`short`] for the bench's own log: `1/2` is the second attempt of the first start.
pub(super) fn parse_xid(text: &str) -> Xid {
    let (counter, seq) = text.split_once('/').unwrap();
    xid(counter.parse().unwrap(), seq.parse().unwrap())
}

/// A message from its text, e.g. `YES 1/1`, `NO 1/1 CODE`, `REPORT 1/1 COMMIT`.
pub(super) fn parse_message(text: &str) -> ToCoordinator {
    let words: Vec<&str> = text.split(' ').collect();
    let xid = parse_xid(words[1]);
    match words[0] {
        "YES" => ToCoordinator::Vote(xid, Vote::Yes),
        "READ_ONLY" => ToCoordinator::Vote(xid, Vote::ReadOnly),
        "NO" => ToCoordinator::Vote(xid, Vote::No(NoReason::new(words[2], ""))),
        "ACK" => ToCoordinator::Ack(xid),
        "LOST_STATE" => ToCoordinator::LostState(xid),
        "INQUIRE" => ToCoordinator::Inquire(xid),
        "FORGET_ACK" => ToCoordinator::ForgetAck(xid),
        "REPORT" => ToCoordinator::Report(
            xid,
            match words[2] {
                "COMMIT" => Heuristic::Commit,
                "ABORT" => Heuristic::Abort,
                "HAZARD" => Heuristic::Hazard,
                other => panic!("no such report: {other}"),
            },
        ),
        other => panic!("no such message: {other}"),
    }
}

fn record(record: &Record) -> String {
    match record {
        Record::Lineage { .. } => "LINEAGE".to_string(),
        Record::Incarnation(start) => format!("INCARNATION {}", start.counter),
        Record::Participant { name, lineage } => format!("PARTICIPANT {name} {:x}", lineage.0),
        Record::Commit(outcome) => {
            let voters: String = outcome.yes_voters().map(|(name, _)| format!(" {name}")).collect();
            format!(
                "COMMIT {} {}:{voters}",
                short(outcome.xid),
                outcome.transaction_id
            )
        }
        Record::Abort(outcome) => {
            let reason = outcome.aborted.as_ref().map_or("", |reason| reason.code());
            format!("ABORT {} {} {reason}", short(outcome.xid), outcome.transaction_id)
        }
        Record::End(xid) => format!("END {}", short(*xid)),
        Record::Heuristic {
            xid,
            participant,
            what,
            damage,
            outcome,
            ..
        } => {
            let damage = damage.map_or("unjudged", |damage| if damage { "damage" } else { "agrees" });
            let carries = if outcome.is_some() { " with outcome" } else { "" };
            format!(
                "HEURISTIC {} {participant} {what:?} {damage}{carries}",
                short(*xid)
            )
        }
        Record::Forget { xid, participant, by } => {
            let by = by.as_ref().map_or("", |_| " by operator");
            format!("FORGET {} {participant}{by}", short(*xid))
        }
        Record::ForgetDone { xid, participant } => format!("FORGET_DONE {} {participant}", short(*xid)),
        Record::Resolved { xid, decision, .. } => format!("RESOLVED {} {decision:?}", short(*xid)),
        Record::Retained(since) => format!("RETAINED {since}"),
        Record::Suspect {
            participant,
            position,
        } => format!(
            "SUSPECT {} {position}",
            participant.as_ref().map_or("-", |name| name.as_str())
        ),
        Record::SuspectCleared(_) => "SUSPECT_CLEARED".to_string(),
        Record::Quarantined(_) => "QUARANTINED".to_string(),
    }
}

fn message(message: &ToParticipant) -> String {
    match message {
        ToParticipant::Prepare {
            xid, transaction_id, ..
        } => format!("PREPARE {} {transaction_id}", short(*xid)),
        ToParticipant::Commit(xid) => format!("COMMIT {}", short(*xid)),
        ToParticipant::Abort(xid) => format!("ABORT {}", short(*xid)),
        ToParticipant::Pending(xid) => format!("PENDING {}", short(*xid)),
        ToParticipant::Unknown(xid) => format!("UNKNOWN {}", short(*xid)),
        ToParticipant::ReportRecorded(xid) => format!("REPORT_RECORDED {}", short(*xid)),
        ToParticipant::Forget(xid) => format!("FORGET {}", short(*xid)),
    }
}

fn view(view: &View) -> String {
    let mut line = format!("{:?}", view.outcome);
    if let Some(state) = view.state {
        line += &format!(" {state:?}");
    }
    if let Some(reason) = &view.aborted {
        line += &format!(" {}", reason.code());
    }
    if let Some(heuristic) = view.heuristic {
        line += &format!(" heuristic {heuristic:?}");
    }
    line
}

fn archived(outcome: &Outcome) -> String {
    let heuristic = outcome
        .heuristic
        .map_or(String::new(), |what| format!(" heuristic {what:?}"));
    format!(
        "archive {} {}{heuristic}",
        short(outcome.xid),
        outcome.transaction_id
    )
}

/// One effect as a line; `Changed` is left out, and an `append!` is a forced one.
pub(super) fn render(effects: &[Effect], labels: &BTreeMap<SessionId, String>) -> Vec<String> {
    let at = |session: &SessionId| {
        labels
            .get(session)
            .cloned()
            .unwrap_or_else(|| session.to_string())
    };
    let line = |effect: &Effect| match effect {
        Effect::Append {
            record: what, force, ..
        } => Some(format!(
            "append{} {}",
            if *force { "!" } else { "" },
            record(what)
        )),
        Effect::Send {
            session,
            message: what,
        } => Some(format!("{} < {}", at(session), message(what))),
        Effect::Reply { request, reply } => Some(match reply {
            Reply::Transaction(what) => format!("r{request} = {}", view(what)),
            Reply::Refused(why) => format!("r{request} ! {why:?}"),
            Reply::Forgotten => format!("r{request} = Forgotten"),
        }),
        Effect::Welcome(session) => Some(format!("{} welcome", at(session))),
        Effect::RefuseJoin(session, why) => Some(format!("{} refused {why:?}", at(session))),
        Effect::Replaced(session) => Some(format!("{} replaced", at(session))),
        Effect::Serving => Some("serving".to_string()),
        Effect::Archive(outcome) => Some(archived(outcome)),
        Effect::Expire(since) => Some(format!("expire {since}")),
        Effect::Changed(_) => None,
        Effect::Alarm(alarm) => {
            let whose = alarm
                .participant
                .as_ref()
                .map_or(String::new(), |name| format!(" {name}"));
            let about = alarm.xid.map_or(String::new(), |xid| format!(" {}", short(xid)));
            Some(format!("alarm {}{whose}{about}", alarm.code.as_str()))
        }
    };
    effects.iter().filter_map(line).collect()
}

#[test]
fn a_text_and_its_attempt_are_each_others_inverse() {
    assert_eq!(short(parse_xid("3/7")), "3/7");
    assert_eq!(name("a").as_str(), "a");
}
