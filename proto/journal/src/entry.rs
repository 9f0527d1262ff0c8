//! One entry: the records of one forced batch, or of one slice of a checkpoint, cut into chunks.
//!
//! An entry is a header (version, count, body length, record lengths, crc32c of all that) and the records.
//! It is stored in chunks of at most `CHUNK_BYTES` under keys (first, count, part), in one atomic batch, so
//! it is there whole or not at all; what was damaged later is quarantined record by record where the header
//! holds, and else as one run of `count` records, which the key tells.

use crate::envelope::{Damaged, Envelope, decode, read_u32};
use crate::image::{Batch, ImageError, Key, Scan, Space};
use crate::limits::CHUNK_BYTES;

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 7;
const CRC_BYTES: usize = 4;

/// Writes header and records into `buffer`, replacing what is there.
pub(crate) fn encode(buffer: &mut Vec<u8>, body: &[u8], lens: &[u16]) {
    buffer.clear();
    buffer.push(VERSION);
    buffer.extend_from_slice(&(lens.len() as u16).to_le_bytes());
    buffer.extend_from_slice(&(body.len() as u32).to_le_bytes());
    for len in lens {
        buffer.extend_from_slice(&len.to_le_bytes());
    }
    let crc = crc32c::crc32c(buffer);
    buffer.extend_from_slice(&crc.to_le_bytes());
    buffer.extend_from_slice(body);
}

/// Adds the chunks of an encoded entry to a batch; `key_of` gives the key of each part.
pub(crate) fn put_chunks<'a>(
    batch: &mut Batch<'a>,
    space: Space,
    bytes: &'a [u8],
    key_of: impl Fn(u16) -> Key,
) {
    for (part, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
        batch.put(space, key_of(part as u16), chunk);
    }
}

/// Decodes an entry of `count` records, as its key says; never fewer than one item. `whole`: no part of it
/// is missing.
pub(crate) fn decode_records(bytes: Vec<u8>, count: u16, whole: bool) -> Vec<Result<Envelope, Damaged>> {
    let lengths = if whole {
        lengths(&bytes, count)
    } else {
        Err("a chunk of the entry is missing")
    };
    match lengths {
        Err(why) => {
            vec![Err(Damaged {
                head: None,
                bytes,
                records: u64::from(count),
                why,
            })]
        }
        Ok((lens, body_start)) => {
            let mut rest = &bytes[body_start..];
            lens.into_iter()
                .map(|len| {
                    let (record, tail) = rest.split_at(usize::from(len));
                    rest = tail;
                    decode(record)
                })
                .collect()
        }
    }
}

/// The record lengths and where the body starts, if the header and the body's length hold.
fn lengths(bytes: &[u8], count: u16) -> Result<(Vec<u16>, usize), &'static str> {
    const SHORT: &str = "the entry is shorter than its header";
    let fixed = bytes.first_chunk::<FIXED_BYTES>().ok_or(SHORT)?;
    let [version, count_0, count_1, body_len @ ..] = *fixed;
    let stored_count = u16::from_le_bytes([count_0, count_1]);
    let crc_start = FIXED_BYTES + 2 * usize::from(stored_count);
    let crc = bytes.get(crc_start..crc_start + CRC_BYTES).ok_or(SHORT)?;
    if crc32c::crc32c(&bytes[..crc_start]) != read_u32(crc) {
        return Err("the entry header's checksum does not hold");
    }
    if version != VERSION {
        return Err("the entry was written by an unknown version");
    }
    if stored_count != count || count == 0 {
        return Err("the entry's header and key differ in the number of records");
    }
    let lens: Vec<u16> = bytes[FIXED_BYTES..crc_start]
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    let body_len = u32::from_le_bytes(body_len) as usize;
    let sum: usize = lens.iter().map(|len| usize::from(*len)).sum();
    if sum != body_len || bytes.len() - crc_start - CRC_BYTES != body_len {
        return Err("a chunk of the entry is missing");
    }
    Ok((lens, crc_start + CRC_BYTES))
}

/// A key that starts with an 8-byte big-endian number and ends with a part: what log, checkpoint and archive
/// keys have in common.
pub(crate) trait ChunkKey: Copy + Eq {
    /// Reads a key of this form.
    fn parse(key: &Key) -> Option<(Self, u16)>;
}

