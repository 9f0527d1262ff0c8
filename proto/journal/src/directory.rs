//! The data directory before sled sees it: made, locked, recognised, and its log file on the disk for sure.
//!
//! Section 2, "What replay reads is not yet durable": the log file is synced and dropped from the page cache,
//! and that it is gone is checked, before anything is read. sled's `snap.*` files are used where they fit the log
//! (`snapshot`): one newer than the log makes sled hang. A directory says what it is in `format`; while it is
//! being made it says so too, and a making that a crash cut short begins again, since no record was forced.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSliceMut, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::limits::DROP_CACHE_ATTEMPTS;
use crate::snapshot::{self, Snapshots};
use crate::tail::Tail;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

const PAGE_BYTES: u64 = 4096;
const DROP_CACHE_PAUSE: Duration = Duration::from_millis(20);
const LOCK: &str = "lock";
const FORMAT_FILE: &str = "format";
const FORMAT_TEMPORARY: &str = "format.tmp";
pub(crate) const LOG_FILE: &str = "db";
pub(crate) const BLOBS: &str = "blobs";
const CONF: &str = "conf";
/// Made with the first force: from then on a log without a record is damage, and no new directory.
const BEGUN: &str = "begun";
/// How far the log was forced (`end_mark`).
pub(crate) const END: &str = "end";

/// What the `format` file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    format: u32,
    role: String,
    /// Whether the making of the directory has not ended; then it holds nothing that counts.
    #[serde(default)]
    making: bool,
}

/// What the start did before anything was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartReport {
    /// sled snapshots not used; they go when the start's own is durable.
    pub snapshots_removed: u32,
    /// Pages of 4 KiB of the log file that were made sure not to be in the page cache.
    pub pages_dropped: u64,
    /// Attempts that this took; 0 for a new directory.
    pub drop_attempts: u32,
}

/// A directory that is locked and ready for `SledImage::open`.
#[derive(Debug)]
pub struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) lock: File,
    pub(crate) log_file: File,
    /// What `format` must say once the directory is made; `None` for one that was there.
    pub(crate) making: Option<Format>,
    /// The newest snapshot that fits the log.
    pub(crate) newest: Option<String>,
    /// What the start did.
    pub report: StartReport,
}

/// The start up to sled: make or recognise, lock, sync, drop from the page cache, and look at the log's end and
/// at the snapshots.
///
/// # Errors
/// All that [`Error`] says of directories; the directory is then as it was, but for its lock file, and that one too
/// goes after [`Error::NotOnDisk`].
pub fn prepare(path: &Path, role: &str) -> Result<Directory, Error> {
    let mut made = Vec::new();
    make_directory(path, &mut made)?;
    require_ours(path)?;
    let lock_path = path.join(LOCK);
    let lock_is_new = !lock_path.exists();
    let lock = take_lock(path)?;
    if let Err(refused) = require_disk(&lock, path) {
        // What cannot be removed stays: the refusal says what matters.
        if lock_is_new {
            let _ = fs::remove_file(&lock_path);
        }
        for path in made.iter().rev() {
            let _ = fs::remove_dir(path);
        }
        return Err(refused);
    }
    let making = match read_format(path, role)? {
        Some(format) if !format.making => None,
        Some(_) | None => Some(begin_making(path, role)?),
    };
    let mut report = StartReport::default();
    let log_path = path.join(LOG_FILE);
    let log_file = open_log_file(&log_path, making.is_some())?;
    let mut newest = None;
    if making.is_none() {
        log_file.sync_data().map_err(Error::io("sync", &log_path))?;
        (report.pages_dropped, report.drop_attempts) = drop_from_cache(&log_file, &log_path)?;
        let tail = Tail::read(&log_file).map_err(Error::io("read", &log_path))?;
        let found = Snapshots::find(path, &tail)?;
        report.snapshots_removed = found.unused;
        newest = found.newest;
    } else {
        snapshot::remove_others(path, None)?;
    }
    Ok(Directory {
        path: path.to_path_buf(),
        lock,
        log_file,
        making,
        newest,
        report,
    })
}

/// On a file system that keeps its files only in memory the next start would be refused; so is the first, before
/// anything is promised there. The lock file, just written, is what it is tried with.
fn require_disk(lock: &File, path: &Path) -> Result<(), Error> {
    let lock_path = path.join(LOCK);
    lock.sync_data().map_err(Error::io("sync", &lock_path))?;
    match drop_from_cache(lock, &lock_path) {
        Ok(_) => Ok(()),
        Err(Error::StillCached { .. } | Error::CannotTellCached { .. }) => Err(Error::NotOnDisk {
            path: path.to_path_buf(),
        }),
        Err(other) => Err(other),
    }
}

