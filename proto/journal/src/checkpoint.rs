//! Checkpoints: the fold of the log up to L, written in bounded slices between forced groups.
//!
//! The order is *forced before dropped*: (1) archive blocks and the checkpoint's records under a new
//! generation, (2) all of them forced, (3) the switch, one key that names generation, L and archive bounds,
//! forced, (4) what the switch made stale goes, in bounded slices (`sweep`). A crash at any point leaves the
//! old checkpoint or the new one whole. What the fold contains is the caller's.

use crate::archive::{self, BlockKey};
use crate::entry::{self, SliceKey};
use crate::envelope::Records;
use crate::error::Error;
use crate::image::{Batch, Image, ImageError, Key, Space};
use crate::limits::MAX_ENTRY_BYTES;
use crate::sweep::Sweep;

/// A checkpoint to write.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// The records fold the log up to and with this LSN; it must be durable.
    pub lsn: u64,
    /// The fold: every later replay starts with these records, in this order.
    pub records: Records,
    /// Items to append to the archive, each at most `MAX_ITEM_BYTES`.
    pub archive: Vec<Vec<u8>>,
    /// Archive items below this number go; at most the archive's end with the items added.
    pub archive_drop_before: u64,
}

/// How far checkpoints are; an observable value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointStatus {
    /// LSN of the last checkpoint whose switch is durable; 0 before the first.
    pub lsn: u64,
    /// Number of the first archive item kept.
    pub archive_start: u64,
    /// Number of the next archive item.
    pub archive_end: u64,
    /// LSN of the checkpoint that is being written or cleaned up after.
    pub running: Option<u64>,
}

/// What the switch says: which checkpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    pub(crate) generation: u64,
    pub(crate) lsn: u64,
    pub(crate) records: u64,
    pub(crate) archive_start: u64,
    pub(crate) archive_end: u64,
}

const MANIFEST_VERSION: u8 = 1;
const MANIFEST_BYTES: usize = 1 + 5 * 8 + 4;

impl Manifest {
    fn key() -> Key {
        Key::from_parts(&[b"checkpoint"])
    }

    fn encode(&self) -> [u8; MANIFEST_BYTES] {
        let mut bytes = [0; MANIFEST_BYTES];
        bytes[0] = MANIFEST_VERSION;
        let fields = [
            self.generation,
            self.lsn,
            self.records,
            self.archive_start,
            self.archive_end,
        ];
        for (place, field) in bytes[1..].chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..MANIFEST_BYTES - 4]);
        bytes[MANIFEST_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; MANIFEST_BYTES] = bytes.try_into().map_err(|_| "it has another length")?;
        let (body, crc) = bytes.split_at(MANIFEST_BYTES - 4);
        if crc32c::crc32c(body) != entry_crc(crc) {
            return Err("its checksum does not hold");
        }
        if body[0] != MANIFEST_VERSION {
            return Err("it was written by an unknown version");
        }
        let field = |number: usize| {
            let start = 1 + 8 * number;
            body[start..]
                .first_chunk::<8>()
                .map_or(0, |chunk| u64::from_le_bytes(*chunk))
        };
        Ok(Self {
            generation: field(0),
            lsn: field(1),
            records: field(2),
            archive_start: field(3),
            archive_end: field(4),
        })
    }

    /// The current one; that of an empty journal where none was written.
    pub(crate) fn load(image: &dyn Image) -> Result<Self, Error> {
        match image.get(Space::Meta, &Self::key())? {
            None => Ok(Self::default()),
            Some(bytes) => Self::decode(&bytes).map_err(|why| Error::Corrupted {
                what: "the checkpoint's switch".to_owned(),
                why: why.to_owned(),
            }),
        }
    }

    pub(crate) fn status(&self, running: Option<u64>) -> CheckpointStatus {
        CheckpointStatus {
            lsn: self.lsn,
            archive_start: self.archive_start,
            archive_end: self.archive_end,
            running,
        }
    }
}

fn entry_crc(bytes: &[u8]) -> u32 {
    crate::envelope::read_u32(bytes)
}

/// What a force made of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More slices to come.
    Running,
    /// The switch is durable: this one counts.
    Switched(Manifest),
    /// What was stale is gone.
    Done,
}

enum Phase {
    Items { next: usize },
    Records { next: usize, offset: usize },
    Switch,
    Switched,
    Sweep(Sweep),
    Done,
}

/// One running checkpoint, advanced slice by slice by the committer.
pub(crate) struct Job {
    work: Checkpoint,
    new: Manifest,
    archive_end: u64,
    phase: Phase,
}

