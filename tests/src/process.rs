//! One child process: its output is read while it runs, its end is waited for with a deadline, and it is killed when
//! it is dropped, so that none is left behind by a test that panics.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::binary::binary;
use crate::wait::wait_until;

/// The most lines of one stream that are kept; older ones go.
pub const MAX_KEPT_LINES: usize = 10_000;

/// How long the end of a stream is waited for after its process ended; a child of its own may keep it open.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a command that should end by itself may take.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The signal of `abort()`.
pub const SIGABRT: i32 = 6;

#[derive(Default)]
struct Lines {
    kept: VecDeque<String>,
    ended: bool,
}

/// A stream of a child, read to its end by a thread of its own.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Lines>>);

impl Stream {
    fn read(from: Option<impl Read + Send + 'static>) -> Self {
        let stream = Self::default();
        let into = stream.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(from.map_or_else(
                || Box::new(std::io::empty()) as Box<dyn Read + Send>,
                |from| Box::new(from),
            ));
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                let mut lines = into.lock();
                if lines.kept.len() == MAX_KEPT_LINES {
                    lines.kept.pop_front();
                }
                lines.kept.push_back(text);
                line.clear();
            }
            into.lock().ended = true;
        });
        stream
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> Vec<String> {
        self.lock().kept.iter().cloned().collect()
    }

    async fn ended(&self) -> Result<()> {
        wait_until("the end of the output", CLOSE_TIMEOUT, async || {
            ensure!(self.lock().ended, "somebody has it open");
            Ok(())
        })
        .await
    }
}

/// A running child.
pub struct Process {
    what: String,
    child: Child,
    stdout: Stream,
    stderr: Stream,
}

impl Process {
    /// Starts a command; `what` names it in messages.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(what: &str, command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{what} did not start"))?;
        let (stdout, stderr) = (
            Stream::read(child.stdout.take()),
            Stream::read(child.stderr.take()),
        );
        Ok(Self {
            what: what.to_owned(),
            child,
            stdout,
            stderr,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines of its stdout so far.
    #[must_use]
    pub fn stdout(&self) -> Vec<String> {
        self.stdout.lines()
    }

    /// The lines of its stderr so far.
    #[must_use]
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// The last lines of its stderr in one text, for messages.
    #[must_use]
    pub fn tail(&self) -> String {
        let lines = self.stderr.lines();
        let from = lines.len().saturating_sub(20);
        format!("{} said last:\n  {}", self.what, lines[from..].join("\n  "))
    }

    /// Waits for the first line of its stdout.
    ///
    /// # Errors
    /// If the process ends before it, or the deadline passes.
    pub async fn first_line(&mut self, deadline: Duration) -> Result<String> {
        let what = format!("the first line of {}", self.what);
        let line = wait_until(&what, deadline, async || {
            if let Some(line) = self.stdout.lines().into_iter().next() {
                return Ok(Ok(line));
            }
            match self.child.try_wait()? {
                Some(status) => Ok(Err(status)),
                None => bail!("there is none"),
            }
        });
        match line.await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(status)) => {
                self.stderr.ended().await?;
                bail!(
                    "{} ended with {status} before it was ready; {}",
                    self.what,
                    self.tail()
                )
            }
            Err(error) => Err(error.context(self.tail())),
        }
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end; after that all its output is there.
    ///
    /// # Errors
    /// If it runs on past the deadline.
    pub async fn exited(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.what);
        let status = wait_until(&what, deadline, async || {
            self.child.try_wait()?.ok_or_else(|| anyhow!("it runs"))
        });
        let status = match status.await {
            Ok(status) => status,
            Err(error) => return Err(error.context(self.tail())),
        };
        self.stdout.ended().await?;
        self.stderr.ended().await?;
        Ok(status)
    }

    /// Waits until it dies at a crash point, by abort.
    ///
    /// # Errors
    /// If it lives on, ends otherwise, or does not say which point it was.
    pub async fn died_at(&mut self, point: &str, deadline: Duration) -> Result<()> {
        let status = self
            .exited(deadline)
            .await
            .with_context(|| format!("{point} was not reached"))?;
        let said = format!("crash point {point} reached");
        ensure!(
            status.signal() == Some(SIGABRT) && self.stderr().contains(&said),
            "{} ended with {status} and not at {point}; {}",
            self.what,
            self.tail()
        );
        Ok(())
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// If there is no such process any more.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGSTOP: it keeps everything and does nothing.
    ///
    /// # Errors
    /// If there is no such process any more.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    /// If there is no such process any more.
    pub fn go_on(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id")?;
        kill_process(pid, signal).with_context(|| format!("{} took no {signal:?}", self.what))
    }

    /// Sends SIGKILL and waits for the end. Nothing of the process runs after that.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn kill(&mut self) -> Result<()> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .with_context(|| format!("killing {}", self.what))?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command that ended left.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was run.
    pub line: String,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

impl Ran {
    /// Runs a command to its end.
    ///
    /// # Errors
    /// If it does not start, or does not end within [`COMMAND_TIMEOUT`].
    pub async fn to_end(line: &str, command: &mut Command) -> Result<Self> {
        Self::within(COMMAND_TIMEOUT, line, command).await
    }

    /// Runs a command to its end, which must come before the deadline.
    ///
    /// # Errors
    /// If it does not start, or does not end in time.
    pub async fn within(deadline: Duration, line: &str, command: &mut Command) -> Result<Self> {
        let mut process = Process::spawn(line, command)?;
        let status = process.exited(deadline).await?;
        let text = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect();
        let (stdout, stderr) = (text(process.stdout()), text(process.stderr()));
        Ok(Self {
            line: line.to_owned(),
            code: status.code(),
            stdout,
            stderr,
        })
    }

    /// Itself, if it exited with this code.
    ///
    /// # Errors
    /// What it did instead, with all it said.
    pub fn exits(self, code: i32) -> Result<Self> {
        let Self {
            line, stdout, stderr, ..
        } = &self;
        ensure!(
            self.code == Some(code),
            "`{line}` exited with {:?} instead of {code}\nstdout: {stdout}\nstderr: {stderr}",
            self.code
        );
        Ok(self)
    }

    /// Its stdout as one JSON value.
    ///
    /// # Errors
    /// If it is none.
    pub fn json(&self) -> Result<serde_json::Value> {
        let Self {
            line, stdout, stderr, ..
        } = self;
        serde_json::from_str(stdout)
            .with_context(|| format!("`{line}` printed no JSON: {stdout}\nstderr: {stderr}"))
    }
}

/// Runs the command under test to its end.
///
/// # Errors
/// As [`Ran::to_end`].
pub async fn covenant(arguments: &[&str]) -> Result<Ran> {
    let line = format!("covenant {}", arguments.join(" "));
    Ran::to_end(&line, Command::new(binary()?).args(arguments)).await
}

/// A command for a program that is killed when its starter ends, however that ends: also by SIGKILL, and also while the
/// program is stopped.
///
/// The kernel asks for the end of the thread that starts it, so that thread must live as long as the program should.
#[must_use]
pub fn bound_to_its_starter(program: impl AsRef<OsStr>) -> Command {
    // The program takes the place of `setpriv`, under the same process id.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// The processes that run and were started with this in their environment, `NAME=VALUE`, which children inherit.
///
/// # Errors
/// If there is no `/proc`.
pub fn started_with(variable: &str) -> Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(id) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        // A process that ends meanwhile, or another user's, is none of ours.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable.as_bytes())
        {
            found.insert(id);
        }
    }
    Ok(found)
}
