//! The load: `covenant bench` on a cluster that runs.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::{CONCURRENCY, Options};
use crate::binary::binary;
use crate::cluster::{Cluster, LEDGER_A, LEDGER_B};
use crate::process::Ran;

/// How long a load may take beside its measured time: opening accounts, warming up, waiting for quiet.
const MARGIN: Duration = Duration::from_secs(120);

/// What one load came to.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Transfers that committed, the warm-up's left out.
    pub committed: u64,
    /// Outcomes a second.
    pub per_second: f64,
    /// The whole report.
    pub report: Value,
}

/// The rates of two clusters in turns, and the ratio of their medians.
#[derive(Clone, Debug, Serialize)]
pub struct Turns {
    /// The small one's, per second.
    pub small: Vec<f64>,
    /// The large one's, per second.
    pub large: Vec<f64>,
    /// The large one's median over the small one's.
    pub ratio: f64,
}

/// A load with so many callers.
#[derive(Clone, Debug, Serialize)]
pub struct CallerRow {
    /// Callers at a time.
    pub callers: u32,
    /// Outcomes a second.
    pub per_second: f64,
    /// Latency in milliseconds.
    pub p50_ms: f64,
    /// Latency in milliseconds.
    pub p99_ms: f64,
    /// Latency in milliseconds.
    pub max_ms: f64,
    /// Calls that were refused, surely without having run anything.
    pub refused: u64,
    /// Calls without a definite answer.
    pub unknown: u64,
    /// Why, of whatever did not commit.
    pub reasons: Value,
}

/// One load, closed loop.
///
/// # Errors
/// If it was not carried through, or the money does not add up.
pub async fn run(cluster: &Cluster, concurrency: u32, time: Duration) -> Result<Figures> {
    let mut command = Command::new(binary()?);
    command
        .args(["bench", "--warm-up", "1s", "-o", "json"])
        .args(["--concurrency", &concurrency.to_string()])
        .args(["--duration", &format!("{}ms", time.as_millis())])
        .args(["--endpoint", &cluster.coordinator.url()])
        .args(["--ledger", &format!("{LEDGER_A}={}", cluster.ledger_a.url())])
        .args(["--ledger", &format!("{LEDGER_B}={}", cluster.ledger_b.url())]);
    let ran = Ran::within(time + MARGIN, "covenant bench", &mut command).await?;
    let report = ran.exits(0)?.json()?;
    Ok(Figures {
        committed: report["outcomes"]["committed"].as_u64().context("committed")?,
        per_second: number(&report["transactions_per_second"])?,
        report,
    })
}

/// Both clusters in turns.
///
/// # Errors
/// As [`run`].
pub async fn turns(small: &Cluster, large: &Cluster, options: &Options) -> Result<Turns> {
    let (mut smalls, mut larges) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        smalls.push(run(small, CONCURRENCY, options.turn).await?.per_second);
        larges.push(run(large, CONCURRENCY, options.turn).await?.per_second);
    }
    Ok(Turns {
        ratio: median(&larges) / median(&smalls),
        small: smalls,
        large: larges,
    })
}

/// A load with so many callers.
///
/// # Errors
/// As [`run`].
pub async fn callers(cluster: &Cluster, callers: u32, time: Duration) -> Result<CallerRow> {
    let ran = run(cluster, callers, time).await?;
    let report = &ran.report;
    let ms = |quantile: &str| Ok::<_, anyhow::Error>(number(&report["latency_us"][quantile])? / 1_000.0);
    let count = |outcome: &str| report["outcomes"][outcome].as_u64().context(outcome.to_owned());
    Ok(CallerRow {
        callers,
        per_second: ran.per_second,
        p50_ms: ms("p50")?,
        p99_ms: ms("p99")?,
        max_ms: ms("max")?,
        refused: count("refused")?,
        unknown: count("unknown")?,
        reasons: report["reasons"].clone(),
    })
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
