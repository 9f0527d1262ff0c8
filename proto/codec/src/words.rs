//! Votes, reasons, heuristics and decisions between the rules and the wire.

use std::borrow::Cow;

use covenant_proto::v1;
use covenant_rules::{Decision, Heuristic, NoReason, Vote};

use crate::Error;
use crate::error::required;
use crate::limits::{REASON_CODE, REASON_DETAIL};

/// A heuristic for the wire; `None` is NONE.
#[must_use]
pub fn heuristic(heuristic: Option<Heuristic>) -> v1::Heuristic {
    match heuristic {
        None => v1::Heuristic::None,
        Some(Heuristic::Commit) => v1::Heuristic::Commit,
        Some(Heuristic::Abort) => v1::Heuristic::Abort,
        Some(Heuristic::Mixed) => v1::Heuristic::Mixed,
        Some(Heuristic::Hazard) => v1::Heuristic::Hazard,
    }
}

/// A heuristic from the wire; NONE is `None`.
///
/// # Errors
/// [`Error::Enumeration`] naming `field`, for an unspecified or unknown number.
pub fn from_heuristic(field: &'static str, value: i32) -> Result<Option<Heuristic>, Error> {
    match v1::Heuristic::try_from(value) {
        Ok(v1::Heuristic::None) => Ok(None),
        Ok(v1::Heuristic::Commit) => Ok(Some(Heuristic::Commit)),
        Ok(v1::Heuristic::Abort) => Ok(Some(Heuristic::Abort)),
        Ok(v1::Heuristic::Mixed) => Ok(Some(Heuristic::Mixed)),
        Ok(v1::Heuristic::Hazard) => Ok(Some(Heuristic::Hazard)),
        Ok(v1::Heuristic::Unspecified) | Err(_) => Err(Error::Enumeration { field, value }),
    }
}

/// A decision for the wire.
#[must_use]
pub fn decision(decision: Decision) -> v1::Decision {
    match decision {
        Decision::Commit => v1::Decision::Commit,
        Decision::Abort => v1::Decision::Abort,
    }
}

/// A decision from the wire.
///
/// # Errors
/// [`Error::Enumeration`] naming `field`, for an unspecified or unknown number.
pub fn from_decision(field: &'static str, value: i32) -> Result<Decision, Error> {
    match v1::Decision::try_from(value) {
        Ok(v1::Decision::Commit) => Ok(Decision::Commit),
        Ok(v1::Decision::Abort) => Ok(Decision::Abort),
        Ok(v1::Decision::Unspecified) | Err(_) => Err(Error::Enumeration { field, value }),
    }
}

/// The code of a NO whose own code is none: what a participant sends in its place.
pub const INVALID_REASON_CODE: &str = "INVALID_REASON_CODE";

/// Whether a text can be the code of a NO: upper snake case, `[A-Z][A-Z0-9_]*`, of at most
/// [`MAX_REASON_CODE_BYTES`](crate::MAX_REASON_CODE_BYTES).
#[must_use]
pub fn is_reason_code(text: &str) -> bool {
    let upper_snake = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= REASON_CODE.value
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_uppercase())
        && text.bytes().all(upper_snake)
}

/// The reason as it may be sent: one whose code is none becomes [`INVALID_REASON_CODE`], with the code in its detail.
pub(crate) fn sendable(reason: &NoReason) -> Cow<'_, NoReason> {
    if is_reason_code(&reason.code) {
        return Cow::Borrowed(reason);
    }
    let code = REASON_CODE.cut(&reason.code);
    let detail = format!("{code:?} is no code of a NO: {}", reason.detail);
    Cow::Owned(NoReason::new(INVALID_REASON_CODE, &REASON_DETAIL.cut(&detail)))
}

/// The reason of a NO for the wire, as callers see it; its texts are cut to their bounds.
#[must_use]
pub fn no_reason(reason: &NoReason) -> v1::NoReason {
    v1::NoReason {
        code: REASON_CODE.cut(&reason.code),
        detail: REASON_DETAIL.cut(&reason.detail),
    }
}

/// The reason of a NO from the wire.
///
/// # Errors
/// [`Error::Beyond`] for a text that is too long, [`Error::ReasonCode`] for a code that is none.
pub fn from_no_reason(reason: &v1::NoReason) -> Result<NoReason, Error> {
    let field = "NoReason.code";
    let plain = bounded_reason(field, &reason.code, "NoReason.detail", &reason.detail)?;
    if is_reason_code(&plain.code) {
        return Ok(plain);
    }
    let code = reason.code.clone();
    Err(Error::ReasonCode { field, code })
}

/// A reason within its bounds; its code is not looked at, so that whatever a log holds can be read.
pub(crate) fn bounded_reason(
    code_field: &'static str,
    code: &str,
    detail_field: &'static str,
    detail: &str,
) -> Result<NoReason, Error> {
    REASON_CODE.check(code_field, code.len())?;
    REASON_DETAIL.check(detail_field, detail.len())?;
    Ok(NoReason::new(code, detail))
}

/// A vote for the wire; a NO whose code is none becomes one with [`INVALID_REASON_CODE`].
#[must_use]
pub fn vote(vote: &Vote) -> v1::Vote {
    let (kind, reason) = match vote {
        Vote::Yes => (v1::VoteKind::Yes, None),
        Vote::No(reason) => (v1::VoteKind::No, Some(no_reason(&sendable(reason)))),
        Vote::ReadOnly => (v1::VoteKind::ReadOnly, None),
    };
    v1::Vote {
        kind: kind.into(),
        reason,
    }
}

/// A vote from the wire.
///
/// # Errors
/// An unknown kind, NO without a reason, another vote with one, a reason beyond its bounds, or a code that is none.
pub fn from_vote(vote: &v1::Vote) -> Result<Vote, Error> {
    let plain = match v1::VoteKind::try_from(vote.kind) {
        Ok(v1::VoteKind::Yes) => Vote::Yes,
        Ok(v1::VoteKind::ReadOnly) => Vote::ReadOnly,
        Ok(v1::VoteKind::No) => {
            return Ok(Vote::No(from_no_reason(required(
                "Vote.reason",
                vote.reason.as_ref(),
            )?)?));
        }
        Ok(v1::VoteKind::Unspecified) | Err(_) => {
            return Err(Error::Enumeration {
                field: "Vote.kind",
                value: vote.kind,
            });
        }
    };
    if vote.reason.is_some() {
        return Err(Error::Unexpected {
            field: "Vote.reason",
            why: "only NO has a reason",
        });
    }
    Ok(plain)
}
