//! What can be wrong with bytes that somebody else wrote.

use covenant_rules::IdError;

use crate::{MAX_REASON_CODE_BYTES, PROTOCOL_VERSION};

/// Why a message or a record was refused. It names the field, the value and the bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not the protobuf message that they should be.
    #[error("the payload does not decode as {message}; it was damaged, or written by something else")]
    Payload {
        /// The message's name.
        message: &'static str,
        /// What prost says.
        source: prost::DecodeError,
    },
    /// A field without which the message means nothing.
    #[error("{field} is missing; it is required")]
    Missing {
        /// The field, with its message.
        field: &'static str,
    },
    /// A field that contradicts another.
    #[error("{field} is set where it may not be: {why}")]
    Unexpected {
        /// The field, with its message.
        field: &'static str,
        /// The rule.
        why: &'static str,
    },
    /// A number that no value of an enumeration has, or one that may not stand in this field.
    #[error(
        "{field} has the value {value}, which is not one of those allowed there; a newer version may be in use"
    )]
    Enumeration {
        /// The field, with its message.
        field: &'static str,
        /// The number.
        value: i32,
    },
    /// A transaction id or a name beyond its bounds.
    #[error("{field} is refused: {source}")]
    Id {
        /// The field, with its message.
        field: &'static str,
        /// What is wrong with it.
        source: IdError,
    },
    /// A text, payload or list that is too long.
    #[error("{field} has {found} {unit}; the bound {bound} is {value}")]
    Beyond {
        /// The field, with its message.
        field: &'static str,
        /// How long it is.
        found: usize,
        /// Of what: bytes, branches, and so on.
        unit: &'static str,
        /// The name of the bound.
        bound: &'static str,
        /// The bound itself.
        value: usize,
    },
    /// The code of a NO that is no upper snake case.
    #[error(
        "{field} is {code:?}; a code is A to Z, 0 to 9 and '_', begins with a letter and has at most \
         MAX_REASON_CODE_BYTES = {MAX_REASON_CODE_BYTES} bytes, e.g. INSUFFICIENT_FUNDS"
    )]
    ReasonCode {
        /// The field, with its message.
        field: &'static str,
        /// The text; at most as long as a code may be.
        code: String,
    },
    /// The participant speaks none of our versions (section 8).
    #[error(
        "Hello offers the protocol versions {offered:?}; this side speaks {PROTOCOL_VERSION} only: use releases that share one"
    )]
    Version {
        /// What it speaks.
        offered: Vec<u32>,
    },
    /// The coordinator chose a version that was not offered (section 8).
    #[error(
        "Welcome chooses the protocol version {version}; this side speaks {PROTOCOL_VERSION} only: use releases that share one"
    )]
    Chosen {
        /// What it chose.
        version: u32,
    },
    /// A kind byte that no record has.
    #[error("the record kind {kind} is not known; a newer version may have written it")]
    Kind {
        /// The byte.
        kind: u8,
    },
}

/// The value of a required field.
pub(crate) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, Error> {
    value.ok_or(Error::Missing { field })
}
