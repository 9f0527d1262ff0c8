//! Why the coordinator could not start or go on.

use covenant_rules::Lsn;

/// Everything that ends the server other than a clean shutdown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is out of bounds.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The data directory could not be opened or read.
    #[error(transparent)]
    Journal(#[from] covenant_journal::Error),
    /// The plan names a crash point that a coordinator never reaches.
    #[error(transparent)]
    CrashPlan(#[from] covenant_fault::Error),
    /// Too many stored records, or too many archived outcomes, did not decode.
    #[error(
        "{found} log records or archived outcomes did not decode, the bound MAX_QUARANTINED is {bound}; restore from a backup"
    )]
    TooManyQuarantined {
        /// How many there are at least.
        found: usize,
        /// The bound.
        bound: usize,
    },
    /// The log ends before its first records.
    #[error("the log of the data directory has records up to {last} but no LINEAGE; restore from a backup")]
    NoLineage {
        /// The last record's number.
        last: Lsn,
    },
    /// No random numbers could be had.
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
    /// The socket failed.
    #[error("serving gRPC failed")]
    Transport(#[from] tonic::transport::Error),
    /// The listener ended although nobody stopped it.
    #[error("the gRPC listener ended by itself")]
    TransportEnded,
    /// A description of the services could not be built.
    #[error("the reflection service could not be built")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// A task of the server ended by a panic.
    #[error("a task of the server panicked")]
    Panicked(#[from] tokio::task::JoinError),
}
