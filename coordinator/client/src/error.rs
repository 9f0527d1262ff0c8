//! What surely ran nothing: an unusable address, a coordinator that was never reached, a refusal.
//!
//! [`Refusal`] is an answer that carries Covenant's ErrorInfo. Only such an answer may be believed to have run nothing
//! (section 7); a bare gRPC code may come from a proxy, a half-closed connection or the client's own stack.

use std::collections::BTreeMap;

use tonic::{Code, Status};
use tonic_types::StatusExt;

/// The domain of an ErrorInfo that the coordinator or a ledger wrote.
const DOMAIN: &str = "covenant";

/// Why a call has no outcome. From `execute`, `get` and `abort`: this call surely ran nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used; nothing was sent.
    #[error("the endpoint '{endpoint}' cannot be used: {why}; give http://HOST:PORT")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// A size of the request is beyond a bound that every coordinator has; nothing was sent.
    #[error("{what} has {value} {unit}; give {least} to {bound} ({name}); nothing was sent")]
    OutOfBounds {
        /// What is too large or too small.
        what: String,
        /// Its size.
        value: usize,
        /// `bytes` or `branches`.
        unit: &'static str,
        /// The smallest size.
        least: usize,
        /// The bound's name, e.g. `MAX_OPERATION_BYTES`.
        name: &'static str,
        /// The largest size.
        bound: usize,
    },
    /// The server there does not have the call, which changes nothing: it is another kind of server. From `get`, lists and
    /// watches only; for `execute` and `abort` this is `Outcome::Unknown` (section 7).
    #[error(
        "{endpoint} does not have this call, so it is another kind of server: correct the address; nothing was changed"
    )]
    WrongServer {
        /// Where to.
        endpoint: String,
    },
    /// No connection came up in all of the caller's patience, so nothing was sent.
    #[error(
        "{endpoint} was not reached in {tries} tries: {}; nothing was sent; start the server, or correct the address",
        root(source)
    )]
    NeverSent {
        /// Where to.
        endpoint: String,
        /// How often it was tried.
        tries: u32,
        /// What the last try met.
        source: Box<Status>,
    },
    /// The server refused the call and ran nothing of it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A call that changes nothing (a list, a watch) got no answer. `execute`, `get` and `abort` never return it: for
    /// them this is `Outcome::Unknown`.
    #[error(
        "{endpoint} gave no answer: {}; nothing was changed, ask again",
        describe(source)
    )]
    Unanswered {
        /// Where to.
        endpoint: String,
        /// What the last try met.
        source: Box<Status>,
    },
}

/// An error with Covenant's ErrorInfo: this call ran nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// The class of it.
    pub kind: RefusalKind,
    /// The stable reason in upper snake case, e.g. `PARTICIPANT_UNKNOWN`.
    pub reason: String,
    /// A sentence for people, with the value, the bound and the way out.
    pub message: String,
    /// The values behind it, e.g. `bound` and `value` of [`RefusalKind::ResourceExhausted`].
    pub metadata: BTreeMap<String, String>,
}

/// The class of a refusal, by its gRPC code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// A field is out of its bounds; the same call can never run.
    InvalidArgument,
    /// The id is known with other branches: never an outcome of this content.
    AlreadyExists,
    /// What the call needs is not there, e.g. a participant that never joined.
    FailedPrecondition,
    /// A bound is reached; the same call may run later.
    ResourceExhausted {
        /// The bound's name, e.g. `max_in_progress`; empty if the server did not say.
        bound: String,
        /// The bound's value; empty if the server did not say.
        value: String,
    },
    /// The server does not serve yet or no more; the same call may run later.
    Unavailable,
    /// There is nothing of that name; from a ledger.
    NotFound,
    /// Another code.
    Other(Code),
}

impl Refusal {
    /// The refusal in a status, if the status is one.
    #[must_use]
    pub fn from_status(status: &Status) -> Option<Self> {
        let info = status
            .get_details_error_info()
            .filter(|info| info.domain == DOMAIN)?;
        let metadata: BTreeMap<String, String> = info.metadata.into_iter().collect();
        let named = |key: &str| metadata.get(key).cloned().unwrap_or_default();
        let kind = match status.code() {
            Code::InvalidArgument => RefusalKind::InvalidArgument,
            Code::AlreadyExists => RefusalKind::AlreadyExists,
            Code::FailedPrecondition => RefusalKind::FailedPrecondition,
            Code::ResourceExhausted => RefusalKind::ResourceExhausted {
                bound: named("bound"),
                value: named("value"),
            },
            Code::Unavailable => RefusalKind::Unavailable,
            Code::NotFound => RefusalKind::NotFound,
            other => RefusalKind::Other(other),
        };
        Some(Self {
            kind,
            reason: info.reason,
            message: status.message().to_owned(),
            metadata,
        })
    }

    /// Whether the same call may be taken a moment later although nothing about it changes.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            RefusalKind::Unavailable | RefusalKind::ResourceExhausted { .. }
        )
    }
}

/// The cause of a status by which the request never left, as only the sender can know.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NeverLeft(pub(crate) &'static str);

/// Whether the request surely never left: no connection came up for it, or it still waited for its turn.
pub(crate) fn never_left(status: &Status) -> bool {
    chain(status).any(|cause| cause.is::<tonic::ConnectError>() || cause.is::<NeverLeft>())
}

/// Whether the server there does not have the call.
pub(crate) fn is_wrong_server(status: &Status) -> bool {
    status.code() == Code::Unimplemented
}

/// The status in a few words, with its deepest cause.
pub(crate) fn describe(status: &Status) -> String {
    if is_wrong_server(status) {
        return "Unimplemented: the server there does not know this call; it may be another kind of server"
            .to_owned();
    }
    let root = root(status);
    if root.is_empty() {
        format!("{:?}", status.code())
    } else {
        format!("{:?}: {root}", status.code())
    }
}

/// The deepest cause, which is what people can act on ("Connection refused").
pub(crate) fn root(status: &Status) -> String {
    chain(status)
        .last()
        .map_or_else(|| status.message().to_owned(), ToString::to_string)
}

fn chain(status: &Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(std::error::Error::source(status), |cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn status(code: Code, domain: &str, metadata: &[(&str, &str)]) -> Status {
        let metadata: std::collections::HashMap<String, String> = metadata
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Status::with_error_details(
            code,
            "words",
            ErrorDetails::with_error_info("REASON", domain, metadata),
        )
    }

    #[test]
    fn only_covenants_own_error_info_is_a_refusal() {
        assert!(Refusal::from_status(&Status::unavailable("proxy")).is_none());
        assert!(Refusal::from_status(&status(Code::InvalidArgument, "example.com", &[])).is_none());
        let refusal = Refusal::from_status(&status(Code::AlreadyExists, "covenant", &[])).unwrap();
        assert_eq!(
            (refusal.kind, refusal.reason.as_str()),
            (RefusalKind::AlreadyExists, "REASON")
        );
    }

    #[test]
    fn a_reached_bound_brings_its_name_and_value() {
        let metadata = [("bound", "max_in_progress"), ("value", "20000")];
        let refusal = Refusal::from_status(&status(Code::ResourceExhausted, "covenant", &metadata)).unwrap();
        let expected = RefusalKind::ResourceExhausted {
            bound: "max_in_progress".into(),
            value: "20000".into(),
        };
        assert_eq!(refusal.kind, expected);
        assert!(refusal.is_transient());
    }
}
