//! What a run says at its end, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;

use super::checker::{Check, Verdict};
use super::history::{Asked, LogSize, Manner, Said};
use super::nodes::Nodes;
use super::plan::{Cut, Fault, Injected, KEEP_ALIVE_MS, Kind};

/// One fault that was injected, and whether it met anything.
#[derive(Clone, Copy, Debug)]
pub struct Met {
    /// The fault.
    pub fault: Fault,
    /// Whether it met anything.
    pub met: bool,
}

/// How many faults of one sort there were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Tally {
    /// Those that were injected.
    pub injected: usize,
    /// Those of them that met anything.
    pub met: usize,
}

impl Tally {
    fn count(&mut self, one: &Met) {
        self.injected += 1;
        self.met += usize::from(one.met);
    }

    fn word(self) -> String {
        let Self { injected, met } = self;
        let verdict = if met == 0 { "NOT MET" } else { "met" };
        format!("{verdict}, {met} of {injected} met something")
    }
}

/// How much was injected.
#[derive(Clone, Debug, Serialize)]
pub struct Injections {
    /// The faults of each kind that was asked for.
    pub kinds: BTreeMap<Kind, Tally>,
    /// The cuts, by what was done to the connection.
    pub cuts: BTreeMap<Cut, Tally>,
    /// Those of them that lasted longer than the keep-alive of a session.
    pub long_cuts: BTreeMap<Cut, Tally>,
    /// How often a process was told a stepped time.
    pub stepped_times_told: i64,
    /// How often a process ended because its disk was full.
    pub ends_by_a_full_disk: usize,
    /// The connections that were made through the proxies.
    pub connections: u64,
    /// The bytes that went through them.
    pub bytes: u64,
    /// The packets that cuts between hosts lost, as the kernel counted them.
    pub packets_lost: u64,
}

impl Injections {
    pub(super) async fn count(asked_for: &[Kind], met: &[Met], nodes: &Nodes) -> Result<Self> {
        let mut kinds: BTreeMap<Kind, Tally> =
            asked_for.iter().map(|kind| (*kind, Tally::default())).collect();
        let (mut cuts, mut long_cuts) = (BTreeMap::<Cut, Tally>::new(), BTreeMap::<Cut, Tally>::new());
        for one in met {
            kinds.entry(one.fault.what.kind()).or_default().count(one);
            if let Injected::Cut { cut, .. } = one.fault.what {
                cuts.entry(cut).or_default().count(one);
                if one.fault.for_ms > KEEP_ALIVE_MS {
                    long_cuts.entry(cut).or_default().count(one);
                }
            }
        }
        let (mut stepped_times_told, mut ends_by_a_full_disk) = (0, 0);
        for node in nodes.all() {
            stepped_times_told += node.clock.told()?;
            ends_by_a_full_disk += node.life().await.starved_ends;
        }
        let passed = nodes.lines.passed()?;
        Ok(Self {
            kinds,
            cuts,
            long_cuts,
            stepped_times_told,
            ends_by_a_full_disk,
            connections: passed.connections,
            bytes: passed.bytes,
            packets_lost: passed.packets_lost,
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
    /// The worst of what is to be said: a claim that is violated, or a kind of fault or a claim that met nothing.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let claims = self.checks.iter().map(Check::verdict);
        let unmet = (!self.unmet().is_empty()).then_some(Verdict::NotMet);
        claims.chain(unmet).max().unwrap_or(Verdict::NotMet)
    }

    /// The faults that were asked for and the claims that met nothing, so that this run shows nothing about them.
    #[must_use]
    pub fn unmet(&self) -> Vec<&'static str> {
        let kinds = self.injected.kinds.iter();
        let kinds = kinds
            .filter(|(_, tally)| tally.met == 0)
            .map(|(kind, _)| kind.word());
        let commits = (self.load.committed == 0).then_some("commits");
        let mut unmet: Vec<&str> = kinds.chain(commits).collect();
        unmet.extend(self.claims(Verdict::NotMet));
        unmet
    }

    fn claims(&self, verdict: Verdict) -> impl Iterator<Item = &'static str> {
        let those = self.checks.iter().filter(move |check| check.verdict() == verdict);
        those.map(|check| check.name)
    }

