//! A coordinator or a ledger as a process: launched, killed, restarted on the same data directory and port.
//!
//! The port is a free one that the harness has bound, without listening, for as long as the server's [`Launch`]
//! lives: nobody else is given it while the server is down, not even as the source port of a connection to it.
//!
//! A server is killed when the thread that started it ends, so that none outlives a test that is killed.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::net::TcpSocket;

use crate::binary::binary;
use crate::process::{Process, bound_to_its_starter};

/// How long a server may take to be ready. A ledger that finds no coordinator says so after 3 s.
pub const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server that was asked to stop may take: its drain of 10 s, its margin, and the debug build's slowness.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a server may take to reach a crash point.
pub const CRASH_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone)]
enum Role {
    Coordinator,
    Ledger { name: String, coordinator: String },
}

/// How a server is started.
#[derive(Clone)]
pub struct Launch {
    role: Role,
    data_dir: PathBuf,
    listen: SocketAddr,
    /// Holds the port.
    _port: Arc<TcpSocket>,
    arguments: Vec<OsString>,
    crash_at: Vec<String>,
    variables: Vec<(String, String)>,
    under: Vec<OsString>,
    inside: Vec<OsString>,
}

impl Launch {
    /// A coordinator.
    ///
    /// # Errors
    /// If no port is free.
    pub fn coordinator(data_dir: &Path) -> Result<Self> {
        Self::new(Role::Coordinator, data_dir)
    }

    /// A ledger of this name that joins the coordinator at this address.
    ///
    /// # Errors
    /// If no port is free.
    pub fn ledger(name: &str, data_dir: &Path, coordinator: &str) -> Result<Self> {
        Self::new(
            Role::Ledger {
                name: name.to_owned(),
                coordinator: coordinator.to_owned(),
            },
            data_dir,
        )
    }

    fn new(role: Role, data_dir: &Path) -> Result<Self> {
        let port = TcpSocket::new_v4()?;
        port.set_reuseaddr(true)?;
        port.bind((Ipv4Addr::LOCALHOST, 0).into())
            .context("no free port")?;
        Ok(Self {
            role,
            data_dir: data_dir.to_path_buf(),
            listen: port.local_addr()?,
            _port: Arc::new(port),
            arguments: Vec::new(),
            crash_at: Vec::new(),
            variables: Vec::new(),
            under: Vec::new(),
            inside: Vec::new(),
        })
    }

    /// Opens an account at the start, e.g. `alice=500000:THB`.
    #[must_use]
    pub fn open(self, account: &str) -> Self {
        self.argument("--open").argument(account)
    }

    /// Dies at this crash point: `NAME[:TRANSACTION_ID]`. A restart does not.
    #[must_use]
    pub fn crash_at(mut self, point: impl Into<String>) -> Self {
        self.crash_at.push(point.into());
        self
    }

    /// One more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// Started by this command, which is given the server's own as its last arguments.
    #[must_use]
    pub fn under(mut self, wrapper: &[&str]) -> Self {
        self.under = wrapper.iter().map(OsString::from).collect();
        self
    }

    /// At this address of another host, where this command starts what it is given; also a restart is there.
    #[must_use]
    pub fn elsewhere(mut self, listen: SocketAddr, inside: Vec<OsString>) -> Self {
        self.listen = listen;
        self.inside = inside;
        self
    }

    /// Where its log is.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Its address, for who speaks no HTTP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// The same without crash points and without a wrapper.
    #[must_use]
    pub fn plain(&self) -> Self {
        Self {
            crash_at: Vec::new(),
            under: Vec::new(),
            ..self.clone()
        }
    }

    fn name(&self) -> &str {
        match &self.role {
            Role::Coordinator => "the coordinator",
            Role::Ledger { name, .. } => name,
        }
    }

    fn command(&self) -> Result<Command> {
        let mut words = [self.inside.clone(), self.under.clone()].concat();
        words.push(binary()?.into());
        match &self.role {
            Role::Coordinator => words.push("serve".into()),
            Role::Ledger { name, coordinator } => {
                words.extend(["ledger", "--name", name, "--coordinator", coordinator].map(OsString::from));
            }
        }
        words.extend(["--data-dir".into(), self.data_dir.clone().into_os_string()]);
        words.extend(["--listen".into(), self.listen.to_string().into()]);
        words.extend(self.arguments.iter().cloned());
        for point in &self.crash_at {
            words.extend(["--crash-at".into(), point.into()]);
        }
        let mut command = bound_to_its_starter(&words[0]);
        command.args(&words[1..]);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COVENANT_"))
        {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(&self) -> Result<Server> {
        let process = Process::spawn(self.name(), &mut self.command()?)?;
        Ok(Server {
            launch: self.clone(),
            process,
            ready: Value::Null,
        })
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// If it ends before, or is not ready within [`READY_TIMEOUT`].
    pub async fn start(&self) -> Result<Server> {
        let mut server = self.spawn()?;
        server.wait_ready().await?;
        Ok(server)
    }
}

/// A server that was started.
pub struct Server {
    launch: Launch,
    process: Process,
    ready: Value,
}

impl Server {
    /// Waits until it is ready.
    ///
    /// # Errors
    /// As [`Launch::start`]; also if its first line is not the one of the specification.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let line = self.process.first_line(READY_TIMEOUT).await?;
        let ready: Value =
            serde_json::from_str(&line).with_context(|| format!("its first line is {line}"))?;
        ensure!(ready["ready"] == true, "its first line is {line}");
        ensure!(
            ready["listen"] == self.launch.listen.to_string(),
            "it does not listen where it should: {line}"
        );
        self.ready = ready;
        Ok(())
    }

    /// The line that said that it is ready; null before.
    #[must_use]
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// How it was started.
    #[must_use]
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        self.launch.url()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// If it does not end within [`STOP_TIMEOUT`].
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.process.terminate()?;
        self.process.exited(STOP_TIMEOUT).await
    }

    /// SIGTERM; it must exit with 0, having said one line on stdout in its life.
    ///
    /// # Errors
    /// If it does not.
    pub async fn stop_cleanly(&mut self) -> Result<()> {
        let status = self.stop().await?;
        ensure!(
            status.success(),
            "it ended with {status}; {}",
            self.process.tail()
        );
        let lines = self.process.stdout();
        ensure!(
            lines.len() == 1,
            "a server says one line on stdout, this one said {lines:?}"
        );
        Ok(())
    }

    /// Waits until it dies at a crash point.
    ///
    /// # Errors
    /// As [`Process::died_at`].
    pub async fn died_at(&mut self, point: &str) -> Result<()> {
        self.process.died_at(point, CRASH_TIMEOUT).await
    }

    /// Starts it again on its directory and port, without crash points, and does not wait.
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn respawn(&mut self) -> Result<()> {
        self.respawn_as(&self.launch.plain())
    }

    /// Starts it again in another way.
    ///
    /// # Errors
    /// If it runs, or does not start.
    pub fn respawn_as(&mut self, launch: &Launch) -> Result<()> {
        ensure!(self.process.has_ended()?, "{} runs", self.launch.name());
        *self = launch.spawn()?;
        Ok(())
    }

    /// Starts it again on its directory and port, without crash points, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Launch::start`].
    pub async fn restart(&mut self) -> Result<()> {
        self.respawn()?;
        self.wait_ready().await
    }
}
