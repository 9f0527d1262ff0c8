//! What the journal stands on: a tiny ordered key-value store with a live and a durable state.
//!
//! An image guarantees three things: a [`Batch`] is applied whole or not at all; what is durable is a
//! prefix of the batches in the order they were applied; and after `flush` and then `sync` returned
//! without error, every batch applied before is durable. Everything above (entries, checkpoints, archive)
//! is written once, over this trait, so that disk and memory run the same code.
//! It leaves out transactions that read, merging and any knowledge of what is stored.

use std::fmt;

use crate::limits::{CHUNK_BYTES, KEY_BYTES_MAX};

/// A space of keys inside an image; keys of different spaces never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// The log: entries above the checkpoint.
    Log = 1,
    /// The records of checkpoints, by generation.
    Checkpoint = 2,
    /// The archive's blocks.
    Archive = 3,
    /// The switch that names the current checkpoint.
    Meta = 4,
}

/// A short key, stored inline; at most [`KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    // `bytes` is zero behind `len`, so that the derived order is the order of the byte strings: a prefix
    // that differs only by trailing zeroes falls back to `len`.
    bytes: [u8; KEY_BYTES_MAX],
    len: u8,
}

impl Key {
    /// The key with these bytes; `None` above [`KEY_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut key = Self {
            bytes: [0; KEY_BYTES_MAX],
            len: u8::try_from(bytes.len()).ok()?,
        };
        key.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(key)
    }

    /// A key from parts that are known to fit.
    ///
    /// # Panics
    /// If the parts together exceed [`KEY_BYTES_MAX`].
    pub(crate) fn from_parts(parts: &[&[u8]]) -> Self {
        let mut key = Self {
            bytes: [0; KEY_BYTES_MAX],
            len: 0,
        };
        for part in parts {
            let start = usize::from(key.len);
            let end = start + part.len();
            assert!(
                end <= KEY_BYTES_MAX,
                "a key of {end} bytes exceeds {KEY_BYTES_MAX}"
            );
            key.bytes[start..end].copy_from_slice(part);
            key.len = end as u8;
        }
        key
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(")?;
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ")")
    }
}

/// One change of a batch: a value to put, or `None` to delete.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The space of the key.
    pub space: Space,
    /// The key.
    pub key: Key,
    /// The new value, or `None` to delete the key.
    pub value: Option<&'a [u8]>,
}

/// Puts and deletes over all spaces that are applied as one.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    changes: Vec<Change<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put.
    ///
    /// # Panics
    /// If the value exceeds [`CHUNK_BYTES`]: a larger one could leave the log file (see `limits`).
    pub fn put(&mut self, space: Space, key: Key, value: &'a [u8]) {
        assert!(
            value.len() <= CHUNK_BYTES,
            "a value of {} bytes exceeds {CHUNK_BYTES}",
            value.len()
        );
        self.changes.push(Change {
            space,
            key,
            value: Some(value),
        });
    }

    /// Adds a delete; deleting what is not there is no error.
    pub fn delete(&mut self, space: Space, key: Key) {
        self.changes.push(Change {
            space,
            key,
            value: None,
        });
    }

    /// The changes in the order they were added; of two on one key the later one counts.
    pub fn changes(&self) -> &[Change<'a>] {
        &self.changes
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Why an image refused; after a failed `apply`, `flush` or `sync` the durable state is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{action} failed: {why}")]
pub struct ImageError {
    /// What was tried.
    pub action: &'static str,
    /// The cause, in words.
    pub why: String,
    /// The cause, where there is one.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ImageError {
    /// An error without a cause below it.
    pub fn new(action: &'static str, why: impl Into<String>) -> Self {
        Self {
            action,
            why: why.into(),
            source: None,
        }
    }

    /// An error with its cause.
    pub fn caused(action: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self {
            action,
            why: source.to_string(),
            source: Some(Box::new(source)),
        }
    }
}

/// A key and its value, or why it could not be read.
pub type Item = Result<(Key, Vec<u8>), ImageError>;

/// An iterator over keys of one space; it does not borrow the image.
pub type Scan = Box<dyn Iterator<Item = Item> + Send>;

/// A tiny ordered key-value store with a live and a durable state; see the module's documentation.
pub trait Image: Send + Sync + 'static {
    /// Applies the batch to the live state, whole.
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError>;

    /// Hands every applied batch to the file; nothing is durable by this alone.
    fn flush(&self) -> Result<(), ImageError>;

    /// Makes what was flushed durable.
    fn sync(&self) -> Result<(), ImageError>;

    /// Keeps beside the store that the record `lsn` is durable; the last call counts. What is kept survives the death
    /// of the process, and may be older after a loss of power.
    fn note_end(&self, lsn: u64) -> Result<(), ImageError>;

    /// Makes durable what `note_end` keeps.
    fn force_end(&self) -> Result<(), ImageError>;

    /// What `note_end` kept, maybe before the last crash; `None` if that is unknown.
    fn noted_end(&self) -> Option<u64>;

    /// The live value of a key.
    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError>;

    /// The live keys of a space from `from` on, ascending.
    fn scan(&self, space: Space, from: &Key) -> Scan;

    /// The live keys of a space up to and with `to`, descending.
    fn scan_back(&self, space: Space, to: &Key) -> Scan;

    /// Checks what the image believes of itself: on disk, that `blobs/` is empty.
    fn verify(&self) -> Result<(), ImageError>;
}
