//! A PostgreSQL server of its own: found, made, started, stopped.
//!
//! The server refuses to run as root: then initdb and the server run as the user postgres. A shell between this process and
//! the server stops it when this process ends, however that is.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use crate::exit::{Exit, Failure};
use crate::place;

/// Where Debian's packages put a version's programs.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The longest wait for the server to take connections, and for it to stop.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How often is tried whether it takes connections.
const START_PAUSE: Duration = Duration::from_millis(50);

/// The name of a socket for the port that the server is given; it listens on no other.
const SOCKET: &str = ".s.PGSQL.5432";

/// Runs the server until stdin ends, then stops it at once.
const SCRIPT: &str = r#""$@" & server=$!; cat >/dev/null; kill -INT "$server"; wait "$server""#;

/// What is not PostgreSQL's default: two branches of every client are prepared at a time, and the pages stay in memory.
const SETTINGS: [&str; 6] = [
    "listen_addresses=",
    "max_prepared_transactions=300",
    "max_connections=300",
    "shared_buffers=256MB",
    "fsync=on",
    "synchronous_commit=on",
];

/// PostgreSQL's programs.
pub(in super::super) struct Installed {
    programs: PathBuf,
    pub(in super::super) version: String,
    /// Whom to run as: user and group; the present ones if absent.
    run_as: Option<(u32, u32)>,
}

impl Installed {
    /// The newest version on this machine.
    pub(in super::super) fn find() -> Result<Self, Failure> {
        let missing = |why: String| {
            let why = format!("{why}; --compare needs PostgreSQL 15 or later: install postgresql-15");
            Failure::new(Exit::WrongState, "NO_POSTGRES", why)
        };
        let versions = std::fs::read_dir(DEBIAN).map_err(|error| missing(format!("{DEBIAN}: {error}")))?;
        let newest = versions
            .filter_map(|version| version.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .max()
            .filter(|version| *version >= 15)
            .ok_or_else(|| missing(format!("{DEBIAN} has no such version")))?;
        let programs = Path::new(DEBIAN).join(newest.to_string()).join("bin");
        let version = Command::new(programs.join("postgres"))
            .arg("--version")
            .output()
            .map_err(|error| missing(error.to_string()))?;
        let is_root = rustix::process::geteuid().is_root();
        let run_as = if is_root {
            let user = user("postgres").ok_or_else(|| missing("there is no user postgres".to_owned()))?;
            Some(user)
        } else {
            None
        };
        Ok(Self {
            programs,
            version: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
            run_as,
        })
    }

    /// A command that runs as whom it may.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((user, group)) = self.run_as {
            command.uid(user).gid(group);
        }
        command
    }
}

/// User and group of a name.
fn user(name: &str) -> Option<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

/// A server that runs.
pub(super) struct Server {
    // Stopped before its directory goes.
    child: Child,
    directory: TempDir,
}

impl Server {
    /// Makes a database and starts its server.
    pub(super) async fn start(installed: &Installed) -> Result<Self, Failure> {
        let directory = place::make("covenant-bench-")?;
        let (data, log) = (
            directory.path().join("data"),
            directory.path().join("postgres.log"),
        );
        if let Some((user, group)) = installed.run_as {
            chown(directory.path(), Some(user), Some(group)).map_err(failed)?;
        }
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
        let made = installed
            .command(installed.programs.join("initdb"))
            .arg("--pgdata")
            .arg(&data)
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
            ])
            .current_dir(directory.path())
            .output()
            .map_err(failed)?;
        if !made.status.success() {
            return Err(failed(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        let mut command = installed.command("sh");
        command
            .args(["-c", SCRIPT, "sh"])
            .arg(installed.programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).map_err(failed)?);
        let child = tokio::process::Command::from(command).spawn().map_err(failed)?;
        let server = Self { child, directory };
        let until = Instant::now() + START_TIMEOUT;
        while let Err(failure) = Connection::open(&server.socket(), "postgres").await {
            if Instant::now() >= until {
                let log = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(failed(format!("{}; its log:\n{log}", failure.message)));
            }
            sleep(START_PAUSE).await;
        }
        Ok(server)
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join(SOCKET)
    }

    /// Stops it and waits until it is gone.
    pub(super) async fn end(&mut self) {
        drop(self.child.stdin.take());
        // If it does not stop in time, the shell goes on waiting for it, and only the directory may stay.
        let _ = timeout(START_TIMEOUT, self.child.wait()).await;
    }
}

fn failed(error: impl ToString) -> Failure {
    Failure::internal("POSTGRES", format!("PostgreSQL: {}", error.to_string()))
}
