//! `covenant serve`: a coordinator.

use std::path::Path;
use std::time::Duration;

use covenant_coordinator::Error;

use super::config::{ConfigArgs, DATA_DIR};
use crate::exit::{Exit, Failure};
use crate::logs::LogArgs;
use crate::servers::{self, StopArgs};
use crate::settings::Origin;

/// Run a coordinator.
#[derive(clap::Args)]
#[command(after_help = "\
When it serves it prints one line on stdout: {\"ready\":true,\"listen\":\"127.0.0.1:7400\",...}. Logs go to stderr.
SIGTERM and SIGINT stop it: it refuses new work, finishes what is decided within sessions.drain_ms, and exits with 0.

Every value can also come from a file or from the environment: see `covenant config show --help`.

Exit codes: 0 stopped; 2 a wrong configuration or a directory of something else or in memory; 5 not allowed; 6 the port or the directory
is in use, or the directory has a newer format; 70 the log is damaged or cannot be made durable.

Examples:
  covenant serve --data-dir data/c1
  covenant serve --data-dir data/c1 --listen 127.0.0.1:0 --log-format json")]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// For tests: abort the process at a crash point of PROTOCOL.md, section 9.
    #[arg(long, value_name = "NAME[:TRANSACTION_ID]", hide = true)]
    crash_at: Vec<String>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    stop: StopArgs,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let settings = args.config.load()?;
    let is_default = settings.origins.get(DATA_DIR) == Some(&Origin::Default);
    let config = settings.config;
    let crash = servers::crash_plan(&args.crash_at, config.listen)?;
    args.log.start()?;
    log_place(&config.data_dir, is_default);
    let stop = args.stop.start()?;
    let listener = servers::bind(config.listen).await?;
    let drain = Duration::from_millis(config.sessions.drain_ms);
    let ready = |ready: covenant_coordinator::Ready| {
        if let Err(failure) = servers::print_ready(ready) {
            tracing::error!(code = failure.code, "{}", failure.message);
        }
    };
    let stopped = stop.clone().wait();
    let server = async {
        covenant_coordinator::serve(config, listener, crash, ready, stopped)
            .await
            .map_err(|error| failure(&error))
    };
    stop.bounded(drain, server).await
}

/// Says where the log is, which nobody may have chosen.
fn log_place(data_dir: &Path, is_default: bool) {
    let place = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let data_dir = place.display();
    if is_default {
        tracing::warn!(%data_dir, "nobody said where the log is, so it is here; give --data-dir DIR");
    } else {
        tracing::info!(%data_dir, "the log is here");
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Config(error) => Failure::usage("CONFIG", error.to_string()),
        Error::CrashPlan(error) => Failure::usage("CRASH_AT", format!("--crash-at: {error}")),
        Error::Journal(error) => servers::journal_failure(error),
        other => Failure::internal("COORDINATOR", servers::one_line(other)),
    }
}
