//! A small file system of its own for one data directory, which can be filled up.
//!
//! An ext4 image, mounted over a loop device: the journal refuses file systems in memory, and a limit on file sizes
//! would end the process by a signal instead of failing its write. Mounting needs root, and the mounts are made in a
//! mount namespace of the process ([`super::private::enter`]), so that they go with it however it ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The size of one file system, in bytes: sparse, so that only what is used takes room.
pub const DISK_BYTES: u64 = 1 << 30;

/// The largest piece by which a disk is filled, in bytes; the smallest is a block.
const LARGEST_PIECE_BYTES: u64 = 64 << 20;
const BLOCK_BYTES: u64 = 4_096;

/// One file system.
pub struct Disk {
    mounted: PathBuf,
}

impl Disk {
    /// Makes `NAME.img` in a directory and mounts it on `NAME` beside it.
    ///
    /// # Errors
    /// If a program is missing or says no: its words, and how to go on without.
    pub fn mount(directory: &Path, name: &str) -> Result<Self> {
        let (image, mounted) = (
            directory.join(format!("{name}.img")),
            directory.join(format!("{name}.disk")),
        );
        File::create(&image)?.set_len(DISK_BYTES)?;
        std::fs::create_dir(&mounted)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &mounted]))?;
        Ok(Self { mounted })
    }

    /// Where the data directory may be.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mounted
    }

    /// Fills it up: no file on it can grow by a block.
    ///
    /// # Errors
    /// What the operating system says, but that there is no room.
    pub fn fill(&self) -> Result<()> {
        let ballast = File::create(self.ballast())?;
        let (mut at, mut piece) = (0, LARGEST_PIECE_BYTES);
        while piece >= BLOCK_BYTES {
            match rustix::fs::fallocate(&ballast, FallocateFlags::empty(), at, piece) {
                Ok(()) => at += piece,
                Err(Errno::NOSPC) => piece /= 2,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("filling a disk"),
            }
        }
        Ok(())
    }

    /// Makes room again.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn free(&self) -> Result<()> {
        match std::fs::remove_file(self.ballast()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("freeing a disk"),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.mounted.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // At the latest it goes with the mount namespace.
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted).status();
    }
}

fn run(command: &mut Command) -> Result<()> {
    let what = format!("{command:?}");
    let output = command
        .output()
        .with_context(|| format!("{what} did not start; on Debian: apt-get install --yes e2fsprogs mount"))?;
    ensure!(
        output.status.success(),
        "{what} ended with {}: {}; without loop devices, name the faults to inject without --disk-full",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
