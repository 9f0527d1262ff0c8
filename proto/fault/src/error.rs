//! Why a plan was refused.

use crate::CrashPoint;

/// What is wrong with a crash point given by name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No point has this name.
    #[error("there is no crash point {name:?}; the names are: {}", CrashPoint::names())]
    UnknownName {
        /// The name given.
        name: String,
    },
    /// A colon with nothing behind it.
    #[error("{given:?} has an empty transaction id; write NAME or NAME:TRANSACTION_ID")]
    EmptyTransactionId {
        /// The text given.
        given: String,
    },
}
