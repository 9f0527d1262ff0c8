//! Calls over a stream keep the rules of those that have a call of their own.

use covenant_coordinator::Config;
use covenant_proto::v1::numbered_answer::Answer;
use covenant_proto::v1::{
    AbortTransactionRequest, CallError, ExecuteManyRequest, ExecuteManyResponse, ExecuteRequest,
    NumberedCall, Outcome, VoteKind,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use tonic_types::StatusExt;

use crate::played::{Coordinator, PATIENCE, Played, request, run};

struct Stream {
    out: mpsc::Sender<ExecuteManyRequest>,
    frames: Streaming<ExecuteManyResponse>,
    waiting: Vec<(u64, Answer)>,
}

impl Stream {
    async fn open(coordinator: &Coordinator) -> Self {
        let (out, requests) = mpsc::channel(4);
        let mut caller = coordinator.caller().await;
        let frames = caller.execute_many(ReceiverStream::new(requests)).await;
        Self {
            out,
            frames: frames.unwrap().into_inner(),
            waiting: Vec::new(),
        }
    }

    async fn say(&self, numbers: impl Iterator<Item = u64>, execute: &ExecuteRequest, left: Vec<u64>) {
        let call = |number| NumberedCall {
            number,
            execute: Some(execute.clone()),
        };
        let calls = numbers.map(call).collect();
        self.out.send(ExecuteManyRequest { calls, left }).await.unwrap();
    }

    async fn next(&mut self) -> Result<(u64, Answer), Status> {
        while self.waiting.is_empty() {
            let frame = tokio::time::timeout(PATIENCE, self.frames.message())
                .await
                .unwrap()?;
            let answers = frame.unwrap().answers.into_iter();
            self.waiting = answers
                .map(|answer| (answer.number, answer.answer.unwrap()))
                .collect();
        }
        Ok(self.waiting.remove(0))
    }

    async fn error(&mut self) -> (u64, Status) {
        match self.next().await.unwrap() {
            (
                number,
                Answer::Error(CallError {
                    code,
                    message,
                    details,
                }),
            ) => (number, Status::with_details(Code::from(code), message, details)),
            (number, Answer::Transaction(view)) => panic!("{number}: {view:?}"),
        }
    }
}

#[tokio::test]
async fn one_id_over_streams_and_alone_has_one_attempt_and_one_answer() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let asked = request("T1", &["a"], "x");
    let (mut one, mut other) = (Stream::open(&coordinator).await, Stream::open(&coordinator).await);
    one.say(1..=2, &asked, vec![]).await;
    let xid = a.expect_prepare().await;
    other.say(7..=7, &asked, vec![]).await;
    let alone = tokio::spawn(run(coordinator.caller().await, asked.clone()));
    a.vote(xid, VoteKind::Yes).await;
    let told = alone.await.unwrap();
    assert_eq!(told.outcome(), Outcome::Committed);
    one.say(3..=3, &asked, vec![]).await;
    let mut answers = vec![other.next().await.unwrap()];
    for _ in 0..3 {
        answers.push(one.next().await.unwrap());
    }
    answers.sort_by_key(|(number, _)| *number);
    let numbers: Vec<u64> = answers.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 7]);
    for (number, answer) in answers {
        let Answer::Transaction(view) = answer else {
            panic!("{number}: {answer:?}")
        };
        assert_eq!((view.outcome(), view.xid), (told.outcome(), told.xid), "{number}");
    }
    one.say(4..=4, &request("T1", &["a"], "other"), vec![]).await;
    let (_, refused) = one.error().await;
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert_eq!(refused.get_details_error_info().unwrap().reason, "OTHER_CONTENT");
    coordinator.stop().await;
}

#[tokio::test]
async fn calls_that_a_stop_leaves_unanswered_are_unknown_and_then_the_stream_ends() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut stream = Stream::open(&coordinator).await;
    stream.say(1..=2, &request("T1", &["a"], "x"), vec![]).await;
    a.expect_prepare().await;
    // No vote: the drain runs out of time while the transaction is PREPARING.
    coordinator.stop().await;
    for _ in 0..2 {
        let (number, status) = stream.error().await;
        assert!(
            status.get_details_error_info().is_none(),
            "an ErrorInfo says that {number} ran nothing (section 7): {status:?}"
        );
    }
    let end = stream.next().await.unwrap_err();
    assert_eq!(end.code(), Code::Unavailable, "{end:?}");
}

#[tokio::test]
async fn calls_that_were_left_keep_no_place_from_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    let mut asked = request("T1", &["a"], "x");
    asked.timeout = Some(prost_types::Duration {
        seconds: 60,
        nanos: 0,
    });
    let max = Config::default().transactions.max_attached_callers as u64;
    let mut stream = Stream::open(&coordinator).await;
    stream.say(1..=max + 1, &asked, vec![]).await;
    a.expect_prepare().await;
    let (number, refused) = stream.error().await;
    assert_eq!((number, refused.code()), (max + 1, Code::ResourceExhausted));
    // One place for the caller that aborts; the call beside it shows that the frame was read.
    stream.say(max + 2..=max + 2, &asked, vec![1, 2]).await;
    stream.say(max + 3..=max + 3, &asked, vec![]).await;
    stream.say(max + 4..=max + 4, &asked, vec![]).await;
    let (number, refused) = stream.error().await;
    assert_eq!((number, refused.code()), (max + 4, Code::ResourceExhausted));
    drop(stream);
    let abort = AbortTransactionRequest {
        transaction_id: "T1".to_owned(),
        created: asked.created,
    };
    // The server hears of a stream that is gone a moment later. A call that finds no place aborts nothing.
    let began = std::time::Instant::now();
    let aborted = loop {
        match coordinator.caller().await.abort_transaction(abort.clone()).await {
            Ok(answer) => break answer.into_inner().transaction.unwrap(),
            Err(refused) => assert_eq!(refused.code(), Code::ResourceExhausted),
        }
        assert!(began.elapsed() < PATIENCE, "the places stay taken");
    };
    assert_eq!(aborted.reason.unwrap().code, "ABORTED_BY_CALLER");
    coordinator.stop().await;
}
