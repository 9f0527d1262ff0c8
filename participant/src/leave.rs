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
}

impl Leave {
    pub(crate) fn new(deadline: Duration, reply: Option<oneshot::Sender<Result<(), Error>>>) -> Self {
        let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        Self {
            deadline_ms,
            deadline: Box::pin(tokio::time::sleep(deadline)),
            linger: None,
            reply,
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

    /// Tells who asked for it how it went.
    pub(crate) fn done(self, calls: usize) {
        if let Some(reply) = self.reply {
            let deadline_ms = self.deadline_ms;
            let result = if calls == 0 {
                Ok(())
            } else {
                Err(Error::Leaving { calls, deadline_ms })
            };
            // A caller that is gone does not want to know.
            let _ = reply.send(result);
        }
    }
}
