//! Votes, decisions and their order: nothing is said before it is durable (S5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use covenant_participant::rules::{Decision, Heuristic, Operator, ToCoordinator, ToParticipant, Vote};
use covenant_participant::{Error, JoinState, Refusal};
use covenant_proto::v1::{Floor, JoinResponse};

use crate::script::{Coordinator, PATIENCE, prepare, xid};
use crate::shelf::{Fault, Shelf};

fn operator() -> Operator {
    Operator {
        who: Arc::from("ann"),
        why: Arc::from("the coordinator is lost"),
    }
}

#[tokio::test]
async fn yes_and_ack_leave_after_the_force_and_not_before() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::slow());
    let (_handle, mut session) = coordinator.join(&shelf).await;
    // A vote that needs no force overtakes the YES that waits for one: so that was not sent yet.
    session.send(&[prepare(1, "+5"), prepare(2, "?")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(2), Vote::ReadOnly));
    shelf.let_force(1);
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    session
        .send(&[ToParticipant::Commit(xid(1)), prepare(3, "?")])
        .await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(3), Vote::ReadOnly));
    assert_eq!(shelf.stock(), 0);
    shelf.let_force(1);
    assert_eq!(session.next().await, ToCoordinator::Ack(xid(1)));
    assert_eq!(shelf.stock(), 5);
}

#[tokio::test]
async fn duplicates_have_one_effect_and_the_same_answers() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    let (_handle, mut session) = coordinator.join(&shelf).await;
    for _ in 0..2 {
        session.send(&[prepare(1, "+5")]).await;
        assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    }
    for _ in 0..2 {
        session.send(&[ToParticipant::Commit(xid(1))]).await;
        assert_eq!(session.next().await, ToCoordinator::Ack(xid(1)));
    }
    assert_eq!(shelf.calls(), ["prepare 1", "commit 1"]);
    assert_eq!(shelf.stock(), 5);
}

#[tokio::test]
async fn calls_decide_in_the_order_of_their_messages() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::slow());
    let (_handle, mut session) = coordinator.join(&shelf).await;
    let messages: Vec<_> = (1..=200).map(|seq| prepare(seq, "+1")).collect();
    session.send(&messages).await;
    shelf.let_force(200);
    for _ in 0..200 {
        session.next().await;
    }
    let expected: Vec<_> = (1..=200).map(|seq| format!("prepare {seq}")).collect();
    assert_eq!(shelf.calls(), expected);
}

#[tokio::test]
async fn a_call_that_is_not_answered_is_made_again_and_is_never_a_vote() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    shelf.failures.store(2, Ordering::Relaxed);
    let (_handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    assert_eq!(shelf.calls(), ["prepare 1", "prepare 1", "prepare 1"]);
}

#[tokio::test]
async fn a_branch_in_doubt_asks_again_while_the_coordinator_is_silent() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    let (_handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    for answer in [
        ToParticipant::Pending(xid(1)),
        ToParticipant::Unknown(xid(1)),
        ToParticipant::Abort(xid(1)),
    ] {
        assert_eq!(session.next().await, ToCoordinator::Inquire(xid(1)));
        session.send(&[answer]).await;
    }
    session.send(&[prepare(2, "?")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(2), Vote::ReadOnly));
    assert_eq!(shelf.calls(), ["prepare 1", "abort 1", "prepare 2"]);
}

#[tokio::test]
async fn an_operator_resolves_what_is_in_doubt_and_nothing_else() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    let (handle, mut session) = coordinator.join(&shelf).await;
    let refused = handle
        .resolve(xid(1), Decision::Commit, operator())
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused(Refusal::NotFound)), "{refused}");
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    handle
        .resolve(xid(1), Decision::Commit, operator())
        .await
        .unwrap();
    assert_eq!(shelf.stock(), 5);
    assert_eq!(
        session.next().await,
        ToCoordinator::Report(xid(1), Heuristic::Commit)
    );
    session.send(&[ToParticipant::Forget(xid(1))]).await;
    assert_eq!(session.next().await, ToCoordinator::ForgetAck(xid(1)));
}

#[tokio::test]
async fn with_the_coordinator_gone_for_good_an_operator_resolves_and_the_record_outlives_a_restart() {
    for (what, reported, stock) in [
        (Decision::Commit, Heuristic::Commit, 5),
        (Decision::Abort, Heuristic::Abort, 0),
    ] {
        let mut coordinator = Coordinator::start().await;
        let disk = Arc::default();
        let shelf = Arc::new(Shelf::on(&disk));
        let (handle, mut session) = coordinator.join(&shelf).await;
        session.send(&[prepare(1, "+5")]).await;
        assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
        coordinator.refuse(Some(tonic::Status::unavailable("it is gone")));
        drop(session);
        let mut joined = handle.joined();
        let away = joined.wait_for(|joined| matches!(joined, JoinState::Away { reason: Some(_) }));
        tokio::time::timeout(PATIENCE, away).await.unwrap().unwrap();

        let in_doubt = handle.in_doubt().await.unwrap();
        assert_eq!((in_doubt.total, in_doubt.branches[0].xid), (1, xid(1)));
        handle.resolve(xid(1), what, operator()).await.unwrap();
        assert_eq!(shelf.stock(), stock);
        assert_eq!(handle.in_doubt().await.unwrap().total, 0);
        handle.shutdown(PATIENCE).await.unwrap();

        // Whoever takes the coordinator's place hears of it after a restart too.
        let shelf = Arc::new(Shelf::on(&disk));
        coordinator.refuse(None);
        let (_handle, mut session) = coordinator.join(&shelf).await;
        assert_eq!(session.next().await, ToCoordinator::Report(xid(1), reported));
        assert_eq!(shelf.stock(), stock);
    }
}

#[tokio::test]
async fn a_floor_reaches_the_resource_and_commit_below_it_is_acknowledged() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::on(&Arc::default()));
    let (handle, mut session) = coordinator.join(&shelf).await;
    let floor = Some(Floor { counter: 3, seq: 9 });
    session
        .send_raw(JoinResponse {
            floor,
            ..JoinResponse::default()
        })
        .await;
    session
        .send(&[ToParticipant::Commit(xid(8)), ToParticipant::Commit(xid(9))])
        .await;
    assert_eq!(session.next().await, ToCoordinator::Ack(xid(8)));
    assert_eq!(session.next().await, ToCoordinator::LostState(xid(9)));
    handle.shutdown(PATIENCE).await.unwrap();
    let floors: Vec<_> = covenant_participant::Resource::start(&*shelf)
        .await
        .unwrap()
        .floors;
    assert_eq!((floors[0].1.counter, floors[0].1.seq), (3, 9));
}

#[tokio::test]
async fn a_no_whose_code_is_none_is_not_sent_but_one_that_says_so() {
    let mut coordinator = Coordinator::start().await;
    let shelf = Arc::new(Shelf::with(&Arc::default(), Fault::SaysWhatItLikes));
    let (_handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "-1")]).await;
    match session.next().await {
        ToCoordinator::Vote(voter, Vote::No(reason)) => {
            assert_eq!((voter, &*reason.code), (xid(1), "INVALID_REASON_CODE"));
            assert!(reason.detail.contains("out of stock"), "{reason:?}");
        }
        other => panic!("{other:?} is no NO"),
    }
}
