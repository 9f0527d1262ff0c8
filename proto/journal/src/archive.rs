//! The archive: append-only items, packed into small blocks, that a checkpoint adds and drops.
//!
//! Items are numbered from 0. A block holds items of neighbouring numbers in at most `CHUNK_BYTES` under the
//! number of its first item; an item too large for that has a block of its own, cut into parts. A reader sees
//! an item once the checkpoint that added it is durable, and no longer once one that drops it is.
//! What an item means, and finding one by anything but its number, is the caller's (see `IdIndex`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::entry::{Assembled, Assembler, ChunkKey};
use crate::envelope::read_u32;
use crate::error::Error;
use crate::image::{Image, Key, Space};
use crate::limits::{CHUNK_BYTES, MAX_BLOCK_ITEMS, MAX_ITEM_BYTES};

const CRC_BYTES: usize = 4;
/// Checksum and count.
const FIXED_BYTES: usize = CRC_BYTES + 2;
const LEN_BYTES: usize = 2;

/// The key of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockKey {
    /// Number of its first item.
    pub(crate) first: u64,
}

impl BlockKey {
    pub(crate) fn key(self, part: u16) -> Key {
        Key::from_parts(&[&self.first.to_be_bytes(), &part.to_be_bytes()])
    }
}

impl ChunkKey for BlockKey {
    fn parse(key: &Key) -> Option<(Self, u16)> {
        let (first, rest) = key.as_bytes().split_first_chunk::<8>()?;
        let part: [u8; 2] = rest.try_into().ok()?;
        Some((
            Self {
                first: u64::from_be_bytes(*first),
            },
            u16::from_be_bytes(part),
        ))
    }
}

/// Writes the block of the first items of `items` into `buffer`, replacing what is there; how many it took.
///
/// # Panics
/// If an item exceeds [`MAX_ITEM_BYTES`], or there is none.
pub(crate) fn encode_block(buffer: &mut Vec<u8>, items: &[Vec<u8>]) -> usize {
    let mut total = FIXED_BYTES;
    let mut count = 0;
    for item in items.iter().take(MAX_BLOCK_ITEMS) {
        assert!(
            item.len() <= MAX_ITEM_BYTES,
            "an item of {} bytes exceeds {MAX_ITEM_BYTES}",
            item.len()
        );
        total += LEN_BYTES + item.len();
        if count > 0 && total > CHUNK_BYTES {
            break;
        }
        count += 1;
    }
    assert!(count > 0, "a block holds at least one item");
    buffer.clear();
    buffer.extend_from_slice(&[0; CRC_BYTES]);
    buffer.extend_from_slice(&(count as u16).to_le_bytes());
    for item in &items[..count] {
        buffer.extend_from_slice(&(item.len() as u16).to_le_bytes());
    }
    for item in &items[..count] {
        buffer.extend_from_slice(item);
    }
    let crc = crc32c::crc32c(&buffer[CRC_BYTES..]);
    buffer[..CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    count
}

/// The items of a block, or what is wrong with it.
fn decode_block(bytes: &[u8]) -> Result<impl Iterator<Item = &[u8]>, &'static str> {
    let fixed = bytes
        .first_chunk::<FIXED_BYTES>()
        .ok_or("the block is shorter than its header")?;
    if crc32c::crc32c(&bytes[CRC_BYTES..]) != read_u32(fixed) {
        return Err("the block's checksum does not hold");
    }
    let count = usize::from(u16::from_le_bytes([fixed[4], fixed[5]]));
    let lens_end = FIXED_BYTES + LEN_BYTES * count;
    let lens = bytes
        .get(FIXED_BYTES..lens_end)
        .ok_or("the block is shorter than its lengths")?;
    let sum: usize = block_lens(lens).sum();
    if lens_end + sum != bytes.len() {
        return Err("the block has another length than its items");
    }
    let mut rest = &bytes[lens_end..];
    Ok(block_lens(lens).map(move |len| {
        let (item, tail) = rest.split_at(len);
        rest = tail;
        item
    }))
}

fn block_lens(lens: &[u8]) -> impl Iterator<Item = usize> {
    lens.chunks_exact(LEN_BYTES)
        .map(|pair| usize::from(u16::from_le_bytes([pair[0], pair[1]])))
}

/// Which items there are; the committer writes it, readers read it.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    start: AtomicU64,
    end: AtomicU64,
}

impl Bounds {
    pub(crate) fn publish(&self, start: u64, end: u64) {
        // `end` first: a reader between the two sees too many dropped items, never an unfinished one.
        self.end.store(end, Ordering::Release);
        self.start.store(start, Ordering::Release);
    }
}

/// Reads the archive; clones are cheap and independent of the journal's handle.
#[derive(Clone)]
pub struct ArchiveReader {
    image: Arc<dyn Image>,
    bounds: Arc<Bounds>,
}

impl ArchiveReader {
    pub(crate) fn new(image: Arc<dyn Image>, bounds: Arc<Bounds>) -> Self {
        Self { image, bounds }
    }

    /// Number of the first item that is kept.
    pub fn start(&self) -> u64 {
        self.bounds.start.load(Ordering::Acquire)
    }

    /// Number of the next item that will be added: one above the last.
    pub fn end(&self) -> u64 {
        self.bounds.end.load(Ordering::Acquire)
    }

