//! What is held of messages that have not arrived whole: bounded in bytes and in time, over all calls together.
//!
//! A server buffers a message until its last byte, and HTTP/2 lets one connection begin thousands. Here the bytes of all
//! unfinished messages share [`MAX_UNFINISHED_BYTES`], and each has [`MESSAGE_TIMEOUT`]. A message that arrives in one
//! piece, as small ones do, holds nothing and is never refused; whoever is refused is told the bound, and nothing of
//! it was run. How long a whole message may be is the services' bound.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tokio::time::{Sleep, sleep};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::grpc::status;

/// The most bytes that are held of unfinished messages, of all calls together.
pub(crate) const MAX_UNFINISHED_BYTES: usize = 64 * 1024 * 1024;

/// How long a message may take from its first byte to its last.
pub(crate) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// What an unfinished message counts besides its bytes: the buffers of its call.
const OPEN_MESSAGE_BYTES: usize = 16 * 1024;

/// The bytes before a message of gRPC: a flag, and its length.
const PREFIX_BYTES: usize = 5;

/// What is held of unfinished messages.
#[derive(Clone)]
pub(crate) struct Budget {
    held: Arc<AtomicUsize>,
    max_bytes: usize,
    timeout: Duration,
}

impl Budget {
    pub(crate) fn new(max_bytes: usize, timeout: Duration) -> Self {
        Self {
            held: Arc::default(),
            max_bytes,
            timeout,
        }
    }

    /// The same body, within the budget.
    pub(crate) fn bound(&self, body: Body) -> Body {
        Body::new(Bounded {
            body,
            messages: Messages::default(),
            held: 0,
            timer: None,
            budget: self.clone(),
        })
    }

    /// Replaces what one body holds; refused if all would hold too much.
    fn hold(&self, before: usize, bytes: usize) -> Result<(), Status> {
        if bytes <= before {
            self.held.fetch_sub(before - bytes, Ordering::AcqRel);
            return Ok(());
        }
        let more = bytes - before;
        if self.held.fetch_add(more, Ordering::AcqRel) + more > self.max_bytes {
            return Err(status::exhausted(
                "MAX_UNFINISHED_BYTES",
                self.max_bytes as u64,
                "too much is held of messages that have not arrived whole",
            ));
        }
        Ok(())
    }
}

/// How far the messages of a body have arrived.
#[derive(Default)]
struct Messages {
    /// The prefix, and how many bytes of it have arrived.
    prefix: [u8; PREFIX_BYTES],
    arrived: usize,
    /// Bytes of the message that have arrived, and that it has.
    message: Option<(usize, usize)>,
}

impl Messages {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if let Some((arrived, length)) = &mut self.message {
                let now = bytes.len().min(*length - *arrived);
                *arrived += now;
                bytes = &bytes[now..];
                if arrived == length {
                    self.message = None;
                }
                continue;
            }
            let now = bytes.len().min(PREFIX_BYTES - self.arrived);
            self.prefix[self.arrived..][..now].copy_from_slice(&bytes[..now]);
            self.arrived += now;
            bytes = &bytes[now..];
            if self.arrived == PREFIX_BYTES {
                let [_, length @ ..] = self.prefix;
                let length = u32::from_be_bytes(length) as usize;
                self.arrived = 0;
                // An empty message is whole.
                self.message = (length > 0).then_some((0, length));
            }
        }
    }

    /// Bytes that wait for the rest of their message.
    fn unfinished(&self) -> usize {
        self.arrived + self.message.map_or(0, |(arrived, _)| PREFIX_BYTES + arrived)
    }
}

/// A body of which the unfinished bytes are counted.
struct Bounded {
    body: Body,
    messages: Messages,
    held: usize,
    /// Until when the message that has begun must have arrived.
    timer: Option<Pin<Box<Sleep>>>,
    budget: Budget,
}

