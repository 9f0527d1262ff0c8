//! Streams of calls that mean harm, against the real coordinator: numbers that do not rise, floods past every bound, frames
//! of any size, answers that nobody reads, callers that leave and streams that end half-way. Each attack runs beside
//! transfers of honest callers, which all commit; the coordinator neither panics nor outgrows its bound.
//!
//! It cannot show how many streams there may be: their bound is far beyond what a test machine has in descriptors.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use covenant_client::{Branch, Outcome, Refusal, RefusalKind, Transaction};
use covenant_proto::v1::numbered_answer::Answer;
use covenant_proto::v1::{self, CallError, NumberedCall, VoteKind};
use covenant_tests::attack::withstands;
use covenant_tests::cluster::PATIENCE;
use covenant_tests::numbered::{Numbered, call};
use covenant_tests::rogue::{Rogue, hello, message, vote};
use covenant_tests::{Cluster, Transfer};
use tonic::{Code, Status};

/// The bounds of a stream, as the .proto file tells them.
const MAX_FRAME_CALLS: u64 = 1_024;
const MAX_STREAM_CALLS: u64 = 8_192;

/// Answers that are more than a stream keeps unread, with what fits into the windows of its connection.
const UNREAD_ANSWERS: u64 = 100_000;

fn transfer(id: &str) -> Transaction {
    Transfer::new(id, 1).transaction()
}

/// Calls without anything to execute, each refused by itself.
fn empty(numbers: impl IntoIterator<Item = u64>) -> Vec<NumberedCall> {
    let call = |number| NumberedCall {
        number,
        execute: None,
    };
    numbers.into_iter().map(call).collect()
}

fn refusal(error: CallError) -> Result<Refusal> {
    let status = Status::with_details(Code::from(error.code), error.message, error.details);
    Refusal::from_status(&status).with_context(|| format!("no ErrorInfo: {status:?}"))
}

fn bound_of(answer: Answer) -> Result<String> {
    match answer {
        Answer::Error(error) => match refusal(error)?.kind {
            RefusalKind::ResourceExhausted { bound, .. } => Ok(bound),
            other => bail!("{other:?}"),
        },
        Answer::Transaction(view) => bail!("it was taken: {view:?}"),
    }
}

fn is_committed(answer: &Answer) -> bool {
    matches!(answer, Answer::Transaction(view) if view.outcome() == v1::Outcome::Committed)
}

