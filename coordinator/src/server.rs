//! The server: a listener, the services, and the loop behind them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use covenant_fault::CrashPlan;
use covenant_fault::metered;
use covenant_proto::v1::operator_service_server::OperatorServiceServer;
use covenant_proto::v1::participant_service_server::ParticipantServiceServer;
use covenant_proto::v1::transaction_service_server::TransactionServiceServer;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::util::MapRequestLayer;

use crate::connections;
use crate::crash::Crash;
use crate::driver::Driver;
use crate::grpc::{OperatorApi, ParticipantApi, TransactionApi};
use crate::input::{self, Phase};
use crate::receiving::{self, Budget};
use crate::recovery;
use crate::{Config, Error};

/// The most requests of one connection at a time.
const MAX_CONCURRENT_STREAMS: u32 = 8_192;

/// The most bytes of a caller's request that are read: 128 branches with the longest operation, so that a request beyond
/// `MAX_EXECUTE_BYTES` is refused by that name. What is longer still ends as a transport error, which says nothing.
const MAX_REQUEST_BYTES: usize = 128 * (covenant_codec::MAX_OPERATION_BYTES + 1_024);

/// How long connections have to end after the loop did; a silent one may never (hyper).
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// What a server says of itself when it is ready.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// The address it listens on.
    pub listen: SocketAddr,
    /// Its configured name.
    pub name: String,
    /// The lineage of its log.
    pub lineage: String,
    /// The counter of this start.
    pub incarnation: u64,
    /// Records replayed, the checkpoint's among them.
    pub replayed: u64,
    /// Transactions that go on after the replay.
    pub in_progress: usize,
    /// The tail of the log was lost (section 5): nothing new is run, and nothing is presumed.
    pub suspect: bool,
    /// Milliseconds from the call to SERVING.
    pub start_ms: u64,
}

/// Runs a coordinator on the listener until `shutdown` resolves; then refuses new work, finishes what is
/// decided within `sessions.drain_ms`, and returns.
///
/// # Errors
/// [`Error`] for a configuration out of bounds and for a log that does not open; a log that fails later ends
/// the process, because the result of a failed force is not known.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    crash: CrashPlan,
    ready: impl FnOnce(Ready) + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    config.validate()?;
    let started = Instant::now();
    let listen = listener.local_addr().unwrap_or(config.listen);
    let crash = Crash::new(crash)?;
    let (handle, inputs) = input::channel();
    let mut phase = handle.phase.clone();

    // The socket answers at once: while the log is replayed, callers and participants hear "recovering".
    let (stop, stopped) = oneshot::channel::<()>();
    let mut transport = tokio::spawn(transport(config.clone(), listener, handle, stopped)?);

    let mut recovered = {
        let (config, crash) = (config.clone(), crash.clone());
        tokio::task::spawn_blocking(move || recovery::recover(&config, &crash)).await??
    };
    log_start(&recovered);
    let about = Ready {
        listen,
        name: config.name.clone(),
        lineage: recovered.machine.lineage().to_string(),
        incarnation: recovered.machine.incarnation().counter,
        replayed: recovered.replayed,
        in_progress: recovered.machine.fold().open.len(),
        suspect: recovered.machine.is_suspect(),
        start_ms: 0,
    };
    let effects = std::mem::take(&mut recovered.effects);
    let (drain, draining) = oneshot::channel();
    let driver = Driver::new(&config, recovered, crash, inputs);
    let mut driver = tokio::spawn(driver.run(effects, draining));

    let life = async {
        // The loop says Serving when the new incarnation is durable; without it there is no loop any more.
        if phase.wait_for(|phase| *phase != Phase::Recovering).await.is_ok() {
            let start_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
            ready(Ready { start_ms, ..about });
        }
        shutdown.await;
    };
    tokio::select! {
        ended = &mut driver => return ended?,
        ended = &mut transport => return ended?.and(Err(Error::TransportEnded)),
        () = life => {}
    }
    // The loop has not ended, so it listens.
    let _ = drain.send(());
    let result = driver.await?;
    let _ = stop.send(());
    // What does not close in time is cut by the end of the process.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, transport).await;
    result
}

