//! What waits for one participant, cut into frames as its socket drains.
//!
//! The loop pushes and never waits. The stream takes whatever is there when the socket has room: a slow
//! socket gets few large frames, an idle one small frames at once. A participant that does not drain within
//! [`max_outbox_bytes`] is cut; it joins again and gets what is due, all at once: that always fits.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use covenant_codec::frame;
use covenant_codec::{FRAME_OVERHEAD_BYTES, MAX_FRAME_BYTES};
use covenant_fault::metered;
use covenant_proto::v1::{CoordinatorMessage, JoinResponse, Welcome};
use covenant_rules::{Floor, Limits, ToParticipant};
use prost::Message;
use tonic::Status;

/// What may wait for one participant beside all that is due on its joining: votes' answers, decisions said again.
const MAX_UNDRAINED_BYTES: usize = 16 * 1024 * 1024;

/// A PREPARE without its operation takes no more, nor does any other message.
const MAX_BARE_PREPARE_BYTES: usize = 256;

/// The most bytes of messages that may wait for one participant: what is due when it joins, and a margin.
///
/// On joining a COMMIT or a PREPARE is due for every transaction not finished with a branch there, and a FORGET for
/// every heuristic not forgotten (section 8).
pub(crate) const fn max_outbox_bytes(limits: &Limits) -> usize {
    let decisions_and_prepares = limits
        .max_in_progress_per_participant
        .saturating_mul(MAX_BARE_PREPARE_BYTES);
    let forgets = limits.max_heuristics.saturating_mul(MAX_BARE_PREPARE_BYTES);
    limits
        .max_in_progress_bytes
        .saturating_add(decisions_and_prepares)
        .saturating_add(forgets)
        .saturating_add(MAX_UNDRAINED_BYTES)
}

const _: () = assert!(
    max_outbox_bytes(&Limits::DEFAULT) <= 128 * 1024 * 1024,
    "by default a participant that does not drain costs no more than 128 MiB"
);

struct State {
    max_bytes: usize,
    welcome: Option<Welcome>,
    messages: VecDeque<(CoordinatorMessage, usize)>,
    bytes: usize,
    floor: Option<Floor>,
    position: u64,
    /// The coordinator ended the session: how. What waits before it is dropped.
    end: Option<Status>,
    ended: bool,
    /// The end was delivered, or the connection is gone: nothing goes out any more.
    closed: bool,
    /// Bytes of frames given to the socket, as the meter counts them.
    handed_over: u64,
    waker: Option<Waker>,
    drained: Option<tokio::sync::oneshot::Sender<u64>>,
}

/// The loop's end.
#[derive(Clone)]
pub(crate) struct Outbox {
    state: Arc<Mutex<State>>,
}

impl Outbox {
    /// An empty one that takes so many bytes.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let state = State {
            max_bytes,
            welcome: None,
            messages: VecDeque::new(),
            bytes: 0,
            floor: None,
            position: 0,
            end: None,
            ended: false,
            closed: false,
            handed_over: 0,
            waker: None,
            drained: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The bound that it was made with.
    pub(crate) fn max_bytes(&self) -> usize {
        self.state().max_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held is a panic of the loop or of the socket's task, which ends the session.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts messages behind those that wait, with the floor and the position that hold after them.
    ///
    /// Returns false if too much waits: the session is to be cut. On a session without a connection nothing waits: its
    /// reader tells the loop when all that came over it was heard.
    pub(crate) fn push(&self, messages: &mut Vec<ToParticipant>, floor: Floor, position: u64) -> bool {
        let mut state = self.state();
        if state.closed {
            messages.clear();
            return true;
        }
        for message in messages.drain(..) {
            let bytes = frame::to_participant_bytes(&message);
            state.bytes += bytes;
            state.messages.push_back((frame::to_participant(&message), bytes));
        }
        state.floor = Some(floor);
        state.position = position;
        let within = state.bytes <= state.max_bytes;
        wake(&mut state);
        within
    }

    /// The first frame of the session.
    pub(crate) fn welcome(&self, welcome: Welcome) {
        let mut state = self.state();
        state.welcome = Some(welcome);
        wake(&mut state);
    }

    /// Ends the session with this status.
    pub(crate) fn end(&self, status: Status) {
        let mut state = self.state();
        if !state.ended {
            state.ended = true;
            state.end = Some(status);
        }
        wake(&mut state);
    }

    /// Whether the coordinator ended the session.
    ///
    /// A connection that is gone ended nothing: what a participant said before it died is heard like anything else.
    pub(crate) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Resolves when nothing waits any more, to the bytes given to the socket so far.
    pub(crate) fn drained(&self) -> tokio::sync::oneshot::Receiver<u64> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut state = self.state();
        if state.messages.is_empty() && state.welcome.is_none() {
            let _ = sender.send(state.handed_over);
        } else {
            state.drained = Some(sender);
        }
        receiver
    }

