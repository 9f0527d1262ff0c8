//! Exit codes, and what a command ends with when it has no answer to print.
//!
//! One table for all commands. 7 is the one that callers of a two-phase commit need most: a request may have left, and
//! nothing definite came back. It is neither success nor failure, and the message names the safe next command.

use std::collections::BTreeMap;
use std::process::ExitCode;

use covenant_client::{Error, Refusal, RefusalKind};
use serde::Serialize;
use tonic::Code;

/// The code of a failure that another kind of server answered; `endpoint` in its metadata says where.
pub(crate) const WRONG_SERVER: &str = "WRONG_SERVER";

/// What the exit code says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; the answer is on stdout.
    Done = 0,
    /// The answer is negative: aborted, refused because the id has other content, a check of the demo failed.
    Negative = 1,
    /// The command line, the configuration or an argument of the request is wrong.
    Usage = 2,
    /// There is no such thing, or no record of it any more.
    NotFound = 3,
    /// Surely nothing was run: the server was not reached, or does not serve yet.
    NeverSent = 4,
    /// The caller may not do that.
    NotAllowed = 5,
    /// Something is in the wrong state for it: a bound is reached, a participant never joined, a directory or port is in
    /// use.
    WrongState = 6,
    /// A request may have left and nothing definite came back.
    Unknown = 7,
    /// A fault of this program, of the server, or of what it stores.
    Internal = 70,
}

/// The table for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0   done (transfer: COMMITTED; tx abort: ABORTED; tx get: any outcome but those below)
  1   the answer is negative (transfer: ABORTED, or the id has other content; tx abort: it was COMMITTED)
  2   usage: the command line, the configuration, an argument that the server refused, or another kind of server
  3   not found (tx get: NOT_FOUND or EXPIRED)
  4   surely nothing was run: the server was not reached, or does not serve yet
  5   not allowed
  6   wrong state (a participant never joined, a bound is reached, a directory or port is in use)
  7   the outcome is UNKNOWN: a request may have left; what is safe to do is printed
  70  internal: a fault of this program, of the server, or of what it stores";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command has no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// A stable code in upper snake case.
    pub(crate) code: String,
    /// One line for people.
    pub(crate) message: String,
    /// What to run next, if that is certain; the first is the safest.
    pub(crate) next: Vec<String>,
    /// Values behind the message, e.g. `bound` and `value`.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// A failure as `--output json` shows it.
#[derive(Serialize)]
pub(crate) struct FailureView<'a> {
    error: FailureFields<'a>,
}

#[derive(Serialize)]
struct FailureFields<'a> {
    code: &'a str,
    message: &'a str,
    exit_code: u8,
    next: Option<&'a str>,
    metadata: &'a BTreeMap<String, String>,
}

impl Failure {
    /// A failure with its code and one line for people.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            exit,
            code: code.to_owned(),
            message,
            next: Vec::new(),
            metadata: BTreeMap::new(),
        }
    }

    /// A wrong argument or configuration.
    pub(crate) fn usage(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, code, message)
    }

    /// A fault of this program.
    pub(crate) fn internal(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, code, message)
    }

    pub(crate) fn view(&self) -> FailureView<'_> {
        FailureView {
            error: FailureFields {
                code: &self.code,
                message: &self.message,
                exit_code: self.exit as u8,
                next: self.next.first().map(String::as_str),
                metadata: &self.metadata,
            },
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Endpoint { .. } => Self::usage("ENDPOINT_INVALID", message),
            Error::NeverSent { .. } => Self::new(Exit::NeverSent, "NEVER_SENT", message),
            Error::OutOfBounds { name, bound, .. } => Self {
                metadata: BTreeMap::from([
                    ("bound".to_owned(), name.to_owned()),
                    ("value".to_owned(), bound.to_string()),
                ]),
                ..Self::usage("OUT_OF_BOUNDS", message)
            },
            Error::WrongServer { endpoint } => Self {
                metadata: BTreeMap::from([("endpoint".to_owned(), endpoint)]),
                ..Self::usage(WRONG_SERVER, message)
            },
            Error::Unanswered { .. } => Self::new(Exit::Unknown, "UNANSWERED", message),
            Error::Refused(refusal) => Self {
                metadata: refusal.metadata.clone(),
                ..Self::new(refused(&refusal), &refusal.reason, refusal.message)
            },
        }
    }
}

fn refused(refusal: &Refusal) -> Exit {
    match &refusal.kind {
        RefusalKind::InvalidArgument => Exit::Usage,
        RefusalKind::AlreadyExists => Exit::Negative,
        RefusalKind::FailedPrecondition | RefusalKind::ResourceExhausted { .. } => Exit::WrongState,
        RefusalKind::Unavailable => Exit::NeverSent,
        RefusalKind::NotFound => Exit::NotFound,
        RefusalKind::Other(Code::PermissionDenied | Code::Unauthenticated) => Exit::NotAllowed,
        RefusalKind::Other(_) => Exit::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: RefusalKind) -> Failure {
        let metadata = BTreeMap::from([("bound".to_owned(), "max_in_progress".to_owned())]);
        let refusal = Refusal {
            kind,
            reason: "REASON".into(),
            message: "words".into(),
            metadata,
        };
        Failure::from(Error::Refused(refusal))
    }

    #[test]
    fn every_refusal_has_its_exit_code() {
        let full = RefusalKind::ResourceExhausted {
            bound: "b".into(),
            value: "1".into(),
        };
        for (kind, exit) in [
            (RefusalKind::InvalidArgument, 2),
            (RefusalKind::AlreadyExists, 1),
            (RefusalKind::FailedPrecondition, 6),
            (full, 6),
            (RefusalKind::Unavailable, 4),
            (RefusalKind::NotFound, 3),
            (RefusalKind::Other(Code::PermissionDenied), 5),
            (RefusalKind::Other(Code::Internal), 70),
        ] {
            let failure = refusal(kind);
            assert_eq!((failure.exit as u8, failure.code.as_str()), (exit, "REASON"));
        }
    }

    #[test]
    fn the_help_table_names_every_code() {
        for exit in [
            Exit::Done,
            Exit::Negative,
            Exit::Usage,
            Exit::NotFound,
            Exit::NeverSent,
            Exit::NotAllowed,
            Exit::WrongState,
            Exit::Unknown,
            Exit::Internal,
        ] {
            let line = format!("\n  {:<2}  ", exit as u8);
            assert!(EXIT_CODES.contains(&line), "{exit:?} is missing");
        }
    }

    #[test]
    fn an_error_in_json_has_code_message_and_exit_code() {
        let mut failure = refusal(RefusalKind::FailedPrecondition);
        failure.next.push("covenant tx get T1".into());
        let expected = serde_json::json!({"error": {
            "code": "REASON", "message": "words", "exit_code": 6, "next": "covenant tx get T1",
            "metadata": {"bound": "max_in_progress"},
        }});
        assert_eq!(serde_json::to_value(failure.view()).unwrap(), expected);
    }
}
