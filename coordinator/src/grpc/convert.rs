//! Between the wire and the rules, for callers and operators.

use std::sync::Arc;

use covenant_codec::{
    MAX_EXECUTE_BYTES, MAX_OPERATION_BYTES, MAX_REASON_DETAIL_BYTES, fingerprint, ids, words,
};
use covenant_proto::v1;
use covenant_rules::coordinator::{BranchView, Execute, State, View};
use covenant_rules::{
    AbortReason, BranchState, Limits, Name, OutcomeKind, TransactionId, UnixMillis, UnknownCause, Wait,
};
use prost_types::{Duration, Timestamp};
use tonic::Status;

use super::status::invalid;
use crate::listing::{Filter, ParticipantRow};

/// A caller's Execute, within all bounds.
pub(super) fn execute(request: v1::ExecuteRequest, limits: &Limits) -> Result<Execute, Status> {
    let transaction_id = transaction_id(&request.transaction_id)?;
    let created = created(request.created)?.ok_or_else(|| {
        invalid(
            "created",
            "it is required: the caller's first time for this id".to_owned(),
        )
    })?;
    let wait = match v1::Wait::try_from(request.wait) {
        Ok(v1::Wait::Unspecified | v1::Wait::Decided) => Wait::Decided,
        Ok(v1::Wait::Completed) => Wait::Completed,
        Err(_) => return Err(invalid("wait", format!("{} is not a Wait", request.wait))),
    };
    let timeout_ms = timeout(request.timeout, limits)?;
    let branches = branches(request.branches, limits)?;
    let fingerprint = fingerprint(branches.iter().map(|(name, operation)| (name, &**operation)));
    Ok(Execute {
        transaction_id,
        created,
        fingerprint,
        branches,
        timeout_ms,
        wait,
    })
}

/// Participants with their operations, sorted.
type Branches = Vec<(Name, Arc<[u8]>)>;

fn branches(given: Vec<v1::Branch>, limits: &Limits) -> Result<Branches, Status> {
    if given.is_empty() {
        return Err(invalid("branches", "there is none; give 1 to 128".to_owned()));
    }
    if given.len() > limits.max_branches {
        let what = format!("the transaction has {} branches", given.len());
        return Err(invalid(
            "branches",
            format!("{what}; the bound max_branches is {}", limits.max_branches),
        ));
    }
    let mut total = 0;
    let mut branches = Vec::with_capacity(given.len());
    for branch in given {
        let size = branch.operation.len();
        total += size;
        if size > MAX_OPERATION_BYTES {
            let what = format!("the operation for {} has {size} bytes", branch.participant);
            return Err(invalid(
                "operation",
                format!("{what}; the bound MAX_OPERATION_BYTES is {MAX_OPERATION_BYTES}"),
            ));
        }
        branches.push((
            name("participant", &branch.participant)?,
            Arc::from(&branch.operation[..]),
        ));
    }
    if total > MAX_EXECUTE_BYTES {
        let what = format!("the operations have {total} bytes together");
        return Err(invalid(
            "branches",
            format!("{what}; the bound MAX_EXECUTE_BYTES is {MAX_EXECUTE_BYTES}"),
        ));
    }
    branches.sort_by(|a, b| a.0.cmp(&b.0));
    match branches.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => {
            let what = format!("participant {} stands there twice", pair[0].0);
            Err(invalid(
                "branches",
                format!("{what}; give at most one branch per participant"),
            ))
        }
        None => Ok(branches),
    }
}

fn timeout(given: Option<Duration>, limits: &Limits) -> Result<u64, Status> {
    let Some(given) = given else {
        return Ok(limits.default_deadline_ms);
    };
    let millis = u64::try_from(given.seconds)
        .ok()
        .filter(|_| (0..1_000_000_000).contains(&given.nanos))
        .and_then(|seconds| seconds.checked_mul(1_000))
        .map(|millis| millis.saturating_add(u64::from(given.nanos.unsigned_abs()).div_ceil(1_000_000)));
    match millis {
        Some(millis) if (1..=limits.max_deadline_ms).contains(&millis) => Ok(millis),
        Some(millis) => Err(invalid(
            "timeout",
            format!(
                "it is {millis} ms; it must be 1 to max_deadline_ms {}",
                limits.max_deadline_ms
            ),
        )),
        None => Err(invalid("timeout", "it is negative or no duration".to_owned())),
    }
}

pub(super) fn transaction_id(text: &str) -> Result<TransactionId, Status> {
    TransactionId::new(text).map_err(|why| invalid("transaction_id", why.to_string()))
}

pub(super) fn name(field: &str, text: &str) -> Result<Name, Status> {
    Name::new(text).map_err(|why| invalid(field, why.to_string()))
}

