//! ExecuteMany: calls of many callers over one stream, and their answers.
//!
//! A frame costs what a unary call costs, however many calls are in it. Each call goes the way of a unary one, with the
//! same bounds and the same refusals; only the form of the stream is judged here, and breaking it ends the stream.

use std::pin::Pin;
use std::sync::Arc;

use covenant_proto::v1::{
    CallError, ExecuteManyRequest, ExecuteManyResponse, NumberedAnswer, NumberedCall, numbered_answer,
};
use covenant_rules::Limits;
use covenant_rules::coordinator::View;
use futures_util::StreamExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::{convert, status};
use crate::answers::{Answers, Numbered, Weigh};
use crate::input::{Answered, Handle, Refused};

/// The most streams at a time; each has at least a task and a connection's share.
pub(super) const MAX_CALL_STREAMS: usize = 10_000;

/// The most calls under way on one stream: as many as requests on a connection.
const MAX_STREAM_CALLS: usize = 8_192;

/// The most calls of one frame, and the most numbers that are left in it.
const MAX_FRAME_CALLS: usize = 1_024;

/// What an answer takes on the wire beside its branches: an id, an xid, times, a reason with its detail.
const BARE_ANSWER_BYTES: usize = 2_048;

/// What a branch of it takes beside its participant's name and its reason.
const BARE_BRANCH_BYTES: usize = 128;

pub(super) type Frames = Pin<Box<dyn Stream<Item = Result<ExecuteManyResponse, Status>> + Send>>;

/// The answers to what comes over the stream; it keeps its place until they are dropped.
pub(super) fn answer(
    handle: Handle,
    limits: Arc<Limits>,
    stream: Streaming<ExecuteManyRequest>,
    place: OwnedSemaphorePermit,
) -> Frames {
    let answers = Answers::new();
    let outgoing = answers.outgoing().map(move |frame| {
        let _held = &place;
        frame.map(to_frame)
    });
    let reader = Reader {
        handle,
        limits,
        answers,
        last: 0,
    };
    // Apart from the answers: a caller that does not read them must not keep a message unfinished beyond its time.
    tokio::spawn(reader.run(stream));
    Box::pin(outgoing)
}

struct Reader {
    handle: Handle,
    limits: Arc<Limits>,
    answers: Answers<Answered>,
    /// The highest number so far.
    last: u64,
}

impl Reader {
    async fn run(mut self, mut stream: Streaming<ExecuteManyRequest>) {
        loop {
            let frame = tokio::select! {
                frame = stream.message() => frame,
                () = self.handle.calls.closed() => {
                    let why = "the coordinator is shutting down; send the same ids again";
                    return self.answers.end(Status::unavailable(why));
                }
            };
            // Whoever goes on sending on a stream that was ended must not keep the loop busy.
            if self.answers.has_ended() {
                return;
            }
            match frame {
                Ok(Some(frame)) => {
                    if let Err(status) = self.frame(frame) {
                        return self.answers.cut(status);
                    }
                }
                // Who has no more calls still wants the answers.
                Ok(None) => return self.answers.end(Status::ok("")),
                Err(status) => return self.answers.cut(status),
            }
        }
    }

    fn frame(&mut self, frame: ExecuteManyRequest) -> Result<(), Status> {
        if frame.calls.len().max(frame.left.len()) > MAX_FRAME_CALLS {
            let what = "a frame has too many calls";
            return Err(status::exhausted("MAX_FRAME_CALLS", MAX_FRAME_CALLS as u64, what));
        }
        // First: they make room for the calls beside them.
        self.answers.leave(&frame.left);
        frame.calls.into_iter().try_for_each(|call| self.call(call))
    }

    fn call(&mut self, call: NumberedCall) -> Result<(), Status> {
        let NumberedCall { number, execute } = call;
        if number <= self.last {
            let last = self.last;
            let what =
                format!("{number} follows {last}; the numbers of a stream begin at 1 or above, and rise");
            return Err(status::invalid("number", what));
        }
        self.last = number;
        let ticket = self.answers.ticket(number);
        let execute = if self.answers.under_way() > MAX_STREAM_CALLS {
            let what = "too many calls are under way on this stream";
            Err(status::exhausted(
                "MAX_STREAM_CALLS",
                MAX_STREAM_CALLS as u64,
                what,
            ))
        } else {
            let missing = || status::invalid("execute", "it is required".to_owned());
            let execute = execute.ok_or_else(missing);
            execute.and_then(|execute| convert::execute(execute, &self.limits))
        };
        match execute {
            Ok(execute) => self.handle.execute(execute, ticket),
            Err(status) => ticket.send(Err(Refused::AtTheDoor(status))),
        }
        Ok(())
    }
}

