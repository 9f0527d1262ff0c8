//! Joining, refusals and joining again (section 8).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use covenant_codec::MAX_FRAME_BYTES;
use covenant_participant::config::MAX_OUTGOING_MESSAGES;
use covenant_participant::rules::{Name, ToCoordinator, ToParticipant, Vote};
use covenant_participant::{Config, Error, Handle, JoinState, Participant};
use covenant_proto::v1::{CoordinatorMessage, Floor, Incarnation, JoinResponse, Lineage, Welcome};
use prost::Message;
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
    let dialled = async {
        while coordinator.dials().len() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, dialled).await.expect("it dials no more");
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
    let version_9 = Welcome {
        protocol_version: 9,
        lineage: Some(Lineage { high: 0, low: 42 }),
        incarnation: Some(Incarnation { counter: 3, bits: 33 }),
        max_frame_bytes: 1 << 20,
    };
    for (welcome, said) in [(Some(version_9), "9"), (None, "no Welcome")] {
        let mut coordinator = Coordinator::start().await;
        coordinator.say_first(Some(JoinResponse {
            welcome,
            ..JoinResponse::default()
        }));
        let handle = Participant::start(coordinator.config(), shelf().1).await.unwrap();
        let reason = away(&handle).await;
        assert!(reason.contains(said), "{reason}");
        coordinator.say_first(None);
        timeout(PATIENCE, handle.joined().wait_for(JoinState::is_joined))
            .await
            .unwrap()
            .unwrap();
        coordinator.session().await;
    }
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

#[tokio::test]
async fn a_join_with_much_in_doubt_is_cut_into_frames_below_the_bound() {
    const IN_DOUBT: u64 = 20_000;
    let mut coordinator = Coordinator::start().await;
    let disk = Arc::new(Mutex::new(Disk::in_doubt((1..=IN_DOUBT).map(xid))));
    let (_handle, mut session) = coordinator.join(&Arc::new(Shelf::on(&disk))).await;
    let (mut inquiries, mut frames) = (0, 0);
    while inquiries < IN_DOUBT {
        let frame = session.next_frame().await;
        assert!(
            frame.encoded_len() <= MAX_FRAME_BYTES,
            "{} bytes",
            frame.encoded_len()
        );
        inquiries += frame.messages.len() as u64;
        frames += 1;
    }
    assert!(frames > 1, "{IN_DOUBT} inquiries are more than one frame holds");
}

#[tokio::test]
async fn a_coordinator_that_does_not_take_its_messages_is_cut_and_joined_again() {
    let mut coordinator = Coordinator::start().await;
    let (_disk, shelf) = shelf();
    let (handle, mut session) = coordinator.join(&shelf).await;
    let floor = Some(Floor {
        counter: 3,
        seq: u64::MAX,
    });
    session
        .send_raw(JoinResponse {
            floor,
            ..JoinResponse::default()
        })
        .await;
    let below: Vec<_> = (1..=10_000).map(|seq| ToParticipant::Commit(xid(seq))).collect();
    // More answers than may wait, and the windows of the connection on top.
    for _ in 0..MAX_OUTGOING_MESSAGES / below.len() + 30 {
        if !session.try_send(&below).await {
            break;
        }
    }
    let reason = away(&handle).await;
    assert!(reason.contains("MAX_OUTGOING_MESSAGES"), "{reason}");
    coordinator.session().await;
}