/// Whole milliseconds: what the caller sends again must compare equal.
pub(super) fn created(given: Option<Timestamp>) -> Result<Option<UnixMillis>, Status> {
    let Some(given) = given else { return Ok(None) };
    let valid = given.seconds >= 0 && (0..1_000_000_000).contains(&given.nanos);
    let seconds = u64::try_from(given.seconds).ok().filter(|_| valid);
    let millis = seconds.and_then(|seconds| seconds.checked_mul(1_000));
    match millis {
        // Beyond the year 9999 the type is not defined.
        Some(millis) if given.seconds <= 253_402_300_799 => {
            Ok(Some(millis + u64::from(given.nanos.unsigned_abs()) / 1_000_000))
        }
        Some(_) | None => Err(invalid(
            "created",
            "it is no time between 1970 and 9999".to_owned(),
        )),
    }
}

pub(super) fn filter(given: i32) -> Result<Filter, Status> {
    match v1::StateFilter::try_from(given) {
        Ok(v1::StateFilter::Unspecified) => Ok(Filter::All),
        Ok(v1::StateFilter::InProgress) => Ok(Filter::InProgress),
        Ok(v1::StateFilter::Committing) => Ok(Filter::Committing),
        Ok(v1::StateFilter::InDoubt) => Ok(Filter::InDoubt),
        Ok(v1::StateFilter::Committed) => Ok(Filter::Committed),
        Ok(v1::StateFilter::Aborted) => Ok(Filter::Aborted),
        Err(_) => Err(invalid("state", format!("{given} is not a StateFilter"))),
    }
}

pub(super) fn timestamp(millis: UnixMillis) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(millis % 1_000).unwrap_or(0) * 1_000_000,
    }
}

pub(super) fn transaction(view: &View) -> v1::Transaction {
    v1::Transaction {
        transaction_id: view.transaction_id.as_str().to_owned(),
        xid: view.xid.map(ids::xid),
        outcome: outcome(view.outcome).into(),
        reason: view.aborted.as_ref().map(|why| reason(why, &view.missing_votes)),
        heuristic: words::heuristic(view.heuristic).into(),
        state: view.state.map_or(v1::TransactionState::Unspecified, state).into(),
        branches: view.branches.iter().map(branch).collect(),
        created: view.created.map(timestamp),
        decided: view.decided.map(timestamp),
        retained_since: Some(timestamp(view.retained_since)),
        in_doubt: u32::try_from(view.in_doubt()).unwrap_or(u32::MAX),
        detail: view.unknown.map(unknown).unwrap_or_default().to_owned(),
    }
}

/// Why the outcome is UNKNOWN, and what to do.
fn unknown(cause: UnknownCause) -> &'static str {
    match cause {
        UnknownCause::BeforeBirth => {
            "the id was first used before this coordinator's log was made; ask the coordinator that had it then"
        }
        UnknownCause::Suspect => {
            "the end of this coordinator's log was lost (SUSPECT), and with it perhaps this outcome; an operator must \
             restore the log, and nothing new is run until then"
        }
        UnknownCause::Quarantined => {
            "a stored record that does not decode is about this id, or may be; an operator must decide"
        }
        UnknownCause::OtherAttempt => {
            "another attempt of this id took effect at a participant; ask the participants what they hold"
        }
    }
}

fn branch(view: &BranchView) -> v1::BranchStatus {
    v1::BranchStatus {
        participant: view.participant.as_str().to_owned(),
        state: branch_state(view.state).into(),
        reason: view.reason.as_ref().map(words::no_reason),
        heuristic: words::heuristic(view.heuristic).into(),
        damage: view.damage,
        deliveries: view.deliveries,
        lineage: view.lineage.map(ids::lineage),
    }
}

fn reason(reason: &AbortReason, missing_votes: &[Name]) -> v1::AbortReason {
    let missed;
    let (participant, detail) = match reason {
        AbortReason::VoteNo(name, no) => (name.as_str(), &*no.detail),
        AbortReason::HeuristicAbort(name) => (
            name.as_str(),
            "the branch was aborted by hand before the decision",
        ),
        AbortReason::LineageChanged(name) => (
            name.as_str(),
            "the participant came back with another data directory before the decision",
        ),
        AbortReason::Deadline => {
            missed = missing(missing_votes);
            let only = match missing_votes {
                [only] => only.as_str(),
                _ => "",
            };
            (only, &*missed)
        }
        AbortReason::Caller => ("", "a caller aborted it before the decision"),
        AbortReason::Operator => ("", "an operator aborted it before the decision"),
        AbortReason::Fence => ("", "it was aborted before it was executed"),
    };
    v1::AbortReason {
        code: reason.code().to_owned(),
        participant: participant.to_owned(),
        detail: detail.to_owned(),
    }
}

