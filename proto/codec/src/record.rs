//! The records of the coordinator's log as payloads (section 2), one protobuf message per kind.
//!
//! The journal's envelope carries the kind, the attempt and the transaction id, as [`Record::xid`] and
//! [`Record::transaction_id`] give them; payloads leave them out and [`decode`] takes them back.

use covenant_proto::log::v1::{self as stored, CoordinatorRecordKind as Kind};
use covenant_rules::{
    Heuristic, Lineage, Name, Operator, Outcome, Quarantined, Record, TransactionId, UnixMillis, Xid,
};
use prost::Message;

use crate::error::required;
use crate::limits::{BRANCHES, FORMER_LINEAGES, OPERATOR_WHO, OPERATOR_WHY};
use crate::{Error, ids, outcome, words};

/// The kind byte and the payload of a record.
///
/// # Panics
/// A COMMIT with a reason to abort, or an ABORT without one: no decision is both.
#[must_use]
pub fn encode(record: &Record) -> (u8, Vec<u8>) {
    (kind(record) as u8, payload(record))
}

fn kind(record: &Record) -> Kind {
    match record {
        Record::Lineage { .. } => Kind::Lineage,
        Record::Incarnation(_) => Kind::Incarnation,
        Record::Participant { .. } => Kind::Participant,
        Record::Commit(_) => Kind::Commit,
        Record::Abort(_) => Kind::Abort,
        Record::End(_) => Kind::End,
        Record::Heuristic { .. } => Kind::Heuristic,
        Record::Forget { .. } => Kind::Forget,
        Record::ForgetDone { .. } => Kind::ForgetDone,
        Record::Resolved { .. } => Kind::Resolved,
        Record::Retained(_) => Kind::Retained,
        Record::Suspect { .. } => Kind::Suspect,
        Record::SuspectCleared(_) => Kind::SuspectCleared,
        Record::Quarantined(_) => Kind::Quarantined,
    }
}

fn payload(record: &Record) -> Vec<u8> {
    match record {
        Record::Lineage {
            lineage,
            birth,
            former,
        } => lineage_record(*lineage, *birth, former).encode_to_vec(),
        Record::Incarnation(incarnation) => {
            let incarnation = Some(ids::incarnation(*incarnation));
            stored::IncarnationRecord { incarnation }.encode_to_vec()
        }
        Record::Participant { name, lineage } => {
            let (name, lineage) = (text(name), Some(ids::lineage(*lineage)));
            stored::ParticipantRecord { name, lineage }.encode_to_vec()
        }
        Record::Commit(decided) => {
            assert!(decided.aborted.is_none(), "a COMMIT has no reason to abort");
            outcome::payload(decided).encode_to_vec()
        }
        Record::Abort(decided) => {
            assert!(decided.aborted.is_some(), "an ABORT has a reason");
            outcome::payload(decided).encode_to_vec()
        }
        Record::End(_) => Vec::new(),
        Record::Heuristic {
            participant,
            lineage,
            what,
            damage,
            outcome,
            ..
        } => heuristic_record(participant, *lineage, *what, *damage, outcome.as_ref()).encode_to_vec(),
        Record::Forget { participant, by, .. } => {
            let (participant, by) = (text(participant), by.as_ref().map(operator));
            stored::ForgetRecord { participant, by }.encode_to_vec()
        }
        Record::ForgetDone { participant, .. } => {
            let participant = text(participant);
            stored::ForgetDoneRecord { participant }.encode_to_vec()
        }
        Record::Resolved {
            decision, voters, by, ..
        } => {
            let (decision, by) = (words::decision(*decision).into(), Some(operator(by)));
            let voters = voters.iter().copied().map(ids::lineage).collect();
            stored::ResolvedRecord { decision, by, voters }.encode_to_vec()
        }
        Record::Retained(mark) => retained_record(*mark).encode_to_vec(),
        Record::Suspect {
            participant,
            position,
        } => {
            let participant = participant.as_ref().map(text).unwrap_or_default();
            let position = *position;
            stored::SuspectRecord {
                participant,
                position,
            }
            .encode_to_vec()
        }
        Record::SuspectCleared(by) => {
            let by = Some(operator(by));
            stored::SuspectClearedRecord { by }.encode_to_vec()
        }
        Record::Quarantined(quarantined) => {
            let bytes = quarantined.bytes.to_vec();
            stored::QuarantinedRecord { bytes }.encode_to_vec()
        }
    }
}

