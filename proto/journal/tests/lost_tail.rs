//! Records that were forced and are gone from the end of the log: an open says so, or refuses, or has them all.
//!
//! The log is that of a process that died: its files as they are after the last record was told durable.
//! It cannot show a loss that nothing told of: after a power cut the mark of the log's end may be older than the log.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use covenant_journal::{
    Batch, Checkpoint, Error, Force, Image, Journal, Key, LostTail, MemoryImage, Opened, Options, Space,
    Stage,
};

/// Places in each of the last segments.
const PARTS: usize = 40;
const RECORDS: u64 = 3_000;
/// Items that each of the two checkpoints adds to the archive.
const ITEMS: usize = 50;
const RECORD_BYTES: usize = 700;

/// A directory as a process that died leaves it.
fn killed() -> OnDisk {
    let (living, killed) = (OnDisk::new(), OnDisk::new());
    let opened = living.open(options());
    let journal = &opened.journal;
    for numbers in [1..=500, 501..=RECORDS - 500, RECORDS - 499..=RECORDS] {
        let last = *numbers.end();
        for number in numbers {
            let lsn = journal.append(&one(number, RECORD_BYTES, Force::Now));
            if number % 10 == 0 {
                block_on(journal.wait_durable(lsn));
            }
        }
        if last < RECORDS {
            checkpoint(
                journal,
                Checkpoint {
                    lsn: last,
                    records: fold(1..=last),
                    archive: vec![vec![7; 1_000]; ITEMS],
                    archive_drop_before: 0,
                },
            );
        }
    }
    copy(&living.path, &killed.path);
    drop(opened);
    killed
}

/// What the segments at the end of the log occupy, up to their last byte that is not zero.
fn last_segments(db: &[u8], count: usize) -> Vec<std::ops::Range<usize>> {
    segments(db)
        .iter()
        .rev()
        .take(count)
        .map(|(_, at)| {
            let end = db.len().min(at + SEGMENT_BYTES);
            let used = db[*at..end].iter().rposition(|byte| *byte != 0).unwrap();
            *at..at + used + 1
        })
        .collect()
}

/// What became of the records: all there or marked as damaged, a loss that was reported, or a refusal.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Everything,
    Damage,
    Loss,
    Refusal,
}

fn found(opened: Result<Opened, Error>) -> Found {
    let opened = match opened {
        Err(error) => {
            assert!(error.to_string().len() > 20, "{error}");
            return Found::Refusal;
        }
        Ok(opened) => opened,
    };
    if let Some(LostTail { ends_at, forced }) = opened.lost_tail {
        assert_eq!(forced, RECORDS);
        assert_eq!(opened.journal.durable_lsn(), ends_at);
        assert!(matches!(opened.refuse_lost_tail(), Err(Error::TailLost(_))));
        return Found::Loss;
    }
    let mut next = 1;
    let mut damage = false;
    for replayed in opened.replay {
        match replayed.unwrap().record {
            Ok(envelope) => {
                assert_eq!(number_of(&envelope), next);
                next += 1;
            }
            Err(damaged) => {
                damage = true;
                next += damaged.records;
            }
        }
    }
    assert_eq!(next, RECORDS + 1, "records are gone and nobody said so");
    let items: Vec<_> = opened.archive.scan(0).collect();
    damage |= items.iter().any(Result::is_err);
    assert!(damage || items.len() == 2 * ITEMS, "{} items", items.len());
    if damage { Found::Damage } else { Found::Everything }
}

#[test]
fn a_flipped_bit_near_the_end_of_the_log_loses_nothing_in_silence() {
    let killed = killed();
    assert_eq!(damaged(&killed.path, |_| ()), Found::Everything);
    let db = fs::read(killed.path.join("db")).unwrap();
    let mut seen = BTreeSet::new();
    for segment in last_segments(&db, 3) {
        for part in 0..PARTS {
            let at = segment.start + (segment.len() - 1) * part / (PARTS - 1);
            seen.insert(damaged(&killed.path, |db| db[at] ^= 1 << (part % 8)));
        }
    }
    assert!(seen.contains(&Found::Loss), "no tail was lost: {seen:?}");
}

/// Opens a copy of the directory with this done to its log.
fn damaged(killed: &Path, damage: impl Fn(&mut [u8])) -> Found {
    let store = OnDisk::new();
    copy(killed, &store.path);
    let mut db = fs::read(store.path.join("db")).unwrap();
    damage(&mut db);
    fs::write(store.path.join("db"), db).unwrap();
    let options = Options {
        open_timeout: Duration::from_secs(5),
        ..options()
    };
    found(Journal::open(&store.path, options))
}

/// Everything but the mark goes with the file that is put back: its mark is newer.
#[test]
fn a_log_file_from_an_older_copy_is_no_whole_log() {
    let store = OnDisk::new();
    force_all(&store.open(options()).journal, 1..=5);
    let older = fs::read(store.path.join("db")).unwrap();
    force_all(&store.open(options()).journal, 6..=9);
    fs::write(store.path.join("db"), older).unwrap();
    let lost = LostTail {
        ends_at: 5,
        forced: 9,
    };
    for _ in 0..2 {
        assert_eq!(store.open(options()).lost_tail, Some(lost), "every open says so");
    }
    // Who goes on with what is left has the next open whole.
    let opened = store.open(options());
    force_all(&opened.journal, [6]);
    drop(opened);
    let opened = store.open(options());
    assert_eq!(opened.lost_tail, None);
    assert_eq!(numbers(opened.replay), (1..=6).collect::<Vec<_>>());
}