#[tokio::test]
async fn what_breaks_the_form_of_a_stream_ends_it_and_its_calls_go_on() -> Result<()> {
    withstands(Cluster::start().await?, "streams out of form", async |cluster| {
        let url = cluster.coordinator.url();
        let huge = |bytes: usize| {
            let mut huge = transfer("huge");
            huge.branches.push(Branch::new("nobody", vec![0; bytes]));
            call(11, &huge)
        };
        let argument = Code::InvalidArgument;
        for (at, (calls, left, code, words)) in [
            (empty([10]), vec![], argument, "10 follows 10"),
            (empty([9]), vec![], argument, "9 follows 10"),
            (empty([0]), vec![], argument, "0 follows 10"),
            (empty([11, 13, 12]), vec![], argument, "12 follows 13"),
            (
                empty(11..=11 + MAX_FRAME_CALLS),
                vec![],
                Code::ResourceExhausted,
                "MAX_FRAME_CALLS is 1024",
            ),
            (
                vec![],
                (0..=MAX_FRAME_CALLS).collect(),
                Code::ResourceExhausted,
                "MAX_FRAME_CALLS is 1024",
            ),
            (vec![huge(5_000_000)], vec![], Code::OutOfRange, "message length"),
        ]
        .into_iter()
        .enumerate()
        {
            let mut stream = Numbered::open(&url).await?;
            let id = format!("before-{at}");
            let first = transfer(&id);
            stream.say(vec![call(10, &first)], vec![]).await?;
            stream.say(calls, left).await?;
            let status = stream.ended().await?;
            ensure!(
                status.code() == code && status.message().contains(words),
                "{words}: {status:?}"
            );
            let outcome = cluster.client().execute(&first, PATIENCE).await?;
            ensure!(matches!(outcome, Outcome::Committed(_)), "{id}: {outcome:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_bad_call_is_answered_by_itself_and_its_neighbours_commit() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "bad calls among good ones",
        async |cluster| {
            let mut stream = Numbered::open(&cluster.coordinator.url()).await?;
            let mut twice = transfer("twice");
            twice.branches.push(twice.branches[0].clone());
            let mut frame = vec![call(1, &transfer("first")), call(2, &twice)];
            frame.extend(empty([3]));
            frame.push(call(u64::MAX, &transfer("last")));
            stream.say(frame, vec![0, 7, u64::MAX]).await?;
            stream.say_no_more();
            let mut answers = Vec::new();
            for _ in 0..4 {
                answers.push(stream.next().await?);
            }
            answers.sort_by_key(|(number, _)| *number);
            for (number, answer) in answers {
                match (number, answer) {
                    (1 | u64::MAX, answer) => ensure!(is_committed(&answer), "{number}: {answer:?}"),
                    (2 | 3, Answer::Error(error)) => {
                        let refusal = refusal(error)?;
                        let is_argument = refusal.kind == RefusalKind::InvalidArgument;
                        ensure!(
                            is_argument && refusal.metadata.contains_key("field"),
                            "{refusal:?}"
                        );
                    }
                    (number, answer) => bail!("{number}: {answer:?}"),
                }
            }
            let end = stream.ended().await?;
            ensure!(end.code() == Code::Ok, "{end:?}");
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn calls_past_the_bound_of_a_stream_are_refused_by_its_name_until_others_are_left() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "more calls than a stream has",
        async |cluster| {
            // It joined, so that it is known, and does not vote until the end.
            let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
            let mut stream = Numbered::open(&cluster.coordinator.url()).await?;
            let frame = |first: u64| {
                let numbers = first..first + MAX_FRAME_CALLS;
                let calls = numbers.map(|number| {
                    let transaction = Transaction {
                        branches: vec![Branch::new("rogue", vec![0; 8])],
                        timeout: Some(Duration::from_secs(60)),
                        ..transfer(&format!("many-{number}"))
                    };
                    call(number, &transaction)
                });
                calls.collect::<Vec<_>>()
            };
            let mut xids = Vec::new();
            for first in (0..MAX_STREAM_CALLS).step_by(usize::try_from(MAX_FRAME_CALLS)?) {
                stream.say(frame(1 + first), vec![]).await?;
                for _ in 0..MAX_FRAME_CALLS {
                    xids.push(rogue.prepare().await?);
                }
            }
            let beyond = 1 + MAX_STREAM_CALLS;
            stream.say(frame(beyond), vec![]).await?;
            let mut refused = BTreeSet::new();
            for _ in 0..MAX_FRAME_CALLS {
                let (number, answer) = stream.next().await?;
                let bound = bound_of(answer)?;
                ensure!(bound == "MAX_STREAM_CALLS", "{number}: {bound}");
                refused.insert(number);
            }
            ensure!(
                refused == (beyond..beyond + MAX_FRAME_CALLS).collect(),
                "{refused:?}"
            );
            let left: Vec<u64> = (1..=MAX_FRAME_CALLS).collect();
            stream.say(frame(beyond + MAX_FRAME_CALLS), left.clone()).await?;
            for _ in 0..MAX_FRAME_CALLS {
                xids.push(rogue.prepare().await?);
            }
            for chunk in xids.chunks(1_024) {
                let votes = chunk.iter().map(|xid| message(*xid, vote(VoteKind::No)));
                rogue.say(votes.collect()).await?;
            }
            // Everybody who did not leave is answered, and nobody else.
            let mut answered = BTreeSet::new();
            for _ in 0..MAX_STREAM_CALLS {
                let (number, answer) = stream.next().await?;
                ensure!(answered.insert(number), "{number} is answered twice");
                let aborted =
                    matches!(&answer, Answer::Transaction(view) if view.outcome() == v1::Outcome::Aborted);
                ensure!(aborted, "{number}: {answer:?}");
            }
            ensure!(left.iter().all(|number| !answered.contains(number)));
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn a_stream_of_which_the_answers_are_not_read_is_cut_at_its_bound() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "answers that nobody reads",
        async |cluster| {
            let mut stream = Numbered::open(&cluster.coordinator.url()).await?;
            let mut next = 1;
            // Behind a stream that was cut nothing is taken any more.
            while next < UNREAD_ANSWERS {
                let frame = empty(next..next + MAX_FRAME_CALLS);
                if stream.say(frame, vec![]).await.is_err() {
                    break;
                }
                next += MAX_FRAME_CALLS;
            }
            let status = stream.ended().await?;
            ensure!(
                status.code() == Code::ResourceExhausted && status.message().contains("MAX_UNREAD_BYTES"),
                "after {next}: {status:?}"
            );
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn callers_that_leave_and_streams_that_are_dropped_abort_nothing() -> Result<()> {
    withstands(Cluster::start().await?, "callers that leave", async |cluster| {
        let url = cluster.coordinator.url();
        let mut rogue = Rogue::join(&url, hello("rogue", 1)).await?;
        let with_rogue = |id: &str| {
            let mut transaction = transfer(id);
            transaction.timeout = Some(PATIENCE);
            transaction.branches.push(Branch::new("rogue", b"x".to_vec()));
            transaction
        };
        for (id, is_dropped) in [("left", false), ("dropped", true)] {
            let mut stream = Numbered::open(&url).await?;
            stream.say(vec![call(1, &with_rogue(id))], vec![]).await?;
            let xid = rogue.prepare().await?;
            if is_dropped {
                drop(stream);
            } else {
                // What is answered after it shows that the leave was read.
                stream.say(empty([2]), vec![1, 2, 3]).await?;
                let (number, _) = stream.next().await?;
                ensure!(number == 2, "{number} is answered");
                stream.say_no_more();
                ensure!(stream.ended().await?.code() == Code::Ok);
            }
            rogue.say(vec![message(xid, vote(VoteKind::Yes))]).await?;
            rogue.commit(xid).await?;
            let outcome = cluster.client().execute(&with_rogue(id), PATIENCE).await;
            // `created` is of another moment, the content is the same.
            ensure!(matches!(outcome, Ok(Outcome::Committed(_))), "{id}: {outcome:?}");
        }
        Ok(())
    })
    .await
}
