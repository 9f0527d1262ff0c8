//! A journal alone with large entries, recorded and cut: what the chunks are for.
//!
//! The program is the journal's example `store`, which can store each entry as one value. Small transfers never show the difference:
//! sled moves a page above 128 KiB to a file of its own, and only entries of tens of kilobytes make such pages.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use covenant_journal::{Journal, Options};

use super::cut::{Cuts, Moments, Point, Report, point};
use super::disk::Disk;
use super::shim::{Fdatasync, Shim};
use super::tear::Dice;
use super::trace::now_ns;
use crate::binary::{example, scratch};

/// The journal's directory below the root.
const NODE: &str = "journal";

/// Bytes of a record's payload: the least, and how many more at most; below the journal's bound of 48 KiB.
const RECORD_BYTES: (usize, usize) = (20_000, 28_000);

/// How long an image may take to open. Damage can make sled spin for ever.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// How an entry is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// As the journal does: in chunks.
    Chunked,
    /// As one value.
    Whole,
}

/// An LSN that was told to be durable, and when that was known.
type Told = (u64, u64);

/// Records `entries` entries, cuts the power at `points` points and opens each image.
///
/// # Errors
/// If the recording fails, or images cannot be built. What is wrong with an image stands in the report.
pub fn cut(seed: u64, entries: usize, points: usize, jobs: usize, stored: Stored) -> Result<Report> {
    let shim = Shim::compile()?;
    let place = scratch()?;
    let root = place.path().canonicalize()?;
    let told = store(&shim, &root, seed, entries, stored)?;
    let events = shim.events(&root)?;
    let moments = Moments::of(&events, told.iter().map(|(_, time_ns)| *time_ns));
    let chosen = (0..points).map(|number| point(seed, number, &[NODE], &moments, events.len()));
    let cuts = Cuts {
        base: &Disk::default(),
        events: &events,
        points: chosen.collect(),
        jobs,
    };
    let judge = |image: &Path, point: &Point| {
        let until = events.get(point.event + 1).map_or(u64::MAX, |next| next.time_ns);
        let known = told.iter().filter(|(_, time_ns)| *time_ns < until);
        check(image, known.map(|(lsn, _)| *lsn).max().unwrap_or(0))
    };
    cuts.run(&judge, &|_| {})
}

/// Runs the program under the shim; each entry is asked for only after the last one was told.
fn store(shim: &Shim, root: &Path, seed: u64, entries: usize, stored: Stored) -> Result<Vec<Told>> {
    let directory = root.join(NODE);
    let mut child = Command::new(example("store")?)
        .arg(&directory)
        .arg(match stored {
            Stored::Chunked => "chunked",
            Stored::Whole => "whole",
        })
        .envs(shim.variables(root, &directory, Fdatasync::Works)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("the example `store` did not start")?;
    let mut ask = child.stdin.take().context("it has a stdin")?;
    let mut answers = BufReader::new(child.stdout.take().context("it has a stdout")?).lines();
    let (mut dice, mut told) = (Dice::new(seed), Vec::new());
    for number in 0..entries {
        let bytes = RECORD_BYTES.0 + dice.below(RECORD_BYTES.1);
        writeln!(ask, "{bytes}")?;
        let line = answers
            .next()
            .with_context(|| format!("it ended before entry {number}"))??;
        told.push((line.parse()?, now_ns()));
    }
    drop(ask);
    let status = child.wait()?;
    ensure!(status.success(), "the example `store` ended with {status}");
    Ok(told)
}

/// The log opens, holds every record up to the one that was told, and each is what was stored.
fn check(image: &Path, told: u64) -> Result<()> {
    let options = Options {
        open_timeout: OPEN_TIMEOUT,
        ..Options::new("store")
    };
    let opened = Journal::open(&image.join(NODE), options).context("it does not open")?;
    opened
        .refuse_lost_tail()
        .context("no cut alone loses what was forced")?;
    let mut last = 0;
    for replayed in opened.replay {
        let envelope = replayed?
            .record
            .map_err(|damaged| anyhow!("record {} is damaged: {}", last + 1, damaged.why))?;
        last += 1;
        ensure!(
            envelope.payload.iter().all(|byte| *byte == last as u8),
            "record {last} is another one"
        );
    }
    drop(opened.archive);
    opened.journal.close()?;
    ensure!(
        last >= told,
        "record {told} was told to be durable, and the log ends at {last}"
    );
    Ok(())
}
