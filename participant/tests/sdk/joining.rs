//! Joining, refusals and joining again (section 8).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use covenant_participant::rules::{Name, ToCoordinator, ToParticipant, Vote};
use covenant_participant::{Config, Error, Handle, JoinState, Participant};
use covenant_proto::v1::{CoordinatorMessage, JoinResponse};
use tokio::time::timeout;
use tonic::Status;

use crate::script::{Coordinator, HOME, PATIENCE, START, prepare, xid};
use crate::shelf::{Disk, Shelf};

fn shelf() -> (Arc<Mutex<Disk>>, Arc<Shelf>) {
    let disk = Arc::default();
    let shelf = Arc::new(Shelf::on(&disk));
    (disk, shelf)
}

async fn away(handle: &Handle) -> Arc<str> {
    let mut joined = handle.joined();
    let state = timeout(
        PATIENCE,
        joined.wait_for(|state| matches!(state, JoinState::Away { reason: Some(_) })),
    );
    match &*state.await.expect("it never was away").unwrap() {
        JoinState::Away { reason: Some(reason) } => Arc::clone(reason),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_participant_joins_and_says_who_it_is() {
    let mut coordinator = Coordinator::start().await;
    let (_disk, shelf) = shelf();
    let (handle, session) = coordinator.join(&shelf).await;
    assert_eq!(session.hello.name, Name::new("shelf-1").unwrap());
    assert_eq!(
        (session.hello.incarnation.counter, session.hello.connection),
        (1, 1)
    );
    let mut joined = handle.joined();
    let state = timeout(PATIENCE, joined.wait_for(JoinState::is_joined))
        .await
        .unwrap()
        .unwrap()
        .clone();
    assert_eq!(
        state,
        JoinState::Joined {
            lineage: HOME,
            incarnation: START
        }
    );
}

#[tokio::test]
async fn a_cut_session_is_joined_again_with_a_higher_number_and_an_inquiry() {
    let mut coordinator = Coordinator::start().await;
    let (_disk, shelf) = shelf();
    let (_handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    drop(session);
    let mut session = coordinator.session().await;
    assert_eq!(
        (session.hello.connection, &session.hello.positions[..]),
        (2, &[(HOME, 5)][..])
    );
    assert_eq!(session.next().await, ToCoordinator::Inquire(xid(1)));
    session.send(&[ToParticipant::Commit(xid(1))]).await;
    assert_eq!(session.next().await, ToCoordinator::Ack(xid(1)));
    assert_eq!(shelf.stock(), 5);
}

#[tokio::test]
async fn a_restarted_participant_has_its_holds_and_inquires() {
    let mut coordinator = Coordinator::start().await;
    let (disk, shelf) = shelf();
    let (handle, mut session) = coordinator.join(&shelf).await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    handle.shutdown(PATIENCE).await.unwrap();
    let (handle, mut session) = coordinator.join(&Arc::new(Shelf::on(&disk))).await;
    assert_eq!(
        (session.hello.incarnation.counter, session.hello.connection),
        (2, 1)
    );
    assert_eq!(session.next().await, ToCoordinator::Inquire(xid(1)));
    let listed = handle.in_doubt().await.unwrap();
    assert_eq!((listed.total, listed.branches[0].xid), (1, xid(1)));
    session
        .send(&[ToParticipant::Abort(xid(1)), prepare(2, "?")])
        .await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(2), Vote::ReadOnly));
    assert_eq!(handle.in_doubt().await.unwrap().total, 0);
}

#[tokio::test]
async fn a_refusal_is_told_and_dialling_goes_on_with_growing_pauses() {
    let mut coordinator = Coordinator::start().await;
    coordinator.refuse(Some(Status::unavailable("replaying the log")));
    let (_disk, shelf) = shelf();
    let handle = Participant::start(coordinator.config(), shelf).await.unwrap();
    assert!(away(&handle).await.contains("replaying the log"));
    let mut joined = handle.joined();
    joined.mark_unchanged();
    while coordinator.dials().len() < 5 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        !joined.has_changed().unwrap(),
        "a reason that repeats is told once"
    );
    let dials = coordinator.dials();
    let pauses: Vec<_> = dials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[3] > 2 * pauses[0], "{pauses:?}");
    coordinator.refuse(None);
    coordinator.session().await;
    timeout(PATIENCE, handle.joined().wait_for(JoinState::is_joined))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn nobody_at_the_address_is_told_with_its_cause() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = Config::new(Name::new("shelf-1").unwrap(), &format!("http://{address}"));
    let handle = Participant::start(config, shelf().1).await.unwrap();
    let reason = away(&handle).await;
    assert!(
        reason.contains("cannot be reached") && reason.contains("refused"),
        "{reason}"
    );
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_at_the_start() {
    for value in ["127.0.0.1:7400", "https://127.0.0.1:7400", "http://bad host", ""] {
        let config = Config::new(Name::new("shelf-1").unwrap(), value);
        let error = Participant::start(config, shelf().1).await.unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{value}: {error}");
    }
}

#[tokio::test]
async fn another_version_and_a_missing_welcome_are_refused_clearly() {
    let mut coordinator = Coordinator::start().await;
    coordinator.refuse(Some(Status::failed_precondition("speaks version 9 only")));
    let (_disk, shelf) = shelf();
    let handle = Participant::start(coordinator.config(), shelf).await.unwrap();
    assert!(away(&handle).await.contains("version 9"));
    coordinator.refuse(None);
    coordinator.session().await;
}

#[tokio::test]
async fn a_frame_of_garbage_cuts_the_session_and_nothing_else() {
    let mut coordinator = Coordinator::start().await;
    let (_disk, shelf) = shelf();
    let (handle, mut session) = coordinator.join(&shelf).await;
    let message = CoordinatorMessage {
        xid: None,
        content: None,
    };
    session
        .send_raw(JoinResponse {
            messages: vec![message],
            ..JoinResponse::default()
        })
        .await;
    session.ended().await;
    assert!(away(&handle).await.contains("does not decode"));
    let mut session = coordinator.session().await;
    session.send(&[prepare(1, "?")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::ReadOnly));
}
