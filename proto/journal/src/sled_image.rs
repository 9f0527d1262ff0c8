//! The image on disk: one sled tree, and an own file handle that syncs what sled only writes.
//!
//! sled's `flush` ends in `sync_file_range`, which makes nothing durable, so `sync` calls fdatasync on
//! `<dir>/db` through a handle opened before sled's first write: an error of any write since then is seen
//! by it. All spaces share one tree (their number is the first byte of the key), because sled's batches are
//! atomic per tree. A panic inside sled, which damaged bytes can cause, comes back as an error.

use std::any::Any;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sled::IVec;

use crate::directory::{self, Directory};
use crate::end_mark::EndMark;
use crate::error::Error;
use crate::image::{Batch, Image, ImageError, Item, Key, Scan, Space};
use crate::limits::{LOOKUP_TOUCHES, SCAN_TOUCHES, SLED_CACHE_BYTES, SLED_LOCK_ATTEMPTS};
use crate::snapshot;

const SLED_LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A store in a directory; it holds the directory's lock until it is dropped.
pub struct SledImage {
    // Fields drop in this order: the lock goes last.
    db: sled::Db,
    log_file: File,
    end: EndMark,
    path: PathBuf,
    /// Whether the directory says that a record was forced.
    begun: AtomicBool,
    _lock: File,
}

impl SledImage {
    /// Opens sled in a prepared directory; for a new one, makes its files durable and then marks it ready.
    ///
    /// Damaged bytes can make this panic inside sled or never return: `Journal::open` runs it under a watchdog.
    ///
    /// # Errors
    /// [`Error::Corrupted`] where sled says so, [`Error::BlobFound`], [`Error::Io`].
    pub fn open(directory: Directory) -> Result<Self, Error> {
        let Directory {
            path,
            lock,
            log_file,
            making,
            newest,
            ..
        } = directory;
        if making.is_none() {
            snapshot::make_durable(&path, newest.as_deref(), open_sled)?;
        }
        let db = open_sled(&path)?;
        if let Some(format) = making {
            // A directory in use is recognised by its first segment, so there must be one.
            db.flush().map_err(|error| Error::Corrupted {
                what: path.display().to_string(),
                why: error.to_string(),
            })?;
            directory::finish_making(&path, format)?;
        }
        directory::require_no_blobs(&path)?;
        let begun = AtomicBool::new(directory::has_begun(&path));
        let end =
            EndMark::open(&path, directory::END).map_err(Error::io("open", &path.join(directory::END)))?;
        Ok(Self {
            db,
            log_file,
            end,
            begun,
            path,
            _lock: lock,
        })
    }
}

impl SledImage {
    fn caught_scan(
        &self,
        inner: impl Iterator<Item = sled::Result<(IVec, IVec)>> + Send + 'static,
        touches: u32,
    ) -> Scan {
        Box::new(CaughtScan {
            db: self.db.clone(),
            touches,
            inner: Some(inner),
        })
    }
}

/// A thread of a sled that this process dropped may keep sled's own lock for a moment; ours is held, so
/// nobody else can have it and waiting is safe.
pub(crate) fn open_sled(path: &Path) -> Result<sled::Db, Error> {
    let config = sled::Config::new()
        .path(path)
        .cache_capacity(SLED_CACHE_BYTES)
        .flush_every_ms(None);
    let mut attempt = 0;
    loop {
        match config.open() {
            Ok(db) => return Ok(db),
            Err(sled::Error::Io(source)) if source.to_string().starts_with("could not acquire lock") => {
                attempt += 1;
                if attempt == SLED_LOCK_ATTEMPTS {
                    return Err(Error::Locked {
                        path: path.to_path_buf(),
                        holder: "unknown".to_owned(),
                    });
                }
                thread::sleep(SLED_LOCK_PAUSE);
            }
            Err(sled::Error::Io(source)) => return Err(Error::io("open sled in", path)(source)),
            Err(other) => {
                return Err(Error::Corrupted {
                    what: path.display().to_string(),
                    why: other.to_string(),
                });
            }
        }
    }
}

