//! The answers to the numbered calls of one stream, collected until its socket takes them.
//!
//! Whoever answers a call holds a [`Ticket`] and never waits. What waits when the socket has room leaves together: an
//! idle socket gets small frames at once, a busy one few large ones. Answers that nobody reads are kept up to
//! [`MAX_UNREAD_BYTES`]; beyond it the stream is cut, and its calls go on without anybody who waits for them.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use covenant_codec::MAX_FRAME_BYTES;
use tonic::Status;

use crate::grpc::status;

/// The most bytes of answers that one stream keeps until they are read, 16 MiB.
pub(crate) const MAX_UNREAD_BYTES: usize = 16 * 1024 * 1024;

/// An answer that knows how many bytes it takes at most on the wire.
pub(crate) trait Weigh {
    fn most_bytes(&self) -> usize;
}

/// An answer with the number of its call; `None` if whoever was to answer is gone.
pub(crate) type Numbered<T> = (u64, Option<T>);

struct State<T> {
    /// The calls of which the answer is awaited.
    under_way: HashSet<u64>,
    waiting: VecDeque<Numbered<T>>,
    bytes: usize,
    /// How the stream ends once all is answered.
    end: Option<Status>,
    /// The end was delivered, or the connection is gone.
    closed: bool,
    waker: Option<Waker>,
}

impl<T> State<T> {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn forget(&mut self) {
        self.under_way.clear();
        self.waiting.clear();
        self.bytes = 0;
    }
}

/// Those of one stream.
pub(crate) struct Answers<T> {
    state: Arc<Mutex<State<T>>>,
}

impl<T> Clone for Answers<T> {
    fn clone(&self) -> Self {
        let state = Arc::clone(&self.state);
        Self { state }
    }
}

impl<T: Weigh> Answers<T> {
    pub(crate) fn new() -> Self {
        let state = State {
            under_way: HashSet::new(),
            waiting: VecDeque::new(),
            bytes: 0,
            end: None,
            closed: false,
            waker: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing in here panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a call, of which nobody may have the number yet.
    pub(crate) fn ticket(&self, number: u64) -> Ticket<T> {
        let mut state = self.state();
        if !state.closed {
            state.under_way.insert(number);
        }
        Ticket {
            number,
            answers: self.clone(),
            is_answered: false,
        }
    }

    /// How many calls are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.state().under_way.len()
    }

    /// Nobody waits for these any more. A number that is not under way changes nothing: its answer may have crossed.
    pub(crate) fn leave(&self, numbers: &[u64]) {
        let mut state = self.state();
        for number in numbers {
            state.under_way.remove(number);
        }
        state.wake();
    }

    /// Ends the stream when all that is under way is answered.
    pub(crate) fn end(&self, status: Status) {
        let mut state = self.state();
        state.end.get_or_insert(status);
        state.wake();
    }

    /// Ends the stream after the answers that are there; the calls under way go on.
    pub(crate) fn cut(&self, status: Status) {
        self.state().under_way.clear();
        self.end(status);
    }

    /// Whether it has an end.
    pub(crate) fn has_ended(&self) -> bool {
        let state = self.state();
        state.closed || state.end.is_some()
    }

    /// The socket's end; there is one.
    pub(crate) fn outgoing(&self) -> Outgoing<T> {
        Outgoing {
            answers: self.clone(),
        }
    }

    fn answer(&self, number: u64, answer: Option<T>) {
        let mut state = self.state();
        if !state.under_way.remove(&number) {
            return;
        }
        state.bytes += answer.most_bytes();
        state.waiting.push_back((number, answer));
        if state.bytes > MAX_UNREAD_BYTES {
            state.forget();
            let bound = MAX_UNREAD_BYTES as u64;
            let what = "too many answers of this stream wait to be read";
            state.end = Some(status::exhausted("MAX_UNREAD_BYTES", bound, what));
        }
        state.wake();
    }
}

/// What the answer takes that says that there is none: a number, and a sentence.
const UNANSWERED_BYTES: usize = 512;

impl<T: Weigh> Weigh for Option<T> {
    fn most_bytes(&self) -> usize {
        self.as_ref().map_or(UNANSWERED_BYTES, Weigh::most_bytes)
    }
}

/// The place of one call under way. Dropped, it tells the caller that nobody is left to answer.
pub(crate) struct Ticket<T: Weigh> {
    number: u64,
    answers: Answers<T>,
    is_answered: bool,
}

impl<T: Weigh> Ticket<T> {
    pub(crate) fn send(mut self, answer: T) {
        self.is_answered = true;
        self.answers.answer(self.number, Some(answer));
    }

