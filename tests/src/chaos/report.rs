//! What a run says at its end, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::checker::Check;
use super::history::{Asked, LogSize, Manner, Said};
use super::nodes::Nodes;
use super::plan::{Fault, Injected};

/// How much was injected.
#[derive(Clone, Debug, Serialize)]
pub struct Injections {
    /// The faults of the plan.
    pub planned: usize,
    /// Those that met what they were meant for: a process that ran, a line, a disk.
    pub injected: usize,
    /// Those of the plan, by kind.
    pub by_kind: BTreeMap<String, usize>,
    /// How often a process was told a stepped time.
    pub stepped_times_told: i64,
    /// How often a process ended because its disk was full.
    pub ends_by_a_full_disk: usize,
    /// The connections that were made through the proxies.
    pub connections: u64,
    /// The bytes that went through them.
    pub bytes: u64,
}

impl Injections {
    pub(super) async fn count(faults: &[Fault], injected: usize, nodes: &Nodes) -> Result<Self> {
        let mut by_kind = BTreeMap::new();
        for fault in faults {
            let kind = match fault.what {
                Injected::Kill { who } => match who {
                    super::plan::Who::Coordinator => "kill coordinator".to_owned(),
                    super::plan::Who::Participant(_) => "kill participant".to_owned(),
                },
                Injected::Pause { .. } => "pause".to_owned(),
                Injected::Cut { cut, .. } => format!("cut {cut:?}"),
                Injected::DiskFull { .. } => "disk full".to_owned(),
                Injected::Clock { .. } => "clock step".to_owned(),
            };
            *by_kind.entry(kind).or_default() += 1;
        }
        let (mut stepped_times_told, mut ends_by_a_full_disk) = (0, 0);
        for node in nodes.all() {
            stepped_times_told += node.clock.told()?;
            ends_by_a_full_disk += node.life().await.starved_ends;
        }
        let lines = nodes.participant_lines.iter().chain(&nodes.caller_lines);
        let passed: Vec<(u64, u64)> = lines.map(super::proxy::Proxy::passed).collect();
        Ok(Self {
            planned: faults.len(),
            injected,
            by_kind,
            stepped_times_told,
            ends_by_a_full_disk,
            connections: passed.iter().map(|one| one.0).sum(),
            bytes: passed.iter().map(|one| one.1).sum(),
        })
    }
}

/// What callers sent and were told.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Told {
    /// The ids.
    pub ids: usize,
    /// Those that committed.
    pub committed: usize,
    /// Those that aborted, by reason.
    pub aborted: BTreeMap<String, usize>,
    /// The ids by what their callers did.
    pub manners: BTreeMap<Manner, usize>,
    /// The ids whose caller was once told nothing final.
    pub left_open_once: usize,
    /// The ids under which other content was sent.
    pub other_content: usize,
}

impl Told {
    pub(super) fn count(history: &[Asked]) -> Self {
        let mut told = Self::default();
        for asked in history {
            told.ids += 1;
            *told.manners.entry(asked.manner).or_default() += 1;
            match asked.told() {
                Some(Said::Committed { .. }) => told.committed += 1,
                Some(Said::Aborted { reason }) => *told.aborted.entry(reason.clone()).or_default() += 1,
                Some(_) | None => {}
            }
            let open = asked.answers.iter().any(|answer| !answer.said.is_final());
            told.left_open_once += usize::from(open);
            told.other_content += usize::from(!asked.to_other_content.is_empty());
        }
        told
    }
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How long the load lasted, in milliseconds.
    pub duration_ms: u64,
    /// The ledgers.
    pub participants: usize,
    /// The callers.
    pub callers: usize,
    /// The command that repeats it.
    pub command: String,
    /// What was injected.
    pub injected: Injections,
    /// What callers were told.
    pub load: Told,
    /// From the last fault until nothing was open any more, in milliseconds.
    pub mended_ms: u64,
    /// The data directories at the end.
    pub logs: Vec<LogSize>,
    /// What was checked.
    pub checks: Vec<Check>,
    /// The plan.
    pub plan: Vec<Fault>,
    /// Where everything is kept, if a claim does not hold.
    pub kept: Option<PathBuf>,
}

