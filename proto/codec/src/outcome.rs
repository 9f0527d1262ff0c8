//! Decided attempts as bytes: for the archive of finished ones, and inside COMMIT, ABORT and HEURISTIC records.
//!
//! An archived outcome is self-contained. Inside a record the envelope has the attempt and the transaction id, so
//! the payload leaves them out.

use covenant_proto::log::v1 as stored;
use covenant_rules::{
    AbortReason, BranchRecord, Fingerprint, Heuristic, Lineage, Name, Outcome, TransactionId, Vote, Xid,
};
use prost::Message;

use crate::error::required;
use crate::limits::{BRANCHES, REASON_CODE, REASON_DETAIL};
use crate::{Error, ids, words};

/// A self-contained outcome for the archive: 132 bytes for two branches with names of 8 bytes and an id of 4, of
/// which 72 are random (lineages, incarnation, fingerprint).
#[must_use]
pub fn encode_outcome(outcome: &Outcome) -> Vec<u8> {
    let mut record = payload(outcome);
    record.xid = Some(ids::xid(outcome.xid));
    record.transaction_id = outcome.transaction_id.as_str().to_owned();
    record.encode_to_vec()
}

/// The inverse of [`encode_outcome`].
///
/// # Errors
/// Bytes that are no such outcome, or one with a field beyond its bounds.
pub fn decode_outcome(bytes: &[u8]) -> Result<Outcome, Error> {
    let record = stored::OutcomeRecord::decode(bytes).map_err(|source| Error::Payload {
        message: "OutcomeRecord",
        source,
    })?;
    let xid = ids::from_xid(required("OutcomeRecord.xid", record.xid)?);
    let transaction_id = ids::transaction_id("OutcomeRecord.transaction_id", &record.transaction_id)?;
    from_payload(xid, transaction_id, &record)
}

/// What an archive's indexes are built from; reading it costs a fraction of the whole outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id; not checked against its bounds.
    pub transaction_id: String,
    /// max(created, decided): by what retention goes (PROTOCOL.md section 6).
    pub retained_by: u64,
    /// When the coordinator decided, in Unix milliseconds.
    pub decided: u64,
    /// Whether it is a fence (R7).
    pub fence: bool,
}

/// The fields of `OutcomeRecord` that a [`Summary`] needs, under the same numbers.
#[derive(Clone, PartialEq, prost::Message)]
struct OutcomeHead {
    #[prost(message, optional, tag = "1")]
    xid: Option<covenant_proto::v1::Xid>,
    #[prost(string, tag = "2")]
    transaction_id: String,
    #[prost(uint64, tag = "5")]
    created_unix_ms: u64,
    #[prost(sint64, tag = "6")]
    decided_after_ms: i64,
    #[prost(message, optional, tag = "7")]
    reason: Option<stored::StoredReason>,
}

/// The summary of an outcome that [`encode_outcome`] wrote.
///
/// # Errors
/// Bytes that are no such outcome.
pub fn summarize_outcome(bytes: &[u8]) -> Result<Summary, Error> {
    let head = OutcomeHead::decode(bytes).map_err(|source| Error::Payload {
        message: "OutcomeRecord",
        source,
    })?;
    let decided = head
        .created_unix_ms
        .wrapping_add(head.decided_after_ms.cast_unsigned());
    Ok(Summary {
        xid: ids::from_xid(required("OutcomeRecord.xid", head.xid)?),
        transaction_id: head.transaction_id,
        retained_by: decided.max(head.created_unix_ms),
        decided,
        fence: head
            .reason
            .is_some_and(|reason| reason.cause() == stored::AbortCause::Fence),
    })
}

/// An outcome without what an envelope carries.
pub(crate) fn payload(outcome: &Outcome) -> stored::OutcomeRecord {
    let fingerprint = outcome
        .fingerprint
        .map(|Fingerprint(bytes)| ids::halves(u128::from_be_bytes(bytes)));
    stored::OutcomeRecord {
        xid: None,
        transaction_id: String::new(),
        fingerprint_high: fingerprint.map(|(high, _)| high),
        fingerprint_low: fingerprint.map(|(_, low)| low),
        created_unix_ms: outcome.created,
        // A difference of 64 bits that wraps gives the same time back by wrapping again.
        decided_after_ms: outcome.decided.wrapping_sub(outcome.created).cast_signed(),
        reason: outcome.aborted.as_ref().map(reason),
        branches: outcome.branches.iter().map(branch).collect(),
        heuristic: forgotten(outcome.heuristic),
    }
}

pub(crate) fn from_payload(
    xid: Xid,
    transaction_id: TransactionId,
    record: &stored::OutcomeRecord,
) -> Result<Outcome, Error> {
    BRANCHES.check("OutcomeRecord.branches", record.branches.len())?;
    let fingerprint = pair(
        "OutcomeRecord.fingerprint",
        record.fingerprint_high,
        record.fingerprint_low,
    )?;
    Ok(Outcome {
        xid,
        transaction_id,
        fingerprint: fingerprint.map(|value| Fingerprint(value.to_be_bytes())),
        created: record.created_unix_ms,
        decided: record
            .created_unix_ms
            .wrapping_add(record.decided_after_ms.cast_unsigned()),
        aborted: record.reason.as_ref().map(from_reason).transpose()?,
        branches: record
            .branches
            .iter()
            .map(from_branch)
            .collect::<Result<_, _>>()?,
        heuristic: match record.heuristic {
            0 => None,
            value => words::from_heuristic("OutcomeRecord.heuristic", value)?,
        },
    })
}