    /// Whether nobody waits for it any more.
    pub(crate) fn is_closed(&self) -> bool {
        !self.answers.state().under_way.contains(&self.number)
    }
}

impl<T: Weigh> Drop for Ticket<T> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.answers.answer(self.number, None);
        }
    }
}

impl<T: Weigh> std::fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.number).finish()
    }
}

/// The frames of one stream.
pub(crate) struct Outgoing<T: Weigh> {
    answers: Answers<T>,
}

impl<T: Weigh> Drop for Outgoing<T> {
    /// The connection is gone: nothing may pile up for it any more.
    fn drop(&mut self) {
        let mut state = self.answers.state();
        state.closed = true;
        state.forget();
    }
}

impl<T: Weigh> tokio_stream::Stream for Outgoing<T> {
    type Item = Result<Vec<Numbered<T>>, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.answers.state();
        if state.closed {
            return Poll::Ready(None);
        }
        if !state.waiting.is_empty() {
            return Poll::Ready(Some(Ok(take_frame(&mut state))));
        }
        if state.under_way.is_empty()
            && let Some(status) = state.end.take()
        {
            state.closed = true;
            return Poll::Ready(Some(Err(status)));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

fn take_frame<T: Weigh>(state: &mut State<T>) -> Vec<Numbered<T>> {
    let (mut bytes, mut count) = (0, 0);
    for (_, answer) in &state.waiting {
        let more = answer.most_bytes();
        if count > 0 && bytes + more > MAX_FRAME_BYTES {
            break;
        }
        bytes += more;
        count += 1;
    }
    state.bytes -= bytes;
    state.waiting.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;
    use tonic::Code;

    impl Weigh for usize {
        fn most_bytes(&self) -> usize {
            *self
        }
    }

    #[tokio::test]
    async fn what_waits_leaves_in_frames_within_their_bound_and_an_end_waits_for_all() {
        let answers = Answers::new();
        let mut outgoing = answers.outgoing();
        let mut frame = tokio_test::task::spawn(outgoing.next());
        tokio_test::assert_pending!(frame.poll());
        let last = answers.ticket(9);
        for number in 1..=4 {
            answers.ticket(number).send(MAX_FRAME_BYTES / 2);
        }
        answers.end(Status::ok("over"));
        assert!(frame.is_woken());
        let two = tokio_test::assert_ready!(frame.poll()).unwrap().unwrap();
        drop(frame);
        assert_eq!(two.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(outgoing.next().await.unwrap().unwrap().len(), 2);
        let mut end = tokio_test::task::spawn(outgoing.next());
        tokio_test::assert_pending!(end.poll());
        drop(last);
        assert!(end.is_woken());
        let unanswered = tokio_test::assert_ready!(end.poll()).unwrap().unwrap();
        assert_eq!(unanswered, [(9, None)]);
        drop(end);
        assert_eq!(outgoing.next().await.unwrap().unwrap_err().code(), Code::Ok);
        assert!(outgoing.next().await.is_none());
        assert_eq!(answers.state().bytes, 0);
    }

    #[tokio::test]
    async fn a_call_that_was_left_is_closed_and_its_answer_goes_nowhere() {
        let answers = Answers::new();
        let mut outgoing = answers.outgoing();
        let (left, kept) = (answers.ticket(1), answers.ticket(2));
        answers.leave(&[1, 77]);
        assert!(left.is_closed() && !kept.is_closed());
        assert_eq!(answers.under_way(), 1);
        left.send(1);
        kept.send(1);
        assert_eq!(outgoing.next().await.unwrap().unwrap(), [(2, Some(1))]);
        let gone = answers.ticket(3);
        drop(outgoing);
        assert!(gone.is_closed() && answers.ticket(4).is_closed());
        gone.send(1);
        assert_eq!((answers.under_way(), answers.state().waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_stream_that_is_not_read_is_cut_at_the_bound_and_keeps_nothing() {
        let answers = Answers::new();
        let mut outgoing = answers.outgoing();
        let others = answers.ticket(1_000);
        for number in 1..=16 {
            answers.ticket(number).send(MAX_UNREAD_BYTES / 16);
        }
        assert!(!answers.has_ended());
        answers.ticket(17).send(1);
        assert!(answers.has_ended() && others.is_closed());
        assert_eq!(answers.state().bytes, 0);
        let cut = outgoing.next().await.unwrap().unwrap_err();
        assert!(cut.message().contains("MAX_UNREAD_BYTES is 16777216"), "{cut}");
    }
}
