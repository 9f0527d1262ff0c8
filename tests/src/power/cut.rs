//! The moments at which the power goes, and the images of them, checked.
//!
//! A point is a seed and a number: with the same recording it gives the same image. The racks' points cut all nodes alike, others
//! choose for each node, and some tear one node alone while nothing of the others is lost.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::Serialize;

use super::disk::{Disk, Node};
use super::tear::{self, Dice, Survival};
use super::trace::{Change, Event};
use crate::binary::scratch;

/// How many events of a process count as its start: what opening a log does to it, and the first force.
const START_EVENTS: usize = 150;

/// One moment and what survives it.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its number.
    pub number: usize,
    /// The last event before the cut.
    pub event: usize,
    /// What survives, by node.
    pub survival: HashMap<String, Survival>,
    dice: Dice,
}

/// Where in the events something happens at which a cut is worth more than elsewhere.
#[derive(Default, Debug)]
pub struct Moments {
    starts: Vec<Vec<usize>>,
    /// Just before a sync is known to have ended.
    sync_ends: Vec<usize>,
    /// Just after somebody was told something.
    answers: Vec<usize>,
}

impl Moments {
    /// Of these events, with the times of the answers.
    #[must_use]
    pub fn of(events: &[Event], answers_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut starts: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut sync_ends = Vec::new();
        for (number, event) in events.iter().enumerate() {
            let start = starts.entry(event.process).or_default();
            if start.len() < START_EVENTS {
                start.push(number);
            }
            if matches!(event.change, Change::SyncEnded(_)) && number > 0 {
                sync_ends.push(number - 1);
            }
        }
        let after = |time_ns| {
            events
                .partition_point(|event| event.time_ns <= time_ns)
                .checked_sub(1)
        };
        Self {
            starts: starts.into_values().collect(),
            sync_ends,
            answers: answers_ns.into_iter().filter_map(after).collect(),
        }
    }

    fn choose(&self, events: usize, dice: &mut Dice) -> usize {
        let of = |list: &[usize], dice: &mut Dice| list.get(dice.below(list.len())).copied();
        let chosen = match dice.below(10) {
            0..=2 => self
                .starts
                .get(dice.below(self.starts.len()))
                .and_then(|start| of(start, dice)),
            3 | 4 => of(&self.answers, dice),
            5 => of(&self.sync_ends, dice),
            _ => None,
        };
        chosen.unwrap_or_else(|| dice.below(events))
    }
}

/// The point of this number.
#[must_use]
pub fn point(seed: u64, number: usize, nodes: &[&str], moments: &Moments, events: usize) -> Point {
    let mut dice = Dice::new(seed.wrapping_mul(0x0100_0000_01B3) ^ number as u64);
    let event = moments.choose(events, &mut dice);
    let alike = Survival::any(&mut dice);
    let alone = dice.below(nodes.len());
    let kind = dice.below(10);
    let survival = nodes.iter().enumerate().map(|(place, node)| {
        let survival = match kind {
            0..=4 => alike,
            5..=7 => Survival::any(&mut dice),
            _ if place == alone => alike,
            _ => Survival::All,
        };
        ((*node).to_owned(), survival)
    });
    let survival = survival.collect();
    Point {
        number,
        event,
        survival,
        dice,
    }
}

/// The point of this number for one node alone, at one of these events.
#[must_use]
pub fn point_of(seed: u64, number: usize, node: &str, events: &[usize]) -> Point {
    let mut dice = Dice::new(seed.wrapping_mul(0x0100_0000_01B3) ^ number as u64);
    let event = events.get(dice.below(events.len())).copied().unwrap_or(0);
    let survival = HashMap::from([(node.to_owned(), Survival::any(&mut dice))]);
    Point {
        number,
        event,
        survival,
        dice,
    }
}

/// What the checks found.
#[derive(Default, Serialize, Debug)]
pub struct Report {
    /// Images built and checked.
    pub images: usize,
    /// Of these, how many cut a process in its start.
    pub in_a_start: usize,
    /// How many lost or tore something: unsynced changes were there, and not all survived by choice.
    pub lossy: usize,
    /// How many had how each node fared, by node.
    pub survival: BTreeMap<Survival, usize>,
    /// The points that failed, and why, by number.
    pub failures: Vec<(usize, String)>,
}

