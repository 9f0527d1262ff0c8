//! The client against a scripted coordinator: what it may say after every kind of answer, error and silence.
//!
//! The server here is a script, so these tests cannot show that a real coordinator keeps its side of section 7.

mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::{Branch, Client, Error, Outcome, RefusalKind, Transaction, Wait, Why};
use covenant_proto::v1;
use script::{Act, Script, client, listen, serve};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;

fn transaction() -> Transaction {
    Transaction {
        id: "T100".into(),
        created: 1_796_076_000_123,
        branches: vec![Branch::new("ledger-a", vec![1]), Branch::new("ledger-b", vec![2])],
        timeout: None,
        wait: Wait::Decided,
    }
}

async fn execute(script: &Script, patience_ms: u64) -> Result<Outcome, Error> {
    client(script)
        .await
        .execute(&transaction(), Duration::from_millis(patience_ms))
        .await
}

#[tokio::test]
async fn every_outcome_is_a_value() {
    for outcome in [
        v1::Outcome::Committed,
        v1::Outcome::Aborted,
        v1::Outcome::InProgress,
        v1::Outcome::Unknown,
        v1::Outcome::Expired,
    ] {
        let script = Script::new([Act::Answer(outcome)]);
        let told = execute(&script, 5_000).await.unwrap();
        assert_eq!(format!("OUTCOME_{}", told.word()), outcome.as_str_name());
        assert_eq!(script.sends(), 1);
    }
}

#[tokio::test]
async fn every_send_is_the_same_id_created_and_content() {
    let script = Script::new([
        Act::Fail(Code::Unavailable),
        Act::Fail(Code::Unknown),
        Act::Fail(Code::Cancelled),
        Act::Refuse(Code::Unavailable, "RECOVERING"),
    ]);
    assert!(matches!(
        execute(&script, 10_000).await,
        Ok(Outcome::Committed(_))
    ));
    let requests = script.requests.lock().unwrap();
    assert_eq!(requests.len(), 5);
    assert!(requests.windows(2).all(|pair| pair[0] == pair[1]), "{requests:?}");
}

#[tokio::test]
async fn a_first_refusal_ran_nothing_and_is_typed() {
    for (code, kind) in [
        (Code::InvalidArgument, RefusalKind::InvalidArgument),
        (Code::AlreadyExists, RefusalKind::AlreadyExists),
        (Code::FailedPrecondition, RefusalKind::FailedPrecondition),
        (
            Code::ResourceExhausted,
            RefusalKind::ResourceExhausted {
                bound: "max_in_progress".into(),
                value: "20000".into(),
            },
        ),
    ] {
        let script = Script::new([Act::Refuse(code, "REASON")]);
        let Err(Error::Refused(refusal)) = execute(&script, 5_000).await else {
            panic!("{code:?}")
        };
        assert_eq!((refusal.kind, refusal.reason.as_str()), (kind, "REASON"));
        assert_eq!(script.sends(), 1);
    }
}

#[tokio::test]
async fn after_an_unanswered_send_a_refusal_is_unknown() {
    for code in [
        Code::InvalidArgument,
        Code::AlreadyExists,
        Code::FailedPrecondition,
    ] {
        let script = Script::new([Act::Fail(Code::Unavailable), Act::Refuse(code, "REASON")]);
        *script.seen.lock().unwrap() = Some(v1::Outcome::NotFound);
        let Ok(Outcome::Unknown(unknown)) = execute(&script, 5_000).await else {
            panic!("{code:?}")
        };
        assert!(matches!(unknown.why, Why::RefusedLater(_)), "{unknown}");
        assert_eq!(script.sends(), 2);
    }
}

#[tokio::test]
async fn after_an_unanswered_send_a_full_coordinator_is_asked_again() {
    let full = || Act::Refuse(Code::ResourceExhausted, "EXHAUSTED");
    let script = Script::new([Act::Fail(Code::Unavailable), full(), full()]);
    assert!(matches!(
        execute(&script, 10_000).await,
        Ok(Outcome::Committed(_))
    ));
    assert_eq!(script.sends(), 4);
}

