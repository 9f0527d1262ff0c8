//! What a bench found: one object for programs, tables for people.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::tally::{Counting, Outcomes};
use super::world::{Money, Snapshot, World};
use crate::output::Table;

/// What a bench found. Times of transactions are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// `release` or `debug`: only the first says anything about speed.
    pub(super) profile: &'static str,
    pub(super) load: LoadView,
    pub(super) seconds: f64,
    /// Transactions with a definite outcome.
    pub(super) transactions_per_second: f64,
    pub(super) latency_us: Latency,
    pub(super) outcomes: Outcomes,
    /// Why, of whatever did not commit.
    pub(super) reasons: BTreeMap<String, u64>,
    pub(super) per_transaction: PerTransaction,
    pub(super) processes: Vec<ProcessView>,
    pub(super) money: MoneyView,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadView {
    /// `closed` or `open`.
    pub(super) pace: &'static str,
    pub(super) rate_per_second: Option<f64>,
    pub(super) concurrency: usize,
    pub(super) branches: usize,
    pub(super) accounts_per_ledger: u32,
    pub(super) skew: f64,
    pub(super) aborts_percent: u8,
    pub(super) read_only_percent: u8,
    pub(super) caller_processes: u16,
}

/// Percentiles, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) p99_9: u64,
    pub(super) max: u64,
    pub(super) mean: f64,
    pub(super) count: u64,
}

/// Sums over all servers, divided by the transactions with a definite outcome.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PerTransaction {
    pub(super) forced_writes: f64,
    pub(super) records: f64,
    pub(super) bytes_logged: f64,
    /// Between coordinator and ledgers, both ways.
    pub(super) messages: f64,
    /// Servers and callers; null if a server was not started by this command.
    pub(super) cpu_us: Option<f64>,
}

/// One process; callers have no log.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProcessView {
    pub(super) name: String,
    pub(super) process_id: Option<u32>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) cpu_us_per_transaction: Option<f64>,
    pub(super) resident_mb: Option<f64>,
    pub(super) peak_resident_mb: Option<f64>,
    pub(super) forced_writes: Option<u64>,
    pub(super) records: Option<u64>,
    pub(super) bytes_logged: Option<u64>,
}

/// Whether the money adds up, in minor units.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MoneyView {
    pub(super) adds_up: bool,
    /// What does not; empty if it adds up.
    pub(super) wrong: Vec<String>,
    pub(super) customers_before: i128,
    pub(super) customers_after: i128,
}

impl Latency {
    pub(super) fn of(latencies: &Histogram<u64>) -> Self {
        let at = |quantile| latencies.value_at_quantile(quantile);
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: latencies.max(),
            mean: latencies.mean(),
            count: latencies.len(),
        }
    }
}

impl MoneyView {
    /// Checks that nothing was made or lost, and that every ledger has what the outcomes say.
    pub(super) fn check(before: &[Money], after: &[Money], counted: &Counting) -> Self {
        let customers = |money: &[Money]| money.iter().map(|money| money.customers).sum();
        let (customers_before, customers_after) = (customers(before), customers(after));
        let mut wrong = Vec::new();
        if customers_before != customers_after {
            wrong.push(format!(
                "the customers of all ledgers had {customers_before} before and have {customers_after}"
            ));
        }
        let last = after.len() - 1;
        for (index, (before, after)) in before.iter().zip(after).enumerate() {
            if after.all != 0 {
                wrong.push(format!(
                    "the accounts of ledger {index} add up to {}, not 0",
                    after.all
                ));
            }
            let moved = if index == last {
                counted.tally.moved_to_last
            } else {
                counted.tally.moved
            };
            let came = after.customers - before.customers;
            let expected = i128::from(moved.at_least)..=i128::from(moved.at_most);
            if index > 0 && !expected.contains(&came) {
                wrong.push(format!(
                    "ledger {index} has {came} more, and the outcomes say {} to {}",
                    moved.at_least, moved.at_most
                ));
            }
        }
        Self {
            adds_up: wrong.is_empty(),
            wrong,
            customers_before,
            customers_after,
        }
    }
}

