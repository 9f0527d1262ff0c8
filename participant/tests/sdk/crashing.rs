//! The driver's crash points (section 9), each in a process of its own: this test program, started again.

use std::process::Stdio;
use std::sync::Arc;

use covenant_fault::CrashPlan;
use covenant_participant::rules::{Name, ToCoordinator, ToParticipant, Vote};
use covenant_participant::{Config, Participant};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::script::{Coordinator, PATIENCE, Session, prepare, xid};
use crate::shelf::Shelf;

const ADDRESS: &str = "COVENANT_TEST_COORDINATOR";
const POINT: &str = "COVENANT_TEST_CRASH_AT";

/// The participant in the other process; without the environment of one it does nothing.
#[tokio::test]
async fn participant_process() {
    let (Ok(address), Ok(point)) = (std::env::var(ADDRESS), std::env::var(POINT)) else {
        return;
    };
    let mut config = Config::new(Name::new("shelf-1").unwrap(), &address);
    config.crash = CrashPlan::parse([point.as_str()]).unwrap();
    let handle = Participant::start(config, Arc::new(Shelf::on(&Arc::default())))
        .await
        .unwrap();
    timeout(PATIENCE, handle.ended())
        .await
        .expect("it should have crashed by now");
}

async fn join(coordinator: &mut Coordinator, point: &str) -> (Child, Session) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashing::participant_process", "--nocapture"])
        .env(ADDRESS, format!("http://{}", coordinator.address))
        .env(POINT, point)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    (child, coordinator.session().await)
}

/// What the participant still said, and that it died at the point.
async fn last_words(child: Child, mut session: Session, point: &str) -> Vec<ToCoordinator> {
    let said = session.rest().await;
    let output = timeout(PATIENCE, child.wait_with_output())
        .await
        .expect("it lives on")
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && stderr.contains(&format!("crash point {point} reached")),
        "{stderr}"
    );
    said
}

#[tokio::test]
async fn at_p_prepare_received_nothing_is_said() {
    let mut coordinator = Coordinator::start().await;
    let (child, mut session) = join(&mut coordinator, "p.prepare.received:T2").await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    session.send(&[prepare(2, "+5")]).await;
    assert_eq!(last_words(child, session, "p.prepare.received").await, []);
}

#[tokio::test]
async fn at_p_vote_sent_the_vote_has_left_and_later_messages_have_not() {
    let mut coordinator = Coordinator::start().await;
    let (child, mut session) = join(&mut coordinator, "p.vote.sent:T2").await;
    session
        .send(&[prepare(1, "?"), prepare(2, "+5"), prepare(3, "?")])
        .await;
    let said = last_words(child, session, "p.vote.sent").await;
    let votes = [
        ToCoordinator::Vote(xid(1), Vote::ReadOnly),
        ToCoordinator::Vote(xid(2), Vote::Yes),
    ];
    assert_eq!(said, votes);
}

#[tokio::test]
async fn at_p_decision_received_the_decision_is_not_acknowledged() {
    for decision in [ToParticipant::Commit(xid(1)), ToParticipant::Abort(xid(1))] {
        let mut coordinator = Coordinator::start().await;
        let (child, mut session) = join(&mut coordinator, "p.decision.received").await;
        session.send(&[prepare(1, "+5")]).await;
        assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
        session.send(&[decision]).await;
        assert_eq!(last_words(child, session, "p.decision.received").await, []);
    }
}

#[tokio::test]
async fn at_p_ack_sent_the_ack_has_left_and_later_messages_have_not() {
    let mut coordinator = Coordinator::start().await;
    let (child, mut session) = join(&mut coordinator, "p.ack.sent:T1").await;
    session.send(&[prepare(1, "+5")]).await;
    assert_eq!(session.next().await, ToCoordinator::Vote(xid(1), Vote::Yes));
    session
        .send(&[ToParticipant::Commit(xid(1)), prepare(2, "?")])
        .await;
    assert_eq!(
        last_words(child, session, "p.ack.sent").await,
        [ToCoordinator::Ack(xid(1))]
    );
}
