//! The floor's ledger: forces, votes, forces, acknowledges.

use std::collections::VecDeque;

use covenant_codec::MAX_FRAME_BYTES;
use covenant_fault::metered::MeteredConnector;
use covenant_journal::{Force, Records};
use covenant_proto::v1::coordinator_message::Content as FromCoordinator;
use covenant_proto::v1::participant_message::Content;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{
    Ack, CoordinatorMessage, Hello, Incarnation, JoinRequest, JoinResponse, Lineage, ParticipantMessage,
    Vote, VoteKind,
};
use futures_util::stream;
use tokio::sync::mpsc;
use tonic::transport::Endpoint;

use super::super::forced_log::ForcedLog;
use super::{Shapes, failed, push};
use crate::exit::Failure;
use crate::servers;

/// The frames that may wait for the connection.
const OUTGOING_FRAMES: usize = 64;

/// What is sent when its record is durable, in the order of the records.
struct Owed {
    lsn: u64,
    message: ParticipantMessage,
}

pub(super) async fn run(
    name: &str,
    coordinator: &str,
    log: ForcedLog,
    shapes: Shapes,
) -> Result<(), Failure> {
    let endpoint = Endpoint::from_shared(coordinator.to_owned()).map_err(|error| failed(&error))?;
    let channel = endpoint
        .tcp_nodelay(true)
        .connect_with_connector(MeteredConnector::new())
        .await
        .map_err(|error| failed(&error))?;
    let (frames, outgoing) = mpsc::channel::<JoinRequest>(OUTGOING_FRAMES);
    let outgoing = stream::unfold(outgoing, async |mut outgoing| {
        let frame = outgoing.recv().await?;
        Some((frame, outgoing))
    });
    frames.send(hello(name)).await.map_err(|error| failed(&error))?;
    let mut incoming = ParticipantServiceClient::new(channel)
        .max_decoding_message_size(MAX_FRAME_BYTES)
        .join(outgoing)
        .await
        .map_err(|error| failed(&error))?
        .into_inner();
    let mut durable = log.durable();
    let (mut owed, mut records) = (VecDeque::new(), Records::new());
    loop {
        tokio::select! {
            changed = durable.changed() => {
                changed.map_err(|error| failed(&error))?;
                let lsn = *durable.borrow_and_update();
                let messages = due(&mut owed, lsn);
                if !messages.is_empty() {
                    let frame = JoinRequest { hello: None, messages };
                    frames.send(frame).await.map_err(|error| failed(&error))?;
                }
            }
            frame = incoming.message() => {
                let Some(frame) = frame.map_err(|error| failed(&error))? else { return Ok(()) };
                if frame.welcome.is_some() {
                    servers::print_ready(serde_json::json!({ "listen": "" }))?;
                }
                take(frame, &log, shapes, &mut records, &mut owed)?;
            }
        }
    }
}

fn hello(name: &str) -> JoinRequest {
    let hello = Hello {
        protocol_versions: vec![covenant_codec::PROTOCOL_VERSION],
        name: name.to_owned(),
        lineage: Some(Lineage { high: 1, low: 1 }),
        incarnation: Some(Incarnation { counter: 1, bits: 1 }),
        connection: 1,
        positions: Vec::new(),
    };
    JoinRequest {
        hello: Some(hello),
        messages: Vec::new(),
    }
}

fn due(owed: &mut VecDeque<Owed>, lsn: u64) -> Vec<ParticipantMessage> {
    let count = owed.partition_point(|owed| owed.lsn <= lsn);
    owed.drain(..count).map(|owed| owed.message).collect()
}

/// Appends what a frame asks for, as one batch, and notes what is owed for it.
fn take(
    frame: JoinResponse,
    log: &ForcedLog,
    shapes: Shapes,
    records: &mut Records,
    owed: &mut VecDeque<Owed>,
) -> Result<(), Failure> {
    records.clear();
    let mut messages = Vec::with_capacity(frame.messages.len());
    for CoordinatorMessage { xid, content } in frame.messages {
        let xid = xid.ok_or_else(|| Failure::internal("FLOOR", "a message has no xid"))?;
        let content = match content {
            Some(FromCoordinator::Prepare(prepare)) => {
                push(records, xid, &prepare.transaction_id, Force::Now, shapes.forced);
                Content::Vote(Vote {
                    kind: VoteKind::Yes.into(),
                    reason: None,
                })
            }
            Some(FromCoordinator::Commit(_)) => {
                // The real record carries the id again, which is not at hand here: its bytes are among the payload's.
                push(records, xid, "", Force::Lazy, shapes.lazy);
                Content::Ack(Ack {})
            }
            other => {
                return Err(Failure::internal(
                    "FLOOR",
                    format!("the floor does not know {other:?}"),
                ));
            }
        };
        messages.push(ParticipantMessage {
            xid: Some(xid),
            content: Some(content),
        });
    }
    if records.is_empty() {
        return Ok(());
    }
    let first = log.append(records) + 1 - records.len() as u64;
    let numbered = messages.into_iter().zip(first..);
    owed.extend(numbered.map(|(message, lsn)| Owed { lsn, message }));
    Ok(())
}
