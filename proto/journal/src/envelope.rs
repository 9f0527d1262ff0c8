//! One record: a checksummed envelope (kind, xid, transaction_id) around an opaque payload.
//!
//! Two crc32c guard a record: one its head, one its payload. So a record whose payload was damaged still
//! says which transaction it belongs to, and a head is believed only where its own checksum holds
//! (section 2, quarantine). Decoding never panics. The payload's meaning is the caller's.
//!
//! Layout, little endian: version u8, kind u8, flags u8 (1: xid, 2: transaction_id), transaction_id length u8,
//! payload length u32, xid (40 bytes), transaction_id, crc32c of all before, crc32c of the payload, payload.

use crate::limits::{MAX_ENTRY_BYTES, MAX_ENTRY_RECORDS, MAX_RECORD_BYTES, MAX_TRANSACTION_ID_BYTES};

/// Bytes of an encoded xid.
pub const XID_BYTES: usize = 40;

/// An encoded xid, opaque to the journal.
pub type XidBytes = [u8; XID_BYTES];

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
const FLAG_XID: u8 = 1;
const FLAG_TRANSACTION_ID: u8 = 2;

/// The part of a record that names what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The caller's record kind.
    pub kind: u8,
    /// The attempt, where the record has one.
    pub xid: Option<XidBytes>,
    /// The caller's transaction id, where the record has one; at most [`MAX_TRANSACTION_ID_BYTES`] bytes.
    pub transaction_id: Option<Box<str>>,
}

/// A head that borrows its transaction id, to encode without copying.
#[derive(Debug, Clone, Copy)]
pub struct HeadRef<'a> {
    /// The caller's record kind.
    pub kind: u8,
    /// The attempt, where the record has one.
    pub xid: Option<&'a XidBytes>,
    /// The caller's transaction id, where the record has one; at most [`MAX_TRANSACTION_ID_BYTES`] bytes.
    pub transaction_id: Option<&'a str>,
}

/// A record that decoded: its head and its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What the record is about.
    pub head: Head,
    /// The caller's bytes.
    pub payload: Vec<u8>,
}

/// Bytes that do not decode, kept for quarantine: shown, counted, carried on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The record's head, where its own checksum holds; `None`: it shows neither kind nor xid nor id.
    pub head: Option<Head>,
    /// What was found, at most an entry: above [`MAX_RECORD_BYTES`] the bytes must be carried on in pieces.
    pub bytes: Vec<u8>,
    /// How many records these bytes stand for, at least 1.
    pub records: u64,
    /// What is wrong with them.
    pub why: &'static str,
}

/// A run of encoded records, in order, each with whether it must be forced; the journal's unit of handing over.
///
/// Reuse one by [`Records::clear`]: it keeps its memory.
#[derive(Debug, Clone, Default)]
pub struct Records {
    bytes: Vec<u8>,
    lens: Vec<u16>,
    forced: Vec<bool>,
}

/// When a record must become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// By the next force.
    Now,
    /// By whatever is forced next, else within `LAZY_FORCE_MS`.
    Lazy,
}

impl Records {
    /// An empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record with this payload.
    ///
    /// # Panics
    /// As [`Records::push_with`].
    pub fn push(&mut self, head: HeadRef<'_>, force: Force, payload: &[u8]) {
        self.push_with(head, force, |buffer| buffer.extend_from_slice(payload));
    }

