//! What callers and watchers are told when things do not go straight: a stop that comes first, an ABORT, silence.

use covenant_proto::v1::{
    Outcome, Transaction, TransactionState, VoteKind, WatchTransactionsRequest, WatchTransactionsResponse,
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
