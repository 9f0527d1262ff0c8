//! Which connections are kept: a bounded number, and none that stays silent.
//!
//! HTTP/2 asks a connection whether it lives only once its preface is read, so a peer that connects and says nothing
//! would stay for ever. Here the preface has [`PREFACE_TIMEOUT`]; from then on the keep-alive of the configuration
//! closes what does not answer. A peer that answers may be idle as long as it likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use covenant_rules::RepeatedLines;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

/// The most connections at a time; one beyond it is closed at once, and its peer may try again.
pub(crate) const MAX_CONNECTIONS: usize = 10_000;

/// How long a new connection may take to send the preface of HTTP/2, to its last byte.
pub(crate) const PREFACE_TIMEOUT: Duration = Duration::from_secs(5);

/// The preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

/// The connections that are kept, within these bounds.
pub(crate) fn bounded<S>(
    incoming: impl Stream<Item = io::Result<S>>,
    max_connections: usize,
    preface_timeout: Duration,
) -> impl Stream<Item = io::Result<BoundedConnection<S>>> {
    let places = Arc::new(Semaphore::new(max_connections));
    let began = Instant::now();
    let mut lines = RepeatedLines::new();
    incoming.filter_map(move |connection| {
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return std::future::ready(Some(Err(error))),
        };
        let place = Arc::clone(&places).try_acquire_owned();
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if place.is_err()
            && let Some(held_back) = lines.count(now, ())
        {
            tracing::warn!(
                max_connections,
                held_back,
                "the bound MAX_CONNECTIONS is reached; new connections are closed until others end"
            );
        }
        std::future::ready(place.ok().map(|place| {
            Ok(BoundedConnection {
                connection,
                preface: Some((PREFACE_BYTES, Box::pin(tokio::time::sleep(preface_timeout)))),
                _place: place,
            })
        }))
    })
}

/// A connection within the bounds.
pub(crate) struct BoundedConnection<S> {
    connection: S,
    /// Bytes of the preface that are missing, and until when.
    preface: Option<(usize, Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some((_, until)) = &mut self.preface
            && until.as_mut().poll(cx).is_ready()
        {
            let why = "no HTTP/2 preface came within PREFACE_TIMEOUT";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.connection).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.preface = self
            .preface
            .take()
            .and_then(|(missing, until)| (read < missing).then(|| (missing - read, until)));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for BoundedConnection<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.connection.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    async fn first(connection: DuplexStream) -> BoundedConnection<DuplexStream> {
        let connections = bounded(stream::iter([Ok(connection)]), 1, PREFACE_TIMEOUT);
        std::pin::pin!(connections).next().await.unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_the_whole_preface_ends_in_time_and_one_with_it_lives() {
        for sent in [0, 1, PREFACE_BYTES - 1, PREFACE_BYTES] {
            let (mut peer, connection) = duplex(64);
            let mut connection = first(connection).await;
            // In pieces, so that no single byte buys time.
            for _ in 0..sent {
                peer.write_all(b"P").await.unwrap();
                assert_eq!(connection.read_u8().await.unwrap(), b'P');
                tokio::time::advance(PREFACE_TIMEOUT / 100).await;
            }
            let read = tokio::time::timeout(2 * PREFACE_TIMEOUT, connection.read_u8()).await;
            match read {
                Ok(ended) => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut, "{sent}"),
                Err(_) => assert_eq!(sent, PREFACE_BYTES),
            }
            drop(peer);
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_are_closed_until_another_one_ends() {
        let (mut peers, mut connections) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (peer, connection) = duplex(64);
            peers.push(peer);
            connections.push(Ok(connection));
        }
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let mut kept = std::pin::pin!(bounded(
            tokio_stream::wrappers::ReceiverStream::new(receiver),
            1,
            PREFACE_TIMEOUT
        ));
        let third = connections.pop().unwrap();
        for connection in connections {
            sender.send(connection).await.unwrap();
        }
        let one = kept.next().await.unwrap().unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), kept.next()).await;
        assert!(next.is_err(), "the second one is not kept");
        assert_eq!(peers[1].read(&mut [0]).await.unwrap(), 0, "it is closed");
        drop(one);
        sender.send(third).await.unwrap();
        assert!(kept.next().await.unwrap().is_ok());
    }

    /// Counts the lines of a log.
    struct CountLines(Arc<AtomicU64>);

    impl tracing::Subscriber for CountLines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_bound_that_is_met_again_and_again_has_few_lines() {
        let lines = Arc::<AtomicU64>::default();
        let _counted = tracing::subscriber::set_default(CountLines(Arc::clone(&lines)));
        let held = std::cell::RefCell::new(None);
        let connections = (0..2_000).map(|n| {
            // Every second one finds the only place free again.
            if n % 2 == 0 {
                held.take();
            }
            Ok(duplex(64).1)
        });
        let mut kept = std::pin::pin!(bounded(stream::iter(connections), 1, PREFACE_TIMEOUT));
        while let Some(connection) = kept.next().await {
            held.replace(Some(connection.unwrap()));
        }
        assert_eq!(lines.load(Ordering::Relaxed), RepeatedLines::<()>::MAX);
    }
}