    /// The item with this number; `None` below `start` and from `end` on.
    ///
    /// # Errors
    /// [`Error::ArchiveDamaged`] for an item that is missing or does not decode, [`Error::Image`].
    pub fn get(&self, index: u64) -> Result<Option<Vec<u8>>, Error> {
        if index < self.start() || index >= self.end() {
            return Ok(None);
        }
        let found = self.block_with(index);
        // A checkpoint may have dropped the block while it was read.
        if index < self.start() { Ok(None) } else { found }
    }

    fn block_with(&self, index: u64) -> Result<Option<Vec<u8>>, Error> {
        let damaged = |why| Error::ArchiveDamaged {
            first: index,
            last: index,
            why,
        };
        let mut back = self
            .image
            .scan_back(Space::Archive, &BlockKey { first: index }.key(u16::MAX));
        let (key, value) = back
            .next()
            .transpose()?
            .ok_or_else(|| damaged("its block is missing"))?;
        let (block, part) = BlockKey::parse(&key).ok_or_else(|| damaged("its block has a foreign key"))?;
        let bytes = if part == 0 {
            value
        } else {
            let mut parts = Assembler::<BlockKey>::new(self.image.scan(Space::Archive, &block.key(0)));
            match parts.next().transpose()? {
                Some(found) if found.key == block && found.whole => found.bytes,
                _ => return Err(damaged("a part of its block is missing")),
            }
        };
        let number = usize::try_from(index - block.first).map_err(|_| damaged("its block is missing"))?;
        let item = decode_block(&bytes)
            .map_err(damaged)?
            .nth(number)
            .map(<[u8]>::to_vec);
        item.map(Some).ok_or_else(|| damaged("its block is missing"))
    }

    /// The items from number `from` on, ascending, as they are when each is read.
    ///
    /// A run of damaged items comes as one [`Error::ArchiveDamaged`], and the scan goes on behind it; after
    /// [`Error::Image`] it ends.
    pub fn scan(&self, from: u64) -> ArchiveScan {
        let next = from.max(self.start());
        let mut back = self
            .image
            .scan_back(Space::Archive, &BlockKey { first: next }.key(u16::MAX));
        // The block that holds `next` may start before it.
        let first = match back.next() {
            Some(Ok((key, _))) => BlockKey::parse(&key).map_or(next, |(block, _)| block.first),
            Some(Err(_)) | None => next,
        };
        ArchiveScan {
            blocks: Assembler::new(self.image.scan(Space::Archive, &BlockKey { first }.key(0))),
            bounds: Arc::clone(&self.bounds),
            end: self.end(),
            next,
            block: Vec::new(),
            position: 0,
            pending: None,
            ended: false,
            _image: Arc::clone(&self.image),
        }
    }
}

/// Iterates over archive items; see [`ArchiveReader::scan`].
pub struct ArchiveScan {
    // While the scan lives, so does the store below: its lock must not go before it.
    _image: Arc<dyn Image>,
    blocks: Assembler<BlockKey>,
    bounds: Arc<Bounds>,
    end: u64,
    /// Number of the next item to give.
    next: u64,
    /// The lengths-checked items of the present block, and how many were given.
    block: Vec<Vec<u8>>,
    position: usize,
    /// A block read past a run of missing items.
    pending: Option<Assembled<BlockKey>>,
    ended: bool,
}

impl ArchiveScan {
    fn give(&mut self) -> Option<Result<(u64, Vec<u8>), Error>> {
        let item = std::mem::take(self.block.get_mut(self.position)?);
        let index = self.next;
        self.position += 1;
        self.next += 1;
        Some(Ok((index, item)))
    }

    fn damaged_up_to(&mut self, next: u64, why: &'static str) -> Error {
        let first = std::mem::replace(&mut self.next, next);
        Error::ArchiveDamaged {
            first,
            last: next - 1,
            why,
        }
    }

    /// Makes the next block the present one, or says what is missing before it.
    fn advance(&mut self) -> Result<bool, Error> {
        let found = match self.pending.take() {
            Some(block) => block,
            None => match self.blocks.next().transpose()? {
                Some(block) if block.key.first < self.end => block,
                Some(_) | None => return self.finish(),
            },
        };
        let first = found.key.first;
        // A checkpoint may drop blocks while the scan runs.
        self.next = self
            .next
            .max(self.bounds.start.load(Ordering::Acquire).min(first));
        if first > self.next {
            self.pending = Some(found);
            return Err(self.damaged_up_to(first, "their block is missing or does not decode"));
        }
        let items = if found.whole {
            decode_block(&found.bytes)
        } else {
            Err("a part is missing")
        };
        // A block that does not decode gives nothing; the next block, or the end, shows the run it leaves.
        self.block = items
            .map(|items| items.map(<[u8]>::to_vec).collect())
            .unwrap_or_default();
        self.position = usize::try_from(self.next - first)
            .unwrap_or(usize::MAX)
            .min(self.block.len());
        Ok(true)
    }

    fn finish(&mut self) -> Result<bool, Error> {
        self.ended = true;
        self.next = self.next.max(self.bounds.start.load(Ordering::Acquire));
        if self.next < self.end {
            return Err(self.damaged_up_to(self.end, "their block is missing or does not decode"));
        }
        Ok(false)
    }
}

impl Iterator for ArchiveScan {
    type Item = Result<(u64, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.next >= self.end {
                return None;
            }
            if let Some(item) = self.give() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    self.ended |= matches!(error, Error::Image(_));
                    return Some(Err(error));
                }
            }
        }
    }
}
