//! A coordinator that is a script: it welcomes or refuses, and the test says every frame.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use covenant_codec::frame::{self, Welcome};
use covenant_fault::metered::incoming;
use covenant_participant::rules::{
    Hello, Incarnation, Lineage, Name, ToCoordinator, ToParticipant, TransactionId, Xid,
};
use covenant_participant::{Config, Handle, Participant, Resource};
use covenant_proto::v1::participant_service_server::{ParticipantService, ParticipantServiceServer};
use covenant_proto::v1::{JoinRequest, JoinResponse};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const HOME: Lineage = Lineage(42);
pub(crate) const START: Incarnation = Incarnation { counter: 3, bits: 33 };

pub(crate) fn xid(seq: u64) -> Xid {
    Xid {
        lineage: HOME,
        incarnation: START,
        seq,
    }
}

pub(crate) fn prepare(seq: u64, operation: &str) -> ToParticipant {
    let transaction_id = TransactionId::new(&format!("T{seq}")).unwrap();
    ToParticipant::Prepare {
        xid: xid(seq),
        transaction_id,
        operation: operation.as_bytes().into(),
    }
}

type Frames = Pin<Box<dyn futures_util::Stream<Item = Result<JoinResponse, Status>> + Send>>;

/// A refusal that stands until the test takes it back, and the sessions that were welcomed.
#[derive(Clone)]
struct Script {
    refusal: Arc<Mutex<Option<Status>>>,
    /// What is said instead of a Welcome, if anything is.
    first: Arc<Mutex<Option<JoinResponse>>>,
    dials: Arc<Mutex<Vec<std::time::Instant>>>,
    sessions: mpsc::Sender<Session>,
}

#[tonic::async_trait]
impl ParticipantService for Script {
    type JoinStream = Frames;

    async fn join(&self, request: Request<Streaming<JoinRequest>>) -> Result<Response<Frames>, Status> {
        self.dials.lock().unwrap().push(std::time::Instant::now());
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let mut inbound = request.into_inner();
        let first = inbound
            .message()
            .await?
            .ok_or_else(|| Status::invalid_argument("no Hello"))?;
        let (hello, version) = frame::from_hello(&first.hello.unwrap()).unwrap();
        let (outbound, frames) = mpsc::channel(64);
        let welcome = Welcome {
            version,
            lineage: HOME,
            incarnation: START,
            max_frame_bytes: 1 << 20,
        };
        let welcome = JoinResponse {
            welcome: Some(frame::welcome(&welcome)),
            ..JoinResponse::default()
        };
        let welcome = self.first.lock().unwrap().clone().unwrap_or(welcome);
        outbound.send(Ok(welcome)).await.unwrap();
        let session = Session {
            hello,
            inbound,
            outbound,
            waiting: VecDeque::new(),
        };
        self.sessions
            .send(session)
            .await
            .map_err(|_| Status::cancelled("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }
}

/// The coordinator's end of one session.
pub(crate) struct Session {
    pub(crate) hello: Hello,
    inbound: Streaming<JoinRequest>,
    outbound: mpsc::Sender<Result<JoinResponse, Status>>,
    waiting: VecDeque<ToCoordinator>,
}

impl Session {
    /// Sends one frame.
    pub(crate) async fn send(&mut self, messages: &[ToParticipant]) {
        let messages = messages.iter().map(frame::to_participant).collect();
        self.send_raw(JoinResponse {
            messages,
            position: 5,
            ..JoinResponse::default()
        })
        .await;
    }

    /// Sends one frame, unless the session is gone.
    pub(crate) async fn try_send(&mut self, messages: &[ToParticipant]) -> bool {
        let messages = messages.iter().map(frame::to_participant).collect();
        self.outbound
            .send(Ok(JoinResponse {
                messages,
                ..JoinResponse::default()
            }))
            .await
            .is_ok()
    }

    pub(crate) async fn send_raw(&mut self, frame: JoinResponse) {
        self.outbound.send(Ok(frame)).await.unwrap();
    }

    /// The next frame of the participant, as bytes would carry it.
    pub(crate) async fn next_frame(&mut self) -> JoinRequest {
        let frame = timeout(PATIENCE, self.inbound.message())
            .await
            .expect("the participant is silent");
        frame.unwrap().expect("the participant ended the session")
    }

    /// The next message of the participant.
    pub(crate) async fn next(&mut self) -> ToCoordinator {
        while self.waiting.is_empty() {
            let frame = self.next_frame().await;
            self.waiting = frame
                .messages
                .into_iter()
                .map(|m| frame::from_participant(m).unwrap())
                .collect();
        }
        self.waiting.pop_front().unwrap()
    }

    /// Every message until the session is gone.
    pub(crate) async fn rest(&mut self) -> Vec<ToCoordinator> {
        let mut said = Vec::from(std::mem::take(&mut self.waiting));
        let end = async {
            while let Ok(Some(frame)) = self.inbound.message().await {
                said.extend(
                    frame
                        .messages
                        .into_iter()
                        .map(|m| frame::from_participant(m).unwrap()),
                );
            }
        };
        timeout(PATIENCE, end).await.expect("the participant goes on");
        said
    }

    /// Completes when the participant has ended its side or the connection is gone.
    pub(crate) async fn ended(&mut self) {
        let end = async { while let Ok(Some(_)) = self.inbound.message().await {} };
        timeout(PATIENCE, end).await.expect("the participant goes on");
    }
}

/// The scripted coordinator.
pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    script: Script,
    sessions: mpsc::Receiver<Session>,
}

impl Coordinator {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, sessions) = mpsc::channel(8);
        let script = Script {
            refusal: Arc::default(),
            first: Arc::default(),
            dials: Arc::default(),
            sessions: sender,
        };
        let service = ParticipantServiceServer::new(script.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(incoming(listener)));
        Self {
            address,
            script,
            sessions,
        }
    }

    /// From here on dials are refused so, or welcomed again.
    pub(crate) fn refuse(&self, refusal: Option<Status>) {
        *self.script.refusal.lock().unwrap() = refusal;
    }

    /// From here on this is said instead of a Welcome, or a Welcome again.
    pub(crate) fn say_first(&self, frame: Option<JoinResponse>) {
        *self.script.first.lock().unwrap() = frame;
    }

    /// When each dial came.
    pub(crate) fn dials(&self) -> Vec<std::time::Instant> {
        self.script.dials.lock().unwrap().clone()
    }

    /// The next session that is welcomed.
    pub(crate) async fn session(&mut self) -> Session {
        timeout(PATIENCE, self.sessions.recv())
            .await
            .expect("nobody joins")
            .unwrap()
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(Name::new("shelf-1").unwrap(), &format!("http://{}", self.address))
    }

    pub(crate) async fn join<R: Resource>(&mut self, resource: &Arc<R>) -> (Handle, Session) {
        let handle = Participant::start(self.config(), Arc::clone(resource))
            .await
            .unwrap();
        let session = self.session().await;
        (handle, session)
    }
}