/// The record of a kind byte and a payload, with the attempt and the transaction id of its envelope.
///
/// # Errors
/// An unknown kind, a payload that does not decode or has a field beyond its bounds, or an envelope without the
/// attempt or the id that the kind needs. Whoever reads a log quarantines such a record and goes on (section 2).
pub fn decode(
    kind: u8,
    xid: Option<Xid>,
    transaction_id: Option<&str>,
    payload: &[u8],
) -> Result<Record, Error> {
    let known = Kind::try_from(i32::from(kind)).map_err(|_| Error::Kind { kind })?;
    let attempt = || required("the envelope's xid", xid);
    match known {
        Kind::Unspecified => Err(Error::Kind { kind }),
        Kind::Lineage => from_lineage_record(&read("LineageRecord", payload)?),
        Kind::Incarnation => from_incarnation_record(read("IncarnationRecord", payload)?),
        Kind::Participant => from_participant_record(&read("ParticipantRecord", payload)?),
        Kind::Commit | Kind::Abort => from_decision(known, attempt()?, transaction_id, payload),
        Kind::End => {
            read::<()>("an empty END", payload)?;
            Ok(Record::End(attempt()?))
        }
        Kind::Heuristic => {
            from_heuristic_record(attempt()?, transaction_id, &read("HeuristicRecord", payload)?)
        }
        Kind::Forget => from_forget_record(attempt()?, &read("ForgetRecord", payload)?),
        Kind::ForgetDone => from_forget_done_record(attempt()?, &read("ForgetDoneRecord", payload)?),
        Kind::Resolved => from_resolved_record(attempt()?, &read("ResolvedRecord", payload)?),
        Kind::Retained => {
            let message: stored::RetainedRecord = read("RetainedRecord", payload)?;
            Ok(Record::Retained(message.retained_since_unix_ms))
        }
        Kind::Suspect => from_suspect_record(&read("SuspectRecord", payload)?),
        Kind::SuspectCleared => from_suspect_cleared_record(&read("SuspectClearedRecord", payload)?),
        Kind::Quarantined => {
            let message: stored::QuarantinedRecord = read("QuarantinedRecord", payload)?;
            let transaction_id = transaction_id.map(envelope_id).transpose()?;
            Ok(Record::Quarantined(Quarantined {
                xid,
                transaction_id,
                bytes: message.bytes.into(),
            }))
        }
    }
}

fn read<M: Message + Default>(message: &'static str, payload: &[u8]) -> Result<M, Error> {
    M::decode(payload).map_err(|source| Error::Payload { message, source })
}

fn text(name: &Name) -> String {
    name.as_str().to_owned()
}

fn envelope_id(text: &str) -> Result<TransactionId, Error> {
    ids::transaction_id("the envelope's transaction_id", text)
}

fn enveloped(
    xid: Xid,
    transaction_id: Option<&str>,
    record: &stored::OutcomeRecord,
) -> Result<Outcome, Error> {
    let transaction_id = required("the envelope's transaction_id", transaction_id)?;
    outcome::from_payload(xid, envelope_id(transaction_id)?, record)
}

fn lineage_record(lineage: Lineage, birth: UnixMillis, former: &[Lineage]) -> stored::LineageRecord {
    stored::LineageRecord {
        lineage: Some(ids::lineage(lineage)),
        birth_unix_ms: birth,
        former: former.iter().copied().map(ids::lineage).collect(),
    }
}

fn from_lineage_record(message: &stored::LineageRecord) -> Result<Record, Error> {
    FORMER_LINEAGES.check("LineageRecord.former", message.former.len())?;
    Ok(Record::Lineage {
        lineage: ids::from_lineage(required("LineageRecord.lineage", message.lineage)?),
        birth: message.birth_unix_ms,
        former: message.former.iter().copied().map(ids::from_lineage).collect(),
    })
}

fn from_incarnation_record(message: stored::IncarnationRecord) -> Result<Record, Error> {
    let incarnation = required("IncarnationRecord.incarnation", message.incarnation)?;
    Ok(Record::Incarnation(ids::from_incarnation(incarnation)))
}

fn from_participant_record(message: &stored::ParticipantRecord) -> Result<Record, Error> {
    Ok(Record::Participant {
        name: ids::name("ParticipantRecord.name", &message.name)?,
        lineage: ids::from_lineage(required("ParticipantRecord.lineage", message.lineage)?),
    })
}