    /// The socket's end.
    pub(crate) fn stream(&self) -> FrameStream {
        FrameStream { outbox: self.clone() }
    }
}

fn wake(state: &mut State) {
    if let Some(waker) = state.waker.take() {
        waker.wake();
    }
}

/// The frames of one session, for tonic.
pub(crate) struct FrameStream {
    outbox: Outbox,
}

impl Drop for FrameStream {
    /// The connection is gone: nothing may pile up for it any more.
    fn drop(&mut self) {
        let mut state = self.outbox.state();
        state.closed = true;
        state.welcome = None;
        state.messages.clear();
        state.bytes = 0;
        state.drained = None;
    }
}

impl tokio_stream::Stream for FrameStream {
    type Item = Result<JoinResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.outbox.state();
        if state.closed {
            return Poll::Ready(None);
        }
        if let Some(status) = state.end.take() {
            state.closed = true;
            return Poll::Ready(Some(Err(status)));
        }
        if state.messages.is_empty() && state.welcome.is_none() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let frame = take_frame(&mut state);
        Poll::Ready(Some(Ok(frame)))
    }
}

fn take_frame(state: &mut State) -> JoinResponse {
    let mut bytes = FRAME_OVERHEAD_BYTES;
    let mut count = 0;
    for (_, size) in &state.messages {
        if count > 0 && bytes + size > MAX_FRAME_BYTES {
            break;
        }
        bytes += size;
        count += 1;
    }
    state.bytes -= bytes - FRAME_OVERHEAD_BYTES;
    let messages: Vec<_> = state
        .messages
        .drain(..count)
        .map(|(message, _)| message)
        .collect();
    let all = state.messages.is_empty();
    let frame = JoinResponse {
        welcome: state.welcome.take(),
        messages,
        // They hold after the last message only: an earlier frame must not announce a floor above a later one.
        floor: state.floor.filter(|_| all).map(covenant_codec::ids::floor),
        position: if all { state.position } else { 0 },
    };
    state.handed_over += metered::frame_bytes(frame.encoded_len());
    if all && let Some(drained) = state.drained.take() {
        let _ = drained.send(state.handed_over);
    }
    frame
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use covenant_rules::{Incarnation, Lineage, TransactionId, Xid};
    use tokio_stream::StreamExt;

    fn prepare_xid(seq: u64) -> Xid {
        Xid {
            lineage: Lineage(1),
            incarnation: Incarnation { counter: 1, bits: 2 },
            seq,
        }
    }

    fn prepare(seq: u64, size: usize) -> ToParticipant {
        ToParticipant::Prepare {
            xid: prepare_xid(seq),
            transaction_id: TransactionId::new("T").unwrap(),
            operation: Arc::from(vec![0_u8; size]),
        }
    }

    const MAX_BYTES: usize = 64 * 1024 * 1024;

    const FLOOR: Floor = Floor { counter: 1, seq: 9 };

    #[tokio::test]
    async fn what_waits_becomes_one_frame_with_floor_and_position() {
        let outbox = Outbox::new(MAX_BYTES);
        let mut stream = outbox.stream();
        let mut frame = tokio_test::task::spawn(stream.next());
        tokio_test::assert_pending!(frame.poll());
        assert!(outbox.push(&mut vec![prepare(1, 10), prepare(2, 10)], FLOOR, 5));
        assert!(frame.is_woken());
        let frame = tokio_test::assert_ready!(frame.poll()).unwrap().unwrap();
        assert_eq!((frame.messages.len(), frame.position), (2, 5));
        assert_eq!(frame.floor, Some(covenant_codec::ids::floor(FLOOR)));
    }

    #[tokio::test]
    async fn frames_stay_below_their_bound_and_only_the_last_carries_the_floor() {
        let outbox = Outbox::new(MAX_BYTES);
        let mut messages: Vec<_> = (0..100).map(|seq| prepare(seq, 32 * 1024)).collect();
        assert!(outbox.push(&mut messages, FLOOR, 5));
        let mut stream = outbox.stream();
        let mut got = 0;
        while got < 100 {
            let frame = stream.next().await.unwrap().unwrap();
            assert!(frame.encoded_len() <= MAX_FRAME_BYTES, "{}", frame.encoded_len());
            got += frame.messages.len();
            assert_eq!(frame.floor.is_some(), got == 100);
        }
        assert_eq!(outbox.state().bytes, 0);
    }

    #[tokio::test]
    async fn a_session_that_does_not_drain_is_to_be_cut() {
        let outbox = Outbox::new(MAX_BYTES);
        let mut within = 0;
        while outbox.push(&mut vec![prepare(within, 32 * 1024)], FLOOR, 5) {
            within += 1;
            assert!(within < 10_000, "no bound");
        }
        assert!(within > 1_000);
        outbox.end(Status::resource_exhausted("cut"));
        let mut stream = outbox.stream();
        assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "cut");
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_connection_that_is_gone_ended_nothing_and_nothing_waits_for_it() {
        let outbox = Outbox::new(MAX_BYTES);
        assert!(outbox.push(&mut vec![prepare(1, 10)], FLOOR, 5));
        drop(outbox.stream());
        assert!(!outbox.has_ended(), "what came over it is still to be heard");
        let mut messages = vec![prepare(2, 10)];
        assert!(
            outbox.push(&mut messages, FLOOR, 6),
            "its reader says when it is over"
        );
        assert!(messages.is_empty());
        assert_eq!(outbox.state().bytes, 0);
        outbox.end(Status::unavailable("stop"));
        assert!(outbox.has_ended());
    }

    #[test]
    fn all_that_is_due_on_joining_fits() {
        let longest = TransactionId::new(&"T".repeat(covenant_rules::MAX_ID_BYTES)).unwrap();
        let due = |operation: usize| ToParticipant::Prepare {
            xid: Xid {
                lineage: Lineage(u128::MAX),
                incarnation: Incarnation {
                    counter: u64::MAX,
                    bits: u64::MAX,
                },
                seq: u64::MAX,
            },
            transaction_id: longest.clone(),
            operation: Arc::from(vec![0; operation]),
        };
        assert!(frame::to_participant_bytes(&due(0)) <= MAX_BARE_PREPARE_BYTES);
        let limits = Limits {
            max_in_progress_per_participant: 400,
            max_in_progress_bytes: 400 * covenant_codec::MAX_OPERATION_BYTES,
            ..Limits::DEFAULT
        };
        let outbox = Outbox::new(max_outbox_bytes(&limits));
        let mut messages = vec![due(covenant_codec::MAX_OPERATION_BYTES); 400];
        messages.extend(vec![ToParticipant::Forget(prepare_xid(1)); limits.max_heuristics]);
        assert!(outbox.push(&mut messages, FLOOR, 5));
        let margin = outbox.max_bytes() - outbox.state().bytes;
        assert!(
            margin >= MAX_UNDRAINED_BYTES,
            "the margin is for what comes after it"
        );
    }
}
