//! The gRPC messages in the bytes that one side of an HTTP/2 connection wrote.
//!
//! Only DATA frames are looked at, so that no header needs decoding. Compressed messages are not understood: nothing
//! here compresses.

use std::collections::BTreeMap;

/// What a client says first on a connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const FRAME_HEADER_BYTES: usize = 9;
const MESSAGE_HEADER_BYTES: usize = 5;
const DATA: u8 = 0;
const PADDED: u8 = 8;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Framed {
    /// It, without its header.
    pub bytes: Vec<u8>,
    /// The place of its last byte in what was written, from 0.
    pub last: usize,
}

/// The messages of all streams, in the order in which they were complete. A part at the end is left out.
#[must_use]
pub fn messages(written: &[u8]) -> Vec<Framed> {
    let mut streams: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut found = Vec::new();
    let mut at = if written.starts_with(PREFACE) {
        PREFACE.len()
    } else {
        0
    };
    while let Some(header) = written.get(at..at + FRAME_HEADER_BYTES) {
        let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
        let (kind, flags) = (header[3], header[4]);
        let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
        at += FRAME_HEADER_BYTES;
        let Some(mut payload) = written.get(at..at + length) else {
            break;
        };
        at += length;
        if kind != DATA {
            continue;
        }
        if flags & PADDED != 0 {
            let padding = usize::from(payload[0]);
            payload = &payload[1..payload.len() - padding];
        }
        let waiting = streams.entry(stream).or_default();
        waiting.extend_from_slice(payload);
        while let Some(bytes) = take_message(waiting) {
            found.push(Framed { bytes, last: at - 1 });
        }
    }
    found
}

fn take_message(waiting: &mut Vec<u8>) -> Option<Vec<u8>> {
    let header = waiting.get(..MESSAGE_HEADER_BYTES)?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let end = MESSAGE_HEADER_BYTES + length;
    if waiting.len() < end {
        return None;
    }
    let message = waiting[MESSAGE_HEADER_BYTES..end].to_vec();
    waiting.drain(..end);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn messages_come_out_of_split_padded_and_interleaved_frames() {
        let mut written = PREFACE.to_vec();
        written.extend(frame(4, 0, 0, &[]));
        written.extend(frame(1, 4, 1, b"headers"));
        written.extend(frame(DATA, 0, 1, &[0, 0, 0, 0, 3, b'a']));
        written.extend(frame(DATA, PADDED, 3, &[2, 0, 0, 0, 0, 1, b'x', 0, 0]));
        let second = written.len() - 1;
        written.extend(frame(DATA, 0, 1, b"bc"));
        let last = written.len() - 1;
        written.extend(frame(DATA, 0, 1, &[0, 0, 0, 0, 9, b'p']));
        let expected = [
            Framed {
                bytes: b"x".to_vec(),
                last: second,
            },
            Framed {
                bytes: b"abc".to_vec(),
                last,
            },
        ];
        assert_eq!(messages(&written), expected);
        assert_eq!(messages(&written[..second]), []);
    }
}
