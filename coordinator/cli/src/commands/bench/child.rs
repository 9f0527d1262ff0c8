//! One child process of the bench: its first line of stdout, or all of them, and its end.
//!
//! Its stdin is a pipe that ends with this process, however that ends, and the child ends with it. Dropping it kills it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child as Process, ChildStdout};
use tokio::time::timeout;

use crate::exit::Failure;
use crate::own_process;

/// How many bytes of a log's end a failure shows.
const TAIL_BYTES: usize = 2_048;

/// A child process with its lines.
pub(super) struct Child {
    name: String,
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
    log: std::path::PathBuf,
}

impl Child {
    /// Starts this command with these arguments; its log goes to a file in the directory.
    pub(super) fn start(name: &str, arguments: &[String], directory: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::internal("START", format!("{name} could not be started: {error}"))
        };
        let log = directory.join(format!("{name}.log"));
        let mut command = tokio::process::Command::from(own_process::command().map_err(failed)?);
        command
            .args(arguments)
            .arg("--stop-with-stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).map_err(failed)?)
            .kill_on_drop(true);
        let mut process = command.spawn().map_err(failed)?;
        let stdout = process
            .stdout
            .take()
            .ok_or_else(|| Failure::internal("START", format!("{name} has no stdout")))?;
        Ok(Self {
            name: name.to_owned(),
            process,
            lines: BufReader::new(stdout).lines(),
            log,
        })
    }

    /// Its process id, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Its next line, within a time.
    pub(super) async fn line<T: DeserializeOwned>(&mut self, within: Duration) -> Result<T, Failure> {
        let why = match timeout(within, self.lines.next_line()).await {
            Ok(Ok(Some(line))) => match serde_json::from_str(&line) {
                Ok(value) => return Ok(value),
                Err(error) => format!("it said {line:?}: {error}"),
            },
            Ok(Ok(None)) => "it ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it said nothing within {within:?}"),
        };
        let why = format!("{}: {why}; the end of its log:\n{}", self.name, self.log_tail());
        Err(Failure::internal("CHILD", why))
    }

    /// Kills it and waits until it is gone.
    pub(super) async fn end(mut self) {
        // It may have ended.
        let _ = self.process.kill().await;
    }

    fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }
}