/// COMMIT and ABORT have one payload: a reason without which an ABORT is none, and with which a COMMIT is none.
fn from_decision(
    kind: Kind,
    xid: Xid,
    transaction_id: Option<&str>,
    payload: &[u8],
) -> Result<Record, Error> {
    let decided = enveloped(xid, transaction_id, &read("OutcomeRecord", payload)?)?;
    match (kind == Kind::Commit, decided.aborted.is_some()) {
        (true, false) => Ok(Record::Commit(decided)),
        (false, true) => Ok(Record::Abort(decided)),
        (true, true) => Err(Error::Unexpected {
            field: "OutcomeRecord.reason",
            why: "a COMMIT has no reason to abort",
        }),
        (false, false) => Err(Error::Missing {
            field: "OutcomeRecord.reason",
        }),
    }
}

fn heuristic_record(
    participant: &Name,
    lineage: Lineage,
    what: Heuristic,
    damage: Option<bool>,
    outcome: Option<&Outcome>,
) -> stored::HeuristicRecord {
    stored::HeuristicRecord {
        participant: text(participant),
        lineage: Some(ids::lineage(lineage)),
        what: words::heuristic(Some(what)).into(),
        damage,
        outcome: outcome.map(outcome::payload),
    }
}

fn from_heuristic_record(
    xid: Xid,
    transaction_id: Option<&str>,
    message: &stored::HeuristicRecord,
) -> Result<Record, Error> {
    const WHAT: &str = "HeuristicRecord.what";
    let what = match words::from_heuristic(WHAT, message.what)? {
        Some(done @ (Heuristic::Commit | Heuristic::Abort | Heuristic::Hazard)) => done,
        Some(Heuristic::Mixed) | None => {
            return Err(Error::Enumeration {
                field: WHAT,
                value: message.what,
            });
        }
    };
    let outcome = message
        .outcome
        .as_ref()
        .map(|record| enveloped(xid, transaction_id, record))
        .transpose()?;
    Ok(Record::Heuristic {
        xid,
        participant: ids::name("HeuristicRecord.participant", &message.participant)?,
        lineage: ids::from_lineage(required("HeuristicRecord.lineage", message.lineage)?),
        what,
        damage: message.damage,
        outcome,
    })
}

fn from_forget_record(xid: Xid, message: &stored::ForgetRecord) -> Result<Record, Error> {
    Ok(Record::Forget {
        xid,
        participant: ids::name("ForgetRecord.participant", &message.participant)?,
        by: message.by.as_ref().map(from_operator).transpose()?,
    })
}

fn from_forget_done_record(xid: Xid, message: &stored::ForgetDoneRecord) -> Result<Record, Error> {
    let participant = ids::name("ForgetDoneRecord.participant", &message.participant)?;
    Ok(Record::ForgetDone { xid, participant })
}

fn from_resolved_record(xid: Xid, message: &stored::ResolvedRecord) -> Result<Record, Error> {
    BRANCHES.check("ResolvedRecord.voters", message.voters.len())?;
    Ok(Record::Resolved {
        xid,
        decision: words::from_decision("ResolvedRecord.decision", message.decision)?,
        voters: message.voters.iter().copied().map(ids::from_lineage).collect(),
        by: from_operator(required("ResolvedRecord.by", message.by.as_ref())?)?,
    })
}

fn retained_record(mark: UnixMillis) -> stored::RetainedRecord {
    stored::RetainedRecord {
        retained_since_unix_ms: mark,
    }
}

fn from_suspect_record(message: &stored::SuspectRecord) -> Result<Record, Error> {
    let name = || ids::name("SuspectRecord.participant", &message.participant);
    Ok(Record::Suspect {
        participant: (!message.participant.is_empty()).then(name).transpose()?,
        position: message.position,
    })
}

fn from_suspect_cleared_record(message: &stored::SuspectClearedRecord) -> Result<Record, Error> {
    let by = required("SuspectClearedRecord.by", message.by.as_ref())?;
    Ok(Record::SuspectCleared(from_operator(by)?))
}

fn operator(operator: &Operator) -> stored::StoredOperator {
    stored::StoredOperator {
        who: OPERATOR_WHO.cut(&operator.who),
        why: OPERATOR_WHY.cut(&operator.why),
    }
}

fn from_operator(operator: &stored::StoredOperator) -> Result<Operator, Error> {
    OPERATOR_WHO.check("StoredOperator.who", operator.who.len())?;
    OPERATOR_WHY.check("StoredOperator.why", operator.why.len())?;
    Ok(Operator {
        who: operator.who.as_str().into(),
        why: operator.why.as_str().into(),
    })
}
