//! The snapshot of a start, durable before sled clears anything.
//!
//! sled opens a log by making a snapshot of it, and then clears the segments in which nothing is alive. A log cleared so
//! may need that snapshot (`tail`), but sled syncs no directory: a power cut could keep the clearing and lose
//! the snapshot. So sled first opens the log in `start`, a directory whose `blobs` is a file: it makes its
//! snapshot there and gives up before it clears anything. The snapshot is moved to the data directory and made
//! durable, and only then the others go and the real open begins with it, as does the next start.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::directory::{BLOBS, LOG_FILE, names, remove_if_there, sync_directory};
use crate::error::Error;
use crate::tail::Tail;

const SNAPSHOT_PREFIX: &str = "snap.";
const START: &str = "start";

/// What is there of sled's snapshots.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The newest that fits the log. A segment before it may be cleared in parts, which its header does not tell, so it is
    /// always used; `None` only for a log that is whole without.
    pub(crate) newest: Option<String>,
    /// The others, not used.
    pub(crate) unused: u32,
}

impl Snapshots {
    /// # Errors
    /// [`Error::Corrupted`] where one is needed and none fits.
    pub(crate) fn find(path: &Path, tail: &Tail) -> Result<Self, Error> {
        let snapshots = all(path)?;
        let count = snapshots.len() as u32;
        let fits = |name: &String| {
            lsn(name).is_some_and(|lsn| tail.is_whole_from(lsn)) && is_whole(&path.join(name))
        };
        match snapshots.into_iter().filter(fits).max() {
            Some(newest) => Ok(Self {
                newest: Some(newest),
                unused: count - 1,
            }),
            None if tail.is_whole_from(0) => Ok(Self {
                newest: None,
                unused: count,
            }),
            None => Err(Error::Corrupted {
                what: path.join(LOG_FILE).display().to_string(),
                why: if tail.is_empty() {
                    "no segment of it can be read, although the directory was in use".to_owned()
                } else {
                    "a segment before its end is missing".to_owned()
                },
            }),
        }
    }
}

fn lsn(name: &str) -> Option<i64> {
    i64::from_str_radix(name.strip_prefix(SNAPSHOT_PREFIX)?, 16).ok()
}

/// Whether what it holds checks, as sled will ask: content, its length, CRC-32.
fn is_whole(snapshot: &Path) -> bool {
    let Ok(bytes) = fs::read(snapshot) else {
        return false;
    };
    let parts = bytes.split_last_chunk::<4>();
    parts.is_some_and(|(rest, crc)| {
        rest.len() > 8 && crc32fast::hash(&rest[..rest.len() - 8]) == u32::from_le_bytes(*crc)
    })
}

fn all(path: &Path) -> Result<Vec<String>, Error> {
    let mut names = names(path)?;
    names.retain(|name| name.starts_with(SNAPSHOT_PREFIX));
    Ok(names)
}

/// Removes all snapshots but this one.
pub(crate) fn remove_others(path: &Path, kept: Option<&str>) -> Result<(), Error> {
    for name in all(path)?.iter().filter(|name| Some(name.as_str()) != kept) {
        let snapshot = path.join(name);
        fs::remove_file(&snapshot).map_err(Error::io("remove", &snapshot))?;
    }
    Ok(())
}

/// Leaves the log with the one snapshot that sled makes of it, durable. `open` opens sled in a directory.
pub(crate) fn make_durable<T>(
    path: &Path,
    newest: Option<&str>,
    open: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<(), Error> {
    let start = path.join(START);
    remove_if_there(&start, |start| fs::remove_dir_all(start))?;
    lay_out(&start, newest).map_err(Error::io("make", &start))?;
    match open(&start) {
        // It came to the blobs, which is past the snapshot.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {}
        Err(other) => return Err(other),
        // An empty log: there is nothing to make a snapshot of.
        Ok(opened) => drop(opened),
    }
    // Without one, nothing came after the newest.
    let made = all(&start)?.into_iter().filter(|name| lsn(name).is_some()).max();
    if let Some(made) = made.as_deref().filter(|made| Some(*made) != newest) {
        let from = start.join(made);
        fs::rename(&from, path.join(made)).map_err(Error::io("rename", &from))?;
    }
    // Also where nothing was made: a start that was killed may have named the newest without getting here.
    sync_directory(path)?;
    remove_others(path, made.as_deref().or(newest))?;
    remove_if_there(&start, |start| fs::remove_dir_all(start))
}

fn lay_out(start: &Path, newest: Option<&str>) -> io::Result<()> {
    fs::create_dir(start)?;
    for name in [Some(LOG_FILE), newest].into_iter().flatten() {
        symlink(Path::new("..").join(name), start.join(name))?;
    }
    File::create(start.join(BLOBS)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sled_image::open_sled;

    fn segments(path: &Path) -> usize {
        Tail::read(&File::open(path.join(LOG_FILE)).unwrap())
            .unwrap()
            .segments()
    }

    fn hold_one_value(path: &Path) {
        let db = open_sled(path).unwrap();
        db.insert(b"one key", b"one value").unwrap();
        db.flush().unwrap();
    }

    /// The story: sled had cleared dead segments when the power went, and the snapshot that made them dead had no durable name.
    #[test]
    fn the_snapshot_is_in_its_place_before_sled_clears_a_segment() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let db = open_sled(path).unwrap();
        for round in 0..5_000_u32 {
            db.insert(b"one key", vec![round as u8; 2_000]).unwrap();
        }
        db.flush().unwrap();
        drop(db);
        let before = segments(path);
        remove_others(path, None).unwrap();

        make_durable(path, None, open_sled).unwrap();
        assert_eq!(segments(path), before);
        let made = all(path).unwrap();
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(!path.join(START).exists());

        drop(open_sled(path).unwrap());
        assert!(segments(path) < before, "the log had nothing to clear");
        assert_eq!(all(path).unwrap(), made);
    }

    #[test]
    fn what_a_cut_start_left_is_no_hindrance() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        hold_one_value(path);
        lay_out(&path.join(START), Some("snap.00000000000000FF")).unwrap();
        make_durable(path, None, open_sled).unwrap();
        let found = open_sled(path).unwrap().get(b"one key").unwrap();
        assert_eq!(found.as_deref(), Some(&b"one value"[..]));
    }

    /// A cut while sled cleared a dead segment leaves its header and zeros; without the snapshot sled takes that for the log's end.
    #[test]
    fn the_newest_snapshot_that_checks_is_used_even_where_every_header_is_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        hold_one_value(path);
        make_durable(path, None, open_sled).unwrap();
        let made = all(path).unwrap().remove(0);
        let whole = fs::read(path.join(&made)).unwrap();
        fs::write(path.join("snap.0000000000007FFF"), &whole[..whole.len() - 1]).unwrap();
        let tail = Tail::read(&File::open(path.join(LOG_FILE)).unwrap()).unwrap();
        assert!(tail.is_whole_from(0));
        let found = Snapshots::find(path, &tail).unwrap();
        assert_eq!((found.newest, found.unused), (Some(made), 1));
    }
}
