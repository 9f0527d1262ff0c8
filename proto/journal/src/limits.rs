//! Every bound of the journal, in one place, with its reason.

/// Bytes of the largest stored value. sled writes a page that outgrows its segment to `blobs/`, which
/// nothing syncs; with values of this size a page stays far below that.
pub const CHUNK_BYTES: usize = 2048;

/// Bytes of the longest key; sled keeps keys of this length inline.
pub const KEY_BYTES_MAX: usize = 20;

/// Bytes of the largest encoded record (see `Records`), 48 KiB.
pub const MAX_RECORD_BYTES: usize = 48 * 1024;

/// Bytes of records in one entry, and of one slice of a checkpoint: it bounds the time of one force and
/// the memory of one batch.
pub const MAX_ENTRY_BYTES: usize = 60_000;

/// Records in one entry.
pub const MAX_ENTRY_RECORDS: usize = 4096;

/// Bytes of the longest transaction id that an envelope can carry.
pub const MAX_TRANSACTION_ID_BYTES: usize = 255;

/// Milliseconds within which a lazy record is forced.
pub const LAZY_FORCE_MS: u64 = 5;

/// Bytes of appended records that wait for their force, above which `Journal::is_backlogged` asks callers
/// to shed work.
pub const MAX_BACKLOG_BYTES: usize = 16 * 1024 * 1024;

/// Bytes of the largest archive item.
pub const MAX_ITEM_BYTES: usize = 48 * 1024;

/// Items in one block of the archive.
pub const MAX_BLOCK_ITEMS: usize = 512;

/// Keys deleted in one slice: large batches collapse sled's throughput and memory.
pub const DELETE_KEYS_PER_SLICE: usize = 64;

/// Bytes of sled's page cache.
pub const SLED_CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// Further look-ups of each item that an ascending scan of sled reads, so that sled's cache evicts; a page
/// holds about 17 items.
pub(crate) const SCAN_TOUCHES: u32 = 2;

/// The same for a descending scan, which reads one item of a page.
pub(crate) const LOOKUP_TOUCHES: u32 = 16;

/// Attempts, 10 ms apart, to get sled's own lock from the rest of a sled that this process dropped.
pub const SLED_LOCK_ATTEMPTS: u32 = 500;

/// Forces after which the image verifies itself again.
pub const FORCES_PER_VERIFY: u64 = 1024;

/// Attempts to drop the log file from the page cache.
pub const DROP_CACHE_ATTEMPTS: u32 = 10;

/// Buffers kept for the next groups of records.
pub(crate) const SPARE_GROUPS_MAX: usize = 4;

const _: () = assert!(MAX_RECORD_BYTES <= MAX_ENTRY_BYTES && MAX_RECORD_BYTES <= u16::MAX as usize);
const _: () = assert!(MAX_ITEM_BYTES <= MAX_ENTRY_BYTES && MAX_ITEM_BYTES <= u16::MAX as usize);
const _: () = assert!(MAX_ENTRY_RECORDS <= u16::MAX as usize);
const _: () = assert!(MAX_BLOCK_ITEMS <= u16::MAX as usize);
