//! Dialling with a meter.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower::Service;

use super::{Meter, MeteredStream};

/// Dials over TCP for `Endpoint::connect_with_connector` and keeps the meter of the latest connection. Clones share it.
///
/// How long dialling may take is bounded by the endpoint's `connect_timeout`.
#[derive(Clone, Default, Debug)]
pub struct MeteredConnector {
    latest: Arc<Mutex<Option<Arc<Meter>>>>,
}

impl MeteredConnector {
    /// A connector that has not dialled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The meter of the latest connection; `None` before the first.
    #[must_use]
    pub fn meter(&self) -> Option<Arc<Meter>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Host without the brackets of an IPv6 address, and port.
fn host_and_port(uri: &Uri) -> io::Result<(&str, u16)> {
    let host = uri.host().ok_or_else(|| {
        let message = format!("{uri} names no host; give an endpoint such as http://127.0.0.1:7400");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let default_port = if uri.scheme_str() == Some("https") {
        443
    } else {
        80
    };
    Ok((host, uri.port_u16().unwrap_or(default_port)))
}

impl Service<Uri> for MeteredConnector {
    type Response = TokioIo<MeteredStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let latest = Arc::clone(&self.latest);
        Box::pin(async move {
            let stream = TcpStream::connect(host_and_port(&uri)?).await?;
            stream.set_nodelay(true)?;
            let stream = MeteredStream::client(stream);
            *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.meter());
            Ok(TokioIo::new(stream))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_taken_apart_for_dialling() {
        for (uri, expected) in [
            ("http://127.0.0.1:7400", ("127.0.0.1", 7400)),
            ("http://[::1]:7400/", ("::1", 7400)),
            ("http://covenant.example", ("covenant.example", 80)),
            ("https://covenant.example", ("covenant.example", 443)),
        ] {
            assert_eq!(host_and_port(&uri.parse().unwrap()).unwrap(), expected);
        }
        let message = host_and_port(&"/path".parse().unwrap()).unwrap_err().to_string();
        assert!(message.contains("names no host"), "{message}");
    }
}
