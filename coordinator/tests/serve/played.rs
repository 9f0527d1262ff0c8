//! A coordinator in this process, participants played by hand, and the calls of a caller.

use std::path::Path;
use std::time::{Duration, SystemTime};

use covenant_coordinator::{Config, Ready, serve};
use covenant_fault::CrashPlan;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{
    Ack, Branch, CoordinatorMessage, ExecuteRequest, GetTransactionRequest, Hello, Incarnation, JoinRequest,
    JoinResponse, Lineage, NoReason, Outcome, ParticipantMessage, Transaction, Vote, VoteKind, Wait, Xid,
    coordinator_message, participant_message,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A checkpoint is taken after so many records.
pub(crate) const CHECKPOINT_RECORDS: u64 = 40;

pub(crate) struct Coordinator {
    pub(crate) address: String,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<Result<(), covenant_coordinator::Error>>,
    pub(crate) ready: Ready,
}

impl Coordinator {
    pub(crate) async fn start(dir: &Path) -> Self {
        let mut config = Config {
            data_dir: dir.to_owned(),
            ..Config::default()
        };
        config.log.checkpoint_records = CHECKPOINT_RECORDS;
        config.sessions.drain_ms = 100;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (ready, is_ready) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = serve(
            config,
            listener,
            CrashPlan::default(),
            |r| ready.send(r).unwrap(),
            async {
                let _ = stopped.await;
            },
        );
        let ended = tokio::spawn(server);
        let ready: Ready = tokio::time::timeout(PATIENCE, is_ready).await.unwrap().unwrap();
        Self {
            address: format!("http://{}", ready.listen),
            stop,
            ended,
            ready,
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.ended)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    pub(crate) async fn caller(&self) -> TransactionServiceClient<Channel> {
        TransactionServiceClient::connect(self.address.clone())
            .await
            .unwrap()
    }
}

/// A participant played by hand.
pub(crate) struct Played {
    pub(crate) out: mpsc::Sender<JoinRequest>,
    pub(crate) frames: Streaming<JoinResponse>,
    waiting: Vec<CoordinatorMessage>,
}

impl Played {
    pub(crate) async fn join(address: &str, name: &str, connection: u64) -> Self {
        let mut client = ParticipantServiceClient::connect(address.to_owned())
            .await
            .unwrap();
        let (out, requests) = mpsc::channel(64);
        let hello = Hello {
            protocol_versions: vec![1],
            name: name.to_owned(),
            lineage: Some(Lineage {
                high: 1,
                low: name.len() as u64,
            }),
            incarnation: Some(Incarnation { counter: 1, bits: 1 }),
            connection,
            positions: Vec::new(),
        };
        out.send(JoinRequest {
            hello: Some(hello),
            messages: Vec::new(),
        })
        .await
        .unwrap();
        let mut frames = client
            .join(ReceiverStream::new(requests))
            .await
            .unwrap()
            .into_inner();
        let first = frames.message().await.unwrap().unwrap();
        assert!(first.welcome.is_some());
        Self {
            out,
            frames,
            waiting: first.messages,
        }
    }

    pub(crate) async fn next(&mut self) -> (Xid, coordinator_message::Content) {
        while self.waiting.is_empty() {
            let frame = tokio::time::timeout(PATIENCE, self.frames.message())
                .await
                .unwrap();
            self.waiting = frame.unwrap().unwrap().messages;
        }
        let message = self.waiting.remove(0);
        (message.xid.unwrap(), message.content.unwrap())
    }

    pub(crate) async fn expect_prepare(&mut self) -> Xid {
        let (xid, content) = self.next().await;
        assert!(
            matches!(content, coordinator_message::Content::Prepare(_)),
            "{content:?}"
        );
        xid
    }

    pub(crate) async fn expect_commit(&mut self) -> Xid {
        let (xid, content) = self.next().await;
        assert!(
            matches!(content, coordinator_message::Content::Commit(_)),
            "{content:?}"
        );
        xid
    }

    pub(crate) async fn say(&self, xid: Xid, content: participant_message::Content) {
        let message = ParticipantMessage {
            xid: Some(xid),
            content: Some(content),
        };
        self.out
            .send(JoinRequest {
                hello: None,
                messages: vec![message],
            })
            .await
            .unwrap();
    }

    pub(crate) async fn vote(&self, xid: Xid, kind: VoteKind) {
        let no = NoReason {
            code: "NOT_TODAY".to_owned(),
            detail: "closed".to_owned(),
        };
        let reason = (kind == VoteKind::No).then_some(no);
        self.say(
            xid,
            participant_message::Content::Vote(Vote {
                kind: kind.into(),
                reason,
            }),
        )
        .await;
    }

    pub(crate) async fn ack(&self, xid: Xid) {
        self.say(xid, participant_message::Content::Ack(Ack {})).await;
    }
}

pub(crate) fn request(id: &str, participants: &[&str], operation: &str) -> ExecuteRequest {
    ExecuteRequest {
        transaction_id: id.to_owned(),
        created: Some(SystemTime::now().into()),
        branches: participants
            .iter()
            .map(|name| Branch {
                participant: (*name).to_owned(),
                operation: operation.as_bytes().to_vec().into(),
            })
            .collect(),
        timeout: None,
        wait: Wait::Decided.into(),
    }
}

pub(crate) async fn run(
    mut caller: TransactionServiceClient<Channel>,
    request: ExecuteRequest,
) -> Transaction {
    caller
        .execute(request)
        .await
        .unwrap()
        .into_inner()
        .transaction
        .unwrap()
}

pub(crate) async fn get(caller: &mut TransactionServiceClient<Channel>, id: &str) -> Transaction {
    let request = GetTransactionRequest {
        transaction_id: id.to_owned(),
        created: None,
    };
    caller
        .get_transaction(request)
        .await
        .unwrap()
        .into_inner()
        .transaction
        .unwrap()
}

/// Runs one transaction of one branch to its end.
pub(crate) async fn commit_one(coordinator: &Coordinator, played: &mut Played, name: &str, id: &str) {
    let answer = tokio::spawn(run(coordinator.caller().await, request(id, &[name], "x")));
    let xid = played.expect_prepare().await;
    played.vote(xid, VoteKind::Yes).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Committed);
    assert_eq!(played.expect_commit().await, xid);
    played.ack(xid).await;
}
