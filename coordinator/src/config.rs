//! The typed configuration of the coordinator: defaults in one place, bounds named.
//!
//! Where values come from (file, environment, flags) is the command's matter; here is what they mean.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use covenant_rules::{Limits, Name};
use serde::{Deserialize, Serialize};

/// Everything that can be configured. All times are milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The coordinator's name in logs; 1 to 128 printable ASCII characters without space and `/`.
    pub name: String,
    /// Where the log lives. Must be on a disk: the start makes sure that what it reads is durable.
    pub data_dir: PathBuf,
    /// The address of the gRPC services; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bounds of transactions.
    pub transactions: Transactions,
    /// How long outcomes stay.
    pub retention: Retention,
    /// The forced log.
    pub log: Log,
    /// Connections and sessions.
    pub sessions: Sessions,
}

/// Bounds of transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transactions {
    /// The deadline of a transaction that names none.
    pub default_deadline_ms: u64,
    /// The longest deadline a caller may ask for; at most 60,000.
    pub max_deadline_ms: u64,
    /// The most transactions not finished.
    pub max_in_progress: usize,
    /// The most transactions not finished in which one participant has a branch.
    pub max_in_progress_per_participant: usize,
    /// The most bytes of operations that undecided transactions hold; at least `MAX_EXECUTE_BYTES`.
    pub max_in_progress_bytes: usize,
    /// The most callers attached to one transaction.
    pub max_attached_callers: usize,
    /// The first pause before a decision is sent again.
    pub retry_base_ms: u64,
    /// The longest such pause.
    pub retry_cap_ms: u64,
}

/// How long outcomes stay (section 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// How long an outcome is retained at the longest.
    pub retention_ms: u64,
    /// The most outcomes retained, unfinished ones included.
    pub max_retained_outcomes: u64,
    /// The most fences among them.
    pub max_fences: u64,
}

/// The forced log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// A log that does not open within it is given up: its bytes are probably damaged.
    pub open_timeout_ms: u64,
    /// A force that takes longer ends the process: its result is unknown.
    pub force_timeout_ms: u64,
    /// A checkpoint is taken after this many records.
    pub checkpoint_records: u64,
}

/// Connections and sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sessions {
    /// How often a silent connection is asked whether it lives.
    pub keep_alive_interval_ms: u64,
    /// A connection that does not answer within it is dead.
    pub keep_alive_timeout_ms: u64,
    /// The most participant names.
    pub max_participants: usize,
    /// How long a SIGTERM waits for what is decided.
    pub drain_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: String::from("c1"),
            data_dir: PathBuf::from("covenant-data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)),
            transactions: Transactions::default(),
            retention: Retention::default(),
            log: Log::default(),
            sessions: Sessions::default(),
        }
    }
}

impl Default for Transactions {
    fn default() -> Self {
        let limits = Limits::DEFAULT;
        Self {
            default_deadline_ms: limits.default_deadline_ms,
            max_deadline_ms: limits.max_deadline_ms,
            max_in_progress: limits.max_in_progress,
            max_in_progress_per_participant: limits.max_in_progress_per_participant,
            max_in_progress_bytes: limits.max_in_progress_bytes,
            max_attached_callers: limits.max_attached_callers,
            retry_base_ms: limits.retry_base_ms,
            retry_cap_ms: limits.retry_cap_ms,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        let limits = Limits::DEFAULT;
        Self {
            retention_ms: limits.retention_ms,
            max_retained_outcomes: limits.max_retained_outcomes,
            max_fences: limits.max_fences,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            open_timeout_ms: 60_000,
            force_timeout_ms: 30_000,
            checkpoint_records: 50_000,
        }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            keep_alive_interval_ms: 2_000,
            keep_alive_timeout_ms: 3_000,
            max_participants: Limits::DEFAULT.max_participants,
            drain_ms: 10_000,
        }
    }
}

/// A value out of bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("configuration key {key} is {value}; it must be {bound}")]
pub struct ConfigError {
    /// The key, with its table.
    pub key: &'static str,
    /// What it is.
    pub value: String,
    /// What it may be.
    pub bound: String,
}

