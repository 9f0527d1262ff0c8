//! The calls of all callers of one client, over one stream of ExecuteMany.
//!
//! What waits leaves in one frame. The stream is opened by the first call, and again by the first one after it broke; it
//! lives on the runtime of the call that opened it, and breaks when that ends. A call whose caller goes away, or loses its
//! patience, is told to the coordinator as left, so that its place is free; that aborts nothing.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use covenant_proto::v1::numbered_answer::Answer;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{ExecuteManyRequest, ExecuteManyResponse, ExecuteRequest, NumberedCall};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::View;
use crate::error::{NeverLeft, root};

/// The most calls under way on a stream, as every coordinator has it; more wait here.
const MAX_STREAM_CALLS: usize = 8_192;
/// The most calls of a frame, and the most numbers that are left in it, as every coordinator has it.
const MAX_FRAME_CALLS: usize = 1_024;
/// A frame of so many bytes takes no further call. With the largest call it stays below what a coordinator reads.
const FRAME_BYTES: usize = 256 * 1024;
/// What a call takes on the wire beside its branches.
const BARE_CALL_BYTES: usize = 256;
/// What a branch takes beside its operation.
const BARE_BRANCH_BYTES: usize = 144;

type Answered = Result<Option<View>, Status>;

/// The stream of one client, if there is one. Dropped, it ends it.
#[derive(Default)]
pub(crate) struct Calls {
    stream: Mutex<Option<CallStream>>,
}

