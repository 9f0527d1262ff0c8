//! Leaving in order: what is under way completes and its messages leave, then the session ends, all bounded.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::Stream;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::Error;
use crate::config::LINGER_MS;
use crate::session::Session;

/// A participant on its way out.
pub(crate) struct Leave {
    deadline_ms: u64,
    deadline: Pin<Box<Sleep>>,
    /// Runs once our side of the session is closed.
    linger: Option<Pin<Box<Sleep>>>,
    reply: Option<oneshot::Sender<Result<(), Error>>>,
    /// Messages that went with the session that had to take them.
    unsent: usize,
}

impl Leave {
    pub(crate) fn new(deadline: Duration, reply: Option<oneshot::Sender<Result<(), Error>>>) -> Self {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        Self {
            deadline_ms,
            deadline: Box::pin(tokio::time::sleep(deadline)),
            linger: None,
            reply,
            unsent: 0,
        }
    }

    /// Whether the participant is out; with `work` left, only when its time is over.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<&mut Session>,
        work: usize,
    ) -> Poll<()> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if work > 0 {
            return Poll::Pending;
        }
        let Some(session) = session else {
            return Poll::Ready(());
        };
        let linger = self.linger.get_or_insert_with(|| {
            session.outbound.close();
            Box::pin(tokio::time::sleep(Duration::from_millis(LINGER_MS)))
        });
        loop {
            match Pin::new(&mut session.inbound).poll_next(cx) {
                // No new work: the coordinator sends it again when the participant joins again.
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                Poll::Pending => return linger.as_mut().poll(cx),
            }
        }
    }

    /// The session ended with so many messages that it had not taken.
    pub(crate) fn lost(&mut self, messages: usize) {
        self.unsent += messages;
    }

    /// Tells who asked for it how it went: what was still under way, and what still waited to be sent.
    pub(crate) fn done(self, calls: usize, waiting: usize) {
        if let Some(reply) = self.reply {
            let (deadline_ms, messages) = (self.deadline_ms, self.unsent + waiting);
            let result = if calls == 0 && messages == 0 {
                Ok(())
            } else {
                Err(Error::Leaving {
                    calls,
                    messages,
                    deadline_ms,
                })
            };
            // A caller that is gone does not want to know.
            let _ = reply.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(lost: usize, calls: usize, waiting: usize) -> Result<(), (usize, usize)> {
        let (reply, answer) = oneshot::channel();
        let mut leave = Leave::new(Duration::from_millis(70), Some(reply));
        leave.lost(lost);
        leave.done(calls, waiting);
        match answer.await.unwrap() {
            Ok(()) => Ok(()),
            Err(Error::Leaving {
                calls,
                messages,
                deadline_ms: 70,
            }) => Err((calls, messages)),
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn leaving_is_ok_only_if_no_call_and_no_message_is_left() {
        assert_eq!(told(0, 0, 0).await, Ok(()));
        assert_eq!(told(0, 2, 0).await, Err((2, 0)));
        assert_eq!(told(0, 0, 3).await, Err((0, 3)));
        assert_eq!(told(4, 0, 3).await, Err((0, 7)));
    }
}