/// Two halves that are there both or not at all.
fn pair(field: &'static str, high: Option<u64>, low: Option<u64>) -> Result<Option<u128>, Error> {
    match (high, low) {
        (Some(high), Some(low)) => Ok(Some(ids::joined(high, low))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Error::Missing { field }),
    }
}

fn branch(branch: &BranchRecord) -> stored::StoredBranch {
    let lineage = branch.lineage.map(|Lineage(value)| ids::halves(value));
    let (vote, no) = match &branch.vote {
        None => (stored::StoredVote::Unspecified, None),
        Some(Vote::Yes) => (stored::StoredVote::Yes, None),
        Some(Vote::No(reason)) => (stored::StoredVote::No, Some(reason)),
        Some(Vote::ReadOnly) => (stored::StoredVote::ReadOnly, None),
    };
    stored::StoredBranch {
        participant: branch.participant.as_str().to_owned(),
        lineage_high: lineage.map(|(high, _)| high),
        lineage_low: lineage.map(|(_, low)| low),
        vote: vote.into(),
        code: no.map(|reason| REASON_CODE.cut(&reason.code)).unwrap_or_default(),
        detail: no
            .map(|reason| REASON_DETAIL.cut(&reason.detail))
            .unwrap_or_default(),
        forgotten: forgotten(branch.forgotten),
    }
}

/// Unspecified, and so without a byte, where nothing was decided by hand.
fn forgotten(what: Option<Heuristic>) -> i32 {
    match what {
        None => covenant_proto::v1::Heuristic::Unspecified.into(),
        some => words::heuristic(some).into(),
    }
}

fn from_branch(branch: &stored::StoredBranch) -> Result<BranchRecord, Error> {
    let vote = match stored::StoredVote::try_from(branch.vote) {
        Ok(stored::StoredVote::Unspecified) => None,
        Ok(stored::StoredVote::Yes) => Some(Vote::Yes),
        Ok(stored::StoredVote::No) => Some(Vote::No(words::bounded_reason(
            "StoredBranch.code",
            &branch.code,
            "StoredBranch.detail",
            &branch.detail,
        )?)),
        Ok(stored::StoredVote::ReadOnly) => Some(Vote::ReadOnly),
        Err(_) => {
            return Err(Error::Enumeration {
                field: "StoredBranch.vote",
                value: branch.vote,
            });
        }
    };
    Ok(BranchRecord {
        participant: ids::name("StoredBranch.participant", &branch.participant)?,
        lineage: pair("StoredBranch.lineage", branch.lineage_high, branch.lineage_low)?.map(Lineage),
        vote,
        forgotten: match branch.forgotten {
            0 => None,
            value => words::from_heuristic("StoredBranch.forgotten", value)?,
        },
    })
}

fn reason(reason: &AbortReason) -> stored::StoredReason {
    use stored::AbortCause;

    let bare = |cause: AbortCause, participant: Option<&Name>| stored::StoredReason {
        cause: cause.into(),
        participant: participant
            .map(|name| name.as_str().to_owned())
            .unwrap_or_default(),
        code: String::new(),
        detail: String::new(),
    };
    match reason {
        AbortReason::VoteNo(participant, no) => stored::StoredReason {
            code: REASON_CODE.cut(&no.code),
            detail: REASON_DETAIL.cut(&no.detail),
            ..bare(AbortCause::VoteNo, Some(participant))
        },
        AbortReason::Deadline => bare(AbortCause::Deadline, None),
        AbortReason::Caller => bare(AbortCause::Caller, None),
        AbortReason::Operator => bare(AbortCause::Operator, None),
        AbortReason::HeuristicAbort(participant) => bare(AbortCause::HeuristicAbort, Some(participant)),
        AbortReason::LineageChanged(participant) => bare(AbortCause::LineageChanged, Some(participant)),
        AbortReason::Fence => bare(AbortCause::Fence, None),
    }
}

fn from_reason(reason: &stored::StoredReason) -> Result<AbortReason, Error> {
    use stored::AbortCause;

    let participant = || ids::name("StoredReason.participant", &reason.participant);
    Ok(match AbortCause::try_from(reason.cause) {
        Ok(AbortCause::VoteNo) => {
            let no = words::bounded_reason(
                "StoredReason.code",
                &reason.code,
                "StoredReason.detail",
                &reason.detail,
            )?;
            AbortReason::VoteNo(participant()?, no)
        }
        Ok(AbortCause::Deadline) => AbortReason::Deadline,
        Ok(AbortCause::Caller) => AbortReason::Caller,
        Ok(AbortCause::Operator) => AbortReason::Operator,
        Ok(AbortCause::HeuristicAbort) => AbortReason::HeuristicAbort(participant()?),
        Ok(AbortCause::LineageChanged) => AbortReason::LineageChanged(participant()?),
        Ok(AbortCause::Fence) => AbortReason::Fence,
        Ok(AbortCause::Unspecified) | Err(_) => {
            return Err(Error::Enumeration {
                field: "StoredReason.cause",
                value: reason.cause,
            });
        }
    })
}