pub(crate) fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(Error::io("sync directory", path))
}

fn sync_parent(path: &Path) -> Result<(), Error> {
    let path = fs::canonicalize(path).map_err(Error::io("find", path))?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes the directory and its parents where they are missing, and notes those, the highest first.
fn make_directory(path: &Path, made: &mut Vec<PathBuf>) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Error::NotADirectory {
            path: path.to_path_buf(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                make_directory(parent, made)?;
            }
            fs::create_dir(path).map_err(Error::io("create directory", path))?;
            made.push(path.to_path_buf());
            sync_directory(path)?;
            sync_parent(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::NotADirectory {
            path: path.to_path_buf(),
        }),
        Err(error) => Err(Error::io("look at", path)(error)),
    }
}

pub(crate) fn names(path: &Path) -> Result<Vec<String>, Error> {
    fs::read_dir(path)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect()
        })
        .map_err(Error::io("list directory", path))
}

/// Refuses a directory with files in it that no journal made, before anything is written there.
fn require_ours(path: &Path) -> Result<(), Error> {
    let names = names(path)?;
    if names.iter().any(|name| name == FORMAT_FILE) {
        return Ok(());
    }
    // A mounted file system's root has `lost+found`.
    let harmless = [LOCK, FORMAT_TEMPORARY, "lost+found"];
    match names.into_iter().find(|name| !harmless.contains(&name.as_str())) {
        Some(found) => Err(Error::NotCovenant {
            path: path.to_path_buf(),
            found,
        }),
        None => Ok(()),
    }
}

fn take_lock(path: &Path) -> Result<File, Error> {
    let lock_path = path.join(LOCK);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&lock_path)
        .map_err(Error::io("open", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let read = (&lock).take(32).read_to_string(&mut holder);
            let known = read.is_ok() && !holder.trim().is_empty();
            let holder = if known {
                holder.trim().to_owned()
            } else {
                "unknown".to_owned()
            };
            return Err(Error::Locked {
                path: path.to_path_buf(),
                holder,
            });
        }
        Err(TryLockError::Error(source)) => return Err(Error::io("lock", &lock_path)(source)),
    }
    lock.set_len(0)
        .and_then(|()| lock.rewind())
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(Error::io("write", &lock_path))?;
    Ok(lock)
}

fn read_format(path: &Path, role: &str) -> Result<Option<Format>, Error> {
    let format_path = path.join(FORMAT_FILE);
    let text = match fs::read(&format_path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("read", &format_path)(error)),
    };
    let damaged = |why: serde_json::Error| Error::FormatDamaged {
        path: format_path.clone(),
        why: why.to_string(),
    };
    // The number first: a newer format may have other fields.
    #[derive(Deserialize)]
    struct Number {
        format: u32,
    }
    let Number { format: found } = serde_json::from_slice(&text).map_err(damaged)?;
    if found > FORMAT {
        return Err(Error::NewerFormat {
            path: path.to_path_buf(),
            found,
            supported: FORMAT,
        });
    }
    let format: Format = serde_json::from_slice(&text).map_err(damaged)?;
    if format.role != role {
        return Err(Error::OtherRole {
            path: path.to_path_buf(),
            found: format.role,
            expected: role.to_owned(),
        });
    }
    Ok(Some(format))
}

fn write_format(path: &Path, format: &Format) -> Result<(), Error> {
    let temporary = path.join(FORMAT_TEMPORARY);
    let write = || {
        let mut file = File::create(&temporary)?;
        serde_json::to_writer(&mut file, format)?;
        file.write_all(b"\n")?;
        file.sync_all()
    };
    write().map_err(Error::io("write", &temporary))?;
    fs::rename(&temporary, path.join(FORMAT_FILE)).map_err(Error::io("rename", &temporary))?;
    sync_directory(path)
}

/// Marks the directory as being made, and clears what an earlier making left.
fn begin_making(path: &Path, role: &str) -> Result<Format, Error> {
    let ready = Format {
        format: FORMAT,
        role: role.to_owned(),
        making: false,
    };
    write_format(
        path,
        &Format {
            making: true,
            ..ready.clone()
        },
    )?;
    for name in [LOG_FILE, CONF, BEGUN, END] {
        remove_if_there(&path.join(name), |path| fs::remove_file(path))?;
    }
    remove_if_there(&path.join(BLOBS), |path| fs::remove_dir_all(path))?;
    Ok(ready)
}