impl Calls {
    /// One send of Execute, until it is answered or `until`.
    pub(crate) async fn execute(
        &self,
        service: TransactionServiceClient<Channel>,
        request: ExecuteRequest,
        until: Instant,
    ) -> Answered {
        let (stream, (number, answered)) = {
            let mut current = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            let live = current.take().filter(|stream| !stream.state().has_ended);
            let stream = current.insert(live.unwrap_or_else(|| CallStream::open(service)));
            (stream.clone(), stream.put(request))
        };
        let call = Call { stream, number };
        match timeout_at(until, answered).await {
            Ok(Ok(answered)) => answered,
            // The stream ended between the two.
            Ok(Err(_)) => Err(never_left("the stream of calls ended")),
            Err(_) if call.leave() => Err(never_left("no connection came up in the caller's patience")),
            Err(_) => Err(Status::deadline_exceeded("the caller's patience ended")),
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = stream {
            stream.end(&Status::cancelled("the client is gone"));
        }
    }
}

fn never_left(why: &'static str) -> Status {
    let mut status = Status::unavailable(why);
    status.set_source(Arc::new(NeverLeft(why)));
    status
}

/// A call that somebody waits for; dropped, it is left.
struct Call {
    stream: CallStream,
    number: u64,
}

impl Call {
    /// Nobody waits for it any more. Whether it surely never left.
    fn leave(&self) -> bool {
        let mut state = self.stream.state();
        if state.waiting.remove(&self.number).is_none() {
            return false;
        }
        match state.queue.binary_search_by_key(&self.number, |call| call.number) {
            Ok(at) => {
                state.queue.remove(at);
                true
            }
            Err(_) => {
                state.left.push(self.number);
                state.wake();
                false
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.leave();
    }
}

#[derive(Default)]
struct State {
    last: u64,
    /// Calls that have not left, by rising numbers.
    queue: VecDeque<NumberedCall>,
    /// Who waits for which number, those in the queue among them.
    waiting: HashMap<u64, oneshot::Sender<Answered>>,
    /// Numbers that left, and of which nobody waits for the answer any more.
    left: Vec<u64>,
    has_ended: bool,
    waker: Option<Waker>,
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// What may leave now.
    fn take_frame(&mut self) -> Option<ExecuteManyRequest> {
        let count = self.left.len().min(MAX_FRAME_CALLS);
        let left: Vec<u64> = self.left.drain(..count).collect();
        let under_way = self.waiting.len() - self.queue.len() + self.left.len();
        let most = MAX_STREAM_CALLS.saturating_sub(under_way).min(MAX_FRAME_CALLS);
        let mut bytes = 0;
        let mut count = 0;
        for call in self.queue.iter().take(most) {
            if bytes >= FRAME_BYTES {
                break;
            }
            bytes += call.execute.as_ref().map_or(0, most_bytes);
            count += 1;
        }
        let calls: Vec<_> = self.queue.drain(..count).collect();
        (!calls.is_empty() || !left.is_empty()).then_some(ExecuteManyRequest { calls, left })
    }
}

fn most_bytes(request: &ExecuteRequest) -> usize {
    let branches = request.branches.iter();
    BARE_CALL_BYTES
        + branches
            .map(|branch| BARE_BRANCH_BYTES + branch.operation.len())
            .sum::<usize>()
}

#[derive(Clone, Default)]
struct CallStream {
    state: Arc<Mutex<State>>,
}

impl CallStream {
    fn open(service: TransactionServiceClient<Channel>) -> Self {
        let stream = Self::default();
        // A task that its runtime drops ends the stream too.
        let task = Task {
            stream: stream.clone(),
        };
        tokio::spawn(task.run(service));
        stream
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the call, and where its answer will be. On a stream that has ended there is none.
    fn put(&self, request: ExecuteRequest) -> (u64, oneshot::Receiver<Answered>) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        if !state.has_ended {
            state.waiting.insert(number, answer);
            state.queue.push_back(NumberedCall {
                number,
                execute: Some(request),
            });
            state.wake();
        }
        (number, answered)
    }

    fn answered(&self, frame: ExecuteManyResponse) {
        let mut state = self.state();
        for answer in frame.answers {
            // Nobody waits for one that was left.
            let Some(waiting) = state.waiting.remove(&answer.number) else {
                continue;
            };
            let result = match answer.answer {
                Some(Answer::Transaction(transaction)) => Ok(Some(transaction)),
                Some(Answer::Error(error)) => Err(Status::with_details(
                    Code::from(error.code),
                    error.message,
                    error.details,
                )),
                None => Ok(None),
            };
            let _ = waiting.send(result);
        }
        // There may be room again.
        if !state.queue.is_empty() {
            state.wake();
        }
    }

    /// Ends the stream; `status` is told to all that wait.
    fn end(&self, status: &Status) {
        let mut state = self.state();
        state.has_ended = true;
        state.queue.clear();
        for (_, waiting) in state.waiting.drain() {
            let _ = waiting.send(Err(status.clone()));
        }
        state.wake();
    }
}

/// Frames as the socket takes them.
struct Frames {
    stream: CallStream,
}

impl tokio_stream::Stream for Frames {
    type Item = ExecuteManyRequest;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<ExecuteManyRequest>> {
        let mut state = self.stream.state();
        if state.has_ended {
            return Poll::Ready(None);
        }
        let Some(frame) = state.take_frame() else {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        Poll::Ready(Some(frame))
    }
}

/// What reads the answers of a stream.
struct Task {
    stream: CallStream,
}

impl Task {
    async fn run(self, mut service: TransactionServiceClient<Channel>) {
        let frames = Frames {
            stream: self.stream.clone(),
        };
        let mut answers = match service.execute_many(frames).await {
            Ok(answers) => answers.into_inner(),
            // No call of it was read if it says so.
            Err(status) => return self.stream.end(&status),
        };
        let status = loop {
            match answers.message().await {
                Ok(Some(frame)) => self.stream.answered(frame),
                Ok(None) => break Status::unavailable("the coordinator ended the stream of calls"),
                Err(status) => break status,
            }
        };
        // Whatever it says is said of the stream: a call on it may have run.
        self.stream.end(&Status::new(status.code(), root(&status)));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stream
            .end(&Status::cancelled("the runtime of the stream of calls has ended"));
    }
}