impl Bounded {
    fn overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.as_mut();
        timer.is_some_and(|timer| timer.as_mut().poll(cx).is_ready())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Status> {
        self.messages.take(bytes);
        let unfinished = self.messages.unfinished();
        let now = match unfinished {
            0 => 0,
            arrived => OPEN_MESSAGE_BYTES + arrived,
        };
        let result = self.budget.hold(self.held, now);
        self.held = now;
        if unfinished == 0 {
            self.timer = None;
        } else if unfinished <= bytes.len() {
            // It began with this piece: one that had begun before holds more than the piece brought.
            self.timer = Some(Box::pin(sleep(self.budget.timeout)));
        }
        result
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending() && self.overdue(cx) {
            let seconds = self.budget.timeout.as_secs();
            let message = format!("a message took longer than MESSAGE_TIMEOUT, {seconds} s; send it again");
            return Poll::Ready(Some(Err(status::refusal(
                Code::DeadlineExceeded,
                "MESSAGE_TIMEOUT",
                message,
                &[],
            ))));
        }
        let Some(frame) = ready!(polled) else {
            return Poll::Ready(None);
        };
        let frame = frame?;
        if let Some(bytes) = frame.data_ref() {
            self.take(bytes)?;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.held, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

    fn message(length: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        bytes.resize(PREFIX_BYTES + length, 7);
        bytes
    }

    #[test]
    fn only_what_waits_for_the_rest_of_its_message_is_held() {
        for cut in 1..40 {
            let mut messages = Messages::default();
            let all: Vec<u8> = [message(10), message(0), message(16)].concat();
            let mut arrived = 0;
            for piece in all.chunks(cut) {
                messages.take(piece);
                arrived += piece.len();
                let whole = [0, 15, 20, 41].into_iter().rfind(|end| *end <= arrived);
                assert_eq!(messages.unfinished(), arrived - whole.unwrap_or(0), "cut {cut}");
            }
            assert_eq!(messages.unfinished(), 0);
        }
    }

    type Sender = tokio::sync::mpsc::Sender<Result<Bytes, Status>>;

    fn body(budget: &Budget) -> (Sender, Pin<Box<Body>>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let frames = ReceiverStream::new(receiver).map(|bytes: Result<Bytes, Status>| bytes.map(Frame::data));
        (
            sender,
            Box::pin(budget.bound(Body::new(http_body_util::StreamBody::new(frames)))),
        )
    }

    async fn next(body: &mut Pin<Box<Body>>) -> Option<Result<usize, Status>> {
        let frame = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await?;
        Some(frame.map(|frame| frame.data_ref().map_or(0, Bytes::len)))
    }

    #[tokio::test]
    async fn all_unfinished_messages_share_one_bound_and_whole_ones_need_none() {
        let budget = Budget::new(OPEN_MESSAGE_BYTES + 100, MESSAGE_TIMEOUT);
        let (first, mut one) = body(&budget);
        let (second, mut other) = body(&budget);
        let long = Bytes::from(message(1_000));
        first.send(Ok(long.slice(..80))).await.unwrap();
        assert_eq!(next(&mut one).await.unwrap().unwrap(), 80);
        second.send(Ok(Bytes::from(message(500)))).await.unwrap();
        assert_eq!(next(&mut other).await.unwrap().unwrap(), 505);
        second.send(Ok(long.slice(..80))).await.unwrap();
        let refused = next(&mut other).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(
            refused.message().contains("MAX_UNFINISHED_BYTES is 16484"),
            "{refused}"
        );
        drop((one, other));
        assert_eq!(budget.held.load(Ordering::Acquire), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_never_finished_ends_its_call_and_an_idle_stream_does_not() {
        let budget = Budget::new(OPEN_MESSAGE_BYTES + 100, MESSAGE_TIMEOUT);
        let (idle, mut silent) = body(&budget);
        idle.send(Ok(Bytes::from(message(20)))).await.unwrap();
        assert_eq!(next(&mut silent).await.unwrap().unwrap(), 25);
        let waited = tokio::time::timeout(MESSAGE_TIMEOUT * 10, next(&mut silent)).await;
        assert!(waited.is_err(), "{waited:?}");
        idle.send(Ok(Bytes::from_static(&[0, 0]))).await.unwrap();
        assert_eq!(next(&mut silent).await.unwrap().unwrap(), 2);
        let refused = next(&mut silent).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded);
    }
}