impl Report {
    /// Whether every claim holds, over a load that committed something.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.load.committed > 0 && self.checks.iter().all(Check::holds)
    }

    /// The verdict in one line.
    #[must_use]
    pub fn verdict(&self) -> String {
        let broken: Vec<&str> = (self.checks.iter())
            .filter(|check| !check.holds())
            .map(|check| check.name)
            .collect();
        if self.holds() {
            return format!(
                "Verdict: every check held: {} ids, {} committed, {} of {} faults",
                self.load.ids, self.load.committed, self.injected.injected, self.injected.planned
            );
        }
        format!(
            "Verdict: VIOLATED: {}; {} committed; kept in {}; again: {}",
            broken.join(", "),
            self.load.committed,
            self.kept.as_deref().unwrap_or(Path::new("no place")).display(),
            self.command
        )
    }

    /// One line of JSON, with the verdict in it.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        let mut value = serde_json::to_value(self)?;
        value["holds"] = self.holds().into();
        value["verdict"] = self.verdict().into();
        Ok(value.to_string())
    }

    /// A table for people; its last line is the verdict.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut row = |what: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{what:<34} {value}");
        };
        row("seed", self.seed.to_string());
        row(
            "load",
            format!(
                "{} ms, {} participants, {} callers",
                self.duration_ms, self.participants, self.callers
            ),
        );
        let injected = &self.injected;
        for (kind, count) in &injected.by_kind {
            row(&format!("injected: {kind}"), count.to_string());
        }
        row(
            "injected: stepped times told",
            injected.stepped_times_told.to_string(),
        );
        row(
            "injected: ends by a full disk",
            injected.ends_by_a_full_disk.to_string(),
        );
        row(
            "through the proxies",
            format!("{} connections, {} bytes", injected.connections, injected.bytes),
        );
        for (manner, count) in &self.load.manners {
            row(&format!("sent: {manner:?}"), count.to_string());
        }
        row("told: committed", self.load.committed.to_string());
        for (reason, count) in &self.load.aborted {
            row(&format!("told: aborted, {reason}"), count.to_string());
        }
        row(
            "once without a final answer",
            self.load.left_open_once.to_string(),
        );
        row("quiet after the last fault", format!("{} ms", self.mended_ms));
        for log in &self.logs {
            row(
                &format!("data of {}", log.process),
                format!("{} bytes, {} kept", log.bytes, log.kept),
            );
        }
        for check in &self.checks {
            let verdict = if check.holds() { "holds" } else { "VIOLATED" };
            row(
                &format!("check: {}", check.name),
                format!(
                    "{verdict}, {} of {} violate it: {}",
                    check.violated, check.looked_at, check.claim
                ),
            );
            for told in &check.told {
                row("", told.clone());
            }
        }
        text + &self.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(violated: usize) -> Report {
        let check = Check {
            name: "money",
            claim: "it adds up",
            looked_at: 3,
            violated,
            told: vec!["it does not".to_owned(); violated],
        };
        Report {
            seed: 7,
            duration_ms: 1_000,
            participants: 2,
            callers: 1,
            command: "chaos --seed 7".to_owned(),
            injected: Injections {
                planned: 1,
                injected: 1,
                by_kind: BTreeMap::new(),
                stepped_times_told: 0,
                ends_by_a_full_disk: 0,
                connections: 1,
                bytes: 1,
            },
            load: Told {
                committed: 1,
                ..Told::default()
            },
            mended_ms: 1,
            logs: Vec::new(),
            checks: vec![check],
            plan: Vec::new(),
            kept: (violated > 0).then(|| "the/directory".into()),
        }
    }

    #[test]
    fn the_last_line_is_the_verdict_and_a_violation_names_the_claim_the_place_and_the_command() {
        let good = report(0);
        assert!(good.holds() && good.table().lines().last().unwrap().contains("every check held"));
        let bad = report(2);
        for text in [bad.table(), bad.json().unwrap()] {
            let last = text.lines().last().unwrap();
            assert!(!bad.holds());
            for word in ["VIOLATED", "money", "the/directory", "chaos --seed 7"] {
                assert!(last.contains(word), "{word}: {last}");
            }
        }
    }

    #[test]
    fn a_load_that_committed_nothing_proves_nothing() {
        let mut report = report(0);
        report.load.committed = 0;
        assert!(!report.holds());
    }
}
