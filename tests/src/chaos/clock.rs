//! The wall clock of one process, stepped from outside.
//!
//! A library of one function, `clock.c`, is loaded before the C library of the server and adds an offset to its wall
//! clock: the product has no option for it and runs as it is shipped. The library counts what it told, so that a step
//! that nobody saw does not pass for one. Needs a C compiler, which linking Rust needs too, and a server that is linked
//! dynamically; the monotonic clock does not step, as on any machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Launch;

/// Builds the library into this directory.
///
/// # Errors
/// If there is no C compiler, or it says no.
pub fn build(directory: &Path) -> Result<PathBuf> {
    let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
    std::fs::write(&source, include_str!("clock.c"))?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .context(
            "a clock that steps needs a C compiler, `cc`; on Debian: apt-get install --yes gcc libc6-dev",
        )?;
    ensure!(
        built.status.success(),
        "cc ended with {}: {}",
        built.status,
        String::from_utf8_lossy(&built.stderr)
    );
    Ok(library)
}

/// The clock of one process.
pub struct Clock {
    library: PathBuf,
    path: PathBuf,
    shared: File,
}

impl Clock {
    /// A clock that tells the time as it is, in this file.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn new(library: &Path, path: &Path) -> Result<Self> {
        std::fs::write(path, [0; 16])?;
        Ok(Self {
            library: library.to_path_buf(),
            path: path.to_path_buf(),
            shared: File::options().read(true).write(true).open(path)?,
        })
    }

    /// The launch of a server that goes by this clock.
    #[must_use]
    pub fn governs(&self, launch: Launch) -> Launch {
        launch
            .variable("LD_PRELOAD", self.library.display())
            .variable("CHAOS_CLOCK", self.path.display())
    }

    /// Sets how far it goes ahead of the true time, in milliseconds.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn step(&self, offset_ms: i64) -> Result<()> {
        Ok(self.shared.write_all_at(&offset_ms.to_ne_bytes(), 0)?)
    }

    /// How often a time that was not the true one was told.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn told(&self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.shared.read_exact_at(&mut bytes, 8)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::scratch;

    #[test]
    fn a_process_under_a_stepped_clock_reads_the_stepped_time_and_it_is_counted() {
        let directory = scratch().unwrap();
        let library = build(directory.path()).unwrap();
        let clock = Clock::new(&library, &directory.path().join("clock")).unwrap();
        let read = || -> i64 {
            let mut date = Command::new("date");
            date.arg("+%s")
                .env("LD_PRELOAD", &clock.library)
                .env("CHAOS_CLOCK", &clock.path);
            let output = date.output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        let now = || i64::try_from(covenant_client::unix_now() / 1_000).unwrap();
        assert!((read() - now()).abs() < 600);
        assert_eq!(clock.told().unwrap(), 0);
        for hours in [5, -5] {
            clock.step(hours * 3_600_000 + 700).unwrap();
            assert!((read() - now() - hours * 3_600).abs() < 600);
        }
        assert!(clock.told().unwrap() >= 2);
    }
}
