//! What the shim recorded: every change and every sync of a cluster's data directories, in one order.
//!
//! A process's own order is exact. Between processes the monotonic clock of the machine orders, which is enough: no two
//! of them change the same file at the same time, and a message takes longer than the clock is off.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

const HEADER_BYTES: usize = 40;

/// One thing that was done to a file or a directory. Files are named by inode number, as the machine had it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A file or a directory was opened, or made by opening it.
    Opened {
        /// Its path below the root.
        path: PathBuf,
        /// Whether this made it.
        made: bool,
    },
    /// Bytes were written.
    Written {
        /// Where.
        offset: usize,
        /// They.
        bytes: Vec<u8>,
    },
    /// The length was set.
    Length(usize),
    /// A hole was punched.
    Hole {
        /// Where.
        offset: usize,
        /// How long it is.
        bytes: usize,
    },
    /// The length became at least this.
    Extended(usize),
    /// A name was changed.
    Renamed {
        /// The old path below the root.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// A name was removed.
    Removed(PathBuf),
    /// A directory was made.
    Directory(PathBuf),
    /// A sync of this number began.
    SyncBegan(u64),
    /// It returned without error.
    SyncEnded(u64),
}

/// A change with its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it began (a change) or was seen (a sync), on the machine's monotonic clock.
    pub time_ns: u64,
    /// The process.
    pub process: u32,
    /// The inode number; 0 where names alone change.
    pub inode: u64,
    /// What.
    pub change: Change,
}

/// The time on the clock of the traces.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Reads all traces in a directory; `root` is what the processes were told is theirs, without symbolic links.
///
/// # Errors
/// If a trace is not one of the shim's.
pub fn read(traces: &Path, root: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for entry in std::fs::read_dir(traces)? {
        let path = entry?.path();
        let process = path.file_stem().and_then(|name| name.to_str()?.parse().ok());
        let process = process.with_context(|| format!("{} is no trace", path.display()))?;
        let bytes = std::fs::read(&path)?;
        read_process(&bytes, process, root, &mut events).with_context(|| path.display().to_string())?;
    }
    // A stable sort: what one process noted stays in its order.
    events.sort_by_key(|event| event.time_ns);
    Ok(events)
}

fn read_process(mut bytes: &[u8], process: u32, root: &Path, events: &mut Vec<Event>) -> Result<()> {
    while !bytes.is_empty() {
        let (header, rest) = bytes
            .split_at_checked(HEADER_BYTES)
            .context("a header is cut short")?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (kind, length) = (word(0) & 0xFFFF_FFFF, word(0) >> 32);
        let (payload, rest) = rest
            .split_at_checked(usize::try_from(length)?)
            .context("a payload is cut short")?;
        bytes = rest;
        let (a, b) = (word(24), word(32));
        events.push(Event {
            time_ns: word(8),
            process,
            inode: word(16),
            change: change(kind, a, b, payload, root)?,
        });
    }
    Ok(())
}

/// The numbers are those of `enum kind` in tests/power/shim.c.
fn change(kind: u64, a: u64, b: u64, payload: &[u8], root: &Path) -> Result<Change> {
    let below = |path: &[u8]| -> Result<PathBuf> {
        let path = Path::new(std::str::from_utf8(path)?);
        Ok(path
            .strip_prefix(root)
            .with_context(|| format!("{} is not below the root", path.display()))?
            .to_path_buf())
    };
    let (first, second) = (usize::try_from(a)?, usize::try_from(b)?);
    Ok(match kind {
        1 => Change::Opened {
            path: below(payload)?,
            made: a == 1,
        },
        2 => Change::Written {
            offset: first,
            bytes: payload.to_vec(),
        },
        3 => Change::Length(first),
        4 => Change::Hole {
            offset: first,
            bytes: second,
        },
        5 => Change::Extended(first),
        6 => {
            let mut paths = payload.split(|byte| *byte == 0);
            let (from, to) = (paths.next().unwrap_or_default(), paths.next().unwrap_or_default());
            ensure!(paths.next().is_none(), "a renaming has two paths");
            Change::Renamed {
                from: below(from)?,
                to: below(to)?,
            }
        }
        7 => Change::Removed(below(payload)?),
        8 => Change::Directory(below(payload)?),
        9 => Change::SyncBegan(a),
        10 => Change::SyncEnded(a),
        _ => bail!("{kind} is no kind of change"),
    })
}
