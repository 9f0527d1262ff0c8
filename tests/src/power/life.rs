//! One life of a journal above the recorder: what was asked of it and told by it, and whether an image holds that.
//!
//! The program is the journal's example `life`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use covenant_journal::{Journal, Options};
use tempfile::TempDir;

use super::shim::{Fdatasync, Shim};
use super::tear::Dice;
use super::trace::now_ns;
use crate::binary::scratch;

/// The journal's directory below the root.
pub(super) const NODE: &str = "journal";

/// Bytes of a record's payload: the least, and how many more at most.
const RECORD_BYTES: (usize, usize) = (200, 2_000);

/// After how many records of a life a checkpoint is made.
const CHECKPOINT_RECORDS: usize = 3;

/// How long an image may take to open. Damage can make sled spin for ever.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// A record: its LSN, its payload's bytes, and when it was asked for or told to be durable.
#[derive(Clone, Copy, Debug)]
struct Record {
    lsn: u64,
    bytes: usize,
    time_ns: u64,
}

/// What was asked for, and what was told.
#[derive(Clone, Default)]
pub(super) struct History {
    asked: Vec<Record>,
    told: Vec<Record>,
    /// LSNs of the checkpoints.
    checkpoints: Vec<u64>,
}

/// Where lives are recorded.
pub(super) struct Place {
    program: PathBuf,
    pub(super) shim: Shim,
    _directory: TempDir,
    pub(super) root: PathBuf,
}

impl Place {
    /// For the example `life`, built before.
    pub(super) fn new(program: &Path) -> Result<Self> {
        let directory = scratch()?;
        Ok(Self {
            program: program.to_path_buf(),
            shim: Shim::compile()?,
            root: directory.path().canonicalize()?,
            _directory: directory,
        })
    }
}

/// How a life goes.
pub(super) struct Life {
    pub(super) records: usize,
    pub(super) killed_after: Option<usize>,
}

/// A life that was: its process, and when its start gave back the records and when it told its first one, or it was killed.
pub(super) struct Lived {
    pub(super) process: u32,
    pub(super) opened_ns: u64,
    pub(super) started_ns: u64,
}

/// One running life.
struct Running {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn spawn(place: &Place, killed_after: Option<usize>) -> Result<Self> {
        let directory = place.root.join(NODE);
        let mut command = Command::new(&place.program);
        command
            .arg(&directory)
            .envs(place.shim.variables(&place.root, &directory, Fdatasync::Works)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(changes) = killed_after {
            command.env("POWER_KILL_AFTER", changes.to_string());
        }
        let mut child = command.spawn().context("the example `life` did not start")?;
        let answers = BufReader::new(child.stdout.take().context("it has a stdout")?).lines();
        Ok(Self { child, answers })
    }

    /// The next answer; `None` if it died.
    fn answer(&mut self) -> Result<Option<(String, Vec<u64>)>> {
        let Some(line) = self.answers.next().transpose()? else {
            return Ok(None);
        };
        let (what, numbers) = line.split_once(' ').context("an answer has a number")?;
        let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
        Ok(Some((what.to_owned(), numbers?)))
    }

    /// Asks for something; `None` if it died.
    fn ask(&mut self, what: &str) -> Result<Option<u64>> {
        let stdin = self.child.stdin.as_mut().context("it has a stdin")?;
        // One that was killed does not read.
        if writeln!(stdin, "{what}").is_err() {
            return Ok(None);
        }
        Ok(self.answer()?.map(|(_, numbers)| numbers[0]))
    }
}

impl History {
    /// Runs one life.
    pub(super) fn live(&mut self, place: &Place, life: &Life, dice: &mut Dice) -> Result<Lived> {
        let mut running = Running::spawn(place, life.killed_after)?;
        let process = running.child.id();
        let (mut opened, mut started) = (None, None);
        let ended = self.steer(&mut running, life, dice, [&mut opened, &mut started])?;
        drop(running.child.stdin.take());
        let status = running.child.wait()?;
        let killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw());
        ensure!(
            if ended {
                status.success() || killed
            } else {
                killed && life.killed_after.is_some()
            },
            "the example `life` ended with {status}"
        );
        Ok(Lived {
            process,
            opened_ns: opened.unwrap_or_else(now_ns),
            started_ns: started.unwrap_or_else(now_ns),
        })
    }

