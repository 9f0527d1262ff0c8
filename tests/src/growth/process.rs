//! What a process and its directory take.

use std::path::Path;

use anyhow::{Context, Result};
use covenant_journal::{Journal, Options};
use serde::Serialize;

/// The kernel's unit of CPU time in `/proc`, the same on every Linux that this runs on, in microseconds.
const TICK_US: u64 = 10_000;

/// A directory of a log, in MB of 1,048,576 bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Disk {
    /// All its files.
    pub files_mb: f64,
    /// What a start reads of it or may look up in it: the items of the archive and the records of the log, without
    /// anything that stores them.
    pub live_mb: f64,
    /// The first over the second.
    pub ratio: f64,
}

/// Resident now, in MB.
///
/// # Errors
/// If there is no such process.
pub fn resident_mb(process: u32) -> Result<f64> {
    status_mb(process, "VmRSS:")
}

/// Resident at the most since its start, in MB.
///
/// # Errors
/// If there is no such process.
pub fn peak_mb(process: u32) -> Result<f64> {
    status_mb(process, "VmHWM:")
}

fn status_mb(process: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} of process {process}"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1_024.0)
}

/// CPU time in user and kernel mode since its start, in microseconds.
///
/// # Errors
/// If there is no such process.
pub fn cpu_us(process: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold anything: the fields are counted from its end.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |index: usize| -> Result<u64> { Ok(fields.get(index).context("a short stat")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) * TICK_US)
}

/// The directory of a process that has ended.
///
/// # Errors
/// If it does not open.
pub fn disk(directory: &Path, role: &str) -> Result<Disk> {
    let mut files = 0;
    for entry in std::fs::read_dir(directory)? {
        files += entry?.metadata()?.len();
    }
    let opened = Journal::open(directory, Options::new(role))?;
    let mut live = 0;
    for replayed in opened.replay {
        let record = replayed?
            .record
            .map_err(|damaged| anyhow::anyhow!("{}", damaged.why))?;
        live += record.payload.len()
            + record.head.xid.map_or(0, |xid| xid.len())
            + record.head.transaction_id.map_or(0, |id| id.len());
    }
    for item in opened.archive.scan(0) {
        live += item?.1.len();
    }
    opened.journal.close()?;
    let mb = |bytes: f64| bytes / f64::from(1 << 20);
    let (files_mb, live_mb) = (mb(files as f64), mb(live as f64));
    Ok(Disk {
        files_mb,
        live_mb,
        ratio: files_mb / live_mb,
    })
}