/// Whether a record was ever forced here.
pub(crate) fn has_begun(path: &Path) -> bool {
    path.join(BEGUN).exists()
}

/// Notes that a record is forced, before anybody is told so.
pub(crate) fn note_begun(path: &Path) -> io::Result<()> {
    File::create(path.join(BEGUN))?.sync_all()?;
    File::open(path)?.sync_all()
}

pub(crate) fn remove_if_there(
    path: &Path,
    remove: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    match remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes sled's files durable, which sled leaves out, and then marks the directory ready.
pub(crate) fn finish_making(path: &Path, ready: Format) -> Result<(), Error> {
    for name in [LOG_FILE, CONF, BLOBS] {
        let path = path.join(name);
        File::open(&path)
            .and_then(|file| file.sync_all())
            .map_err(Error::io("sync", &path))?;
    }
    sync_directory(path)?;
    sync_parent(path)?;
    write_format(path, &ready)
}

fn open_log_file(log_path: &Path, making: bool) -> Result<File, Error> {
    let found = if making {
        File::create_new(log_path).and_then(|_| File::open(log_path))
    } else {
        File::open(log_path)
    };
    let file = match found {
        Ok(file) => file,
        // sled would make an empty one and forget every record.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Corrupted {
                what: log_path.display().to_string(),
                why: "it is missing from a directory that was in use".to_owned(),
            });
        }
        Err(error) => return Err(Error::io("open", log_path)(error)),
    };
    if file.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(file);
    }
    Err(Error::Corrupted {
        what: log_path.display().to_string(),
        why: "it is not a file".to_owned(),
    })
}

/// Drops a synced file from the page cache and makes sure of it; its pages and the attempts.
fn drop_from_cache(file: &File, path: &Path) -> Result<(u64, u32), Error> {
    let pages = file
        .metadata()
        .map_err(Error::io("look at", path))?
        .len()
        .div_ceil(PAGE_BYTES);
    let mut cached = pages;
    for attempt in 1..=DROP_CACHE_ATTEMPTS {
        fadvise(file, 0, None, Advice::DontNeed)
            .map_err(|error| Error::io("drop from cache", path)(error.into()))?;
        cached = cached_pages(file, pages).map_err(|error| {
            if error.kind() == io::ErrorKind::Unsupported {
                return Error::CannotTellCached {
                    path: path.to_path_buf(),
                };
            }
            Error::io("probe", path)(error)
        })?;
        if cached == 0 {
            return Ok((pages, attempt));
        }
        thread::sleep(DROP_CACHE_PAUSE * attempt);
    }
    Err(Error::StillCached {
        path: path.to_path_buf(),
        pages: cached,
        attempts: DROP_CACHE_ATTEMPTS,
    })
}

/// Whether nothing is allocated at this offset.
fn is_hole(file: &File, offset: u64) -> io::Result<bool> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Ok(data > offset),
        Err(Errno::NXIO) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// How many pages of the file a read without waiting finds in the page cache.
fn cached_pages(file: &File, pages: u64) -> io::Result<u64> {
    // Without this the probe of one page would read its neighbours ahead, and find them cached.
    fadvise(file, 0, None, Advice::Random)?;
    let mut cached = 0;
    let mut byte = [0];
    for page in 0..pages {
        let mut buffers = [IoSliceMut::new(&mut byte)];
        match preadv2(file, &mut buffers, page * PAGE_BYTES, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN) => {}
            // sled frees segments by punching holes, and a hole is read without waiting wherever it is.
            Ok(_) if is_hole(file, page * PAGE_BYTES)? => {}
            Ok(_) => cached += 1,
            Err(error) => return Err(error.into()),
        }
    }
    fadvise(file, 0, None, Advice::Normal)?;
    Ok(cached)
}

/// Refuses a directory in which sled put a value outside the log file.
pub(crate) fn require_no_blobs(path: &Path) -> Result<(), Error> {
    let blobs = path.join(BLOBS);
    match names(&blobs)?.into_iter().next() {
        Some(found) => Err(Error::BlobFound { path: blobs, found }),
        None => Ok(()),
    }
}