    /// Whether it came to its end.
    fn steer(
        &mut self,
        running: &mut Running,
        life: &Life,
        dice: &mut Dice,
        [opened, started]: [&mut Option<u64>; 2],
    ) -> Result<bool> {
        let mut next = loop {
            match running.answer()? {
                None => return Ok(false),
                Some((what, numbers)) if what == "record" => self.told.push(Record {
                    lsn: numbers[0],
                    bytes: usize::try_from(numbers[1])?,
                    time_ns: now_ns(),
                }),
                Some((_, numbers)) => {
                    let last = self.told.last().map_or(0, |record| record.lsn);
                    break last.max(numbers[0]) + 1;
                }
            }
        };
        *opened = Some(now_ns());
        for number in 1..=life.records {
            let bytes = RECORD_BYTES.0 + dice.below(RECORD_BYTES.1);
            let asked = Record {
                lsn: next,
                bytes,
                time_ns: now_ns(),
            };
            self.asked.push(asked);
            match running.ask(&format!("append {bytes}"))? {
                None => return Ok(false),
                Some(lsn) => ensure!(lsn == next, "record {next} got the LSN {lsn}"),
            }
            self.told.push(Record {
                time_ns: now_ns(),
                ..asked
            });
            started.get_or_insert_with(now_ns);
            next += 1;
            if number % CHECKPOINT_RECORDS == 0 {
                let Some(lsn) = running.ask("checkpoint")? else {
                    return Ok(false);
                };
                self.checkpoints.push(lsn);
            }
        }
        Ok(true)
    }

    /// What was told before a time.
    pub(super) fn until(&self, time_ns: u64) -> Self {
        let before = |records: &[Record]| -> Vec<Record> {
            records
                .iter()
                .copied()
                .filter(|record| record.time_ns < time_ns)
                .collect()
        };
        Self {
            asked: before(&self.asked),
            told: before(&self.told),
            checkpoints: self.checkpoints.clone(),
        }
    }

    /// The log opens, holds every record that was told by then or a checkpoint that folds it, and nothing that was not asked for.
    pub(super) fn check(&self, image: &Path, time_ns: u64) -> Result<()> {
        let options = Options {
            open_timeout: OPEN_TIMEOUT,
            ..Options::new("life")
        };
        let opened = Journal::open(&image.join(NODE), options).context("it does not open")?;
        opened
            .refuse_lost_tail()
            .context("no cut alone loses what was forced")?;
        let checkpoint = opened.replay.checkpoint_lsn();
        ensure!(
            checkpoint == 0 || self.checkpoints.contains(&checkpoint),
            "nobody asked for a checkpoint at {checkpoint}"
        );
        let mut found = HashMap::new();
        for replayed in opened.replay {
            let replayed = replayed?;
            let payload = replayed
                .record
                .map_err(|damaged| anyhow!("a record is damaged: {}", damaged.why))?
                .payload;
            let lsn = replayed.lsns.map_or(checkpoint, |lsns| *lsns.start());
            ensure!(
                payload.iter().all(|byte| *byte == lsn as u8),
                "record {lsn} is another one"
            );
            if lsn > checkpoint {
                found.insert(lsn, payload.len());
            }
        }
        for item in opened.archive.scan(opened.archive.start()) {
            let (number, item) = item?;
            ensure!(
                item.iter().all(|byte| *byte == number as u8),
                "item {number} is another one"
            );
        }
        drop(opened.archive);
        opened.journal.close()?;
        let told: HashMap<u64, usize> = (self.told.iter())
            .filter(|record| record.time_ns < time_ns)
            .map(|record| (record.lsn, record.bytes))
            .collect();
        for (lsn, bytes) in told.iter().filter(|(lsn, _)| **lsn > checkpoint) {
            ensure!(
                found.get(lsn) == Some(bytes),
                "record {lsn} of {bytes} bytes was told to be durable, and there is {:?}",
                found.get(lsn)
            );
        }
        for (lsn, bytes) in &found {
            let asked =
                |record: &Record| (record.lsn, record.bytes) == (*lsn, *bytes) && record.time_ns < time_ns;
            ensure!(
                self.asked.iter().any(asked),
                "nobody asked for record {lsn} of {bytes} bytes"
            );
        }
        Ok(())
    }
}
