//! Leaving: what is under way completes and its messages leave, all bounded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use covenant_participant::rules::{ToCoordinator, Vote};
use covenant_participant::{Error, Participant};
use tokio::time::timeout;
use tokio_test::{assert_pending, task};

use crate::script::{Coordinator, PATIENCE, prepare, xid};
use crate::shelf::Shelf;

#[tokio::test]
async fn a_call_under_way_completes_and_its_vote_leaves_before_the_session_ends() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::slow());
    let (handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5"), prepare(2, "?")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(2), Vote::ReadOnly));
    let leaving = handle.clone();
    let mut shutdown = task::spawn(async move { leaving.shutdown(PATIENCE).await });
    assert_pending!(shutdown.poll());
    shelf.let_force(1);
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    session.ended().await;
    drop(session);
    timeout(PATIENCE, shutdown).await.unwrap().unwrap();
    timeout(PATIENCE, handle.ended())
        .await
        .expect("the driver has ended");
    assert!(matches!(handle.in_doubt().await, Err(Error::Stopped)));
}

#[tokio::test]
async fn leaving_ends_at_its_deadline_and_says_what_was_under_way() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    shelf.failures.store(u32::MAX, Ordering::Relaxed);
    let (handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5")]).await;
    while shelf.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let error = handle.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Leaving {
                calls: 1,
                messages: 0,
                deadline_ms: 50
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_participant_that_never_joined_leaves_at_once() {
    let coordinator = Coordinator::start().await;
    coordinator.refuse(Some(tonic::Status::unavailable("replaying the log")));
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    let handle = Participant::start(coordinator.config(), shelf).await.unwrap();
    timeout(PATIENCE / 2, handle.shutdown(PATIENCE))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_last_handle_dropped_is_a_leave() {
    let mut coordinator = Coordinator::start().await;
    let (handle, mut session) = coordinator.join(&Arc::new(Shelf::on(&Arc::default()))).await;
    drop(handle);
    session.ended().await;
}

#[tokio::test]
async fn nothing_is_prepared_before_the_holds_are_back() {
    let mut coordinator = Coordinator::start().await;
    let disk = Arc::default();
    let (handle, mut session) = coordinator.join(&Arc::new(Shelf::on(&disk))).await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    handle.shutdown(PATIENCE).await.unwrap();
    let broken = Shelf::with(&disk, crate::shelf::Fault::HidesDoubt);
    let error = Participant::start(coordinator.config(), Arc::new(broken))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Contract {
                recovered: 1,
                listed: 0
            }
        ),
        "{error}"
    );
}
