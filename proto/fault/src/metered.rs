//! How much of what was handed over has left through a socket.
//!
//! A frame given to tonic lies in queues for a while. At a *sent* crash point the process must not end before the
//! named message has left, and nothing behind it may leave. A [`MeteredStream`] reads the HTTP/2 frame headers that
//! pass through it and counts the payload of DATA frames only: on a connection that carries one session that is the
//! sum of [`frame_bytes`] of the session's frames, in order, whatever headers, pings and window updates pass between.
//!
//! Guaranteed: [`Meter::data_written`] is never ahead of what the kernel took. It counts plaintext HTTP/2 without
//! compression and padding, which is what tonic sends by default; over TLS and HTTP/1 the count means nothing, and
//! does no harm.

mod connector;
mod data_bytes;
mod incoming;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::transport::server::Connected;

pub use connector::MeteredConnector;
use data_bytes::DataBytes;
pub use incoming::{ACCEPT_PAUSE_MS, incoming};

/// The prefix of a gRPC message: a flag and the length, in bytes.
const GRPC_PREFIX_BYTES: u64 = 5;

/// What a session's frame of this encoded length adds to [`Meter::data_written`], in bytes.
#[must_use]
pub fn frame_bytes(encoded_len: usize) -> u64 {
    encoded_len as u64 + GRPC_PREFIX_BYTES
}

/// How much has left through one connection.
#[derive(Debug, Default)]
pub struct Meter {
    data_written: AtomicU64,
    gone: AtomicBool,
    changed: Notify,
}

impl Meter {
    /// The bytes of DATA frames, without their headers, that the kernel took since the connection began.
    #[must_use]
    pub fn data_written(&self) -> u64 {
        self.data_written.load(Ordering::Acquire)
    }

    /// Waits until at least so many bytes have left. False: the connection was gone first, so they never will.
    pub async fn wait_data_written(&self, at_least: u64) -> bool {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on a change wakes this wait, also one between the looks below and the await.
            changed.as_mut().enable();
            let gone = self.gone.load(Ordering::Acquire);
            if self.data_written() >= at_least {
                return true;
            }
            if gone {
                return false;
            }
            changed.await;
        }
    }

    fn add(&self, data_bytes: u64) {
        if data_bytes > 0 {
            self.data_written.fetch_add(data_bytes, Ordering::Release);
            self.changed.notify_waiters();
        }
    }

    fn close(&self) {
        self.gone.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

/// A connection that counts what leaves through it.
#[derive(Debug)]
pub struct MeteredStream<S> {
    stream: S,
    data_bytes: DataBytes,
    meter: Arc<Meter>,
}

impl<S> MeteredStream<S> {
    /// The accepting end of a new connection.
    pub fn server(stream: S) -> Self {
        Self {
            stream,
            data_bytes: DataBytes::of_server(),
            meter: Arc::default(),
        }
    }

    /// The dialling end of a new connection.
    pub fn client(stream: S) -> Self {
        Self {
            stream,
            data_bytes: DataBytes::of_client(),
            meter: Arc::default(),
        }
    }

    /// The meter; it outlives the connection.
    #[must_use]
    pub fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl<S> Drop for MeteredStream<S> {
    fn drop(&mut self) {
        self.meter.close();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        let data_bytes = self.data_bytes.passed(&bytes[..written]);
        self.meter.add(data_bytes);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        let (mut left, mut data_bytes) = (written, 0);
        for slice in slices {
            let taken = left.min(slice.len());
            data_bytes += self.data_bytes.passed(&slice[..taken]);
            left -= taken;
        }
        self.meter.add(data_bytes);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What a service finds in the extensions of a request that came over a [`MeteredStream`].
#[derive(Clone, Debug)]
pub struct MeterInfo {
    /// The connection's meter.
    pub meter: Arc<Meter>,
    /// The peer's address; `None` if the peer was gone already.
    pub remote: Option<SocketAddr>,
}

impl Connected for MeteredStream<TcpStream> {
    type ConnectInfo = MeterInfo;

    fn connect_info(&self) -> MeterInfo {
        MeterInfo {
            meter: self.meter(),
            remote: self.stream.peer_addr().ok(),
        }
    }
}
