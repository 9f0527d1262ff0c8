//! A log file whose durable bytes were damaged: open ends with an error or serves what is right, in time.
//!
//! It cannot show that every damage is found: sled checks what it reads, not what nothing points to.
//! In a file of its own because a sled that spins keeps a core of this process until the tests end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::*;
use covenant_journal::{Checkpoint, Journal, Options};

fn damaged_opens_in_time(damage: impl Fn(&mut Vec<u8>)) {
    let store = OnDisk::new();
    let journal = store.open(options()).journal;
    force_all(&journal, 1..=300);
    let archive = (0..100).map(|item| vec![item; 1_000]).collect();
    checkpoint(
        &journal,
        Checkpoint {
            lsn: 100,
            records: fold(1..=100),
            archive,
            archive_drop_before: 0,
        },
    );
    force_all(&journal, 301..=400);
    drop(journal);
    let log = store.path.join("db");
    let mut bytes = fs::read(&log).unwrap();
    damage(&mut bytes);
    fs::write(&log, &bytes).unwrap();

    let began = Instant::now();
    let options = Options {
        open_timeout: Duration::from_secs(2),
        ..options()
    };
    match Journal::open(&store.path, options) {
        Err(error) => assert!(error.to_string().len() > 20, "{error}"),
        // What comes back is a prefix, whole or marked as damaged: never other content.
        Ok(opened) => {
            let mut next = 1;
            for replayed in opened.replay {
                match replayed {
                    Ok(replayed) => match replayed.record {
                        Ok(envelope) => {
                            assert_eq!(number_of(&envelope), next);
                            next += 1;
                        }
                        Err(damaged) => next += damaged.records,
                    },
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
            for item in opened.archive.scan(0).flatten() {
                assert_eq!(item.1, vec![item.0 as u8; 1_000]);
            }
        }
    }
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn flipped_bytes_end_in_an_error_or_in_what_is_right() {
    for part in 0..16 {
        damaged_opens_in_time(|bytes| {
            let at = bytes.len() * part / 16 + 31;
            bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0xA5);
        });
    }
}

#[test]
fn a_zeroed_page_ends_in_an_error_or_in_what_is_right() {
    for part in 0..4 {
        damaged_opens_in_time(|bytes| {
            let at = (bytes.len() * part / 4) & !4095;
            bytes[at..at + 4096].fill(0);
        });
    }
}

#[test]
fn a_truncated_file_ends_in_an_error_or_in_what_is_right() {
    for part in 0..4 {
        damaged_opens_in_time(|bytes| bytes.truncate(bytes.len() * part / 4 + 7));
    }
}