impl Report {
    pub(super) fn add(&mut self, other: Self) {
        self.images += other.images;
        self.in_a_start += other.in_a_start;
        self.lossy += other.lossy;
        for (survival, count) in other.survival {
            *self.survival.entry(survival).or_default() += count;
        }
        self.failures.extend(other.failures);
    }
}

/// What is cut, and where.
pub struct Cuts<'a> {
    /// What was on the disk before the events.
    pub base: &'a Disk,
    /// What was recorded.
    pub events: &'a [Event],
    /// The points, in any order.
    pub points: Vec<Point>,
    /// Threads.
    pub jobs: usize,
}

impl Cuts<'_> {
    /// Builds the image of every point and has it judged: `judge` gets its directory, which it may change, and the point.
    ///
    /// # Errors
    /// If an image cannot be built. What is wrong with an image stands in the report.
    pub fn run(
        &self,
        judge: &(impl Fn(&Path, &Point) -> Result<()> + Sync),
        progress: &(impl Fn(usize) + Sync),
    ) -> Result<Report> {
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by_key(|point| point.event);
        let (report, done) = (Mutex::new(Report::default()), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs)
                .map(|worker| {
                    let points = points.iter().copied().skip(worker).step_by(self.jobs);
                    let (report, done) = (&report, &done);
                    scope.spawn(move || -> Result<()> {
                        let found = self.work(points, judge, &|| {
                            progress(done.fetch_add(1, Ordering::Relaxed) + 1)
                        })?;
                        report.lock().unwrap_or_else(PoisonError::into_inner).add(found);
                        Ok(())
                    })
                })
                .collect();
            for worker in workers {
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a worker panicked"))??;
            }
            anyhow::Ok(())
        })?;
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.failures.sort();
        Ok(report)
    }

    fn work<'p>(
        &self,
        points: impl Iterator<Item = &'p Point>,
        judge: &impl Fn(&Path, &Point) -> Result<()>,
        progress: &impl Fn(),
    ) -> Result<Report> {
        let mut disk = self.base.clone();
        let mut report = Report::default();
        let mut at = 0;
        let mut seen: HashMap<u32, usize> = HashMap::new();
        for point in points {
            for event in &self.events[at..=point.event] {
                disk.advance(event).with_context(|| {
                    format!("an event of process {} at {} ns", event.process, event.time_ns)
                })?;
                *seen.entry(event.process).or_default() += 1;
            }
            at = point.event + 1;
            let process = self.events[point.event].process;
            report.in_a_start += usize::from(seen.get(&process).is_some_and(|count| *count < START_EVENTS));
            let unsynced = disk.nodes().any(|node| match node {
                Node::File(file) => !file.pending.is_empty(),
                Node::Directory(directory) => !directory.pending.is_empty(),
            });
            let all = point.survival.values().all(|survival| *survival == Survival::All);
            report.lossy += usize::from(unsynced && !all);
            for survival in point.survival.values() {
                *report.survival.entry(*survival).or_default() += 1;
            }
            let place = scratch()?;
            let image = place.path().join("image");
            tear::write(&disk, &point.survival, &mut point.dice.clone(), &image)?;
            if let Err(error) = judge(&image, point) {
                report.failures.push((point.number, format!("{error:#}")));
            }
            report.images += 1;
            progress();
        }
        Ok(report)
    }
}

/// The disk after this event.
///
/// # Errors
/// If the events do not fit together.
pub fn disk_at(base: &Disk, events: &[Event], event: usize) -> Result<Disk> {
    let mut disk = base.clone();
    for event in &events[..=event] {
        disk.advance(event)?;
    }
    Ok(disk)
}

impl Point {
    /// Builds its image in a directory that is there or can be made.
    ///
    /// # Errors
    /// If the events do not fit together, or what the operating system says.
    pub fn image(&self, base: &Disk, events: &[Event], into: &Path) -> Result<()> {
        let disk = disk_at(base, events, self.event)?;
        tear::write(&disk, &self.survival, &mut self.dice.clone(), into)
    }
}
