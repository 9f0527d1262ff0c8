//! The forced log: the only code that knows sled and fsync.
//!
//! A journal is a sequence of *records*, numbered from 1 without gaps (*LSN*). Records are appended without
//! waiting, written in groups (*entries*), and **durable** only after a flush and an own fdatasync; the *position*
//! is the LSN of the last durable record. A reader of `wait_durable` or `durable` can rely on this: what it was
//! told survives the loss of power, and a crash keeps a prefix of what was appended (PROTOCOL.md section 2).
//!
//! What a [`Checkpoint`] folds leaves the log, and what must be looked up goes to the *archive* with it; both
//! are replaced whole or not at all. A failed or late force has an unknown result and ends the process.
//! Start-up reads only what is on the disk for sure, and
//! says when the log ends below what was forced in it ([`LostTail`]). Payloads are opaque: what a record means, which of them make
//! a lineage or an incarnation, and when to checkpoint are the caller's.
//!
//! [`Journal::open`] works on a directory ([`SledImage`]), [`Journal::open_image`] on any [`Image`], such as
//! [`MemoryImage`], which can crash. Everything between is the same code.

mod archive;
mod checkpoint;
mod committer;
mod directory;
mod end_mark;
mod entry;
mod envelope;
mod error;
mod image;
mod index;
mod journal;
pub mod limits;
mod memory_image;
mod open;
mod queue;
mod replay;
mod sled_image;
mod snapshot;
mod sweep;
mod tail;
mod waiters;

pub use archive::{ArchiveReader, ArchiveScan};
pub use checkpoint::{Checkpoint, CheckpointStatus};
pub use committer::{FatalCause, OnFatal, Probe, Stage};
pub use directory::{Directory, FORMAT, StartReport, prepare};
pub use end_mark::LostTail;
pub use envelope::{Damaged, Envelope, Force, Head, HeadRef, Records, XID_BYTES, XidBytes, decode};
pub use error::Error;
pub use image::{Batch, Change, Image, ImageError, Item, Key, Scan, Space};
pub use index::IdIndex;
pub use journal::{Journal, Lsn, Stats};
pub use memory_image::MemoryImage;
pub use open::{Opened, Options};
pub use replay::{Replay, Replayed};
pub use sled_image::SledImage;