/// A stored entry or block, put together from its chunks.
pub(crate) struct Assembled<K> {
    /// What the keys of its chunks say.
    pub(crate) key: K,
    /// Its bytes, as far as they are there.
    pub(crate) bytes: Vec<u8>,
    /// Whether the parts are numbered from 0 without gaps.
    pub(crate) whole: bool,
    /// How many chunks were found.
    pub(crate) chunks: u16,
}

/// Puts chunks of a scan together; keys of another form are passed over.
pub(crate) struct Assembler<K> {
    scan: Scan,
    ahead: Option<(K, u16, Vec<u8>)>,
}

impl<K: ChunkKey> Assembler<K> {
    pub(crate) fn new(scan: Scan) -> Self {
        Self { scan, ahead: None }
    }

    fn next_chunk(&mut self) -> Result<Option<(K, u16, Vec<u8>)>, ImageError> {
        if let Some(chunk) = self.ahead.take() {
            return Ok(Some(chunk));
        }
        for item in self.scan.by_ref() {
            let (key, value) = item?;
            if let Some((parsed, part)) = K::parse(&key) {
                return Ok(Some((parsed, part, value)));
            }
        }
        Ok(None)
    }

    fn assemble(&mut self) -> Result<Option<Assembled<K>>, ImageError> {
        let Some((key, first_part, bytes)) = self.next_chunk()? else {
            return Ok(None);
        };
        let mut found = Assembled {
            key,
            bytes,
            whole: first_part == 0,
            chunks: 1,
        };
        while let Some((next_key, part, value)) = self.next_chunk()? {
            if next_key != key {
                self.ahead = Some((next_key, part, value));
                break;
            }
            found.whole &= part == found.chunks;
            found.chunks = found.chunks.saturating_add(1);
            found.bytes.extend_from_slice(&value);
        }
        Ok(Some(found))
    }
}

impl<K: ChunkKey> Iterator for Assembler<K> {
    type Item = Result<Assembled<K>, ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.assemble().transpose()
    }
}

/// The key of an entry in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogKey {
    /// LSN of its first record.
    pub(crate) first: u64,
    /// How many records it holds, at least 1.
    pub(crate) count: u16,
}

impl LogKey {
    pub(crate) fn key(self, part: u16) -> Key {
        Key::from_parts(&[
            &self.first.to_be_bytes(),
            &self.count.to_be_bytes(),
            &part.to_be_bytes(),
        ])
    }

    pub(crate) fn last(self) -> u64 {
        self.first.saturating_add(u64::from(self.count)).saturating_sub(1)
    }
}

impl ChunkKey for LogKey {
    fn parse(key: &Key) -> Option<(Self, u16)> {
        let (first, rest) = key.as_bytes().split_first_chunk::<8>()?;
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let part: [u8; 2] = rest.try_into().ok()?;
        let key = Self {
            first: u64::from_be_bytes(*first),
            count: u16::from_be_bytes(*count),
        };
        (key.count > 0).then_some((key, u16::from_be_bytes(part)))
    }
}

/// The key of a slice of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceKey {
    /// The checkpoint's generation.
    pub(crate) generation: u64,
    /// Number of the slice's first record within the checkpoint, from 0.
    pub(crate) first: u32,
    /// How many records it holds, at least 1.
    pub(crate) count: u16,
}

impl SliceKey {
    pub(crate) fn key(self, part: u16) -> Key {
        Key::from_parts(&[
            &self.generation.to_be_bytes(),
            &self.first.to_be_bytes(),
            &self.count.to_be_bytes(),
            &part.to_be_bytes(),
        ])
    }
}

impl ChunkKey for SliceKey {
    fn parse(key: &Key) -> Option<(Self, u16)> {
        let (generation, rest) = key.as_bytes().split_first_chunk::<8>()?;
        let (first, rest) = rest.split_first_chunk::<4>()?;
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let part: [u8; 2] = rest.try_into().ok()?;
        let key = Self {
            generation: u64::from_be_bytes(*generation),
            first: u32::from_be_bytes(*first),
            count: u16::from_be_bytes(*count),
        };
        (key.count > 0).then_some((key, u16::from_be_bytes(part)))
    }
}
