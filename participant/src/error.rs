//! What can go wrong in the SDK. None of it is ever a vote or an outcome.

use std::error::Error as StdError;
use std::fmt::Write;

use covenant_rules::participant::Refusal;

/// Why a call did not do what it was asked to, or why a session is away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The resource does not know the result of a call: the driver calls again (RC4).
    #[error("the resource does not know the result of the call; the same call is safe to repeat")]
    Resource(#[source] Box<dyn StdError + Send + Sync>),
    /// The coordinator's address cannot be used.
    #[error("the coordinator address {value:?} cannot be used; give http://HOST:PORT")]
    Address {
        /// What was given.
        value: String,
        /// What the parser said, if it was asked.
        #[source]
        source: Option<tonic::transport::Error>,
    },
    /// The resource breaks RC5: what it recovered and what it lists as in doubt differ.
    #[error(
        "RC5: start() returned {recovered} prepared branches, in_doubt() lists {listed}; both must be the same \
         branches before the participant may join"
    )]
    Contract {
        /// How many `start` returned.
        recovered: usize,
        /// How many `in_doubt` listed.
        listed: usize,
    },
    /// An operator's decision was refused (P14, P21); nothing changed.
    #[error("the branch was not resolved: {}", refusal(.0))]
    Refused(Refusal),
    /// The participant has stopped, so nothing can be asked of it.
    #[error("the participant has stopped; start it again")]
    Stopped,
    /// Calls were still under way when the participant left, or messages had not been handed to the connection. Their
    /// branches are as durable as they were.
    #[error(
        "left with {calls} resource calls under way and {messages} messages unsent: the {deadline_ms} ms for leaving \
         were over, or the session ended; the next start repeats what is due"
    )]
    Leaving {
        /// How many calls.
        calls: usize,
        /// How many messages.
        messages: usize,
        /// The time that was given.
        deadline_ms: u64,
    },
    /// The coordinator could not be reached.
    #[error("the coordinator cannot be reached")]
    Connect(#[source] tonic::transport::Error),
    /// The coordinator refused or ended the session.
    #[error("the coordinator says {}", status(.0))]
    Status(#[source] tonic::Status),
    /// Connecting and joining took longer than the bound.
    #[error("no Welcome within DIAL_TIMEOUT_MS = {0} ms")]
    Welcome(u64),
    /// The coordinator's first frame has no Welcome.
    #[error("the first frame has no Welcome: this is no coordinator")]
    NoWelcome,
    /// The coordinator sent what this version does not understand.
    #[error("the coordinator sent a frame that does not decode")]
    Frame(#[source] covenant_codec::Error),
    /// The coordinator ended the stream.
    #[error("the coordinator ended the session")]
    Ended,
    /// The coordinator does not take what is sent: the session was cut.
    #[error("the coordinator left MAX_OUTGOING_MESSAGES = {0} messages waiting: the session is cut")]
    NotDraining(usize),
}

impl Error {
    /// How a [`Resource`](crate::Resource) says that it does not know the result of a call (RC4).
    pub fn resource(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Resource(source.into())
    }

    /// The message with all its causes in one line.
    #[must_use]
    pub fn report(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A status says everything in its own message already, and some errors their cause's.
            if error.downcast_ref::<tonic::Status>().is_none() && !line.ends_with(&text) {
                let _ = write!(line, ": {text}");
            }
            cause = error.source();
        }
        line
    }
}

fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotFound => "no such branch is known here".to_owned(),
        Refusal::NotPrepared(state) => {
            format!("it is {state:?}, and only a PREPARED branch may be decided by hand")
        }
        Refusal::OtherAttempt(xid) => {
            format!(
                "attempt {xid} of the same transaction is prepared or has its effect here; abort is possible"
            )
        }
    }
}

fn status(status: &tonic::Status) -> String {
    use tonic_types::StatusExt;

    match status.get_details_error_info() {
        Some(info) => format!("{}: {}", info.reason, status.message()),
        None => format!("{:?}: {}", status.code(), status.message()),
    }
}
