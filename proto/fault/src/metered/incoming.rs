//! Accepting connections, in spite of errors.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

use super::MeteredStream;

/// How long accepting pauses after an error, in milliseconds: long enough not to spin, short enough not to be missed.
pub const ACCEPT_PAUSE_MS: u64 = 50;

/// The connections of a listener, without end, for `serve_with_incoming`; each sends small frames at once (`TCP_NODELAY`).
///
/// An error of accepting, such as too many open files, is logged once, accepting goes on after [`ACCEPT_PAUSE_MS`],
/// and the stream never yields an error: what is connected keeps working and the listener recovers by itself.
pub fn incoming(listener: TcpListener) -> impl Stream<Item = io::Result<MeteredStream<TcpStream>>> {
    connections(move |cx| {
        let (connection, _) = ready!(listener.poll_accept(cx))?;
        Poll::Ready(Ok(connection))
    })
}

fn connections(
    mut poll_accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<TcpStream>>,
) -> impl Stream<Item = io::Result<MeteredStream<TcpStream>>> {
    let mut pause: Option<Pin<Box<Sleep>>> = None;
    let mut is_failing = false;
    stream::poll_fn(move |cx| {
        loop {
            if let Some(sleeping) = &mut pause {
                ready!(sleeping.as_mut().poll(cx));
                pause = None;
            }
            match ready!(poll_accept(cx)) {
                Ok(connection) => {
                    if is_failing {
                        tracing::info!("connections are accepted again");
                        is_failing = false;
                    }
                    // Fails only where the peer is gone already, which its first read will say.
                    let _ = connection.set_nodelay(true);
                    return Poll::Ready(Some(Ok(MeteredStream::server(connection))));
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "no connection could be accepted; trying again every {ACCEPT_PAUSE_MS} ms");
                        is_failing = true;
                    }
                    pause = Some(Box::pin(sleep(Duration::from_millis(ACCEPT_PAUSE_MS))));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::StreamExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn errors_of_accepting_pause_and_never_end_the_stream() {
        const EMFILE: i32 = 24;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut script = VecDeque::new();
        for _ in 0..2 {
            script.push_back(Ok(TcpStream::connect(address).await.unwrap()));
            script.extend((0..3).map(|_| Err(io::Error::from_raw_os_error(EMFILE))));
        }
        script.push_back(Ok(TcpStream::connect(address).await.unwrap()));

        let mut incoming = std::pin::pin!(connections(move |_| match script.pop_front() {
            Some(next) => Poll::Ready(next),
            None => Poll::Pending,
        }));
        let begin = Instant::now();
        for pauses in [0, 3, 6] {
            let accepted = incoming.next().await.unwrap().unwrap();
            assert!(accepted.stream.nodelay().unwrap());
            let waited_ms = begin.elapsed().as_millis();
            // The timer wheel rounds each pause up to its next millisecond.
            assert!(
                (pauses * 50..=pauses * 52).contains(&waited_ms),
                "{waited_ms} ms for {pauses} pauses"
            );
        }
    }
}
