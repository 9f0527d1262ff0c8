//! From errors to gRPC: the one place that chooses a code and a reason.
//!
//! Every status carries an `ErrorInfo` with the domain `covenant` and a stable reason; the message names the
//! value, the bound and the way out.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::account::NameError;
use crate::accounts::{CloseRefusal, MAX_ACCOUNTS, OpenRefusal};
use crate::error::Error;
use crate::page::PageError;

const DOMAIN: &str = "covenant";

fn status(code: Code, reason: &str, error: &impl std::error::Error) -> Status {
    with_metadata(code, reason, error, HashMap::new())
}

fn with_metadata(
    code: Code,
    reason: &str,
    error: &impl std::error::Error,
    metadata: HashMap<String, String>,
) -> Status {
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    Status::with_error_details(code, error.to_string(), details)
}

pub(crate) fn from_name(error: &NameError) -> Status {
    let reason = match error {
        NameError::Currency(_) => "INVALID_CURRENCY",
        NameError::Empty | NameError::TooLong(_) | NameError::BadByte(_) | NameError::System(_) => {
            "INVALID_ACCOUNT_NAME"
        }
    };
    status(Code::InvalidArgument, reason, error)
}

pub(crate) fn from_page(error: &PageError) -> Status {
    let reason = match error {
        PageError::Size(_) => "INVALID_PAGE_SIZE",
        PageError::Token(_) | PageError::TokenTooLong(_) => "INVALID_PAGE_TOKEN",
    };
    status(Code::InvalidArgument, reason, error)
}

/// A bound that is reached: its name is the reason, and stands with its value in the metadata.
fn exhausted(bound: &str, value: usize, error: &Error) -> Status {
    let metadata = [("bound", bound.to_owned()), ("value", value.to_string())];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value));
    with_metadata(Code::ResourceExhausted, bound, error, HashMap::from(metadata))
}

pub(crate) fn from_error(error: &Error) -> Status {
    let (code, reason) = match error {
        Error::Open(OpenRefusal::Exists(..)) => (Code::AlreadyExists, "ACCOUNT_EXISTS"),
        Error::Open(OpenRefusal::Negative(..)) => (Code::InvalidArgument, "AMOUNT_NEGATIVE"),
        Error::Open(OpenRefusal::Overflow(..)) => (Code::FailedPrecondition, "OVERFLOW"),
        Error::Open(OpenRefusal::TooMany(_)) => return exhausted("MAX_ACCOUNTS", MAX_ACCOUNTS, error),
        Error::Close(CloseRefusal::NotFound(_)) | Error::NoAccount(_) => {
            (Code::NotFound, "ACCOUNT_NOT_FOUND")
        }
        Error::Close(CloseRefusal::NotEmpty(..)) => (Code::FailedPrecondition, "ACCOUNT_NOT_EMPTY"),
        Error::Close(CloseRefusal::Held(_)) => (Code::FailedPrecondition, "ACCOUNT_HELD"),
        Error::NoSuchPlace { .. } => (Code::InvalidArgument, "INVALID_PAGE_TOKEN"),
        Error::Backlogged { bound, .. } => return exhausted("MAX_BACKLOG_BYTES", *bound, error),
        Error::Journal(_)
        | Error::Record { .. }
        | Error::Unreadable { .. }
        | Error::NoLineage
        | Error::OtherName { .. }
        | Error::Entry { .. }
        | Error::Random(_)
        | Error::OpenEnded
        | Error::ReadEnded(_)
        | Error::UnknownBranch(_)
        | Error::WrongState { .. }
        | Error::SecondEffect { .. } => (Code::Internal, "INTERNAL"),
    };
    status(code, reason, error)
}
