//! What callers and watchers are told when things do not go straight: a stop that comes first, an ABORT, silence.

use covenant_coordinator::Config;
use covenant_proto::v1::{
    AbortTransactionRequest, Outcome, Transaction, TransactionState, VoteKind, WatchTransactionsRequest,
    WatchTransactionsResponse,
};
use tonic::Streaming;
use tonic_types::StatusExt;

use crate::played::{Coordinator, PATIENCE, Played, commit_one, request, run};

async fn watch(coordinator: &Coordinator, id: &str) -> Streaming<WatchTransactionsResponse> {
    let request = WatchTransactionsRequest {
        transaction_id: id.to_owned(),
    };
    let watching = coordinator.caller().await.watch_transactions(request).await;
    watching.unwrap().into_inner()
}

async fn next(changes: &mut Streaming<WatchTransactionsResponse>) -> Transaction {
    let change = tokio::time::timeout(PATIENCE, changes.message()).await.unwrap();
    change.unwrap().unwrap().transaction.unwrap()
}

#[tokio::test]
async fn a_call_that_a_stop_leaves_unanswered_is_unknown_and_no_refusal() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut caller = coordinator.caller().await;
    let answer = tokio::spawn(async move { caller.execute(request("T1", &["a"], "x")).await });
    a.expect_prepare().await;
    // No vote: the drain runs out of time while the transaction is PREPARING.
    coordinator.stop().await;
    let status = answer.await.unwrap().unwrap_err();
    assert!(
        status.get_details_error_info().is_none(),
        "an ErrorInfo says that this call ran nothing (section 7): {status:?}"
    );
}

#[tokio::test]
async fn a_watcher_sees_a_transaction_to_its_end_also_if_it_aborts() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut changes = watch(&coordinator, "").await;
    let answer = tokio::spawn(run(coordinator.caller().await, request("T1", &["a"], "x")));
    let xid = a.expect_prepare().await;
    a.vote(xid, VoteKind::No).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Aborted);
    let mut states = Vec::new();
    while states.last() != Some(&TransactionState::Aborted) {
        let change = next(&mut changes).await;
        assert_eq!(change.transaction_id, "T1");
        states.push(change.state());
    }
    assert_eq!(states.first(), Some(&TransactionState::Preparing));
    coordinator.stop().await;
}

#[tokio::test]
async fn each_ending_is_told_once_also_the_one_that_follows_an_outage() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut changes = watch(&coordinator, "").await;
    let answer = tokio::spawn(run(coordinator.caller().await, request("T1", &["a"], "x")));
    let xid = a.expect_prepare().await;
    a.vote(xid, VoteKind::No).await;
    // Said again, it is no second ending.
    a.vote(xid, VoteKind::No).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Aborted);
    let answer = tokio::spawn(run(coordinator.caller().await, request("T2", &["a"], "x")));
    let xid = a.expect_prepare().await;
    a.vote(xid, VoteKind::Yes).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Committed);
    drop(a);
    // It was away when it was decided, and takes the decision when it is back.
    let mut a = Played::join(&coordinator.address, "a", 2).await;
    assert_eq!(a.expect_commit().await, xid);
    a.ack(xid).await;
    a.ack(xid).await;
    commit_one(&coordinator, &mut a, "a", "T3").await;
    let mut told = Vec::new();
    while told.last() != Some(&("T3".to_owned(), TransactionState::Committed)) {
        let change = next(&mut changes).await;
        told.push((change.transaction_id.clone(), change.state()));
    }
    let endings = |state| {
        let those = told.iter().filter(move |(_, ending)| *ending == state);
        those.map(|(id, _)| id.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(endings(TransactionState::Aborted), ["T1"], "{told:?}");
    assert_eq!(endings(TransactionState::Committed), ["T2", "T3"], "{told:?}");
    let decided = told
        .iter()
        .position(|one| *one == ("T2".to_owned(), TransactionState::Committing));
    let ended = told
        .iter()
        .position(|one| *one == ("T2".to_owned(), TransactionState::Committed));
    assert!(decided.is_some() && decided < ended, "{told:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_watcher_of_one_id_is_shown_its_present_state_first() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    commit_one(&coordinator, &mut a, "a", "T1").await;
    let mut finished = watch(&coordinator, "T1").await;
    assert_eq!(next(&mut finished).await.outcome(), Outcome::Committed);
    let mut unknown = watch(&coordinator, "T2").await;
    assert_eq!(next(&mut unknown).await.outcome(), Outcome::NotFound);
    commit_one(&coordinator, &mut a, "a", "T2").await;
    assert_eq!(next(&mut unknown).await.state(), TransactionState::Preparing);
    coordinator.stop().await;
}

#[tokio::test]
async fn callers_that_went_away_keep_no_place_from_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut asked = request("T1", &["a"], "x");
    asked.timeout = Some(prost_types::Duration {
        seconds: 60,
        nanos: 0,
    });
    let caller = coordinator.caller().await;
    let call = || {
        let (mut caller, asked) = (caller.clone(), asked.clone());
        async move { caller.execute(asked).await }
    };
    let max = Config::default().transactions.max_attached_callers;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..max + 8 {
        calls.spawn(call());
    }
    a.expect_prepare().await;
    for _ in 0..8 {
        let refused = calls.join_next().await.unwrap().unwrap().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused:?}");
    }
    calls.shutdown().await;
    let abort = AbortTransactionRequest {
        transaction_id: "T1".to_owned(),
        created: asked.created,
    };
    // The server hears of those that left a moment later. A call that finds no place aborts nothing.
    let began = std::time::Instant::now();
    let aborted = loop {
        match coordinator.caller().await.abort_transaction(abort.clone()).await {
            Ok(answer) => break answer.into_inner().transaction.unwrap(),
            Err(refused) => assert_eq!(refused.code(), tonic::Code::ResourceExhausted),
        }
        assert!(began.elapsed() < PATIENCE, "the places stay taken");
    };
    assert_eq!(aborted.reason.unwrap().code, "ABORTED_BY_CALLER");
    coordinator.stop().await;
}
