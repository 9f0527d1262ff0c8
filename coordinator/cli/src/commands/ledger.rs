//! `covenant ledger`: the demo participant.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use covenant_client::Link;
use covenant_fault::{Side, metered};
use covenant_ledger::{CHECKPOINT_RECORDS, Error, Ledger, LedgerService, OpenSpec, Options};
use covenant_participant::{Config, Handle, JoinState, Participant, Resource};
use covenant_proto::ledger::v1::ledger_service_server::LedgerServiceServer;
use covenant_rules::Name;
use serde::Serialize;
use tonic::transport::Server;

use crate::exit::{Exit, Failure};
use crate::logs::LogArgs;
use crate::servers::{self, Stop, StopArgs};

/// How long the ready line waits for the first joining, in milliseconds; then it says `"joined": false`.
const JOIN_WAIT_MS: u64 = 3_000;

/// How long a stop waits for the calls under way, in milliseconds.
const LEAVE_MS: u64 = 5_000;

/// How often an idle connection of a caller is pinged, and how long the answer may take, in milliseconds.
const KEEP_ALIVE_MS: u64 = 10_000;

/// The most calls at a time on one connection.
const MAX_CONCURRENT_STREAMS: u32 = 256;

/// Run a ledger, the demo participant.
#[derive(clap::Args)]
#[command(after_help = "\
It dials the coordinator, joins under its name, and comes again by itself when the coordinator was away. When it is ready it
prints one line on stdout: {\"ready\":true,\"listen\":\"127.0.0.1:7410\",\"joined\":true,...}; `joined` is false if the
coordinator was not reached within 3 s. SIGTERM and SIGINT stop it; what is prepared stays prepared.

Exit codes: 0 stopped; 2 a wrong argument or a directory of something else or in memory; 5 not allowed; 6 the port or the directory is in
use, or the directory has a newer format; 70 the log is damaged or cannot be made durable.

Examples:
  covenant ledger --name ledger-a --data-dir data/a --open alice=500000:THB
  covenant ledger --name ledger-b --data-dir data/b --listen 127.0.0.1:7411 --open bob=0:THB --open carol=0:THB")]
pub(crate) struct Args {
    /// The name under which it joins; the same for the life of its data.
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Name,
    /// The directory of its journal; made if there is none. It must be on a disk (not tmpfs).
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The coordinator to join, as http://HOST:PORT.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7400")]
    coordinator: String,
    /// The address to listen on; port 0 takes a free one and says which in the ready line.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7410)))]
    listen: SocketAddr,
    /// Open an account with an amount in minor units, unless it is there, e.g. alice=500000:THB; may be given many times.
    #[arg(long, value_name = "NAME=AMOUNT:CURRENCY")]
    open: Vec<OpenSpec>,
    /// Write a checkpoint of the journal after this many records, so that the next start replays no more than those.
    #[arg(long, value_name = "N", default_value_t = CHECKPOINT_RECORDS, value_parser = clap::value_parser!(u64).range(1..))]
    checkpoint_records: u64,
    /// For tests: abort the process at a crash point of PROTOCOL.md, section 9.
    #[arg(long, value_name = "NAME[:TRANSACTION_ID]", hide = true)]
    crash_at: Vec<String>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    stop: StopArgs,
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|why| why.to_string())
}

