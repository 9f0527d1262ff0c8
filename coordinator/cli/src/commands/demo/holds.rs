//! How long something was held, and how much of that a crash was to blame for.

use covenant_client::UnixMillis;
use serde::Serialize;

/// One hold of one branch, from PREPARED to its end, by wall clocks of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hold {
    pub(super) transaction_id: String,
    pub(super) ledger: &'static str,
    /// COMMITTED or ABORTED.
    pub(super) ended: &'static str,
    pub(super) from: UnixMillis,
    pub(super) to: UnixMillis,
}

/// A ledger could not hear the coordinator: from the death of either to the ledger's next joining.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outage {
    pub(super) ledger: &'static str,
    /// Who died.
    pub(super) process: &'static str,
    pub(super) from: UnixMillis,
    pub(super) to: UnixMillis,
}

/// What the demo reports of a hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Span {
    transaction_id: String,
    ledger: &'static str,
    ended: &'static str,
    held_ms: u64,
    blocked_ms: u64,
    /// Whose crash blocked it; null if none did.
    blocked_by: Option<&'static str>,
}

impl Span {
    /// Puts a hold beside the outages. Outages of one story do not overlap.
    pub(super) fn new(hold: &Hold, outages: &[Outage]) -> Self {
        let overlap = |outage: &Outage| hold.to.min(outage.to).saturating_sub(hold.from.max(outage.from));
        let own = outages.iter().filter(|outage| outage.ledger == hold.ledger);
        let blocked: Vec<(&'static str, u64)> = own.map(|outage| (outage.process, overlap(outage))).collect();
        Self {
            transaction_id: hold.transaction_id.clone(),
            ledger: hold.ledger,
            ended: hold.ended,
            held_ms: hold.to.saturating_sub(hold.from),
            blocked_ms: blocked.iter().map(|(_, overlap)| overlap).sum(),
            blocked_by: blocked
                .iter()
                .find(|(_, overlap)| *overlap > 0)
                .map(|(process, _)| *process),
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            transaction_id,
            ledger,
            ended,
            held_ms,
            blocked_ms,
            blocked_by,
        } = self;
        write!(f, "{transaction_id:<5} {ledger}: {ended:<9} held {held_ms} ms")?;
        match blocked_by {
            Some(process) => {
                write!(f, ", of which {blocked_ms} ms blocked by the crash of {process}")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ledger: &'static str, from: u64, to: u64) -> Span {
        let hold = Hold {
            transaction_id: "T100".into(),
            ledger,
            ended: "COMMITTED",
            from,
            to,
        };
        let outage = |ledger, process, from, to| Outage {
            ledger,
            process,
            from,
            to,
        };
        let coordinator = ["ledger-a", "ledger-b"].map(|ledger| outage(ledger, "coordinator", 1_000, 1_640));
        let own = outage("ledger-b", "ledger-b", 2_000, 2_500);
        Span::new(&hold, &[coordinator.as_slice(), &[own]].concat())
    }

    #[test]
    fn only_the_part_during_an_outage_is_blocked() {
        let whole = span("ledger-b", 900, 1_712);
        assert_eq!(
            (whole.held_ms, whole.blocked_ms, whole.blocked_by),
            (812, 640, Some("coordinator"))
        );
        assert_eq!(
            whole.to_string(),
            "T100  ledger-b: COMMITTED held 812 ms, of which 640 ms blocked by the crash of coordinator"
        );
        assert_eq!(span("ledger-a", 1_600, 1_700).blocked_ms, 40);
        assert_eq!(span("ledger-a", 100, 200).blocked_by, None);
    }

    #[test]
    fn a_ledgers_outage_blocks_its_own_holds_only() {
        assert_eq!(span("ledger-a", 1_900, 2_600).blocked_ms, 0);
        assert_eq!(span("ledger-b", 1_900, 2_600).blocked_ms, 500);
    }
}