#[test]
fn a_mark_that_is_missing_or_damaged_is_unknown_and_written_anew() {
    for ruin in [
        None,
        Some(Vec::new()),
        Some(vec![0; 20]),
        Some(b"0123456789abcdefghijk".to_vec()),
    ] {
        let store = OnDisk::new();
        force_all(&store.open(options()).journal, 1..=3);
        let (end, db) = (store.path.join("end"), store.path.join("db"));
        let older = fs::read(&db).unwrap();
        match &ruin {
            None => fs::remove_file(&end).unwrap(),
            Some(bytes) => fs::write(&end, bytes).unwrap(),
        }
        let opened = store.open(options());
        assert_eq!(opened.lost_tail, None);
        force_all(&opened.journal, [4]);
        drop(opened);
        fs::write(&db, older).unwrap();
        let found = store.open(options()).lost_tail;
        assert_eq!(
            found,
            Some(LostTail {
                ends_at: 3,
                forced: 4
            }),
            "{ruin:?}"
        );
    }
}

/// Takes the last entry out of the log, below the journal.
fn forget_the_last_entry(store: &impl Store) {
    let image = store.image();
    let last = Key::new(&[0xFF; covenant_journal::limits::KEY_BYTES_MAX]).unwrap();
    let (key, _) = image.scan_back(Space::Log, &last).next().unwrap().unwrap();
    let mut batch = Batch::new();
    batch.delete(Space::Log, key);
    image.apply(&batch).unwrap();
    image.flush().unwrap();
    image.sync().unwrap();
}

fn a_log_that_ends_below_what_was_forced_says_so(store: &impl Store) {
    let opened = store.open(options());
    for number in 1..=4 {
        force_all(&opened.journal, [number]);
    }
    drop(opened);
    assert_eq!(store.open(options()).lost_tail, None);
    forget_the_last_entry(store);
    let opened = store.open(options());
    assert_eq!(
        opened.lost_tail,
        Some(LostTail {
            ends_at: 3,
            forced: 4
        })
    );
    let refused = opened.refuse_lost_tail().unwrap_err().to_string();
    assert!(
        refused.contains("records 4 to 4 are gone") && refused.contains("restore from a backup"),
        "{refused}"
    );
}

on_both!(a_log_that_ends_below_what_was_forced_says_so);

/// The mark in the directory: its magic, the LSN, a checksum.
fn mark(directory: &Path) -> u64 {
    let bytes = fs::read(directory.join("end")).unwrap();
    bytes
        .get(8..16)
        .map_or(0, |lsn| u64::from_le_bytes(lsn.try_into().unwrap()))
}

#[test]
fn the_mark_is_written_after_the_force_and_before_anybody_is_told() {
    let store = OnDisk::new();
    let (path, ends) = (store.path.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&ends);
    let probe: covenant_journal::Probe = Arc::new(move |stage, _, last| match stage {
        Stage::Written => assert!(mark(&path) < last, "the mark is ahead of the force of {last}"),
        Stage::Forced => seen.lock().unwrap().push((mark(&path), last)),
        Stage::StartSynced | Stage::ReplayMid | Stage::CheckpointMid => {}
    });
    let opened = store.open(Options {
        probe: Some(probe),
        ..options()
    });
    for number in 1..=20 {
        force_all(&opened.journal, [number]);
        assert_eq!(mark(&store.path), number, "record {number} was told durable");
    }
    let ends = ends.lock().unwrap();
    assert_eq!(ends.len(), 20);
    assert!(ends.iter().all(|(mark, last)| mark == last), "{ends:?}");
}

#[test]
fn the_mark_is_forced_at_checkpoints_at_a_clean_stop_and_where_it_falls() {
    let image = MemoryImage::new();
    let store = InMemory(image.clone());
    let opened = store.open(options());
    force_all(&opened.journal, 1..=3);
    assert_eq!((image.noted_end(), image.forced_end()), (Some(3), None));
    let work = Checkpoint {
        lsn: 2,
        records: fold(1..=2),
        ..Checkpoint::default()
    };
    checkpoint(&opened.journal, work);
    assert_eq!(image.forced_end(), Some(3));
    force_all(&opened.journal, 4..=5);
    assert_eq!(image.forced_end(), Some(3));
    drop(opened);
    assert_eq!(image.forced_end(), Some(5));
    // A loss that somebody goes on after.
    image.note_end(9).unwrap();
    let opened = store.open(options());
    assert_eq!(
        opened.lost_tail,
        Some(LostTail {
            ends_at: 5,
            forced: 9
        })
    );
    force_all(&opened.journal, [6]);
    assert_eq!((image.noted_end(), image.forced_end()), (Some(6), Some(6)));
}