#[tokio::test]
async fn a_coordinator_that_keeps_recovering_ran_nothing() {
    let script = Script::new((0..100).map(|_| Act::Refuse(Code::Unavailable, "RECOVERING")));
    let Err(Error::Refused(refusal)) = execute(&script, 400).await else {
        panic!()
    };
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    assert!(script.sends() > 1);
}

#[tokio::test]
async fn a_bare_error_code_is_never_an_outcome() {
    for code in [
        Code::InvalidArgument,
        Code::AlreadyExists,
        Code::NotFound,
        Code::Internal,
        Code::Unimplemented,
    ] {
        let script = Script::new((0..100).map(|_| Act::Fail(code)));
        let told = execute(&script, 400).await.unwrap();
        let Outcome::Unknown(unknown) = told else {
            panic!("{code:?} became {}", told.word())
        };
        assert!(unknown.safe_next_step().contains("same id"), "{unknown}");
    }
}

#[tokio::test]
async fn silence_until_patience_ends_is_unknown() {
    let script = Script::new([Act::Hang]);
    let told = execute(&script, 300).await.unwrap();
    let Outcome::Unknown(unknown) = told else {
        panic!("{}", told.word())
    };
    assert!(
        matches!(unknown.why, Why::Unanswered { sends: 1, .. }),
        "{unknown}"
    );
}

#[tokio::test]
async fn a_last_look_turns_silence_into_the_outcome_if_there_is_one() {
    for (seen, word) in [
        (v1::Outcome::Committed, "COMMITTED"),
        (v1::Outcome::Aborted, "ABORTED"),
        (v1::Outcome::InProgress, "IN_PROGRESS"),
        (v1::Outcome::NotFound, "UNKNOWN"),
        (v1::Outcome::Expired, "UNKNOWN"),
    ] {
        let script = Script::new([Act::Hang, Act::Answer(seen)]);
        *script.seen.lock().unwrap() = Some(seen);
        assert_eq!(execute(&script, 800).await.unwrap().word(), word);
    }
}

#[tokio::test]
async fn an_outcome_of_other_content_is_never_told_as_ones_own() {
    let other = || Act::Refuse(Code::AlreadyExists, "OTHER_CONTENT");
    for acts in [
        vec![Act::Hang, other()],
        vec![Act::Fail(Code::Unavailable), other()],
        vec![Act::Hang, Act::Hang],
    ] {
        for seen in [v1::Outcome::Committed, v1::Outcome::Aborted] {
            let script = Script::new(acts.clone());
            *script.seen.lock().unwrap() = Some(seen);
            assert_eq!(execute(&script, 800).await.unwrap().word(), "UNKNOWN");
        }
    }
}

#[tokio::test]
async fn a_refused_connection_was_surely_never_sent() {
    let (listener, endpoint) = listen().await;
    drop(listener);
    let client = Client::new(&endpoint).unwrap();
    let told = client.execute(&transaction(), Duration::from_millis(400)).await;
    let Err(error @ Error::NeverSent { tries, .. }) = told else {
        panic!("{told:?}")
    };
    assert!(tries > 1 && error.to_string().contains("refused"), "{error}");
    let listed = client
        .list(v1::StateFilter::Unspecified, 0, "", Duration::from_millis(100))
        .await;
    assert!(matches!(listed, Err(Error::NeverSent { .. })), "{listed:?}");
}

#[tokio::test]
async fn a_coordinator_that_comes_up_within_patience_gets_the_send() {
    let (listener, endpoint) = listen().await;
    let address = listener.local_addr().unwrap();
    drop(listener);
    let script = Script::default();
    let refused = Arc::new(tokio::sync::Notify::new());
    let seen = refused.clone();
    let link = crate::Link::new(&endpoint)
        .unwrap()
        .on_retry(move |_| seen.notify_one());
    let client = Client::with_link(link);
    let calling = tokio::spawn(async move { client.execute(&transaction(), Duration::from_secs(20)).await });
    tokio::time::timeout(Duration::from_secs(10), refused.notified())
        .await
        .expect("a first try that is refused");
    serve(&script, TcpListener::bind(address).await.unwrap());
    assert!(matches!(calling.await.unwrap(), Ok(Outcome::Committed(_))));
    assert_eq!(script.sends(), 1);
}

