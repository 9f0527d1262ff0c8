//! A log that ends with a segment of sled's: the snapshot of a start is then at the beginning of the next, which is not there
//! before something is written.
//!
//! The segment before the last one is dead and cleared, so without that snapshot the log is not whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::fs;
use std::path::Path;

use common::*;
use covenant_journal::{Checkpoint, Force, Journal, Opened};

/// sled begins no message in the last bytes of a segment.
const LEFT_MAX: usize = 32;

/// Payloads: of a record that takes many chunks, and of two that take one.
const LARGE: usize = 20_000;
const MIDDLE: usize = 1_500;
const SMALL: usize = 200;
/// About what one chunk takes more; the last records are measured.
const OVERHEAD: usize = 131;

/// What large records leave of a segment; and what is left to middle ones, which are written just after sled rewrote a page, because it
/// does so once in nine changes, and how much it writes then cannot be told beforehand.
const AFTER_LARGE: usize = 100_000;
const AFTER_SMALL: usize = 6 * MIDDLE;

/// Attempts to fill a segment, and starts of one attempt.
const ATTEMPTS: usize = 5;
const STARTS: usize = 40;

/// The last segments of the log, by number, and where the last one ends. What is behind is zero: a start cleared it.
fn log_end(path: &Path) -> (Vec<usize>, usize) {
    let db = fs::read(path.join("db")).unwrap();
    let segments = segments(&db);
    let at = segments.last().unwrap().1;
    let last = &db[at..db.len().min(at + SEGMENT_BYTES)];
    let end = last.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let number = |(lsn, _): &(i64, usize)| usize::try_from(*lsn).unwrap() / SEGMENT_BYTES;
    (segments.iter().map(number).collect(), end)
}

fn snapshots(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("snap.")).collect()
}

fn append(journal: &Journal, bytes: usize) {
    let lsn = journal.append(&one(journal.next_lsn(), bytes, Force::Now));
    block_on(journal.wait_durable(lsn));
}

/// A journal whose last segment has room, and the one before is gone.
fn with_a_dead_segment(store: &OnDisk) -> Opened {
    for _ in 0..STARTS {
        let opened = store.open(options());
        let (numbers, end) = log_end(&store.path);
        let last = *numbers.last().unwrap();
        if last > 0 && !numbers.contains(&(last - 1)) && end + AFTER_LARGE < SEGMENT_BYTES {
            return opened;
        }
        for _ in 0..5 {
            append(&opened.journal, LARGE);
        }
        let lsn = opened.journal.durable_lsn();
        let records = fold([lsn]);
        checkpoint(
            &opened.journal,
            Checkpoint {
                lsn,
                records,
                ..Checkpoint::default()
            },
        );
    }
    panic!("no segment before the last one died");
}

/// Fills the last segment until so much is left; whether it did not overflow.
fn fill(journal: &Journal, path: &Path, left: usize) -> bool {
    let (numbers, mut end) = log_end(path);
    let (mut rewritten, mut overhead) = (false, OVERHEAD);
    loop {
        let bytes = match SEGMENT_BYTES - left - end {
            0 => return true,
            AFTER_LARGE.. => LARGE,
            to_go if to_go > AFTER_SMALL || !rewritten => SMALL,
            to_go if to_go > 2 * MIDDLE => MIDDLE,
            to_go if to_go > MIDDLE => to_go / 2 - overhead,
            to_go if to_go > overhead => to_go - overhead,
            _ => return false,
        };
        append(journal, bytes);
        let (now, new_end) = log_end(path);
        if now != numbers || new_end > SEGMENT_BYTES - left {
            return false;
        }
        let added = new_end - end;
        rewritten = (rewritten && bytes != SMALL) || (bytes == SMALL && added > 2 * (SMALL + OVERHEAD));
        if !rewritten || bytes != SMALL {
            overhead = added.saturating_sub(bytes).min(2 * OVERHEAD);
        }
        end = new_end;
    }
}

/// A directory with such a log, as a process leaves it that dies there, and the same after a clean stop.
struct Corner {
    killed: OnDisk,
    stopped: OnDisk,
    /// The numbers of its records.
    records: Vec<u64>,
    /// The name of the snapshot that sled makes of it.
    snapshot: String,
}

impl Corner {
    fn new(left: usize) -> Self {
        for _ in 0..ATTEMPTS {
            let (killed, stopped) = (OnDisk::new(), OnDisk::new());
            let opened = with_a_dead_segment(&stopped);
            if !fill(&opened.journal, &stopped.path, left) {
                continue;
            }
            let records = (opened.replay.checkpoint_lsn()..=opened.journal.durable_lsn()).collect();
            copy(&stopped.path, &killed.path);
            drop(opened);
            let (numbers, end) = log_end(&killed.path);
            assert_eq!(end, SEGMENT_BYTES - left);
            let next = (numbers.last().unwrap() + 1) * SEGMENT_BYTES;
            let snapshot = format!("snap.{next:016X}");
            assert_ne!(snapshots(&killed.path), [snapshot.as_str()]);
            return Self {
                killed,
                stopped,
                records,
                snapshot,
            };
        }
        panic!("no segment was filled");
    }

    fn is_all_in(&self, opened: Opened) {
        assert_eq!(opened.lost_tail, None);
        assert_eq!(numbers(opened.replay), self.records);
    }

    /// What a start left that was killed before anything was written.
    fn started(&self) -> OnDisk {
        let (starting, started) = (OnDisk::new(), OnDisk::new());
        copy(&self.killed.path, &starting.path);
        let opened = starting.open(options());
        copy(&starting.path, &started.path);
        self.is_all_in(opened);
        assert_eq!(snapshots(&started.path), [self.snapshot.as_str()]);
        assert_eq!(log_end(&started.path), log_end(&self.killed.path));
        started
    }
}

#[test]
fn a_log_that_ends_with_a_segment_opens_however_often_nothing_is_written() {
    for left in [0, LEFT_MAX] {
        let corner = Corner::new(left);
        let started = corner.started();
        for store in [&corner.stopped, &started] {
            for _ in 0..3 {
                corner.is_all_in(store.open(options()));
                assert_eq!(snapshots(&store.path), [corner.snapshot.as_str()]);
            }
            let opened = store.open(options());
            append(&opened.journal, SMALL);
            drop(opened);
            for _ in 0..2 {
                let found = numbers(store.open(options()).replay);
                assert_eq!(found.len(), corner.records.len() + 1);
            }
        }
    }
}

/// The log is cleared or not yet; the older snapshot has gone, or its removal, which nothing syncs, was lost with the power.
#[test]
fn a_start_that_was_cut_short_after_its_snapshot_begins_again_from_it() {
    let corner = Corner::new(LEFT_MAX / 2);
    let started = corner.started();
    for (cleared, older_is_back) in [(false, false), (false, true), (true, false), (true, true)] {
        let store = OnDisk::new();
        copy(&started.path, &store.path);
        let mut again = Vec::new();
        if !cleared {
            again.push("db".to_owned());
        }
        if older_is_back {
            again.extend(snapshots(&corner.killed.path));
        }
        for name in again {
            fs::copy(corner.killed.path.join(&name), store.path.join(&name)).unwrap();
        }
        let opened = store.open(options());
        assert_eq!(opened.report.snapshots_removed, u32::from(older_is_back));
        corner.is_all_in(opened);
        assert_eq!(snapshots(&store.path), [corner.snapshot.as_str()]);
    }
}
