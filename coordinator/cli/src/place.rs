//! Where processes that this command starts keep their logs: a new directory on a disk.
//!
//! The servers refuse a file system in memory, because nothing on it is durable; on many machines `/tmp` is one.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::exit::{Exit, Failure};

/// What `statfs` calls file systems in memory.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Makes a directory in the first candidate that is on a disk and can be written.
pub(crate) fn make(prefix: &str) -> Result<TempDir, Failure> {
    let current = std::env::current_dir().ok();
    let candidates = [
        Some(std::env::temp_dir()),
        Some(PathBuf::from("/var/tmp")),
        current,
    ];
    let mut met = Vec::new();
    for candidate in candidates.into_iter().flatten() {
        if is_in_memory(&candidate) {
            met.push(format!("{} is in memory", candidate.display()));
            continue;
        }
        match tempfile::Builder::new().prefix(prefix).tempdir_in(&candidate) {
            Ok(directory) => return Ok(directory),
            Err(error) => met.push(format!("{}: {error}", candidate.display())),
        }
    }
    let why = format!("no directory on a disk ({}); set TMPDIR to one", met.join("; "));
    Err(Failure::new(Exit::WrongState, "NO_PLACE", why))
}

/// A path that cannot be asked is left for the attempt to write to it.
fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|status| IN_MEMORY.contains(&status.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_and_goes_away() {
        let directory = make("covenant-test-").unwrap();
        let path = directory.path().to_owned();
        assert!(path.is_dir());
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn memory_is_no_disk() {
        assert!(is_in_memory(Path::new("/dev/shm")) || !Path::new("/dev/shm").exists());
        assert!(!is_in_memory(Path::new("/no/such/path")));
    }
}