/// Takes one connection, reads so much that a request may be in it, and cuts it.
async fn cut_one_connection(listener: &TcpListener) {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 256];
    assert!(socket.read(&mut bytes).await.unwrap() > 0);
}

#[tokio::test]
async fn a_cut_connection_and_then_a_dead_coordinator_is_unknown() {
    let (listener, endpoint) = listen().await;
    tokio::spawn(async move { cut_one_connection(&listener).await });
    let client = Client::new(&endpoint).unwrap();
    let told = client
        .execute(&transaction(), Duration::from_millis(800))
        .await
        .unwrap();
    let Outcome::Unknown(unknown) = told else {
        panic!("{}", told.word())
    };
    assert!(unknown.to_string().contains("refused"), "{unknown}");
}

#[tokio::test]
async fn a_cut_connection_is_followed_by_the_same_send() {
    let (listener, endpoint) = listen().await;
    let script = Script::default();
    let served = script.clone();
    tokio::spawn(async move {
        cut_one_connection(&listener).await;
        serve(&served, listener);
    });
    let client = Client::new(&endpoint).unwrap();
    let told = client.execute(&transaction(), Duration::from_secs(20)).await;
    assert!(matches!(told, Ok(Outcome::Committed(_))), "{told:?}");
}

#[tokio::test]
async fn abort_keeps_the_same_rules() {
    let patience = Duration::from_millis(400);
    let script = Script::new([Act::Fail(Code::Unavailable), Act::Answer(v1::Outcome::Aborted)]);
    let told = client(&script)
        .await
        .abort("T100", Some(1), Duration::from_secs(10))
        .await;
    assert!(matches!(told, Ok(Outcome::Aborted(_))), "{told:?}");
    let script = Script::new([
        Act::Fail(Code::Unavailable),
        Act::Refuse(Code::InvalidArgument, "REASON"),
    ]);
    let told = client(&script).await.abort("T100", None, patience).await;
    assert!(matches!(told, Ok(Outcome::Unknown(_))), "{told:?}");
    let script = Script::new([Act::Refuse(Code::InvalidArgument, "REASON")]);
    let told = client(&script).await.abort("T100", None, patience).await;
    assert!(matches!(told, Err(Error::Refused(_))), "{told:?}");
}

