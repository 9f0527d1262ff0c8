//! A journal alone that starts again and again, recorded, and cut within its starts: what a start makes durable before it goes on.
//!
//! The program is the journal's example `life`. Its checkpoints let segments of the log die and be used again, so that a start has some to
//! clear; short loads of real servers never come to that. A life ends by a clean close or by SIGKILL between two changes of the files, in
//! a start or later. Some starts are recorded apart, on an image as a cut or a kill left it, and are cut again.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use covenant_journal::{Journal, Options};

use super::cut::{Cuts, Point, Report, disk_at, point_of};
use super::disk::Disk;
use super::shim::{Fdatasync, Shim};
use super::tear::{Dice, Survival};
use tempfile::TempDir;

use super::trace::{Change, Event, now_ns};
use crate::binary::{example, scratch};

/// The journal's directory below the root.
const NODE: &str = "journal";

/// Bytes of a record's payload: the least, and how many more at most.
const RECORD_BYTES: (usize, usize) = (200, 2_000);

/// Records of a life that is not killed, and after how many a checkpoint is made.
const RECORDS_OF_A_LIFE: usize = 60;
const CHECKPOINT_RECORDS: usize = 3;

/// Records of a start that is recorded apart.
const RECORDS_AGAIN: usize = 3;

/// Changes of the files after which a life is killed: in its start, and anywhere.
const CHANGES_OF_A_START: usize = 45;
const CHANGES_OF_A_LIFE: usize = 500;

/// How long an image may take to open. Damage can make sled spin for ever.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// What the disk leaves out, after the first start, which makes the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Nothing.
    Nothing,
    /// Every sync of a snapshot's content.
    Snapshots,
    /// Every sync of the directory.
    Directory,
    /// The first sync of the log in each start.
    LogAtStart,
}

/// A record: its LSN, its payload's bytes, and when it was asked for or told to be durable.
#[derive(Clone, Copy, Debug)]
struct Record {
    lsn: u64,
    bytes: usize,
    time_ns: u64,
}

/// What was asked for, and what was told.
#[derive(Clone, Default)]
struct History {
    asked: Vec<Record>,
    told: Vec<Record>,
    /// LSNs of the checkpoints.
    checkpoints: Vec<u64>,
}

/// What was there before a recording.
enum Before {
    /// All of it durable, or nothing.
    Disk(Disk),
    /// What a kill left after this event of the long recording.
    Killed(usize),
}

/// What was recorded on a disk.
struct Recorded {
    before: Before,
    events: Vec<Event>,
    /// Numbers of the events of each start: to the first record that was told.
    starts: Vec<Vec<usize>>,
    history: History,
}

/// Many lives of one journal, and starts on what cuts and kills within their starts left.
pub struct Lives {
    seed: u64,
    lives: Recorded,
    again: Vec<Recorded>,
}

/// Where lives are recorded.
struct Place {
    program: PathBuf,
    shim: Shim,
    _directory: TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Result<Self> {
        let directory = scratch()?;
        Ok(Self {
            program: example("life")?,
            shim: Shim::compile()?,
            root: directory.path().canonicalize()?,
            _directory: directory,
        })
    }
}

/// How a life goes.
struct Life {
    records: usize,
    killed_after: Option<usize>,
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
    /// Runs one life; its process, and the time at which its start had ended: its first record was told, or it was killed.
    fn live(&mut self, place: &Place, life: &Life, dice: &mut Dice) -> Result<(u32, u64)> {
        let mut running = Running::spawn(place, life.killed_after)?;
        let process = running.child.id();
        let mut started = None;
        let ended = self.steer(&mut running, life, dice, &mut started)?;
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
        Ok((process, started.unwrap_or_else(now_ns)))
    }

