//! One server process of the demo: started, read, found dead, killed.
//!
//! Its two streams go to files beside its data, so that nothing breaks when the demo ends and leaves it running. Dropping it
//! kills it; one that is not to be left stops by itself, too, when the demo is killed, because its stdin ends then.

use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};

use serde_json::Value;

use super::timeline::Timeline;
use crate::exit::Failure;
use crate::own_process;

/// The longest wait for a ready line, in milliseconds.
const READY_MS: u64 = 20_000;

/// The longest wait for a death that is due, in milliseconds.
const DEATH_MS: u64 = 10_000;

/// How many lines of a log a failure shows.
const TAIL_LINES: usize = 15;

/// The most bytes at the end of a log that are read for it.
const TAIL_BYTES: usize = 64 * 1024;

/// A server process, dead or alive.
pub(super) struct Process {
    /// `coordinator`, `ledger-a` or `ledger-b`.
    pub(super) name: &'static str,
    /// Where it listens, after its first ready line; it gets the same port again.
    listen: Option<SocketAddr>,
    arguments: Vec<String>,
    folder: PathBuf,
    /// It may be left running: it is in a process group of its own, so that the terminal's Ctrl-C does not reach it, and
    /// outlives the demo.
    may_be_left: bool,
    child: Option<Child>,
}

impl Process {
    /// A process that is not started; its streams go to `folder`.
    pub(super) fn new(name: &'static str, arguments: Vec<String>, folder: &Path, may_be_left: bool) -> Self {
        let folder = folder.to_owned();
        Self {
            name,
            listen: None,
            arguments,
            folder,
            may_be_left,
            child: None,
        }
    }

    /// Starts it, with these arguments more, and waits for its ready line.
    pub(super) async fn start(&mut self, timeline: &mut Timeline, more: &[&str]) -> Result<Value, Failure> {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let listen = self
            .listen
            .map_or_else(|| "127.0.0.1:0".to_owned(), |listen| listen.to_string());
        let failed = |error: std::io::Error| {
            Failure::internal("START", format!("{} could not be started: {error}", self.name))
        };
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(failed)?;
        let mut command = own_process::command().map_err(failed)?;
        command
            .args(&self.arguments)
            .args(["--listen", &listen])
            .args(more);
        command
            .stdin(if self.may_be_left {
                Stdio::null()
            } else {
                Stdio::piped()
            })
            .stdout(File::create(self.ready_path()).map_err(failed)?)
            .stderr(log);
        if self.may_be_left {
            command.process_group(0);
        } else {
            command.arg("--stop-with-stdin");
        }
        self.child = Some(command.spawn().map_err(failed)?);
        let what = format!("the ready line of {}", self.name);
        let ready = timeline
            .until(&what, READY_MS, async || Ok(self.ready_or_dead()))
            .await??;
        self.listen = ready["listen"].as_str().and_then(|listen| listen.parse().ok());
        if self.listen.is_none() {
            return Err(Failure::internal(
                "START",
                format!("{} said no address: {ready}", self.name),
            ));
        }
        Ok(ready)
    }

    /// Its address as a URL.
    pub(super) fn url(&self) -> String {
        let listen = self.listen.map(|listen| listen.to_string()).unwrap_or_default();
        format!("http://{listen}")
    }

    /// Waits until it has died by itself; whether it aborted, as crash points do.
    pub(super) async fn died(&mut self, timeline: &mut Timeline) -> Result<bool, Failure> {
        let what = format!("the death of {}", self.name);
        let status = timeline
            .until(&what, DEATH_MS, async || Ok(self.exit_status()))
            .await?;
        /// The signal of `abort()`.
        const SIGABRT: i32 = 6;
        Ok(status.signal() == Some(SIGABRT))
    }

    /// The end of its log.
    pub(super) fn log_tail(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        format!(
            "--- the last lines of {}, {}:\n{tail}\n",
            self.name,
            self.log_path().display()
        )
    }

    /// Lets it run on when this value is dropped; its process id.
    pub(super) fn leave(&mut self) -> Option<u32> {
        self.child.take().map(|child| child.id())
    }

    fn ready_or_dead(&mut self) -> Option<Result<Value, Failure>> {
        let text = std::fs::read_to_string(self.ready_path()).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            let bad = |error| Failure::internal("START", format!("{} said {line:?}: {error}", self.name));
            return Some(serde_json::from_str(line).map_err(bad));
        }
        let status = self.exit_status()?;
        Some(Err(Failure::internal(
            "START",
            format!("{} ended before it was ready: {status}", self.name),
        )))
    }

    /// How it ended, once it has.
    fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn ready_path(&self) -> PathBuf {
        self.folder.join(format!("{}.ready", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have died a moment ago; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