#[tokio::test]
async fn a_list_without_an_answer_is_an_error_and_a_later_answer_counts() {
    let script = Script::new([Act::Hang]);
    let listed = client(&script).await;
    let listed = listed
        .list(v1::StateFilter::Unspecified, 0, "", Duration::from_millis(200))
        .await;
    assert!(matches!(listed, Err(Error::Unanswered { .. })), "{listed:?}");
    let script = Script::new([Act::Fail(Code::Unavailable)]);
    let listed = client(&script).await;
    assert!(
        listed
            .list(v1::StateFilter::Unspecified, 0, "", Duration::from_secs(10))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_watch_brings_changes_until_it_is_cut() {
    let script = Script::default();
    let mut watch = client(&script)
        .await
        .watch(Some("T1"), Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().transaction_id, "T1");
    assert!(matches!(watch.next().await, Err(Error::Unanswered { .. })));
}

#[tokio::test]
async fn a_patience_without_end_is_no_panic() {
    let script = Script::new([Act::Fail(Code::Unavailable)]);
    let told = client(&script).await.execute(&transaction(), Duration::MAX).await;
    assert!(matches!(told, Ok(Outcome::Committed(_))), "{told:?}");
}

#[tokio::test]
async fn another_kind_of_server_is_an_error_for_what_only_looks_and_unknown_for_what_may_run() {
    let (listener, endpoint) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let client = Client::new(&endpoint).unwrap();
    let patience = Duration::from_secs(5);
    let got = client.get("T100", None, patience).await;
    assert!(matches!(got, Err(Error::WrongServer { .. })), "{got:?}");
    let listed = client.list(v1::StateFilter::Unspecified, 0, "", patience).await;
    assert!(matches!(listed, Err(Error::WrongServer { .. })), "{listed:?}");
    let watched = client.watch(None, patience).await.map(drop);
    assert!(matches!(watched, Err(Error::WrongServer { .. })), "{watched:?}");
    for told in [
        client.execute(&transaction(), patience).await,
        client.abort("T100", None, patience).await,
    ] {
        let Ok(Outcome::Unknown(unknown)) = told else {
            panic!("{told:?}")
        };
        assert!(unknown.is_wrong_server(), "{unknown}");
    }
}

#[tokio::test]
async fn what_is_beyond_a_bound_is_never_sent() {
    let script = Script::default();
    let client = client(&script).await;
    let mut huge = transaction();
    huge.branches = (0..128)
        .map(|n| Branch::new(format!("p{n}"), vec![0; 40 * 1024]))
        .collect();
    let told = client.execute(&huge, Duration::from_secs(5)).await;
    assert!(matches!(told, Err(Error::OutOfBounds { .. })), "{told:?}");
    let got = client.get(&"x".repeat(129), None, Duration::from_secs(5)).await;
    assert!(
        matches!(got, Err(Error::OutOfBounds { value: 129, .. })),
        "{got:?}"
    );
    assert_eq!(script.sends(), 0);
}

#[tokio::test]
async fn the_end_of_a_stream_says_nothing_of_its_calls_whatever_its_error_says() {
    let script = Script::default();
    script.streams_to_end.store(1, Ordering::Release);
    assert!(matches!(
        execute(&script, 10_000).await,
        Ok(Outcome::Committed(_))
    ));
    // It would be a refusal if the first send had surely run nothing.
    let script = Script::new([Act::Refuse(Code::InvalidArgument, "REASON")]);
    script.streams_to_end.store(1, Ordering::Release);
    let told = execute(&script, 10_000).await;
    assert!(matches!(told, Ok(Outcome::Unknown(_))), "{told:?}");
}

#[tokio::test]
async fn calls_that_nobody_waits_for_are_left_and_the_others_answered() {
    let script = Script::new([Act::Hang, Act::Hang]);
    let client = client(&script).await;
    let (of_transaction, patience) = (transaction(), Duration::from_secs(20));
    let dropped = tokio::time::timeout(
        Duration::from_millis(200),
        client.execute(&of_transaction, patience),
    );
    assert!(dropped.await.is_err());
    let told = client.execute(&of_transaction, Duration::from_millis(200)).await;
    assert!(matches!(told, Ok(Outcome::Unknown(_))), "{told:?}");
    let told = client.execute(&of_transaction, patience).await;
    assert!(matches!(told, Ok(Outcome::Committed(_))), "{told:?}");
    assert_eq!(*script.left.lock().unwrap(), [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_runtime_has_gone_is_opened_again() {
    let script = Script::new([Act::Answer(v1::Outcome::Committed), Act::Hang]);
    let client = client(&script).await;
    let calls = client.clone();
    let first = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let told = runtime.block_on(calls.execute(&transaction(), Duration::from_secs(20)));
        assert!(matches!(told, Ok(Outcome::Committed(_))), "{told:?}");
        runtime
    });
    let runtime = first.join().unwrap();
    let hanging = client.clone();
    let waiting = tokio::spawn(async move { hanging.execute(&transaction(), Duration::from_secs(20)).await });
    while script.sends() < 2 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown_background();
    let told = waiting.await.unwrap();
    assert!(matches!(told, Ok(Outcome::Committed(_))), "{told:?}");
    assert_eq!(script.sends(), 3);
}
