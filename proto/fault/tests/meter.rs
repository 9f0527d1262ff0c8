//! The meter over a real connection of tonic, both ends: at every frame it stands exactly at the sum of the frames
//! that were handed over. That the kernel's peer has read them it does not show.

use std::pin::Pin;
use std::sync::Arc;

use covenant_fault::metered::{self, Meter, MeterInfo, MeteredConnector, MeteredStream, frame_bytes};
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::participant_service_server::{ParticipantService, ParticipantServiceServer};
use covenant_proto::v1::{
    CoordinatorMessage, JoinRequest, JoinResponse, NoReason, ParticipantMessage, Prepare, Vote,
    coordinator_message, participant_message,
};
use futures_util::Stream;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// Below, at and above the lengths at which HTTP/2 begins another DATA frame (16 KiB) and its window ends (64 KiB).
const PAYLOAD_BYTES: [usize; 9] = [0, 1, 38, 16_300, 16_384, 16_390, 60_000, 70_000, 900_000];

/// Echoes each frame of a participant as a frame with a payload of the same size, and says what its meter shows.
struct Echo {
    meters: mpsc::UnboundedSender<(Arc<Meter>, u64)>,
}

#[tonic::async_trait]
impl ParticipantService for Echo {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<JoinResponse, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<JoinRequest>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let Some(info) = request.extensions().get::<MeterInfo>().cloned() else {
            return Err(Status::internal("the request carries no MeterInfo"));
        };
        assert!(info.remote.is_some_and(|remote| remote.ip().is_loopback()));
        let mut requests = request.into_inner();
        let meters = self.meters.clone();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut handed_over = 0;
            while let Some(request) = requests.message().await? {
                let response = coordinator_frame(request.encoded_len());
                handed_over += frame_bytes(response.encoded_len());
                if sender.send(Ok(response)).await.is_err() {
                    break;
                }
                assert!(info.meter.wait_data_written(handed_over).await);
                assert!(meters.send((Arc::clone(&info.meter), handed_over)).is_ok());
            }
            Ok::<_, Status>(())
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

fn coordinator_frame(payload_bytes: usize) -> JoinResponse {
    let prepare = Prepare {
        transaction_id: String::new(),
        operation: vec![9; payload_bytes].into(),
    };
    let content = Some(coordinator_message::Content::Prepare(prepare));
    JoinResponse {
        messages: vec![CoordinatorMessage { xid: None, content }],
        ..Default::default()
    }
}

fn participant_frame(payload_bytes: usize) -> JoinRequest {
    let reason = NoReason {
        code: String::new(),
        detail: "x".repeat(payload_bytes),
    };
    let content = Some(participant_message::Content::Vote(Vote {
        kind: 2,
        reason: Some(reason),
    }));
    JoinRequest {
        messages: vec![ParticipantMessage { xid: None, content }],
        hello: None,
    }
}

#[tokio::test]
async fn meter_of_a_session_stands_at_the_sum_of_its_frames_on_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (meters, mut reported) = mpsc::unbounded_channel();
    let service = ParticipantServiceServer::new(Echo { meters });
    let server = tokio::spawn(
        Server::builder()
            .add_service(service)
            .serve_with_incoming(metered::incoming(listener)),
    );

    let connector = MeteredConnector::new();
    assert!(connector.meter().is_none());
    let endpoint = Endpoint::from_shared(endpoint).unwrap();
    let channel = endpoint.connect_with_connector(connector.clone()).await.unwrap();
    let meter = connector.meter().unwrap();
    let (sender, receiver) = mpsc::channel(1);
    let mut client = ParticipantServiceClient::new(channel);
    let mut responses = client
        .join(ReceiverStream::new(receiver))
        .await
        .unwrap()
        .into_inner();

    let mut handed_over = 0;
    for payload_bytes in PAYLOAD_BYTES {
        let request = participant_frame(payload_bytes);
        handed_over += frame_bytes(request.encoded_len());
        sender.send(request).await.unwrap();
        assert!(meter.wait_data_written(handed_over).await);
        responses.message().await.unwrap().unwrap();
        assert_eq!(
            meter.data_written(),
            handed_over,
            "client, payload of {payload_bytes}"
        );
        let (server_meter, server_handed_over) = reported.recv().await.unwrap();
        assert_eq!(
            server_meter.data_written(),
            server_handed_over,
            "server, payload of {payload_bytes}"
        );
    }
    server.abort();
}

#[tokio::test]
async fn wait_for_bytes_ends_when_the_connection_is_gone() {
    let (near, far) = tokio::io::duplex(1024);
    let mut stream = MeteredStream::server(near);
    let meter = stream.meter();
    // A DATA frame with 2 bytes, of which one has left.
    stream.write_all(&[0, 0, 2, 0, 0, 0, 0, 0, 1, 7]).await.unwrap();
    assert!(meter.wait_data_written(1).await);
    let waiting = tokio::spawn({
        let meter = Arc::clone(&meter);
        async move { meter.wait_data_written(2).await }
    });
    drop(stream);
    assert!(!waiting.await.unwrap());
    assert!(meter.wait_data_written(1).await, "what has left stays so");
    drop(far);
}