fn transport(
    config: Config,
    listener: TcpListener,
    handle: input::Handle,
    stopped: oneshot::Receiver<()>,
) -> Result<impl Future<Output = Result<(), Error>> + Send, Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = |builder: tonic_reflection::server::Builder<'static>| {
        builder
            .register_encoded_file_descriptor_set(covenant_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection_v1 = reflection(tonic_reflection::server::Builder::configure()).build_v1()?;
    let reflection_v1alpha = reflection(tonic_reflection::server::Builder::configure()).build_v1alpha()?;
    let phase = handle.phase.clone();
    let defaults = crate::grpc::Defaults {
        limits: Arc::new(config.limits()),
    };
    let frame_bytes = covenant_codec::MAX_FRAME_BYTES;
    let budget = Budget::new(receiving::MAX_UNFINISHED_BYTES, receiving::MESSAGE_TIMEOUT);
    let router = Server::builder()
        .layer(MapRequestLayer::new(move |request: http::Request<Body>| {
            request.map(|body| budget.bound(body))
        }))
        .http2_keepalive_interval(Some(Duration::from_millis(
            config.sessions.keep_alive_interval_ms,
        )))
        .http2_keepalive_timeout(Some(Duration::from_millis(config.sessions.keep_alive_timeout_ms)))
        .max_concurrent_streams(Some(MAX_CONCURRENT_STREAMS))
        .add_service(health)
        .add_service(reflection_v1)
        .add_service(reflection_v1alpha)
        .add_service(
            TransactionServiceServer::new(TransactionApi::new(handle.clone(), defaults))
                .max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(
            ParticipantServiceServer::new(ParticipantApi::new(handle.clone(), &config.limits()))
                .max_decoding_message_size(frame_bytes)
                .max_encoding_message_size(2 * frame_bytes),
        )
        .add_service(OperatorServiceServer::new(OperatorApi::new(handle)));
    Ok(async move {
        // Before the first connection is taken: the reporter itself begins with SERVING.
        set_health(&reporter, ServingStatus::NotServing).await;
        let health = tokio::spawn(report_health(reporter, phase));
        let stopped = async {
            // A sender that is gone means the same: stop.
            let _ = stopped.await;
        };
        let connections = connections::bounded(
            metered::incoming(listener),
            connections::MAX_CONNECTIONS,
            connections::PREFACE_TIMEOUT,
        );
        let result = router.serve_with_incoming_shutdown(connections, stopped).await;
        health.abort();
        Ok(result?)
    })
}

/// SERVING from the end of the replay on, as long as the log is not SUSPECT and no drain began.
async fn report_health(reporter: HealthReporter, mut phase: watch::Receiver<Phase>) {
    while phase.changed().await.is_ok() {
        let status = match *phase.borrow_and_update() {
            Phase::Serving => ServingStatus::Serving,
            Phase::Recovering | Phase::Suspect | Phase::Draining => ServingStatus::NotServing,
        };
        set_health(&reporter, status).await;
    }
}

async fn set_health(reporter: &HealthReporter, status: ServingStatus) {
    for service in [
        "",
        "covenant.v1.TransactionService",
        "covenant.v1.ParticipantService",
        "covenant.v1.OperatorService",
    ] {
        reporter.set_service_status(service, status).await;
    }
}

fn log_start(recovered: &recovery::Recovered) {
    tracing::info!(
        replayed = recovered.replayed,
        checkpoint = recovered.checkpoint,
        open = recovered.machine.fold().open.len(),
        quarantined = recovered.machine.fold().quarantined.len(),
        quarantined_outcomes = recovered.archive.damage().len(),
        snapshots_removed = recovered.report.snapshots_removed,
        pages_dropped = recovered.report.pages_dropped,
        drop_attempts = recovered.report.drop_attempts,
        "replayed the log"
    );
    if recovered.machine.is_suspect() {
        tracing::error!(
            "the log is SUSPECT: records that were forced in it are gone. Decisions that are still there are carried out; \
             nothing new is run, and every other question is answered UNKNOWN. Keep the data directory, copy it, and \
             restore the log from where it is whole; until then this coordinator is not SERVING"
        );
    }
}
