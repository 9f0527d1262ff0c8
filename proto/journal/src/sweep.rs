//! Removing what the current checkpoint made stale, a bounded number of keys at a time.
//!
//! Stale are: log entries up to the checkpoint's L, records of every other generation, archive blocks wholly
//! below the archive's start, and blocks from its end on, which a half-written checkpoint left. The same
//! sweep runs after a switch and at every open; it is safe to stop and begin again anywhere.

use crate::archive::BlockKey;
use crate::checkpoint::Manifest;
use crate::entry::{ChunkKey, LogKey};
use crate::image::{Batch, Image, ImageError, Key, Space};
use crate::limits::DELETE_KEYS_PER_SLICE;

#[derive(Debug)]
struct Stale {
    space: Space,
    from: Key,
    /// The first key that stays; `None`: the whole rest of the space goes.
    to: Option<Key>,
}

/// A sweep under way.
#[derive(Debug)]
pub(crate) struct Sweep {
    stale: Vec<Stale>,
}

/// What one step removed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Swept {
    /// Keys deleted.
    pub(crate) keys: usize,
    /// Bytes that left the log.
    pub(crate) log_bytes: u64,
    /// Whether nothing stale is left.
    pub(crate) ended: bool,
}

impl Sweep {
    /// Finds what `manifest` makes stale.
    pub(crate) fn new(image: &dyn Image, manifest: &Manifest) -> Result<Self, ImageError> {
        let number = |value: u64| Key::from_parts(&[&value.to_be_bytes()]);
        let stale = |space, from, to| Stale { space, from, to };
        Ok(Self {
            stale: vec![
                stale(
                    Space::Log,
                    number(0),
                    Some(number(first_kept_entry(image, manifest.lsn)?)),
                ),
                stale(Space::Checkpoint, number(0), Some(number(manifest.generation))),
                stale(Space::Checkpoint, number(manifest.generation + 1), None),
                stale(
                    Space::Archive,
                    number(0),
                    first_kept_block(image, manifest)?.map(number),
                ),
                stale(Space::Archive, number(manifest.archive_end), None),
            ],
        })
    }

    /// Deletes the next keys, at most [`DELETE_KEYS_PER_SLICE`].
    pub(crate) fn step(&mut self, image: &dyn Image) -> Result<Swept, ImageError> {
        let mut swept = Swept::default();
        let mut batch = Batch::new();
        while let Some(stale) = self.stale.last_mut() {
            let mut left = false;
            for item in image.scan(stale.space, &stale.from) {
                let (key, value) = item?;
                if stale.to.is_some_and(|to| key >= to) {
                    break;
                }
                // Beginning here again next time spares walking over what was deleted.
                stale.from = key;
                if swept.keys == DELETE_KEYS_PER_SLICE {
                    left = true;
                    break;
                }
                batch.delete(stale.space, key);
                swept.keys += 1;
                if stale.space == Space::Log {
                    swept.log_bytes += value.len() as u64;
                }
            }
            if left {
                break;
            }
            self.stale.pop();
        }
        swept.ended = self.stale.is_empty();
        if !batch.is_empty() {
            image.apply(&batch)?;
        }
        Ok(swept)
    }
}

/// First LSN of the first entry with a record above `lsn`: an entry may reach over a checkpoint.
fn first_kept_entry(image: &dyn Image, lsn: u64) -> Result<u64, ImageError> {
    let last_key = LogKey {
        first: lsn,
        count: u16::MAX,
    }
    .key(u16::MAX);
    let last = image.scan_back(Space::Log, &last_key).next().transpose()?;
    Ok(last
        .and_then(|(key, _)| LogKey::parse(&key))
        .filter(|(entry, _)| entry.last() > lsn)
        .map_or(lsn + 1, |(entry, _)| entry.first))
}

/// First item of the block that holds the archive's start; `None` if every block may go.
fn first_kept_block(image: &dyn Image, manifest: &Manifest) -> Result<Option<u64>, ImageError> {
    if manifest.archive_start >= manifest.archive_end {
        return Ok(None);
    }
    let start = BlockKey {
        first: manifest.archive_start,
    };
    let block = image
        .scan_back(Space::Archive, &start.key(u16::MAX))
        .next()
        .transpose()?;
    Ok(Some(
        block
            .and_then(|(key, _)| BlockKey::parse(&key))
            .map_or(manifest.archive_start, |(block, _)| block.first),
    ))
}