impl Config {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`ConfigError`] names the first key out of bounds, its value and the bound.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if let Err(why) = Name::new(&self.name) {
            let bound = format!("a name ({why})");
            return Err(ConfigError {
                key: "name",
                value: format!("{:?}", self.name),
                bound,
            });
        }
        let Transactions {
            default_deadline_ms,
            max_deadline_ms,
            ..
        } = self.transactions;
        let transactions = &self.transactions;
        within("transactions.max_deadline_ms", max_deadline_ms, 1, 60_000)?;
        within(
            "transactions.default_deadline_ms",
            default_deadline_ms,
            1,
            max_deadline_ms,
        )?;
        let in_progress = transactions.max_in_progress as u64;
        within("transactions.max_in_progress", in_progress, 1, 1_000_000)?;
        let per_participant = transactions.max_in_progress_per_participant as u64;
        within(
            "transactions.max_in_progress_per_participant",
            per_participant,
            1,
            1_000_000,
        )?;
        // The largest transaction must fit.
        within(
            "transactions.max_in_progress_bytes",
            transactions.max_in_progress_bytes as u64,
            covenant_codec::MAX_EXECUTE_BYTES as u64,
            64 << 30,
        )?;
        within(
            "transactions.max_attached_callers",
            transactions.max_attached_callers as u64,
            1,
            10_000,
        )?;
        within("transactions.retry_cap_ms", transactions.retry_cap_ms, 1, 600_000)?;
        within(
            "transactions.retry_base_ms",
            transactions.retry_base_ms,
            1,
            transactions.retry_cap_ms,
        )?;
        // A retained outcome must outlive the longest deadline by more than the clocks' margin (section 6).
        within(
            "retention.retention_ms",
            self.retention.retention_ms,
            300_000,
            10 * 365 * 86_400_000,
        )?;
        within(
            "retention.max_retained_outcomes",
            self.retention.max_retained_outcomes,
            1,
            100_000_000,
        )?;
        within("retention.max_fences", self.retention.max_fences, 1, 100_000_000)?;
        within("log.open_timeout_ms", self.log.open_timeout_ms, 100, 3_600_000)?;
        within("log.force_timeout_ms", self.log.force_timeout_ms, 100, 3_600_000)?;
        within(
            "log.checkpoint_records",
            self.log.checkpoint_records,
            1,
            10_000_000,
        )?;
        within(
            "sessions.keep_alive_interval_ms",
            self.sessions.keep_alive_interval_ms,
            100,
            600_000,
        )?;
        within(
            "sessions.keep_alive_timeout_ms",
            self.sessions.keep_alive_timeout_ms,
            100,
            600_000,
        )?;
        within(
            "sessions.max_participants",
            self.sessions.max_participants as u64,
            1,
            1_000_000,
        )?;
        within("sessions.drain_ms", self.sessions.drain_ms, 0, 3_600_000)
    }

    /// The machine's bounds.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            default_deadline_ms: self.transactions.default_deadline_ms,
            max_deadline_ms: self.transactions.max_deadline_ms,
            max_in_progress: self.transactions.max_in_progress,
            max_in_progress_per_participant: self.transactions.max_in_progress_per_participant,
            max_in_progress_bytes: self.transactions.max_in_progress_bytes,
            max_attached_callers: self.transactions.max_attached_callers,
            max_participants: self.sessions.max_participants,
            max_retained_outcomes: self.retention.max_retained_outcomes,
            max_fences: self.retention.max_fences,
            retention_ms: self.retention.retention_ms,
            retry_base_ms: self.transactions.retry_base_ms,
            retry_cap_ms: self.transactions.retry_cap_ms,
            ..Limits::DEFAULT
        }
    }
}

fn within(key: &'static str, value: u64, low: u64, high: u64) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ConfigError {
        key,
        value: value.to_string(),
        bound: format!("{low} to {high}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_bounds() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn a_value_out_of_bounds_names_key_value_and_bound() {
        let mut config = Config::default();
        config.transactions.max_deadline_ms = 60_001;
        let error = config.validate().unwrap_err().to_string();
        assert_eq!(
            error,
            "configuration key transactions.max_deadline_ms is 60001; it must be 1 to 60000"
        );
    }

    #[test]
    fn the_largest_transaction_fits_into_the_bytes_in_progress() {
        let mut config = Config::default();
        config.transactions.max_in_progress_bytes = covenant_codec::MAX_EXECUTE_BYTES;
        assert_eq!(config.validate(), Ok(()));
        config.transactions.max_in_progress_bytes -= 1;
        assert_eq!(
            config.validate().unwrap_err().key,
            "transactions.max_in_progress_bytes"
        );
    }

    #[test]
    fn a_bad_name_is_refused() {
        let config = Config {
            name: String::from("a/b"),
            ..Config::default()
        };
        assert_eq!(config.validate().unwrap_err().key, "name");
    }
}
