//! What a comparison found: one object for programs, tables for people.

use serde::Serialize;

use super::super::report::Latency;
use super::record_sizes::RecordSizes;
use crate::output::Table;

/// One reference, or the product, at one number of transfers at a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) concurrency: usize,
    pub(super) transfers_per_second: f64,
    pub(super) latency_us: Latency,
}

/// The product over each reference.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Ratios {
    /// Best rate over best rate.
    pub(super) ratio_to_postgres: f64,
    pub(super) ratio_to_floor: f64,
    pub(super) ratio_to_file: f64,
    /// The p50 of one transfer at a time over the reference's; below 1 is faster.
    pub(super) p50_ratio_to_postgres: f64,
    pub(super) p50_ratio_to_floor: f64,
    pub(super) p50_ratio_to_file: f64,
}

/// The machine, as far as it says.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    cores: usize,
    cpu: String,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Comparison {
    /// `release` or `debug`: only the first says anything about speed.
    pub(super) profile: &'static str,
    pub(super) machine: Machine,
    #[serde(flatten)]
    pub(super) ratios: Ratios,
    pub(super) product: Vec<Measured>,
    pub(super) floor: Vec<Measured>,
    pub(super) file: Vec<Measured>,
    pub(super) postgres: Vec<Measured>,
    pub(super) postgres_version: String,
    pub(super) record_sizes: RecordSizes,
}

impl Measured {
    pub(super) fn new(concurrency: usize, transfers_per_second: f64, latency_us: Latency) -> Self {
        Self {
            concurrency,
            transfers_per_second,
            latency_us,
        }
    }
}

impl Ratios {
    /// The first of each list is one transfer at a time.
    pub(super) fn of(
        product: &[Measured],
        floor: &[Measured],
        file: &[Measured],
        postgres: &[Measured],
    ) -> Self {
        let best = |all: &[Measured]| {
            let rates = all.iter().map(|measured| measured.transfers_per_second);
            rates.fold(0.0, f64::max)
        };
        let p50 = |all: &[Measured]| all[0].latency_us.p50 as f64;
        Self {
            ratio_to_postgres: best(product) / best(postgres),
            ratio_to_floor: best(product) / best(floor),
            ratio_to_file: best(product) / best(file),
            p50_ratio_to_postgres: p50(product) / p50(postgres),
            p50_ratio_to_floor: p50(product) / p50(floor),
            p50_ratio_to_file: p50(product) / p50(file),
        }
    }
}

impl Machine {
    /// This one.
    pub(super) fn here() -> Self {
        let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = about.lines().find_map(|line| line.strip_prefix("model name"));
        Self {
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            cpu: model
                .map(|model| model.trim_start_matches([' ', '\t', ':']).to_owned())
                .unwrap_or_default(),
        }
    }
}

impl Comparison {
    /// The tables for people.
    pub(in super::super) fn tables(&self) -> Vec<Table> {
        let mut rates =
            Table::new(&["WHAT", "AT A TIME", "PER SECOND", "P50 US", "P99 US"]).right(&[1, 2, 3, 4]);
        for (what, all) in [
            ("covenant", &self.product),
            ("floor", &self.floor),
            ("file", &self.file),
            ("postgres", &self.postgres),
        ] {
            for measured in all {
                rates.row(vec![
                    what.to_owned(),
                    measured.concurrency.to_string(),
                    format!("{:.0}", measured.transfers_per_second),
                    measured.latency_us.p50.to_string(),
                    measured.latency_us.p99.to_string(),
                ]);
            }
        }
        let ratios = &self.ratios;
        let mut table = Table::new(&["RATIO TO", "BEST RATE", "P50, ONE AT A TIME"]).right(&[1, 2]);
        for (what, rate, p50) in [
            ("floor", ratios.ratio_to_floor, ratios.p50_ratio_to_floor),
            ("file", ratios.ratio_to_file, ratios.p50_ratio_to_file),
            ("postgres", ratios.ratio_to_postgres, ratios.p50_ratio_to_postgres),
        ] {
            table.row(vec![what.to_owned(), format!("{rate:.2}"), format!("{p50:.2}")]);
        }
        vec![rates, table]
    }
}
