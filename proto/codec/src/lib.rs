//! Between the rules and their bytes: what a session sends and what a log stores, in both directions.
//!
//! The coordinator and participants never import each other; what both must agree on about bytes is here, once.
//! [`frame`] turns the messages of a session into wire types and back, [`record`] the coordinator's log records
//! and [`outcome`] the archived outcomes. Turning a plain value into bytes cannot fail: texts of our own that are
//! too long are cut at a character, and a NO whose code is none says so instead. Turning bytes into a plain value
//! checks every bound, never panics, and says which field was wrong and what its bound is.
//!
//! What is not here: the view of a transaction that callers get (the coordinator's doors), and the envelope and
//! checksum around a stored payload (covenant-journal).

mod error;
mod fingerprint;
pub mod frame;
pub mod ids;
mod limits;
pub mod outcome;
pub mod record;
pub mod words;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use fingerprint::fingerprint;
pub use limits::{
    FRAME_OVERHEAD_BYTES, MAX_BRANCHES, MAX_EXECUTE_BYTES, MAX_FORMER_LINEAGES, MAX_FRAME_BYTES,
    MAX_OPERATION_BYTES, MAX_OPERATOR_WHO_BYTES, MAX_OPERATOR_WHY_BYTES, MAX_PROTOCOL_VERSIONS,
    MAX_REASON_CODE_BYTES, MAX_REASON_DETAIL_BYTES, MAX_SEEN_POSITIONS, PROTOCOL_VERSION,
};
