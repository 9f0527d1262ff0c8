//! Servers under the shim: it is compiled, preloaded into them, and a node can be cut off between two of its changes.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::trace::{self, Event};
use crate::binary::{repository, scratch};
use crate::os_package::require;
use crate::server::{Launch, Server};
use crate::wait::wait_until;

/// How long a change that is under way may take.
const GATE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server is told of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fdatasync {
    /// As it is.
    Works,
    /// To the trace it does nothing and says that it did.
    Lies,
}

/// The compiled shim, and the directory of what it records.
pub struct Shim {
    library: PathBuf,
    directory: TempDir,
}

impl Shim {
    /// Compiles it.
    ///
    /// # Errors
    /// If there is no gcc, or what it says.
    pub fn compile() -> Result<Self> {
        require("gcc")?;
        let directory = scratch()?;
        let library = directory.path().join("shim.so");
        let output = Command::new("gcc")
            .args([
                "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-o",
            ])
            .arg(&library)
            .arg(repository().join("tests/power/shim.c"))
            .output()
            .context("gcc did not start")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "gcc: {said}");
        fs::create_dir(directory.path().join("traces"))?;
        Ok(Self { library, directory })
    }

    /// Where the traces are.
    #[must_use]
    pub fn traces(&self) -> PathBuf {
        self.directory.path().join("traces")
    }

    /// Where all of it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Leaves everything where it is, and says where.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.directory.keep()
    }

    fn gate(&self, data_dir: &Path) -> PathBuf {
        let name = data_dir.file_name().unwrap_or_default().to_string_lossy();
        self.directory.path().join(format!("gate-{name}"))
    }

    /// The environment of a process whose data directory is below `root`.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn variables(
        &self,
        root: &Path,
        data_dir: &Path,
        fdatasync: Fdatasync,
    ) -> Result<Vec<(&str, String)>> {
        let gate = self.gate(data_dir);
        fs::write(&gate, [0, 0])?;
        let text = |path: &Path| path.display().to_string();
        let mut variables = vec![
            ("LD_PRELOAD", text(&self.library)),
            ("POWER_ROOT", text(root)),
            ("POWER_TRACE", text(&self.traces())),
            ("POWER_GATE", text(&gate)),
        ];
        if fdatasync == Fdatasync::Lies {
            variables.push(("POWER_LIE", "1".to_owned()));
        }
        Ok(variables)
    }

    /// A server under it.
    ///
    /// # Errors
    /// As [`Shim::variables`].
    pub fn under(&self, root: &Path, launch: Launch, fdatasync: Fdatasync) -> Result<Launch> {
        let variables = self.variables(root, launch.data_dir(), fdatasync)?;
        Ok(variables
            .into_iter()
            .fold(launch, |launch, (name, value)| launch.variable(name, value)))
    }

    /// Kills a server between two changes of its files, so that its trace says exactly what was done.
    ///
    /// # Errors
    /// If a change does not end, or it cannot be killed.
    pub async fn kill(&self, server: &mut Server) -> Result<()> {
        let path = self.gate(server.launch().data_dir());
        let gate = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        gate.write_all_at(&[1], 0)?;
        wait_until("a change of a file to end", GATE_TIMEOUT, async || {
            let mut under_way = [0];
            gate.read_exact_at(&mut under_way, 1)?;
            ensure!(under_way == [0], "it is under way");
            Ok(())
        })
        .await?;
        server.kill()?;
        gate.write_all_at(&[0, 0], 0)?;
        Ok(())
    }

    /// Everything that was recorded so far.
    ///
    /// # Errors
    /// As [`trace::read`].
    pub fn events(&self, root: &Path) -> Result<Vec<Event>> {
        trace::read(&self.traces(), root)
    }
}