    /// Whether it came to its end.
    fn steer(
        &mut self,
        running: &mut Running,
        life: &Life,
        dice: &mut Dice,
        started: &mut Option<u64>,
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
    fn until(&self, time_ns: u64) -> Self {
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
    fn check(&self, image: &Path, time_ns: u64) -> Result<()> {
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

impl Recorded {
    fn of(place: &Place, before: Before, history: History, lives: &[(u32, u64)]) -> Result<Self> {
        let events = place.shim.events(&place.root)?;
        let starts = lives.iter().map(|(process, until)| {
            let of_start =
                |(_, event): &(usize, &Event)| event.process == *process && event.time_ns <= *until;
            events
                .iter()
                .enumerate()
                .filter(of_start)
                .map(|(number, _)| number)
                .collect()
        });
        Ok(Self {
            before,
            starts: starts.collect(),
            events,
            history,
        })
    }

    fn time_after(&self, event: usize) -> u64 {
        self.events.get(event + 1).map_or(u64::MAX, |next| next.time_ns)
    }

    /// Builds images at points within the starts and checks them.
    fn cut(
        &self,
        base: &Disk,
        left_out: LeftOut,
        first: usize,
        seed: u64,
        points: usize,
        jobs: usize,
    ) -> Result<Report> {
        let among: Vec<usize> = self.starts[first..].concat();
        let spared = self.starts[..first].first().and_then(|start| start.first());
        let spared = spared.map(|event| self.events[*event].process);
        let events = left_out.of(&self.events, spared);
        let cuts = Cuts {
            base,
            events: &events,
            points: (0..points)
                .map(|number| point_of(seed, number, NODE, &among))
                .collect(),
            jobs,
        };
        let judge = |image: &Path, point: &Point| self.history.check(image, self.time_after(point.event));
        cuts.run(&judge, &|_| {})
    }
}

impl LeftOut {
    /// The events without it: such a sync began and never ended.
    fn of(self, events: &[Event], spared: Option<u32>) -> Vec<Event> {
        let mut events = events.to_vec();
        let mut paths: HashMap<u64, PathBuf> = HashMap::new();
        let mut logs_synced = HashSet::new();
        for event in events.iter_mut().filter(|event| Some(event.process) != spared) {
            match &event.change {
                Change::Opened { path, .. } | Change::Directory(path) => {
                    paths.insert(event.inode, path.clone());
                }
                Change::SyncEnded(number) => {
                    let path = paths.get(&event.inode).map_or(Path::new(""), PathBuf::as_path);
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let out = match self {
                        Self::Nothing => false,
                        Self::Snapshots => name.starts_with("snap."),
                        Self::Directory => path == Path::new(NODE),
                        Self::LogAtStart => name == "db" && logs_synced.insert(event.process),
                    };
                    if out {
                        event.change = Change::SyncBegan(*number);
                    }
                }
                _ => {}
            }
        }
        events
    }
}

impl Lives {
    /// Records so many lives, and so many starts on what was left of them.
    ///
    /// # Errors
    /// If the recording fails: then a life did not start, or lost something.
    pub fn record(seed: u64, lives: usize, again: usize) -> Result<Self> {
        let place = Place::new()?;
        let (mut dice, mut history, mut ran) = (Dice::new(seed), History::default(), Vec::new());
        for number in 0..lives {
            let killed_after = match dice.below(3) {
                _ if number == 0 => None,
                0 => None,
                1 => Some(dice.below(CHANGES_OF_A_START)),
                _ => Some(dice.below(CHANGES_OF_A_LIFE)),
            };
            let life = Life {
                records: RECORDS_OF_A_LIFE,
                killed_after,
            };
            ran.push(
                history
                    .live(&place, &life, &mut dice)
                    .with_context(|| format!("life {number}"))?,
            );
        }
        let base = Before::Disk(Disk::default());
        let lives = Recorded::of(&place, base, history, &ran)?;
        let again = (0..again).map(|number| {
            start_again(&lives, seed, number).with_context(|| format!("start {number} on what was left"))
        });
        Ok(Self {
            seed,
            again: again.collect::<Result<_>>()?,
            lives,
        })
    }

    /// Cuts at so many points within the lives' starts, and so many within each start on what was left of one.
    ///
    /// # Errors
    /// If images cannot be built. What is wrong with an image stands in the report.
    pub fn cut(&self, left_out: LeftOut, points: usize, points_again: usize, jobs: usize) -> Result<Report> {
        let mut report = self
            .lives
            .cut(&Disk::default(), left_out, 1, self.seed, points, jobs)?;
        let process = self.lives.events[self.lives.starts[0][0]].process;
        let events = left_out.of(&self.lives.events, Some(process));
        for (number, again) in self.again.iter().enumerate() {
            let killed;
            let base = match &again.before {
                Before::Disk(disk) => disk,
                Before::Killed(event) => {
                    killed = disk_at(&Disk::default(), &events, *event)?;
                    &killed
                }
            };
            let mut more = again.cut(base, left_out, 0, self.seed ^ number as u64, points_again, jobs)?;
            for (_, why) in &mut more.failures {
                *why = format!("start {number} on what was left: {why}");
            }
            report.add(more);
        }
        Ok(report)
    }
}

/// Records a start on what a cut or a kill at a point within a start left.
fn start_again(lives: &Recorded, seed: u64, number: usize) -> Result<Recorded> {
    let place = Place::new()?;
    let mut point = point_of(!seed, number, NODE, &lives.starts[1..].concat());
    let killed = number.is_multiple_of(2);
    if killed {
        point
            .survival
            .values_mut()
            .for_each(|survival| *survival = Survival::All);
    }
    point.image(&Disk::default(), &lives.events, &place.root)?;
    let before = if killed {
        Before::Killed(point.event)
    } else {
        Before::Disk(Disk::of(&place.root)?)
    };
    let mut history = lives.history.until(lives.time_after(point.event));
    let life = Life {
        records: RECORDS_AGAIN,
        killed_after: None,
    };
    let ran = history.live(&place, &life, &mut Dice::new(seed))?;
    Recorded::of(&place, before, history, &[ran])
}