    /// The verdict in one line.
    #[must_use]
    pub fn last_line(&self) -> String {
        let unmet = self.unmet().join(", ");
        match self.verdict() {
            Verdict::Holds => {
                let tallies = self.injected.kinds.values();
                let (met, injected) =
                    tallies.fold((0, 0), |sum, one| (sum.0 + one.met, sum.1 + one.injected));
                format!(
                    "Verdict: every check held: {} ids, {} committed, {met} of {injected} faults met something",
                    self.load.ids, self.load.committed
                )
            }
            Verdict::NotMet => format!(
                "Verdict: NOT MET: {unmet}; nothing is violated; give it more time: {}",
                self.command
            ),
            Verdict::Violated => format!(
                "Verdict: VIOLATED: {}; not met: {}; {} committed; kept in {}; again: {}",
                self.claims(Verdict::Violated).collect::<Vec<_>>().join(", "),
                if unmet.is_empty() { "nothing" } else { &unmet },
                self.load.committed,
                self.kept.as_deref().unwrap_or(Path::new("no place")).display(),
                self.command
            ),
        }
    }

    /// One line of JSON, with the verdict in it.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        let mut value = serde_json::to_value(self)?;
        value["holds"] = (self.verdict() == Verdict::Holds).into();
        value["not_met"] = self.unmet().into();
        value["verdict"] = self.last_line().into();
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
        for (kind, tally) in &injected.kinds {
            row(&format!("injected: {}", kind.word()), tally.word());
        }
        for (cut, tally) in &injected.cuts {
            row(&format!("injected: cut {cut:?}"), tally.word());
        }
        for (cut, tally) in &injected.long_cuts {
            row(&format!("injected: cut {cut:?}, long"), tally.word());
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
        row("lost between hosts", format!("{} packets", injected.packets_lost));
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
                format!(
                    "{} bytes, {} kept; {} replayed after {} starts",
                    log.bytes, log.kept, log.replayed, log.starts
                ),
            );
        }
        for check in &self.checks {
            row(
                &format!("check: {}", check.name),
                format!(
                    "{}, {} of {} violate it: {}",
                    check.verdict().word(),
                    check.violated,
                    check.looked_at,
                    check.claim
                ),
            );
            for told in &check.told {
                row("", told.clone());
            }
        }
        text + &self.last_line()
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
                kinds: BTreeMap::from([(Kind::Pause, Tally { injected: 2, met: 1 })]),
                cuts: BTreeMap::new(),
                long_cuts: BTreeMap::new(),
                stepped_times_told: 0,
                ends_by_a_full_disk: 0,
                connections: 1,
                bytes: 1,
                packets_lost: 0,
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
        assert!(
            good.verdict() == Verdict::Holds
                && good.table().lines().last().unwrap().contains("every check held")
        );
        let bad = report(2);
        for text in [bad.table(), bad.json().unwrap()] {
            let last = text.lines().last().unwrap();
            assert_eq!(bad.verdict(), Verdict::Violated);
            for word in ["VIOLATED", "money", "the/directory", "chaos --seed 7"] {
                assert!(last.contains(word), "{word}: {last}");
            }
        }
    }

    #[test]
    fn what_met_nothing_is_named_and_does_not_hold() {
        type Empty = fn(&mut Report);
        let cases: [(&str, Empty); 4] = [
            ("pause", |report| {
                report
                    .injected
                    .kinds
                    .insert(Kind::Pause, Tally { injected: 2, met: 0 });
            }),
            ("disk full", |report| {
                report.injected.kinds.insert(Kind::DiskFull, Tally::default());
            }),
            ("commits", |report| report.load.committed = 0),
            ("money", |report| report.checks[0].looked_at = 0),
        ];
        for (name, empty) in cases {
            let mut report = report(0);
            empty(&mut report);
            assert_eq!(report.verdict(), Verdict::NotMet, "{name}");
            assert_eq!(report.unmet(), [name]);
            let table = report.table();
            let last = table.lines().last().unwrap();
            assert!(last.contains("NOT MET") && last.contains(name), "{last}");
            let row = table
                .lines()
                .find(|line| line.contains(": ") && line.contains(name))
                .unwrap();
            assert!(name == "commits" || row.contains("NOT MET"), "{row}");
            let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
            assert!(json["holds"] == false && json["not_met"][0] == name, "{json}");
        }
        let mut worse = report(1);
        worse.load.committed = 0;
        assert_eq!(worse.verdict(), Verdict::Violated);
    }
}
