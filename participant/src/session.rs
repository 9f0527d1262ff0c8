//! One session with a coordinator: dialled, joined and welcomed (section 8), then two streams of frames.
//!
//! A session is one connection with one `Join` stream, so a session that is dropped takes its frames with it:
//! none of a replaced session can reach the machine. What is not here: when to dial, and what frames mean.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use covenant_codec::frame;
use covenant_codec::{FRAME_OVERHEAD_BYTES, MAX_FRAME_BYTES, frame::Welcome};
use covenant_fault::metered::{Meter, MeteredConnector, frame_bytes};
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{JoinRequest, JoinResponse};
use covenant_rules::participant::Event;
use covenant_rules::{Hello, ToCoordinator};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::PollSender;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::Error;
use crate::config::{DIAL_TIMEOUT_MS, OUTGOING_FRAMES};

/// A session that is up.
pub(crate) struct Session {
    pub(crate) welcome: Welcome,
    /// The frame that brought the Welcome: it may carry more.
    pub(crate) first: Option<JoinResponse>,
    pub(crate) inbound: Streaming<JoinResponse>,
    pub(crate) outbound: PollSender<JoinRequest>,
    pub(crate) since: Instant,
    meter: Option<Arc<Meter>>,
    /// Bytes of frames given to the connection since it began.
    handed_over: u64,
}

/// Connects, says Hello and waits for Welcome, all within [`DIAL_TIMEOUT_MS`].
pub(crate) async fn dial(endpoint: Endpoint, hello: Hello) -> Result<Session, Error> {
    let timeout = Duration::from_millis(DIAL_TIMEOUT_MS);
    match tokio::time::timeout(timeout, join(endpoint, hello)).await {
        Ok(joined) => joined,
        Err(_) => Err(Error::Welcome(DIAL_TIMEOUT_MS)),
    }
}

async fn join(endpoint: Endpoint, hello: Hello) -> Result<Session, Error> {
    let connector = MeteredConnector::new();
    let channel = endpoint
        .connect_with_connector(connector.clone())
        .await
        .map_err(Error::Connect)?;
    let (outbound, frames) = mpsc::channel(OUTGOING_FRAMES);
    let mut outbound = PollSender::new(outbound);
    let hello = JoinRequest {
        hello: Some(frame::hello(&hello)),
        messages: Vec::new(),
    };
    let handed_over = frame_bytes(hello.encoded_len());
    std::future::poll_fn(|cx| outbound.poll_reserve(cx))
        .await
        .map_err(|_| Error::Ended)?;
    outbound.send_item(hello).map_err(|_| Error::Ended)?;
    let mut client = ParticipantServiceClient::new(channel)
        .max_decoding_message_size(MAX_FRAME_BYTES)
        .max_encoding_message_size(MAX_FRAME_BYTES);
    let mut inbound = client
        .join(ReceiverStream::new(frames))
        .await
        .map_err(Error::Status)?
        .into_inner();
    let first = inbound
        .message()
        .await
        .map_err(Error::Status)?
        .ok_or(Error::Ended)?;
    let welcome = first.welcome.as_ref().ok_or(Error::NoWelcome)?;
    let welcome = frame::from_welcome(welcome).map_err(Error::Frame)?;
    let meter = connector.meter();
    Ok(Session {
        welcome,
        first: Some(first),
        inbound,
        outbound,
        since: Instant::now(),
        meter,
        handed_over,
    })
}

impl Session {
    /// Gives a frame to the connection; its place was reserved.
    pub(crate) fn send(&mut self, frame: JoinRequest) -> Result<(), Error> {
        self.handed_over += frame_bytes(frame.encoded_len());
        self.outbound.send_item(frame).map_err(|_| Error::Ended)
    }

    /// Takes the messages of one frame off the queue: those that fit, and none after one that `ends` it.
    /// Says whether one did.
    pub(crate) fn cut(
        &self,
        queue: &mut VecDeque<ToCoordinator>,
        mut ends: impl FnMut(&ToCoordinator) -> bool,
    ) -> (JoinRequest, bool) {
        let taken_there = usize::try_from(self.welcome.max_frame_bytes).unwrap_or(MAX_FRAME_BYTES);
        let bound = MAX_FRAME_BYTES.min(taken_there);
        let mut bytes = FRAME_OVERHEAD_BYTES;
        let mut messages = Vec::with_capacity(queue.len().min(bound / FRAME_OVERHEAD_BYTES));
        while let Some(message) = queue.front() {
            bytes += frame::to_coordinator_bytes(message);
            if bytes > bound && !messages.is_empty() {
                break;
            }
            messages.push(frame::to_coordinator(message));
            let ended = ends(message);
            queue.pop_front();
            if ended {
                return (
                    JoinRequest {
                        hello: None,
                        messages,
                    },
                    true,
                );
            }
        }
        (
            JoinRequest {
                hello: None,
                messages,
            },
            false,
        )
    }

    /// Completes when every frame given to the connection has left through its socket, or the socket is gone.
    pub(crate) fn left_the_socket(&self) -> impl Future<Output = ()> + Send + use<> {
        let (meter, bytes) = (self.meter.clone(), self.handed_over);
        async move {
            if let Some(meter) = meter {
                meter.wait_data_written(bytes).await;
            }
        }
    }
}

/// A frame as the machine takes it. It is read from the one stream that its session's Welcome came on, so its floor and
/// its position are those of the lineage that the Welcome named, and can be no other coordinator's.
pub(crate) fn event(frame: JoinResponse) -> Result<Event, Error> {
    let messages = frame
        .messages
        .into_iter()
        .map(frame::from_coordinator)
        .collect::<Result<_, _>>()
        .map_err(Error::Frame)?;
    let floor = frame.floor.map(covenant_codec::ids::from_floor);
    Ok(Event::Frame {
        messages,
        floor,
        position: frame.position,
    })
}
