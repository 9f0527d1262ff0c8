//! Capped exponential back-off whose jitter is a hash, so that the same run gives the same times.

use crate::{Millis, Xid};

/// A schedule of pauses: `base * 2^delivery`, at most `cap`, less up to a quarter of jitter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Backoff {
    /// The first pause.
    pub base_ms: Millis,
    /// The longest pause.
    pub cap_ms: Millis,
}

impl Backoff {
    /// The pause after the given delivery (from 0) of something about `xid` to `whom`.
    #[must_use]
    pub fn pause(&self, xid: Xid, whom: &str, delivery: u32) -> Millis {
        let full = self
            .base_ms
            .saturating_mul(1 << delivery.min(32))
            .clamp(1, self.cap_ms.max(1));
        full - spread(xid, whom, delivery) % (full / 4 + 1)
    }
}

/// FNV-1a over what the delivery is about, finished by a multiply-xor: well spread, the same everywhere.
fn spread(xid: Xid, whom: &str, delivery: u32) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in xid
        .to_bytes()
        .iter()
        .chain(whom.as_bytes())
        .chain(&delivery.to_be_bytes())
    {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, Lineage};

    const XID: Xid = Xid {
        lineage: Lineage(7),
        incarnation: Incarnation { counter: 1, bits: 2 },
        seq: 3,
    };

    #[test]
    fn pauses_grow_to_the_cap_and_never_reach_zero() {
        let backoff = Backoff {
            base_ms: 200,
            cap_ms: 10_000,
        };
        for delivery in 0..80 {
            let pause = backoff.pause(XID, "ledger-a", delivery);
            let full = 200u64.saturating_mul(1 << delivery.min(32)).min(10_000);
            assert!(pause <= full && pause >= full - full / 4, "{delivery}: {pause}");
        }
    }

    #[test]
    fn jitter_differs_by_branch_and_delivery() {
        let backoff = Backoff {
            base_ms: 100_000,
            cap_ms: 100_000,
        };
        let pauses: alloc::collections::BTreeSet<_> = (0..50)
            .map(|delivery| backoff.pause(XID, "a", delivery))
            .collect();
        assert!(pauses.len() > 45, "{pauses:?}");
        assert_ne!(backoff.pause(XID, "a", 0), backoff.pause(XID, "b", 0));
    }
}