/// What every process did between two looks at it.
pub(super) fn processes(
    world: &World,
    before: &Snapshot,
    after: &Snapshot,
    counted: &Counting,
) -> (Vec<ProcessView>, PerTransaction) {
    let decided = counted.tally.outcomes.decided().max(1) as f64;
    let servers = std::iter::once(&world.coordinator).chain(&world.ledgers);
    let mut views = Vec::new();
    for (server, (before, after)) in servers.zip(before.servers.iter().zip(&after.servers)) {
        let cpu_us = before
            .process
            .zip(after.process)
            .map(|(before, after)| after.cpu_us.saturating_sub(before.cpu_us));
        let mb = |kib: u64| kib as f64 / 1_024.0;
        views.push(ProcessView {
            name: server.name.clone(),
            process_id: server.process_id(),
            cpu_seconds: cpu_us.map(|us| us as f64 / 1e6),
            cpu_us_per_transaction: cpu_us.map(|us| us as f64 / decided),
            resident_mb: after.process.map(|process| mb(process.resident_kib)),
            peak_resident_mb: after.process.map(|process| mb(process.peak_kib)),
            forced_writes: Some(after.log.forces - before.log.forces),
            records: Some(after.log.records - before.log.records),
            bytes_logged: Some(after.log.bytes - before.log.bytes),
        });
    }
    let caller_us = counted.tally.cpu_us as f64;
    views.push(ProcessView {
        name: "callers".to_owned(),
        process_id: None,
        cpu_seconds: Some(caller_us / 1e6),
        cpu_us_per_transaction: Some(caller_us / decided),
        resident_mb: None,
        peak_resident_mb: None,
        forced_writes: None,
        records: None,
        bytes_logged: None,
    });
    let sum = |of: fn(&ProcessView) -> Option<u64>| views.iter().filter_map(of).sum::<u64>() as f64 / decided;
    let cpu: Option<Vec<f64>> = views.iter().map(|view| view.cpu_us_per_transaction).collect();
    let per_transaction = PerTransaction {
        forced_writes: sum(|view| view.forced_writes),
        records: sum(|view| view.records),
        bytes_logged: sum(|view| view.bytes_logged),
        messages: (after.messages - before.messages) as f64 / decided,
        cpu_us: cpu.map(|all| all.iter().sum()),
    };
    (views, per_transaction)
}

impl Report {
    /// The tables for people.
    pub(super) fn tables(&self) -> Vec<Table> {
        vec![self.summary(), self.latencies(), self.process_table()]
    }

    fn summary(&self) -> Table {
        let mut table = Table::new(&["WHAT", "VALUE"]).right(&[1]);
        let mut row = |what: &str, value: String| table.row(vec![what.to_owned(), value]);
        let Outcomes {
            committed,
            aborted,
            unknown,
            refused,
            not_started,
        } = self.outcomes;
        row("build", self.profile.to_owned());
        row("seconds", format!("{:.1}", self.seconds));
        row("transactions/s", format!("{:.0}", self.transactions_per_second));
        row("committed", committed.to_string());
        row("aborted", aborted.to_string());
        row("unknown", unknown.to_string());
        row("refused", refused.to_string());
        row("not started", not_started.to_string());
        for (reason, count) in &self.reasons {
            row(&format!("  {reason}"), count.to_string());
        }
        let each = &self.per_transaction;
        row(
            "forced writes per transaction",
            format!("{:.3}", each.forced_writes),
        );
        row("records per transaction", format!("{:.2}", each.records));
        row(
            "bytes logged per transaction",
            format!("{:.0}", each.bytes_logged),
        );
        row("messages per transaction", format!("{:.2}", each.messages));
        row("CPU us per transaction", maybe(each.cpu_us, 1));
        row(
            "the money adds up",
            if self.money.adds_up { "yes" } else { "NO" }.to_owned(),
        );
        for wrong in &self.money.wrong {
            row("  WRONG", wrong.clone());
        }
        table
    }

    fn latencies(&self) -> Table {
        let mut table = Table::new(&["LATENCY", "MICROSECONDS"]).right(&[1]);
        let latency = &self.latency_us;
        for (what, value) in [
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
            ("p99.9", latency.p99_9),
            ("max", latency.max),
        ] {
            table.row(vec![what.to_owned(), value.to_string()]);
        }
        table
    }

    fn process_table(&self) -> Table {
        let header = [
            "PROCESS",
            "CPU US/TX",
            "RESIDENT MB",
            "PEAK MB",
            "FORCES",
            "RECORDS",
            "BYTES LOGGED",
        ];
        let mut table = Table::new(&header).right(&[1, 2, 3, 4, 5, 6]);
        let count = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
        for process in &self.processes {
            table.row(vec![
                process.name.clone(),
                maybe(process.cpu_us_per_transaction, 1),
                maybe(process.resident_mb, 1),
                maybe(process.peak_resident_mb, 1),
                count(process.forced_writes),
                count(process.records),
                count(process.bytes_logged),
            ]);
        }
        table
    }
}

fn maybe(value: Option<f64>, digits: usize) -> String {
    value.map(|value| format!("{value:.digits$}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tally::Moved;
    use super::*;

    fn money(customers: [i128; 2], system: [i128; 2]) -> Vec<Money> {
        let pairs = customers.into_iter().zip(system);
        pairs
            .map(|(customers, system)| Money {
                customers,
                all: customers + system,
            })
            .collect()
    }

    fn counted(at_least: u64, at_most: u64) -> Counting {
        let mut counting = Counting::default();
        counting.tally.moved_to_last = Moved { at_least, at_most };
        counting
    }

    #[test]
    fn money_that_was_made_lost_or_moved_too_often_is_found() {
        let before = money([100, 100], [-100, -100]);
        let right = money([97, 103], [-97, -103]);
        let check = |after: &[Money], at_least, at_most| {
            MoneyView::check(&before, after, &counted(at_least, at_most)).adds_up
        };
        assert!(check(&right, 3, 3) && check(&right, 2, 4));
        assert!(!check(&right, 4, 4), "a committed transfer that moved nothing");
        assert!(!check(&right, 1, 2), "a transfer that moved twice");
        assert!(!check(&money([98, 103], [-98, -103]), 3, 3), "money was made");
        assert!(!check(&money([97, 103], [-97, -102]), 3, 3), "a ledger's books");
    }
}
