//! Calls that begin a long message and never finish it, over an HTTP/2 connection spoken by hand: no client library sends
//! half a message.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a client says first, with settings of which all are the defaults.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The setting of a stream's first window (RFC 9113, section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The longest DATA frame that is sent, in bytes: the default bound of a frame.
const MAX_DATA_BYTES: i64 = 16_384;

/// One connection with calls that have begun.
pub struct Unfinished {
    socket: TcpStream,
    /// What the server takes still: on the connection, on a new stream, and on each stream.
    window: i64,
    first_window: i64,
    streams: BTreeMap<u32, (i64, usize)>,
}

impl Unfinished {
    /// Begins so many calls of a method, each with the header of a message of `bytes` bytes.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn begin(address: &str, path: &str, calls: u32, bytes: u32) -> Result<Self> {
        let mut this = Self {
            socket: TcpStream::connect(address).await?,
            window: 65_535,
            first_window: 65_535,
            streams: BTreeMap::new(),
        };
        this.socket.write_all(PREFACE).await?;
        let headers: Vec<u8> = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
        .into_iter()
        .flat_map(|(name, value)| header(name, value))
        .collect();
        for call in 0..calls {
            let stream = 2 * call + 1;
            this.send(HEADERS, END_HEADERS, stream, &headers).await?;
            let mut message = vec![0];
            message.extend(bytes.to_be_bytes());
            this.send(DATA, 0, stream, &message).await?;
            this.window -= 5;
            this.streams.insert(stream, (this.first_window - 5, 0));
        }
        Ok(this)
    }

    /// Sends `bytes` of each message, as far as the server takes them, and returns how many bytes it took of all.
    ///
    /// # Errors
    /// If the connection fails; it may be that the server gave it up.
    pub async fn send_up_to(&mut self, bytes: usize) -> Result<usize> {
        loop {
            let ready = self
                .streams
                .iter()
                .find(|(_, (window, sent))| *window > 0 && *sent < bytes);
            let Some((&stream, &(window, sent))) = ready.filter(|_| self.window > 0) else {
                if self.streams.values().all(|(_, sent)| *sent >= bytes) {
                    return Ok(self.sent());
                }
                // The server says that it takes more, or it never does.
                let wait = tokio::time::timeout(std::time::Duration::from_secs(2), self.take()).await;
                match wait {
                    Ok(taken) => taken?,
                    Err(_) => return Ok(self.sent()),
                }
                continue;
            };
            let rest = i64::try_from(bytes - sent).unwrap_or(MAX_DATA_BYTES);
            let now = rest.min(window).min(self.window).min(MAX_DATA_BYTES);
            let chunk = vec![0; usize::try_from(now)?];
            self.send(DATA, 0, stream, &chunk).await?;
            self.window -= now;
            self.streams.insert(stream, (window - now, sent + chunk.len()));
        }
    }

    fn sent(&self) -> usize {
        self.streams.values().map(|(_, sent)| sent).sum()
    }

    /// Takes one frame of the server.
    async fn take(&mut self) -> Result<()> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).await?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.socket.read_exact(&mut payload).await?;
        match (head[3], head[4]) {
            (SETTINGS, 0) => {
                for setting in payload.chunks_exact(6) {
                    if u16::from_be_bytes([setting[0], setting[1]]) == INITIAL_WINDOW_SIZE {
                        let size = i64::from(number(&setting[2..])?);
                        for (window, _) in self.streams.values_mut() {
                            *window += size - self.first_window;
                        }
                        self.first_window = size;
                    }
                }
                self.send(SETTINGS, ACK, 0, &[]).await
            }
            (PING, 0) => self.send(PING, ACK, 0, &payload).await,
            (WINDOW_UPDATE, _) => {
                let more = i64::from(number(&payload)?);
                match self.streams.get_mut(&stream) {
                    Some((window, _)) => *window += more,
                    None => self.window += more,
                }
                Ok(())
            }
            // A call that the server ended takes nothing any more.
            (kind, flags) if kind == RST_STREAM || kind <= HEADERS && flags & END_STREAM != 0 => {
                self.streams.remove(&stream);
                ensure!(!self.streams.is_empty(), "the server ended every call");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        let length = u32::try_from(payload.len())?.to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        Ok(self.socket.write_all(&frame).await?)
    }
}

fn number(bytes: &[u8]) -> Result<u32> {
    Ok(u32::from_be_bytes(bytes.try_into().context("four bytes")?))
}

/// One header, as a literal that is not indexed (RFC 7541, section 6.2.2); names and values are short.
fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "a longer text has another length");
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
    bytes
}
