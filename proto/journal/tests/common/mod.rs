//! What the journal's tests share: the two stores, short ways to append and to read back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use covenant_journal::{
    Checkpoint, Envelope, FatalCause, Force, HeadRef, Image, Journal, MemoryImage, Opened, Options, Records,
    Replay, SledImage, prepare,
};

/// Longest that a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ROLE: &str = "tester";

/// Bytes of a segment of sled's log, as the journal leaves it.
pub(crate) const SEGMENT_BYTES: usize = 512 * 1024;

/// A place that journals can be opened on again and again.
pub(crate) trait Store {
    fn open(&self, options: Options) -> Opened;

    fn try_open(&self) -> Result<Opened, covenant_journal::Error>;

    /// The image with no journal on it, to damage it. Drop it before the next open.
    fn image(&self) -> Arc<dyn Image>;
}

pub(crate) struct OnDisk {
    _temporary: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl OnDisk {
    pub(crate) fn new() -> Self {
        // Not the system's: that may be a tmpfs, on which nothing is durable.
        let temporary = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = temporary.path().join("data");
        Self {
            _temporary: temporary,
            path,
        }
    }
}

impl Store for OnDisk {
    fn open(&self, options: Options) -> Opened {
        Journal::open(&self.path, options).unwrap()
    }

    fn try_open(&self) -> Result<Opened, covenant_journal::Error> {
        Journal::open(&self.path, Options::new(ROLE))
    }

    fn image(&self) -> Arc<dyn Image> {
        Arc::new(SledImage::open(prepare(&self.path, ROLE).unwrap()).unwrap())
    }
}

pub(crate) struct InMemory(pub(crate) MemoryImage);

impl InMemory {
    pub(crate) fn new() -> Self {
        Self(MemoryImage::new())
    }
}

impl Store for InMemory {
    fn open(&self, options: Options) -> Opened {
        Journal::open_image(Arc::new(self.0.clone()), options).unwrap()
    }

    fn try_open(&self) -> Result<Opened, covenant_journal::Error> {
        Journal::open_image(Arc::new(self.0.clone()), Options::new(ROLE))
    }

    fn image(&self) -> Arc<dyn Image> {
        Arc::new(self.0.clone())
    }
}

pub(crate) fn options() -> Options {
    Options::new(ROLE)
}

/// Options that collect fatal causes instead of ending the process.
pub(crate) fn surviving() -> (Options, Arc<Mutex<Vec<FatalCause>>>) {
    let causes = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&causes);
    let on_fatal = Arc::new(move |cause| collected.lock().unwrap().push(cause));
    (
        Options {
            on_fatal,
            ..options()
        },
        causes,
    )
}

pub(crate) fn xid_of(number: u64) -> [u8; 40] {
    let mut xid = [7; 40];
    xid[32..].copy_from_slice(&number.to_be_bytes());
    xid
}

/// A run of one record that carries `number` and `padding` more bytes.
pub(crate) fn one(number: u64, padding: usize, force: Force) -> Records {
    let mut records = Records::new();
    push(&mut records, number, padding, force);
    records
}

pub(crate) fn push(records: &mut Records, number: u64, padding: usize, force: Force) {
    let xid = xid_of(number);
    let id = format!("T{number}");
    let head = HeadRef {
        kind: 3,
        xid: Some(&xid),
        transaction_id: Some(&id),
    };
    records.push_with(head, force, |buffer| {
        buffer.extend_from_slice(&number.to_le_bytes());
        buffer.extend(std::iter::repeat_n(number as u8, padding));
    });
}

/// The number that a record of `push` carries; it checks all the rest of it.
pub(crate) fn number_of(envelope: &Envelope) -> u64 {
    let (number, padding) = envelope.payload.split_first_chunk::<8>().unwrap();
    let number = u64::from_le_bytes(*number);
    assert!(
        padding.iter().all(|byte| *byte == number as u8),
        "the payload of {number} is mixed up"
    );
    assert_eq!(envelope.head.kind, 3);
    assert_eq!(envelope.head.xid, Some(xid_of(number)));
    assert_eq!(
        envelope.head.transaction_id.as_deref(),
        Some(format!("T{number}").as_str())
    );
    number
}

/// All numbers of a replay without damage, those of the checkpoint first; LSNs must rise by one.
pub(crate) fn numbers(replay: Replay) -> Vec<u64> {
    let mut next = replay.checkpoint_lsn() + 1;
    let total = replay.total();
    let numbers: Vec<u64> = replay
        .map(|replayed| {
            let replayed = replayed.unwrap();
            if let Some(lsns) = replayed.lsns {
                assert_eq!(lsns, next..=next);
                next += 1;
            }
            number_of(&replayed.record.unwrap())
        })
        .collect();
    assert_eq!(numbers.len() as u64, total);
    numbers
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future)
            .await
            .expect("it must end in time")
    })
}

/// Appends numbers as one forced record each and waits for the last.
pub(crate) fn force_all(journal: &Journal, numbers: impl IntoIterator<Item = u64>) {
    let mut last = journal.durable_lsn();
    for number in numbers {
        last = journal.append(&one(number, 10, Force::Now));
    }
    block_on(journal.wait_durable(last));
}

/// Writes a checkpoint and waits until all of it is done.
pub(crate) fn checkpoint(journal: &Journal, checkpoint: Checkpoint) {
    let lsn = checkpoint.lsn;
    let mut status = journal.checkpoints();
    journal.checkpoint(checkpoint).unwrap();
    block_on(async {
        status
            .wait_for(|status| status.lsn == lsn && status.running.is_none())
            .await
            .map(drop)
    })
    .unwrap();
}

/// A fold that is the list of the numbers.
pub(crate) fn fold(numbers: impl IntoIterator<Item = u64>) -> Records {
    let mut records = Records::new();
    for number in numbers {
        push(&mut records, number, 10, Force::Lazy);
    }
    records
}

/// Copies a directory: what a process that dies at this moment leaves.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The segments of sled's log in their order: LSN, and where each lies in the file.
pub(crate) fn segments(db: &[u8]) -> Vec<(i64, usize)> {
    let mut segments: Vec<(i64, usize)> = (0..db.len())
        .step_by(SEGMENT_BYTES)
        .filter_map(|at| {
            let header = db.get(at..at + 20)?;
            let crc = u32::from_le_bytes(header[..4].try_into().unwrap()) ^ u32::MAX;
            let lsn = i64::from_le_bytes(header[4..12].try_into().unwrap()) ^ i64::MAX;
            (crc32fast::hash(&header[4..]) == crc).then_some((lsn, at))
        })
        .collect();
    segments.sort_unstable();
    segments
}

/// Runs a property over both stores.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $name() { super::$name(&$crate::common::InMemory::new()); })*
        }
        mod disk {
            $(#[test] fn $name() { super::$name(&$crate::common::OnDisk::new()); })*
        }
    };
}