/// Who had not voted when the deadline passed, within the bound of a detail.
fn missing(votes: &[Name]) -> String {
    const SUFFIX_BYTES: usize = ", and 128 more".len();
    let mut detail = String::from("not all votes were in when the deadline passed; missing: ");
    for (at, name) in votes.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let needed = separator.len() + name.as_str().len() + SUFFIX_BYTES;
        if detail.len() + needed > MAX_REASON_DETAIL_BYTES {
            detail += &format!("{separator}and {} more", votes.len() - at);
            break;
        }
        detail += separator;
        detail += name.as_str();
    }
    detail
}

fn outcome(kind: OutcomeKind) -> v1::Outcome {
    match kind {
        OutcomeKind::Committed => v1::Outcome::Committed,
        OutcomeKind::Aborted => v1::Outcome::Aborted,
        OutcomeKind::InProgress => v1::Outcome::InProgress,
        OutcomeKind::Unknown => v1::Outcome::Unknown,
        OutcomeKind::NotFound => v1::Outcome::NotFound,
        OutcomeKind::Expired => v1::Outcome::Expired,
    }
}

fn state(state: State) -> v1::TransactionState {
    match state {
        State::Preparing => v1::TransactionState::Preparing,
        State::Deciding => v1::TransactionState::Deciding,
        State::Committing => v1::TransactionState::Committing,
        State::Committed => v1::TransactionState::Committed,
        State::Aborting => v1::TransactionState::Aborting,
        State::Aborted => v1::TransactionState::Aborted,
    }
}

fn branch_state(state: BranchState) -> v1::BranchState {
    match state {
        BranchState::Unknown => v1::BranchState::Unknown,
        BranchState::Preparing => v1::BranchState::Preparing,
        BranchState::Prepared => v1::BranchState::Prepared,
        BranchState::Committing => v1::BranchState::Committing,
        BranchState::Committed => v1::BranchState::Committed,
        BranchState::Aborted => v1::BranchState::Aborted,
        BranchState::ReadOnly => v1::BranchState::ReadOnly,
        BranchState::Resolving => v1::BranchState::Resolving,
        BranchState::HeuristicCommit => v1::BranchState::HeuristicCommit,
        BranchState::HeuristicAbort => v1::BranchState::HeuristicAbort,
        BranchState::Forgotten => v1::BranchState::Forgotten,
    }
}

pub(super) fn participant(row: &ParticipantRow) -> v1::Participant {
    v1::Participant {
        name: row.view.name.as_str().to_owned(),
        lineage: Some(ids::lineage(row.view.lineage)),
        joined: row.view.session.is_some(),
        joined_since: row.joined.map(|(since, _)| timestamp(since)),
        incarnation: row
            .view
            .session
            .map(|(_, incarnation)| ids::incarnation(incarnation)),
        protocol_version: row.joined.map_or(0, |(_, version)| version),
        in_progress: row.view.in_progress as u64,
        in_doubt: row.view.in_doubt as u64,
        floor: Some(ids::floor(row.floor)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize, bytes: usize) -> Vec<Name> {
        let name = |at| Name::new(&format!("{at:0bytes$}")).unwrap();
        (0..count).map(name).collect()
    }

    #[test]
    fn a_deadline_names_who_had_not_voted_within_the_bound_of_a_detail() {
        for (count, bytes) in [(1, 3), (2, 128), (3, 128), (128, 128), (128, 1), (128, 3)] {
            let votes = names(count, bytes.max(3));
            let told = reason(&AbortReason::Deadline, &votes);
            assert!(
                told.detail.len() <= MAX_REASON_DETAIL_BYTES,
                "{}",
                told.detail.len()
            );
            let named = votes
                .iter()
                .filter(|name| told.detail.contains(name.as_str()))
                .count();
            assert!(named > 0);
            let rest = format!(", and {} more", count - named);
            assert_eq!(told.detail.ends_with(&rest), named < count, "{}", told.detail);
            assert_eq!(told.participant.is_empty(), count > 1);
        }
    }

    #[test]
    fn every_unknown_says_why_within_the_bound() {
        let causes = [
            UnknownCause::BeforeBirth,
            UnknownCause::Suspect,
            UnknownCause::Quarantined,
            UnknownCause::OtherAttempt,
        ];
        for cause in causes {
            let view = View::unknown(TransactionId::new("T").unwrap(), cause, 0);
            let detail = transaction(&view).detail;
            assert!((1..=MAX_REASON_DETAIL_BYTES).contains(&detail.len()), "{detail}");
        }
    }
}
