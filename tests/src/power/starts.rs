//! A journal alone that starts again and again, recorded, and cut within its starts: what a start makes durable before it goes on.
//!
//! The program is the journal's example `life`. Its checkpoints let segments of the log die and be used again, so that a start has some to
//! clear; short loads of real servers never come to that. A life ends by a clean close or by SIGKILL between two changes of the files, in
//! a start or later. Some starts are recorded apart, on an image as a cut or a kill left it, and are cut again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cut::{Cuts, Point, Report, disk_at, point_of};
use super::disk::Disk;
use super::life::{History, Life, Lived, NODE, Place};
use super::tear::{Dice, Survival};
use super::trace::{Change, Event};
use crate::binary::example;

/// Records of a life that is not killed.
const RECORDS_OF_A_LIFE: usize = 60;

/// Records of a start that is recorded apart.
const RECORDS_AGAIN: usize = 3;

/// Changes of the files after which a life is killed: in its start, and anywhere.
const CHANGES_OF_A_START: usize = 45;
const CHANGES_OF_A_LIFE: usize = 500;

/// Bytes of a segment of sled's log, as the journal leaves it.
const SEGMENT_BYTES: usize = 512 * 1024;

/// What the disk leaves out, after the first start, which makes the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeftOut {
    /// Nothing.
    Nothing,
    /// Every sync of a snapshot's content.
    Snapshots,
    /// Every sync of the directory.
    Directory,
    /// Every sync of the log until a start gives back the records. Its own first is not enough: sled syncs the log too when it cuts
    /// the tail off, which it leaves out only where the tail ends with a segment.
    LogAtStart,
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
    /// When the start of a process gave back the records.
    opened_ns: HashMap<u32, u64>,
    history: History,
}

/// Many lives of one journal, and starts on what cuts and kills within their starts left.
pub struct Lives {
    seed: u64,
    lives: Recorded,
    again: Vec<Recorded>,
}

impl Recorded {
    fn of(place: &Place, before: Before, history: History, lives: &[Lived]) -> Result<Self> {
        let events = place.shim.events(&place.root)?;
        let starts = lives.iter().map(|life| {
            let of_start = |(_, event): &(usize, &Event)| {
                event.process == life.process && event.time_ns <= life.started_ns
            };
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
            opened_ns: lives.iter().map(|life| (life.process, life.opened_ns)).collect(),
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
        let events = left_out.of(self, spared);
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
    fn of(self, recorded: &Recorded, spared: Option<u32>) -> Vec<Event> {
        let mut events = recorded.events.clone();
        let mut paths: HashMap<u64, PathBuf> = HashMap::new();
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
                        Self::LogAtStart => {
                            name == "db" && event.time_ns <= recorded.opened_ns[&event.process]
                        }
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
        let program = example("life")?;
        let place = Place::new(&program)?;
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
            start_again(&program, &lives, seed, number)
                .with_context(|| format!("start {number} on what was left"))
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
        let events = left_out.of(&self.lives, Some(process));
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

/// Where a start that went on to clear a segment had just given its snapshot a name in the directory.
fn named_before_clearing(lives: &Recorded) -> Vec<usize> {
    let of_start = |start: &Vec<usize>| {
        let change = |number: &usize| &lives.events[*number].change;
        let named = start.iter().position(|number| {
            matches!(change(number), Change::Renamed { to, .. } if to.parent() == Some(Path::new(NODE)))
        })?;
        let clears =
            |number| matches!(change(number), Change::Written { bytes, .. } if bytes.len() == SEGMENT_BYTES);
        start[named..].iter().any(clears).then_some(start[named])
    };
    lives.starts[1..].iter().filter_map(of_start).collect()
}

/// Records a start on what was left: by a kill just after a snapshot got its name, by one just after a write, or by a cut in a start.
fn start_again(program: &Path, lives: &Recorded, seed: u64, number: usize) -> Result<Recorded> {
    let place = Place::new(program)?;
    let later = lives.starts[1].first().copied().unwrap_or(0);
    let after = |wanted: fn(&Change) -> bool| -> Vec<usize> {
        let numbered = lives.events.iter().enumerate().skip(later);
        numbered
            .filter(|(_, event)| wanted(&event.change))
            .map(|(number, _)| number)
            .collect()
    };
    let among = match number % 3 {
        0 => named_before_clearing(lives),
        1 => after(|change| matches!(change, Change::Written { .. })),
        _ => lives.starts[1..].concat(),
    };
    let mut point = point_of(!seed, number, NODE, &among);
    let killed = number % 3 < 2;
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
    // What a start did not sync may go as long as nobody syncs it: all of this short life counts as its start.
    let all = Lived {
        started_ns: u64::MAX,
        ..ran
    };
    Recorded::of(&place, before, history, &[all])
}
