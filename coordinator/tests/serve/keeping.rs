//! What the log keeps over many checkpoints: what is not finished, and no more.

use covenant_proto::v1::{Outcome, TransactionState, VoteKind};

use crate::played::{CHECKPOINT_RECORDS, Coordinator, Played, commit_one, get, request, run};

/// The transactions while one is in doubt: records for a dozen checkpoints.
const TRANSACTIONS: u64 = 250;

#[tokio::test]
async fn one_in_doubt_over_many_checkpoints_is_kept_and_keeps_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut away = Played::join(&coordinator.address, "away", 1).await;
    let answer = tokio::spawn(run(coordinator.caller().await, request("OWED", &["away"], "x")));
    let owed = away.expect_prepare().await;
    away.vote(owed, VoteKind::Yes).await;
    assert_eq!(answer.await.unwrap().outcome(), Outcome::Committed);
    drop(away);
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    for number in 0..TRANSACTIONS {
        commit_one(&coordinator, &mut a, "a", &format!("T{number}")).await;
    }
    coordinator.stop().await;

    let coordinator = Coordinator::start(dir.path()).await;
    let replayed = coordinator.ready.replayed;
    assert!(
        replayed <= 2 * CHECKPOINT_RECORDS,
        "{replayed} records are replayed after {TRANSACTIONS} transactions"
    );
    let mut caller = coordinator.caller().await;
    assert_eq!(
        get(&mut caller, "OWED").await.state(),
        TransactionState::Committing
    );
    assert_eq!(get(&mut caller, "T0").await.outcome(), Outcome::Committed);
    let mut away = Played::join(&coordinator.address, "away", 2).await;
    assert_eq!(away.expect_commit().await, owed);
    coordinator.stop().await;
}
