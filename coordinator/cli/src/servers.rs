//! What the two servers of this command share: the socket, the ready line, the signals, and which exit code a failed
//! start gets.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use covenant_fault::CrashPlan;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

use crate::exit::{Exit, Failure};
use crate::output;

/// How long a server may take to stop beyond its own bound, in milliseconds; then the process ends all the same.
const STOP_MARGIN_MS: u64 = 5_000;

/// The ready line of a server.
#[derive(Serialize)]
struct ReadyLine<T> {
    ready: bool,
    #[serde(flatten)]
    about: T,
}

/// Prints the one line that a server writes to stdout.
pub(crate) fn print_ready(about: impl Serialize) -> Result<(), Failure> {
    output::write(&output::compact(&ReadyLine { ready: true, about })?).map(drop)
}

/// Reads `--crash-at`; it is taken on a loopback address only.
pub(crate) fn crash_plan(points: &[String], listen: SocketAddr) -> Result<CrashPlan, Failure> {
    if !points.is_empty() && !listen.ip().is_loopback() {
        let why = format!("--crash-at is for tests on a loopback address, and --listen is {listen}");
        return Err(Failure::usage("CRASH_AT", why));
    }
    CrashPlan::parse(points.iter().map(String::as_str))
        .map_err(|error| Failure::usage("CRASH_AT", format!("--crash-at: {error}")))
}

/// Binds the address of a server.
pub(crate) async fn bind(listen: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(listen).await.map_err(|error| {
        let (exit, way) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                Exit::WrongState,
                "stop the process that has it, or give another --listen",
            ),
            io::ErrorKind::PermissionDenied => (Exit::NotAllowed, "give a port above 1023"),
            io::ErrorKind::AddrNotAvailable => (Exit::Usage, "give an address of this machine"),
            _ => (Exit::Internal, "give another --listen"),
        };
        Failure::new(
            exit,
            "LISTEN",
            format!("cannot listen on {listen}: {error}; {way}"),
        )
    })
}

/// What else stops a server.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct StopArgs {
    /// For a parent that holds the other end of stdin: stop, as on SIGTERM, when that end is closed, which happens however
    /// the parent ends.
    #[arg(long, hide = true)]
    stop_with_stdin: bool,
}

impl StopArgs {
    /// Listens for the signals, and for the end of stdin if that is asked for, from now on.
    pub(crate) fn start(self) -> Result<Stop, Failure> {
        let ended = Arc::new(Notify::new());
        if self.stop_with_stdin {
            let reader = Arc::clone(&ended);
            let read = move || {
                // What is written there means nothing, and a stdin that cannot be read has ended.
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                reader.notify_one();
            };
            std::thread::Builder::new()
                .name("stdin".to_owned())
                .spawn(read)
                .map_err(|error| Failure::internal("STDIN", format!("no thread to read stdin: {error}")))?;
        }
        Stop::on_signal_or(async move { ended.notified().await })
    }
}

/// SIGTERM or SIGINT, once it came; clones wait for the same.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Listens for the signals from now on.
    pub(crate) fn on_signal() -> Result<Self, Failure> {
        Self::on_signal_or(std::future::pending())
    }

    /// The same, and `other` counts as a signal.
    fn on_signal_or(other: impl Future<Output = ()> + Send + 'static) -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::internal("SIGNAL", format!("cannot listen for signals: {error}")))
        };
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            let why = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
                () = other => "the end of stdin",
            };
            tracing::info!(why, "stopping");
            stop.send_replace(true);
            // Whoever waits for it holds a receiver; while one lives, the value must stay readable.
            stop.closed().await;
        });
        Ok(Self(stopped))
    }

    /// Resolves when a signal came.
    pub(crate) async fn wait(mut self) {
        // The sender ends only with the runtime, and then nothing is left to stop.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }

    /// Runs a server to its end, but at most `bound` and a margin beyond the signal.
    pub(crate) async fn bounded<T>(
        self,
        bound: Duration,
        server: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Exit, Failure> {
        let overdue = async {
            self.wait().await;
            tokio::time::sleep(bound + Duration::from_millis(STOP_MARGIN_MS)).await;
        };
        tokio::select! {
            result = server => result.map(|_| Exit::Done),
            () = overdue => {
                tracing::warn!(?bound, "the server did not stop in time; the next start recovers");
                Ok(Exit::Done)
            }
        }
    }
}

/// Why a journal did not open, with its exit code.
pub(crate) fn journal_failure(error: &covenant_journal::Error) -> Failure {
    use covenant_journal::Error as Journal;
    let exit = match error {
        Journal::NotADirectory { .. }
        | Journal::NotCovenant { .. }
        | Journal::OtherRole { .. }
        | Journal::CannotTellCached { .. }
        | Journal::NotOnDisk { .. } => Exit::Usage,
        Journal::Locked { .. } | Journal::NewerFormat { .. } => Exit::WrongState,
        Journal::Io { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Exit::NotAllowed,
            io::ErrorKind::NotADirectory => Exit::Usage,
            _ => Exit::Internal,
        },
        _ => Exit::Internal,
    };
    Failure::new(exit, "DATA_DIRECTORY", error.to_string())
}

/// An error with all its causes on one line.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    let mut text = String::new();
    for cause in causes.map(ToString::to_string) {
        // Some errors already say their cause.
        if !text.ends_with(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&cause);
        }
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn crash_points_are_for_loopback_only_and_must_exist() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let points = |point: &str| vec![point.to_owned()];
        assert!(crash_plan(&points("c.commit.forced:T100"), loopback).is_ok());
        assert!(crash_plan(&[], "0.0.0.0:7400".parse().unwrap()).is_ok());
        for (points, listen) in [
            (points("c.commit.forced"), "0.0.0.0:7400".parse().unwrap()),
            (points("c.nonsense"), loopback),
        ] {
            assert_eq!(crash_plan(&points, listen).unwrap_err().exit, Exit::Usage);
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_wrong_state_with_the_way_out() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let failure = bind(listener.local_addr().unwrap()).await.unwrap_err();
        assert_eq!(failure.exit, Exit::WrongState);
        assert!(failure.message.contains("--listen"), "{}", failure.message);
    }

    #[test]
    fn a_failed_open_has_the_exit_code_of_its_cause() {
        use covenant_journal::Error as Journal;
        let path = PathBuf::from("data");
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        for (error, exit) in [
            (Journal::NotADirectory { path: path.clone() }, Exit::Usage),
            (Journal::NotOnDisk { path: path.clone() }, Exit::Usage),
            (
                Journal::Locked {
                    path: path.clone(),
                    holder: "7".into(),
                },
                Exit::WrongState,
            ),
            (
                Journal::NewerFormat {
                    path: path.clone(),
                    found: 2,
                    supported: 1,
                },
                Exit::WrongState,
            ),
            (
                Journal::Io {
                    action: "open",
                    path: path.clone(),
                    source: denied,
                },
                Exit::NotAllowed,
            ),
            (
                Journal::Gap {
                    expected: 1,
                    found: 3,
                },
                Exit::Internal,
            ),
        ] {
            assert_eq!(journal_failure(&error).exit, exit, "{error}");
        }
    }
}