    /// Adds a record whose payload `write` appends to the buffer it is given.
    ///
    /// # Panics
    /// If the encoded record exceeds [`MAX_RECORD_BYTES`] or its transaction id [`MAX_TRANSACTION_ID_BYTES`]:
    /// callers bound their input before they append.
    pub fn push_with(&mut self, head: HeadRef<'_>, force: Force, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        let id = head.transaction_id.unwrap_or_default().as_bytes();
        assert!(
            id.len() <= MAX_TRANSACTION_ID_BYTES,
            "a transaction id of {} bytes exceeds {MAX_TRANSACTION_ID_BYTES}",
            id.len()
        );
        let flags = u8::from(head.xid.is_some()) * FLAG_XID
            + u8::from(head.transaction_id.is_some()) * FLAG_TRANSACTION_ID;
        self.bytes
            .extend_from_slice(&[VERSION, head.kind, flags, id.len() as u8, 0, 0, 0, 0]);
        self.bytes.extend_from_slice(head.xid.map_or(&[][..], |xid| xid));
        self.bytes.extend_from_slice(id);
        let head_end = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2 * CRC_BYTES]);
        let payload_start = self.bytes.len();
        write(&mut self.bytes);

        let len = self.bytes.len() - start;
        assert!(
            len <= MAX_RECORD_BYTES,
            "a record of {len} bytes exceeds {MAX_RECORD_BYTES}"
        );
        let payload_len = (self.bytes.len() - payload_start) as u32;
        self.bytes[start + 4..start + 8].copy_from_slice(&payload_len.to_le_bytes());
        let head_crc = crc32c::crc32c(&self.bytes[start..head_end]);
        let payload_crc = crc32c::crc32c(&self.bytes[payload_start..]);
        self.bytes[head_end..head_end + 4].copy_from_slice(&head_crc.to_le_bytes());
        self.bytes[head_end + 4..payload_start].copy_from_slice(&payload_crc.to_le_bytes());
        self.lens.push(len as u16);
        self.forced.push(force == Force::Now);
    }

    /// How many records the run holds.
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether the run holds no record.
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Bytes of all records, encoded.
    pub fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lens.clear();
        self.forced.clear();
    }

    /// Each record's encoded bytes and whether it must be forced, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Force)> {
        let mut rest = &self.bytes[..];
        self.lens.iter().zip(&self.forced).map(move |(len, forced)| {
            let (record, tail) = rest.split_at(usize::from(*len));
            rest = tail;
            (record, if *forced { Force::Now } else { Force::Lazy })
        })
    }

    /// The longest run of records from number `first` on that fits one entry: their bytes, starting at byte
    /// `offset`, and their lengths.
    pub(crate) fn slice(&self, first: usize, offset: usize) -> (&[u8], &[u16]) {
        let mut end = offset;
        let mut count = 0;
        for len in self.lens[first..].iter().take(MAX_ENTRY_RECORDS) {
            if end - offset + usize::from(*len) > MAX_ENTRY_BYTES {
                break;
            }
            end += usize::from(*len);
            count += 1;
        }
        (&self.bytes[offset..end], &self.lens[first..first + count])
    }
}

/// Decodes one record; what does not decode comes back for quarantine.
pub fn decode(bytes: &[u8]) -> Result<Envelope, Damaged> {
    let damaged = |head, why| Damaged {
        head,
        bytes: bytes.to_vec(),
        records: 1,
        why,
    };
    let (head, body) = match decode_head(bytes) {
        Ok(parts) => parts,
        Err(why) => return Err(damaged(None, why)),
    };
    let payload = &bytes[body.payload_start..];
    if payload.len() != body.payload_len {
        return Err(damaged(
            Some(head),
            "the payload has another length than the head says",
        ));
    }
    if crc32c::crc32c(payload) != body.payload_crc {
        return Err(damaged(Some(head), "the payload's checksum does not hold"));
    }
    Ok(Envelope {
        head,
        payload: payload.to_vec(),
    })
}

struct Body {
    payload_start: usize,
    payload_len: usize,
    payload_crc: u32,
}

fn decode_head(bytes: &[u8]) -> Result<(Head, Body), &'static str> {
    const SHORT: &str = "shorter than its head";
    let fixed = bytes.first_chunk::<FIXED_BYTES>().ok_or(SHORT)?;
    let [version, kind, flags, id_len, payload_len @ ..] = *fixed;
    let xid_len = if flags & FLAG_XID == 0 { 0 } else { XID_BYTES };
    let id_len = usize::from(id_len);
    let head_end = FIXED_BYTES + xid_len + id_len;
    let payload_start = head_end + 2 * CRC_BYTES;
    let crcs = bytes.get(head_end..payload_start).ok_or(SHORT)?;
    if crc32c::crc32c(&bytes[..head_end]) != read_u32(&crcs[..CRC_BYTES]) {
        return Err("the head's checksum does not hold");
    }
    if version != VERSION {
        return Err("written by an unknown version");
    }
    let xid = bytes[FIXED_BYTES..]
        .first_chunk::<XID_BYTES>()
        .copied()
        .filter(|_| xid_len > 0);
    let id = std::str::from_utf8(&bytes[head_end - id_len..head_end]).map_err(|_| "the id is no UTF-8")?;
    let transaction_id = (flags & FLAG_TRANSACTION_ID != 0).then(|| id.into());
    let body = Body {
        payload_start,
        payload_len: u32::from_le_bytes(payload_len) as usize,
        payload_crc: read_u32(&crcs[CRC_BYTES..]),
    };
    Ok((
        Head {
            kind,
            xid,
            transaction_id,
        },
        body,
    ))
}

/// The little-endian number in the first four bytes; 0 where there are fewer.
pub(crate) fn read_u32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk::<4>()
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}
