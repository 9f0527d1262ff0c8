//! What a caller sends, and the units of its times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use covenant_proto::v1;
use prost_types::Timestamp;

/// Milliseconds since the Unix epoch on the wall clock.
pub type UnixMillis = u64;

/// A transaction as the coordinator shows it: outcome, reason, branches, times.
pub type View = v1::Transaction;

/// A transaction to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// The caller's name for it and its idempotency key: 1 to 128 printable ASCII characters.
    pub id: String,
    /// The caller's first time for this id, the same in every retry; at most 1 minute ahead of the coordinator's clock.
    pub created: UnixMillis,
    /// 1 to 128 branches, each participant at most once; their order does not matter.
    pub branches: Vec<Branch>,
    /// How long votes may take on the coordinator's clock, 1 ms to 60 s; `None`: the coordinator's default of 5 s.
    pub timeout: Option<Duration>,
    /// When to answer.
    pub wait: Wait,
}

impl Transaction {
    pub(crate) fn to_request(&self) -> v1::ExecuteRequest {
        let wait = match self.wait {
            Wait::Decided => v1::Wait::Decided,
            Wait::Completed => v1::Wait::Completed,
        };
        let branch = |branch: &Branch| v1::Branch {
            participant: branch.participant.clone(),
            operation: branch.operation.clone(),
        };
        v1::ExecuteRequest {
            transaction_id: self.id.clone(),
            created: Some(to_timestamp(self.created)),
            branches: self.branches.iter().map(branch).collect(),
            // A duration beyond the type's range is beyond the coordinator's bound too: it names that bound.
            timeout: self.timeout.map(|timeout| {
                prost_types::Duration::try_from(timeout).unwrap_or(prost_types::Duration {
                    seconds: i64::MAX,
                    nanos: 0,
                })
            }),
            wait: wait.into(),
        }
    }
}

/// The part of a transaction at one participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Branch {
    /// The name under which the participant joined.
    pub participant: String,
    /// The opaque payload for it; at most 32 KiB, and 1 MiB over all branches.
    pub operation: Bytes,
}

impl Branch {
    /// A branch from its two parts.
    pub fn new(participant: impl Into<String>, operation: impl Into<Bytes>) -> Self {
        Self {
            participant: participant.into(),
            operation: operation.into(),
        }
    }
}

/// When Execute answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// As soon as the decision is durable.
    #[default]
    Decided,
    /// When every branch is resolved.
    Completed,
}

/// The wall clock; a clock before 1970 counts as 1970.
#[must_use]
pub fn unix_now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::try_from(since.as_millis()).unwrap_or(UnixMillis::MAX)
}

/// A time as it goes over the wire.
#[must_use]
pub fn to_timestamp(millis: UnixMillis) -> Timestamp {
    let nanos = i32::try_from(millis % 1_000).unwrap_or_default() * 1_000_000;
    Timestamp {
        seconds: i64::try_from(millis / 1_000).unwrap_or(i64::MAX),
        nanos,
    }
}

/// A time as it came over the wire, in whole milliseconds; `None` before 1970 or out of range.
#[must_use]
pub fn from_timestamp(timestamp: &Timestamp) -> Option<UnixMillis> {
    let seconds = u64::try_from(timestamp.seconds).ok()?;
    let millis = u64::try_from(timestamp.nanos).ok()? / 1_000_000;
    seconds.checked_mul(1_000)?.checked_add(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_wire_in_milliseconds() {
        for millis in [0, 1, 999, 1_000, 1_796_076_000_123] {
            assert_eq!(from_timestamp(&to_timestamp(millis)), Some(millis));
        }
        assert_eq!(
            from_timestamp(&Timestamp {
                seconds: -1,
                nanos: 0
            }),
            None
        );
        assert_eq!(
            from_timestamp(&Timestamp {
                seconds: i64::MAX,
                nanos: 0
            }),
            None
        );
    }

    #[test]
    fn every_retry_is_the_same_request() {
        let transaction = Transaction {
            id: "T100".into(),
            created: 1_796_076_000_123,
            branches: vec![
                Branch::new("ledger-a", vec![1, 2]),
                Branch::new("ledger-b", vec![3]),
            ],
            timeout: Some(Duration::from_millis(2_500)),
            wait: Wait::Completed,
        };
        let request = transaction.to_request();
        assert_eq!(request, transaction.to_request());
        assert_eq!(
            request.created,
            Some(Timestamp {
                seconds: 1_796_076_000,
                nanos: 123_000_000
            })
        );
        assert_eq!(
            request.timeout,
            Some(prost_types::Duration {
                seconds: 2,
                nanos: 500_000_000
            })
        );
        assert_eq!(request.wait, v1::Wait::Completed as i32);
    }
}
