//! Refusals as Status: one place maps to gRPC codes.
//!
//! Every refusal carries an ErrorInfo of the domain `covenant` with a stable reason; that is how a caller
//! knows that this call ran nothing (section 7). Anything without it means UNKNOWN.

use std::collections::HashMap;

use covenant_rules::coordinator::{JoinRefusal, Refusal};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::input::{MAX_QUEUED_CALLS, Refused};

/// The domain of every ErrorInfo.
const DOMAIN: &str = "covenant";

/// A refusal with its stable reason and the values that it names.
pub(crate) fn refusal(code: Code, reason: &str, message: String, values: &[(&str, String)]) -> Status {
    let metadata: HashMap<String, String> = values
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect();
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}

/// An argument out of bounds.
pub(crate) fn invalid(field: &str, message: String) -> Status {
    refusal(
        Code::InvalidArgument,
        "INVALID_ARGUMENT",
        format!("{field}: {message}"),
        &[("field", field.to_owned())],
    )
}

/// A bound that is reached or passed.
pub(crate) fn exhausted(bound: &str, value: u64, what: &str) -> Status {
    refusal(
        Code::ResourceExhausted,
        "BOUND_REACHED",
        format!("{what}: the bound {bound} is {value}; try again later, or raise the bound"),
        &[("bound", bound.to_owned()), ("value", value.to_string())],
    )
}

/// Why the loop gave no view.
pub(crate) fn refused(refused: Refused) -> Status {
    match refused {
        Refused::AtTheDoor(status) => status,
        Refused::Machine(why) => machine_refusal(why),
        Refused::Draining => refusal(
            Code::Unavailable,
            "DRAINING",
            "the coordinator is shutting down and takes no new work; send the same id again".to_owned(),
            &[],
        ),
        // It may have been run, and its outcome may become durable yet: no ErrorInfo (section 7).
        Refused::Unanswered => Status::unavailable(
            "the coordinator stopped before it had an answer; the outcome is unknown, send the same id again",
        ),
        Refused::QueueFull => exhausted(
            "MAX_QUEUED_CALLS",
            MAX_QUEUED_CALLS as u64,
            "too many calls wait for the coordinator",
        ),
        Refused::Backlogged => exhausted(
            "MAX_BACKLOG_BYTES",
            covenant_journal::limits::MAX_BACKLOG_BYTES as u64,
            "the log does not keep up",
        ),
        // Nothing is known of what the disk holds: no ErrorInfo.
        Refused::Archive(why) => {
            Status::internal(format!("the archive of outcomes could not be read: {why}"))
        }
        Refused::BadPageToken => invalid("page_token", "it is not one that this server gave".to_owned()),
    }
}

fn machine_refusal(why: Refusal) -> Status {
    match why {
        Refusal::Recovering => refusal(
            Code::Unavailable,
            "RECOVERING",
            "the coordinator replays its log; send the same id again".to_owned(),
            &[],
        ),
        Refusal::OtherContent => refusal(
            Code::AlreadyExists,
            "OTHER_CONTENT",
            "this transaction id is known with other branches or operations; use a new id for new content"
                .to_owned(),
            &[],
        ),
        Refusal::CreatedAhead {
            created,
            now,
            max_ahead_ms,
        } => refusal(
            Code::InvalidArgument,
            "CREATED_AHEAD",
            format!(
                "created is {created} ms, the coordinator's clock says {now} ms: more than max_created_ahead_ms \
                 {max_ahead_ms} ahead; set the caller's clock"
            ),
            &[
                ("created_ms", created.to_string()),
                ("now_ms", now.to_string()),
                ("max_created_ahead_ms", max_ahead_ms.to_string()),
            ],
        ),
        Refusal::ParticipantUnknown(name) => refusal(
            Code::FailedPrecondition,
            "PARTICIPANT_UNKNOWN",
            format!("participant {name} never joined this coordinator; start it, or correct the name"),
            &[("participant", name.to_string())],
        ),
        Refusal::Exhausted { bound, value } => exhausted(bound, value, "the coordinator is full"),
        Refusal::NoHeuristic => refusal(
            Code::FailedPrecondition,
            "NO_HEURISTIC",
            "there is no heuristic of this branch to forget".to_owned(),
            &[],
        ),
    }
}

/// Why a session was refused.
pub(crate) fn join_refusal(why: JoinRefusal) -> Status {
    let (code, reason, message) = match why {
        JoinRefusal::Recovering => (
            Code::Unavailable,
            "RECOVERING",
            "the coordinator replays its log; join again",
        ),
        JoinRefusal::OtherLineageJoined => (
            Code::FailedPrecondition,
            "OTHER_LINEAGE_JOINED",
            "a participant of this name with another data directory is joined; stop it, or use another name",
        ),
        JoinRefusal::Outdated => (
            Code::Aborted,
            "SESSION_OUTDATED",
            "a newer session of this participant is joined",
        ),
        JoinRefusal::IncarnationConflict => (
            Code::FailedPrecondition,
            "INCARNATION_CONFLICT",
            "another process with a copy of this data directory is joined; stop one of the two",
        ),
        JoinRefusal::TooManyParticipants => (
            Code::ResourceExhausted,
            "BOUND_REACHED",
            "the bound sessions.max_participants is reached; raise the bound",
        ),
    };
    refusal(code, reason, message.to_owned(), &[])
}