fn to_frame(answers: Vec<Numbered<Answered>>) -> ExecuteManyResponse {
    let answers = answers.into_iter().map(|(number, answer)| {
        let answer = match answer.unwrap_or(Err(Refused::Unanswered)) {
            Ok(view) => numbered_answer::Answer::Transaction(convert::transaction(&view)),
            Err(why) => numbered_answer::Answer::Error(error(&status::refused(why))),
        };
        NumberedAnswer {
            number,
            answer: Some(answer),
        }
    });
    ExecuteManyResponse {
        answers: answers.collect(),
    }
}

/// The status that a unary call would have ended with.
fn error(status: &Status) -> CallError {
    CallError {
        code: status.code().into(),
        message: status.message().to_owned(),
        details: status.details().to_vec().into(),
    }
}

impl Weigh for Answered {
    fn most_bytes(&self) -> usize {
        let branches: &[_] = match self {
            Ok(View { branches, .. }) => branches,
            // The archive's errors bring a path; the others are one of the sentences here.
            Err(Refused::AtTheDoor(status)) => {
                return BARE_ANSWER_BYTES + status.message().len() + status.details().len();
            }
            Err(_) => &[],
        };
        let bytes = branches.iter().map(|branch| {
            let reason = branch.reason.as_ref();
            let reason = reason.map_or(0, |reason| reason.code.len() + reason.detail.len());
            BARE_BRANCH_BYTES + branch.participant.as_str().len() + reason
        });
        BARE_ANSWER_BYTES + bytes.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_codec::{MAX_REASON_CODE_BYTES, MAX_REASON_DETAIL_BYTES};
    use covenant_rules::coordinator::{BranchView, State};
    use covenant_rules::{
        AbortReason, BranchState, Heuristic, Incarnation, Lineage, Name, NoReason, OutcomeKind,
        TransactionId, UnknownCause, Xid,
    };
    use prost::Message;

    /// An answer in which everything is as long as it may be.
    fn longest(branches: usize) -> View {
        let name = Name::new(&"n".repeat(128)).unwrap();
        let reason = NoReason {
            code: "C".repeat(MAX_REASON_CODE_BYTES).into(),
            detail: "d".repeat(MAX_REASON_DETAIL_BYTES).into(),
        };
        let lineage = Lineage(u128::MAX);
        let branch = BranchView {
            participant: name.clone(),
            state: BranchState::HeuristicAbort,
            reason: Some(reason.clone()),
            deliveries: u32::MAX,
            lineage: Some(lineage),
            heuristic: Some(Heuristic::Abort),
            damage: Some(true),
        };
        let incarnation = Incarnation {
            counter: u64::MAX,
            bits: u64::MAX,
        };
        let xid = Xid {
            lineage,
            incarnation,
            seq: u64::MAX,
        };
        let id = TransactionId::new(&"i".repeat(128)).unwrap();
        let far = 253_402_300_799_999;
        View {
            xid: Some(xid),
            outcome: OutcomeKind::Unknown,
            state: Some(State::Aborted),
            aborted: Some(AbortReason::VoteNo(name.clone(), reason)),
            missing_votes: vec![name; branches],
            heuristic: Some(Heuristic::Mixed),
            branches: vec![branch; branches],
            created: Some(far),
            decided: Some(far),
            ..View::unknown(id, UnknownCause::Suspect, far)
        }
    }

    #[test]
    fn no_answer_takes_more_than_it_is_counted_for() {
        for branches in [0, 1, 2, 128] {
            let answers = [
                Ok(longest(branches)),
                Err(Refused::QueueFull),
                Err(Refused::AtTheDoor(status::invalid("execute", "x".repeat(9_000)))),
            ];
            for answer in answers {
                let counted = answer.most_bytes();
                let takes = to_frame(vec![(u64::MAX, Some(answer))]).encoded_len();
                assert!(takes <= counted, "{branches} branches: {takes} of {counted}");
            }
        }
    }
}
