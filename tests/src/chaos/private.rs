//! Where a run has mounts, and a network if it wants one, of its own: they go with its last process, however that ends.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::binary::binary;

/// Set in a process that [`enter`] has started again, to the mounts of who started it.
const ENTERED_FROM: &str = "CHAOS_ENTERED_FROM";

/// What names the mounts that a process sees.
const MOUNTS: &str = "/proc/self/ns/mnt";

/// Starts this program again, with the same arguments, where mounts are its own, and the network too if that is said; does
/// nothing there.
///
/// # Errors
/// If that cannot be done here, with what it needs and the way without.
pub fn enter(with_network: bool) -> Result<()> {
    if has_entered()? {
        return Ok(());
    }
    if with_network {
        // What that fetches is not to be had any more afterwards.
        binary()?;
    }
    let error = again(with_network)?.args(std::env::args_os().skip(1)).exec();
    bail!(
        "`unshare` did not start: {error}; on Debian: apt-get install --yes util-linux mount e2fsprogs iproute2"
    )
}

/// Whether this process is one that [`again`] has started.
pub(super) fn has_entered() -> Result<bool> {
    // Where it was set and nothing was entered, the mounts are still the same.
    let mounts = std::fs::read_link(MOUNTS).context("what mounts these are")?;
    Ok(std::env::var_os(ENTERED_FROM).is_some_and(|from| Path::new(&from) != mounts))
}

/// This program, to be started once more where mounts and perhaps the network are its own; without arguments.
pub(super) fn again(with_network: bool) -> Result<Command> {
    let root = rustix::process::geteuid().is_root();
    ensure!(
        root || !with_network,
        "hosts of their own are network namespaces, and making them needs root: run this as root, or without --namespaces"
    );
    ensure!(
        root,
        "a full disk is a small file system that is mounted for it, and mounting needs root: run this as root, or name \
         the faults to inject without --disk-full, e.g. --kill --pause --cut --clock"
    );
    let mut command = Command::new("unshare");
    command
        .args(with_network.then_some("--net"))
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe()?)
        .env(ENTERED_FROM, std::fs::read_link(MOUNTS)?);
    Ok(command)
}