impl Job {
    /// # Panics
    /// If the checkpoint lies below the current one, or drops items that it does not have.
    pub(crate) fn new(current: &Manifest, work: Checkpoint) -> Self {
        let archive_end = current.archive_end + work.archive.len() as u64;
        assert!(
            work.lsn >= current.lsn,
            "checkpoint {} lies below {}",
            work.lsn,
            current.lsn
        );
        assert!(
            work.archive_drop_before <= archive_end,
            "cannot drop items below {}: the archive ends at {archive_end}",
            work.archive_drop_before
        );
        assert!(
            u32::try_from(work.records.len()).is_ok(),
            "a checkpoint holds fewer than 2^32 records"
        );
        let new = Manifest {
            generation: current.generation + 1,
            lsn: work.lsn,
            records: work.records.len() as u64,
            archive_start: work.archive_drop_before.max(current.archive_start),
            archive_end,
        };
        Self {
            work,
            new,
            archive_end: current.archive_end,
            phase: Phase::Items { next: 0 },
        }
    }

    pub(crate) fn lsn(&self) -> u64 {
        self.new.lsn
    }

    /// Applies the next slice; bytes that left the log.
    pub(crate) fn step(&mut self, image: &dyn Image) -> Result<u64, ImageError> {
        if let Phase::Items { next } = self.phase
            && next == self.work.archive.len()
        {
            self.phase = Phase::Records { next: 0, offset: 0 };
        }
        if let Phase::Records { next, .. } = self.phase
            && next == self.work.records.len()
        {
            self.phase = Phase::Switch;
        }
        match &mut self.phase {
            Phase::Items { next } => {
                *next += put_items(
                    image,
                    &self.work.archive[*next..],
                    self.archive_end + *next as u64,
                )?;
            }
            Phase::Records { next, offset } => {
                let (bytes, lens) = self.work.records.slice(*next, *offset);
                let key = SliceKey {
                    generation: self.new.generation,
                    first: *next as u32,
                    count: lens.len() as u16,
                };
                put_slice(image, key, bytes, lens)?;
                *next += lens.len();
                *offset += bytes.len();
            }
            Phase::Switch => {
                let manifest = self.new.encode();
                let mut batch = Batch::new();
                batch.put(Space::Meta, Manifest::key(), &manifest);
                image.apply(&batch)?;
                self.phase = Phase::Switched;
            }
            Phase::Sweep(sweep) => {
                let swept = sweep.step(image)?;
                if swept.ended {
                    self.phase = Phase::Done;
                }
                return Ok(swept.log_bytes);
            }
            Phase::Switched | Phase::Done => {}
        }
        Ok(0)
    }

    /// Everything that `step` applied is durable.
    pub(crate) fn forced(&mut self, image: &dyn Image) -> Result<Progress, ImageError> {
        match self.phase {
            Phase::Switched => {
                // The fold is on disk: its memory can go before the sweep.
                self.work = Checkpoint::default();
                self.phase = Phase::Sweep(Sweep::new(image, &self.new)?);
                Ok(Progress::Switched(self.new))
            }
            Phase::Done => Ok(Progress::Done),
            Phase::Items { .. } | Phase::Records { .. } | Phase::Switch | Phase::Sweep(_) => {
                Ok(Progress::Running)
            }
        }
    }
}

/// Writes blocks of the first items, about an entry's worth; how many items.
fn put_items(image: &dyn Image, items: &[Vec<u8>], first: u64) -> Result<usize, ImageError> {
    let mut blocks = Vec::new();
    let mut taken = 0;
    let mut bytes = 0;
    while taken < items.len() {
        let mut block = Vec::new();
        let count = archive::encode_block(&mut block, &items[taken..]);
        if bytes + block.len() > MAX_ENTRY_BYTES && taken > 0 {
            break;
        }
        bytes += block.len();
        blocks.push((
            BlockKey {
                first: first + taken as u64,
            },
            block,
        ));
        taken += count;
    }
    let mut batch = Batch::new();
    for (key, block) in &blocks {
        entry::put_chunks(&mut batch, Space::Archive, block, |part| key.key(part));
    }
    image.apply(&batch)?;
    Ok(taken)
}

fn put_slice(image: &dyn Image, key: SliceKey, bytes: &[u8], lens: &[u16]) -> Result<(), ImageError> {
    let mut encoded = Vec::new();
    entry::encode(&mut encoded, bytes, lens);
    let mut batch = Batch::new();
    entry::put_chunks(&mut batch, Space::Checkpoint, &encoded, |part| key.key(part));
    image.apply(&batch)
}