/// What the ready line says of a ledger.
#[derive(Serialize)]
struct About {
    listen: SocketAddr,
    name: String,
    lineage: String,
    incarnation: u64,
    /// Branches in doubt when the replay was over, before any joining.
    in_doubt: usize,
    joined: bool,
    /// Why it has not joined; null if it has.
    away: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    Link::new(&args.coordinator)
        .map_err(|error| Failure::usage("COORDINATOR", format!("--coordinator: {error}")))?;
    let crash = servers::crash_plan(&args.crash_at, args.listen)?
        .of_side(Side::Participant)
        .map_err(|error| Failure::usage("CRASH_AT", format!("--crash-at: {error}")))?;
    args.log.start()?;
    let stop = args.stop.start()?;
    let listener = servers::bind(args.listen).await?;
    let listen = listener.local_addr().unwrap_or(args.listen);
    let bound = Duration::from_millis(LEAVE_MS);
    let server = async {
        let ledger = open(&args, crash.clone()).await?;
        let in_doubt = ledger
            .in_doubt()
            .await
            .map_err(|error| participant_failure(&error))?
            .len();
        let config = Config {
            crash,
            ..Config::new(args.name.clone(), &args.coordinator)
        };
        let handle = Participant::start(config, Arc::new(ledger.clone()))
            .await
            .map_err(|error| participant_failure(&error))?;
        let about = |away: Option<String>| About {
            listen,
            name: args.name.to_string(),
            lineage: ledger.lineage().to_string(),
            incarnation: ledger.incarnation().counter,
            in_doubt,
            joined: away.is_none(),
            away,
        };
        let grpc = Server::builder()
            .max_concurrent_streams(Some(MAX_CONCURRENT_STREAMS))
            .http2_keepalive_interval(Some(Duration::from_millis(KEEP_ALIVE_MS)))
            .http2_keepalive_timeout(Some(Duration::from_millis(KEEP_ALIVE_MS)))
            .add_service(LedgerServiceServer::new(LedgerService::new(ledger.clone())))
            .serve_with_incoming_shutdown(metered::incoming(listener), stop.clone().wait());
        let ready = async { servers::print_ready(about(wait_joined(&handle).await)) };
        run_until(stop.clone(), &handle, ready, grpc).await?;
        close(ledger).await;
        Ok(())
    };
    stop.clone().bounded(bound, server).await
}

/// Opens the journal, replays it, and opens the accounts that are not there.
async fn open(args: &Args, crash: covenant_fault::CrashPlan) -> Result<Ledger, Failure> {
    let options = Options {
        name: Some(args.name.clone()),
        crash,
        checkpoint_records: args.checkpoint_records,
        ..Options::default()
    };
    let ledger = Ledger::open(&args.data_dir, options)
        .await
        .map_err(|error| failure(&error))?;
    for spec in &args.open {
        let (_, opened) = ledger.open_account(spec).await.map_err(|error| failure(&error))?;
        tracing::info!(account = %spec.account, opened, "account");
    }
    Ok(ledger)
}

/// Waits for the first joining; why there was none in time.
async fn wait_joined(handle: &Handle) -> Option<String> {
    let mut joined = handle.joined();
    let wait = joined.wait_for(JoinState::is_joined);
    if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(JOIN_WAIT_MS), wait).await {
        return None;
    }
    let reason = match &*joined.borrow() {
        JoinState::Away { reason } => reason.as_deref().unwrap_or("not reached yet").to_owned(),
        JoinState::Joined { .. } => return None,
    };
    tracing::warn!(reason, "not joined; it goes on trying");
    Some(reason)
}

/// Forces what was appended lazily. Correctness does not depend on it; the next replay is shorter.
async fn close(ledger: Ledger) {
    let closing =
        tokio::task::spawn_blocking(move || ledger.close().map_err(|error| servers::one_line(&error)));
    match closing.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("{error}"),
        Err(error) => tracing::warn!("{}", servers::one_line(&error)),
    }
}

/// Serves until a signal comes, then leaves the session; a participant that ends by itself is a fault.
async fn run_until(
    stop: Stop,
    handle: &Handle,
    ready: impl Future<Output = Result<(), Failure>>,
    grpc: impl Future<Output = Result<(), tonic::transport::Error>>,
) -> Result<(), Failure> {
    let serving = async {
        let (ready, grpc) = tokio::join!(ready, grpc);
        ready?;
        grpc.map_err(|error| Failure::internal("LEDGER", servers::one_line(&error)))
    };
    tokio::select! {
        ended = serving => ended?,
        () = stop.wait() => {}
        () = handle.ended() => {
            return Err(Failure::internal("PARTICIPANT", "the participant's driver ended; start the ledger again"));
        }
    }
    if let Err(error) = handle.shutdown(Duration::from_millis(LEAVE_MS)).await {
        tracing::warn!("{}", servers::one_line(&error));
    }
    Ok(())
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Journal(error) => servers::journal_failure(error),
        Error::OtherName { .. } => Failure::usage("DATA_DIRECTORY", servers::one_line(error)),
        Error::Open(error) => Failure::new(Exit::WrongState, "OPEN_ACCOUNT", format!("--open: {error}")),
        other => Failure::internal("LEDGER", servers::one_line(other)),
    }
}

fn participant_failure(error: &covenant_participant::Error) -> Failure {
    let message = servers::one_line(error);
    match error {
        covenant_participant::Error::Address { .. } => Failure::usage("COORDINATOR", message),
        _ => Failure::internal("PARTICIPANT", message),
    }
}
