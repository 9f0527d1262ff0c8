//! The whole way of a transaction through loop, log and sessions, restarts among them.

use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{
    Hello, Incarnation, Inquiry, JoinRequest, Lineage, ListTransactionsRequest, Outcome, StateFilter,
    VoteKind, Xid, coordinator_message, participant_message,
};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::played::{Coordinator, PATIENCE, Played, commit_one, get, request, run};

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

/// What a session with this first frame is told.
async fn refused(client: &mut ParticipantServiceClient<Channel>, hello: Option<Hello>) -> Status {
    let first = tokio_stream::once(JoinRequest {
        hello,
        messages: Vec::new(),
    });
    let mut frames = client.join(first).await.unwrap().into_inner();
    frames.message().await.unwrap_err()
}

#[tokio::test]
async fn a_session_that_says_no_hello_or_an_unknown_version_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut client = ParticipantServiceClient::connect(coordinator.address.clone())
        .await
        .unwrap();
    let status = refused(&mut client, None).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let hello = Hello {
        protocol_versions: vec![99],
        name: "a".to_owned(),
        lineage: Some(Lineage { high: 1, low: 1 }),
        incarnation: Some(Incarnation { counter: 1, bits: 1 }),
        connection: 1,
        positions: Vec::new(),
    };
    let status = refused(&mut client, Some(hello.clone())).await;
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("99"), "{status:?}");
    let no_lineage = Hello {
        protocol_versions: vec![1],
        lineage: Some(Lineage { high: 0, low: 0 }),
        ..hello.clone()
    };
    let no_start = Hello {
        protocol_versions: vec![1],
        incarnation: Some(Incarnation { counter: 0, bits: 1 }),
        ..hello
    };
    for (hello, field) in [
        (no_lineage, "hello.lineage"),
        (no_start, "hello.incarnation.counter"),
    ] {
        let status = refused(&mut client, Some(hello)).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().starts_with(field), "{status:?}");
    }
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
    let xid = Xid::default();
    old.ack(xid).await;
    let closed = tokio::time::timeout(PATIENCE, old.out.closed()).await;
    assert!(closed.is_ok(), "nobody reads the replaced session any more");
    commit_one(&coordinator, &mut new, "a", "T1").await;
    coordinator.stop().await;
}