fn sled_key(space: Space, key: &Key) -> IVec {
    let mut bytes = [0; crate::limits::KEY_BYTES_MAX + 1];
    bytes[0] = space as u8;
    let end = 1 + key.as_bytes().len();
    bytes[1..end].copy_from_slice(key.as_bytes());
    IVec::from(&bytes[..end])
}

fn item_of((key, value): (IVec, IVec)) -> Item {
    let key = key
        .split_first()
        .and_then(|(_, rest)| Key::new(rest))
        .ok_or_else(|| ImageError::new("reading sled", "a key is longer than any that is written"))?;
    Ok((key, value.to_vec()))
}

/// The message of a caught panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

fn caught<T>(action: &'static str, run: impl FnOnce() -> sled::Result<T>) -> Result<T, ImageError> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ImageError::caused(action, source)),
        Err(panic) => Err(ImageError::new(
            action,
            format!("sled panicked: {}", panic_message(&*panic)),
        )),
    }
}

/// Ends after the first error, so that a broken page is reported once.
///
/// sled evicts only once a shard of its cache was accessed 64 times, which lets 16,384 pages, 500 MB, pile up
/// that were read once each. So each item is looked up `touches` times more: its shard fills, and evicts.
struct CaughtScan<I> {
    db: sled::Db,
    touches: u32,
    inner: Option<I>,
}

impl<I: Iterator<Item = sled::Result<(IVec, IVec)>>> CaughtScan<I> {
    fn read(&mut self) -> Option<Item> {
        let inner = self.inner.as_mut()?;
        let found = caught("reading sled", || {
            let Some((key, value)) = inner.next().transpose()? else {
                return Ok(None);
            };
            for _ in 0..self.touches {
                self.db.get(&key)?;
            }
            Ok(Some((key, value)))
        });
        found.transpose().map(|found| found.and_then(item_of))
    }
}

impl<I: Iterator<Item = sled::Result<(IVec, IVec)>>> Iterator for CaughtScan<I> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let item = self.read();
        if !matches!(item, Some(Ok(_))) {
            self.inner = None;
        }
        item
    }
}

impl Image for SledImage {
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError> {
        let mut changes = sled::Batch::default();
        for change in batch.changes() {
            let key = sled_key(change.space, &change.key);
            match change.value {
                Some(value) => changes.insert(key, value),
                None => changes.remove(key),
            }
        }
        caught("writing to sled", || self.db.apply_batch(changes))
    }

    fn flush(&self) -> Result<(), ImageError> {
        caught("flushing sled", || self.db.flush()).map(drop)
    }

    fn sync(&self) -> Result<(), ImageError> {
        self.log_file
            .sync_data()
            .map_err(|source| ImageError::caused("syncing the log file", source))?;
        if !self.begun.load(Ordering::Acquire) {
            directory::note_begun(&self.path)
                .map_err(|source| ImageError::caused("noting the first force", source))?;
            self.begun.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn note_end(&self, lsn: u64) -> Result<(), ImageError> {
        self.end
            .note(lsn)
            .map_err(|source| ImageError::caused("noting the log's end", source))
    }

    fn force_end(&self) -> Result<(), ImageError> {
        self.end
            .force()
            .map_err(|source| ImageError::caused("syncing the mark of the log's end", source))
    }

    fn noted_end(&self) -> Option<u64> {
        self.end.noted()
    }

    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError> {
        caught("reading sled", || self.db.get(sled_key(space, key)))
            .map(|value| value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: Space, from: &Key) -> Scan {
        let end = [space as u8 + 1];
        let range = sled_key(space, from)..IVec::from(&end[..]);
        self.caught_scan(self.db.range(range), SCAN_TOUCHES)
    }

    fn scan_back(&self, space: Space, to: &Key) -> Scan {
        let start = [space as u8];
        let range = IVec::from(&start[..])..=sled_key(space, to);
        self.caught_scan(self.db.range(range).rev(), LOOKUP_TOUCHES)
    }

    fn verify(&self) -> Result<(), ImageError> {
        directory::require_no_blobs(&self.path).map_err(|error| ImageError::caused("verifying", error))
    }
}
