//! Why a plan was refused.

use crate::{CrashPoint, Side};

/// What is wrong with a crash point given by name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No point has this name.
    #[error(
        "there is no crash point {name:?}; the names are: {}",
        CrashPoint::names(None)
    )]
    UnknownName {
        /// The name given.
        name: String,
    },
    /// The point is one of the other side's: the process would never reach it.
    #[error(
        "{point} is a crash point of a {}, and this is a {side}, which never reaches it; its points are: {}",
        point.side(),
        CrashPoint::names(Some(*side))
    )]
    OtherSide {
        /// The point.
        point: CrashPoint,
        /// Whose process it was given to.
        side: Side,
    },
    /// A colon with nothing behind it.
    #[error("{given:?} has an empty transaction id; write NAME or NAME:TRANSACTION_ID")]
    EmptyTransactionId {
        /// The text given.
        given: String,
    },
}
