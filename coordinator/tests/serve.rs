//! The server in this process against participants played by hand over real gRPC.
//!
//! Shows the whole way of a transaction through loop, log and sessions, restarts among them. Cannot show:
//! what a kill or a power cut does (the process stays), nor the forcing (tests/ does, under strace).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, SystemTime};

use covenant_coordinator::{Config, Ready, serve};
use covenant_fault::CrashPlan;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{
    Ack, Branch, CoordinatorMessage, ExecuteRequest, GetTransactionRequest, Hello, Incarnation, Inquiry,
    JoinRequest, JoinResponse, Lineage, ListTransactionsRequest, NoReason, Outcome, ParticipantMessage,
    StateFilter, Transaction, Vote, VoteKind, Wait, Xid, coordinator_message, participant_message,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_types::StatusExt;

const PATIENCE: Duration = Duration::from_secs(20);

struct Coordinator {
    address: String,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<Result<(), covenant_coordinator::Error>>,
    ready: Ready,
}

impl Coordinator {
    async fn start(dir: &Path) -> Self {
        let mut config = Config {
            data_dir: dir.to_owned(),
            ..Config::default()
        };
        config.log.checkpoint_records = 40;
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

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.ended)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    async fn caller(&self) -> TransactionServiceClient<Channel> {
        TransactionServiceClient::connect(self.address.clone())
            .await
            .unwrap()
    }
}

/// A participant played by hand.
struct Played {
    out: mpsc::Sender<JoinRequest>,
    frames: Streaming<JoinResponse>,
    waiting: Vec<CoordinatorMessage>,
}

impl Played {
    async fn join(address: &str, name: &str, connection: u64) -> Self {
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

    async fn next(&mut self) -> (Xid, coordinator_message::Content) {
        while self.waiting.is_empty() {
            let frame = tokio::time::timeout(PATIENCE, self.frames.message())
                .await
                .unwrap();
            self.waiting = frame.unwrap().unwrap().messages;
        }
        let message = self.waiting.remove(0);
        (message.xid.unwrap(), message.content.unwrap())
    }

    async fn expect_prepare(&mut self) -> Xid {
        let (xid, content) = self.next().await;
        assert!(
            matches!(content, coordinator_message::Content::Prepare(_)),
            "{content:?}"
        );
        xid
    }

    async fn expect_commit(&mut self) -> Xid {
        let (xid, content) = self.next().await;
        assert!(
            matches!(content, coordinator_message::Content::Commit(_)),
            "{content:?}"
        );
        xid
    }

    async fn say(&self, xid: Xid, content: participant_message::Content) {
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

    async fn vote(&self, xid: Xid, kind: VoteKind) {
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

    async fn ack(&self, xid: Xid) {
        self.say(xid, participant_message::Content::Ack(Ack {})).await;
    }
}

fn request(id: &str, participants: &[&str], operation: &str) -> ExecuteRequest {
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

async fn run(mut caller: TransactionServiceClient<Channel>, request: ExecuteRequest) -> Transaction {
    caller
        .execute(request)
        .await
        .unwrap()
        .into_inner()
        .transaction
        .unwrap()
}

async fn get(caller: &mut TransactionServiceClient<Channel>, id: &str) -> Transaction {
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
async fn commit_one(coordinator: &Coordinator, played: &mut Played, name: &str, id: &str) {
    let answer = tokio::spawn(run(coordinator.caller().await, request(id, &[name], "x")));
    let xid = played.expect_prepare().await;
    played.vote(xid, VoteKind::Yes).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Committed);
    assert_eq!(played.expect_commit().await, xid);
    played.ack(xid).await;
}

#[tokio::test]
async fn a_transaction_commits_once_and_its_id_keeps_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut b = Played::join(&coordinator.address, "bb", 1).await;
    let asked = request("T1", &["bb", "a"], "x");
    let answer = tokio::spawn(run(coordinator.caller().await, asked.clone()));
    let xid = a.expect_prepare().await;
    assert_eq!(b.expect_prepare().await, xid);
    a.vote(xid, VoteKind::Yes).await;
    b.vote(xid, VoteKind::ReadOnly).await;
    let told = answer.await.unwrap();
    assert_eq!(told.outcome(), Outcome::Committed);
    assert_eq!(a.expect_commit().await, xid);
    a.ack(xid).await;

    let again = run(coordinator.caller().await, asked.clone()).await;
    assert_eq!((again.outcome(), again.xid), (Outcome::Committed, Some(xid)));
    let mut other = asked;
    other.branches[0].operation = bytes::Bytes::from_static(b"other");
    let refused = coordinator.caller().await.execute(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "OTHER_CONTENT");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_no_vote_aborts_with_its_reason_and_an_unknown_participant_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let answer = tokio::spawn(run(coordinator.caller().await, request("T1", &["a"], "x")));
    let xid = a.expect_prepare().await;
    a.vote(xid, VoteKind::No).await;
    let told = answer.await.unwrap();
    assert_eq!(told.outcome(), Outcome::Aborted);
    let reason = told.reason.unwrap();
    assert_eq!(
        (&*reason.code, &*reason.participant, &*reason.detail),
        ("NOT_TODAY", "a", "closed")
    );

    let refused = coordinator
        .caller()
        .await
        .execute(request("T2", &["a", "never"], "x"))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(
        refused.get_details_error_info().unwrap().reason,
        "PARTICIPANT_UNKNOWN"
    );
    assert_eq!(
        get(&mut coordinator.caller().await, "T2").await.outcome(),
        Outcome::NotFound
    );
    coordinator.stop().await;
}

#[tokio::test]
async fn a_committed_branch_hears_it_after_a_restart_without_any_traffic() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let answer = tokio::spawn(run(coordinator.caller().await, request("T1", &["a"], "x")));
    let xid = a.expect_prepare().await;
    a.vote(xid, VoteKind::Yes).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Committed);
    // No ACK: the drain runs out of time, the restart goes on.
    coordinator.stop().await;

    let coordinator = Coordinator::start(dir.path()).await;
    assert_eq!(
        (coordinator.ready.incarnation, coordinator.ready.in_progress),
        (2, 1)
    );
    let mut a = Played::join(&coordinator.address, "a", 2).await;
    assert_eq!(a.expect_commit().await, xid);
    a.ack(xid).await;
    a.say(xid, participant_message::Content::Inquiry(Inquiry {}))
        .await;
    assert_eq!(
        a.expect_commit().await,
        xid,
        "Q1: a retained outcome answers an inquiry"
    );
    let foreign = Xid {
        lineage_low: 77,
        ..xid
    };
    a.say(foreign, participant_message::Content::Inquiry(Inquiry {}))
        .await;
    let (about, content) = a.next().await;
    assert!(
        about == foreign && matches!(content, coordinator_message::Content::Unknown(_)),
        "Q2: {content:?}"
    );
    coordinator.stop().await;
}

#[tokio::test]
async fn outcomes_are_found_and_listed_through_checkpoints_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3_u64 {
        let coordinator = Coordinator::start(dir.path()).await;
        let mut a = Played::join(&coordinator.address, "a", round + 1).await;
        for n in 0..40 {
            commit_one(&coordinator, &mut a, "a", &format!("T{round}-{n}")).await;
        }
        coordinator.stop().await;
    }
    let coordinator = Coordinator::start(dir.path()).await;
    assert!(
        coordinator.ready.replayed < 150,
        "replay starts at a checkpoint: {}",
        coordinator.ready.replayed
    );
    let mut caller = coordinator.caller().await;
    for id in ["T0-0", "T1-39", "T2-39"] {
        assert_eq!(get(&mut caller, id).await.outcome(), Outcome::Committed, "{id}");
    }
    let (mut token, mut listed) = (String::new(), Vec::new());
    loop {
        let state = StateFilter::Committed.into();
        let request = ListTransactionsRequest {
            state,
            page_size: 7,
            page_token: token,
        };
        let page = caller.list_transactions(request).await.unwrap().into_inner();
        listed.extend(
            page.transactions
                .into_iter()
                .map(|transaction| transaction.transaction_id),
        );
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(
        (listed.len(), &*listed[0], &*listed[119]),
        (120, "T2-39", "T0-0"),
        "the latest first"
    );
    coordinator.stop().await;
}

#[tokio::test]
async fn a_session_that_says_no_hello_or_an_unknown_version_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut client = ParticipantServiceClient::connect(coordinator.address.clone())
        .await
        .unwrap();
    let silent = tokio_stream::once(JoinRequest {
        hello: None,
        messages: Vec::new(),
    });
    let status = client
        .join(silent)
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let hello = Hello {
        protocol_versions: vec![99],
        name: "a".to_owned(),
        lineage: Some(Lineage { high: 1, low: 1 }),
        incarnation: Some(Incarnation { counter: 1, bits: 1 }),
        connection: 1,
        positions: Vec::new(),
    };
    let future = tokio_stream::once(JoinRequest {
        hello: Some(hello),
        messages: Vec::new(),
    });
    let status = client
        .join(future)
        .await
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("99"), "{status:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_newer_session_of_a_participant_replaces_the_older_one() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut old = Played::join(&coordinator.address, "a", 1).await;
    let mut new = Played::join(&coordinator.address, "a", 2).await;
    let ended = tokio::time::timeout(PATIENCE, old.frames.message())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(ended.code(), Code::Aborted);
    commit_one(&coordinator, &mut new, "a", "T1").await;
    coordinator.stop().await;
}
