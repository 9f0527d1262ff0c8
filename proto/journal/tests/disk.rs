//! What only a directory can show: whose it is, its lock, its format, snapshots, the page cache, `blobs/`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use common::*;
use covenant_journal::{Checkpoint, Error, Force, Journal, Opened, Options, Stage};

fn refusal(path: &Path, role: &str) -> Error {
    match Journal::open(path, Options::new(role)) {
        Err(error) => error,
        Ok(_) => panic!("{} should have been refused", path.display()),
    }
}

#[test]
fn parents_that_do_not_exist_are_made() {
    let store = OnDisk::new();
    let deep = store.path.join("a/b/c");
    let opened = Journal::open(&deep, options()).unwrap();
    assert!(opened.created);
    force_all(&opened.journal, [1]);
    drop(opened);
    assert_eq!(numbers(Journal::open(&deep, options()).unwrap().replay), [1]);
}

#[test]
fn a_second_open_is_refused_at_once_and_names_the_holder() {
    let store = OnDisk::new();
    let opened = store.open(options());
    force_all(&opened.journal, [1]);
    match refusal(&store.path, ROLE) {
        Error::Locked { path, holder } => {
            assert_eq!(path, store.path);
            assert_eq!(holder, std::process::id().to_string());
        }
        other => panic!("{other}"),
    }
    force_all(&opened.journal, [2]);
    drop(opened);
    assert_eq!(numbers(store.open(options()).replay), [1, 2]);
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let store = OnDisk::new();
    fs::write(&store.path, b"mine").unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::NotADirectory { .. }));
    assert!(matches!(
        refusal(&store.path.join("below"), ROLE),
        Error::NotADirectory { .. }
    ));
    assert_eq!(fs::read(&store.path).unwrap(), b"mine");
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_left_alone() {
    let store = OnDisk::new();
    fs::create_dir(&store.path).unwrap();
    fs::write(store.path.join("thesis.txt"), b"mine").unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::NotCovenant { found, .. } if found == "thesis.txt"));
    assert_eq!(fs::read_dir(&store.path).unwrap().count(), 1);
}

#[test]
fn a_directory_that_lost_its_format_file_is_refused_and_left_alone() {
    let store = OnDisk::new();
    force_all(&store.open(options()).journal, 1..=3);
    let format = fs::read(store.path.join("format")).unwrap();
    fs::remove_file(store.path.join("format")).unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::NotCovenant { .. }));
    fs::write(store.path.join("format"), format).unwrap();
    assert_eq!(numbers(store.open(options()).replay), [1, 2, 3]);
}

#[test]
fn a_newer_format_another_role_and_a_damaged_format_are_refused() {
    let store = OnDisk::new();
    force_all(&store.open(options()).journal, [1]);
    assert!(matches!(refusal(&store.path, "other"), Error::OtherRole { found, .. } if found == ROLE));
    let format = store.path.join("format");
    let good = fs::read(&format).unwrap();
    fs::write(&format, br#"{"format": 2, "something": "new"}"#).unwrap();
    assert!(matches!(
        refusal(&store.path, ROLE),
        Error::NewerFormat {
            found: 2,
            supported: 1,
            ..
        }
    ));
    fs::write(&format, b"{").unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::FormatDamaged { .. }));
    fs::write(&format, good).unwrap();
    assert_eq!(numbers(store.open(options()).replay), [1]);
}

#[test]
fn a_missing_log_file_is_refused_and_not_made_anew() {
    let store = OnDisk::new();
    force_all(&store.open(options()).journal, [1]);
    let log = store.path.join("db");
    fs::rename(&log, store.path.join("kept")).unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::Corrupted { .. }));
    assert!(!log.exists());
    fs::create_dir(&log).unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::Corrupted { .. }));
    fs::remove_dir(&log).unwrap();
    fs::rename(store.path.join("kept"), &log).unwrap();
    assert_eq!(numbers(store.open(options()).replay), [1]);
}

#[test]
fn a_making_that_was_cut_short_begins_again() {
    let store = OnDisk::new();
    drop(store.open(options()));
    let format = store.path.join("format");
    let ready = fs::read_to_string(&format).unwrap();
    fs::write(&format, ready.replace("\"making\":false", "\"making\":true")).unwrap();
    // Half-written files of sled's.
    fs::write(store.path.join("db"), b"rubbish").unwrap();
    fs::write(store.path.join("conf"), b"").unwrap();
    let opened = store.open(options());
    assert!(opened.created);
    force_all(&opened.journal, [1]);
    drop(opened);
    assert_eq!(fs::read_to_string(&format).unwrap(), ready);
    assert_eq!(numbers(store.open(options()).replay), [1]);
}

#[test]
fn an_interrupted_format_write_is_no_foreign_file() {
    let store = OnDisk::new();
    fs::create_dir_all(store.path.join("lost+found")).unwrap();
    fs::write(store.path.join("lock"), b"").unwrap();
    fs::write(store.path.join("format.tmp"), b"{\"for").unwrap();
    assert!(store.open(options()).created);
}

#[test]
fn snapshots_are_removed_before_the_open() {
    let store = OnDisk::new();
    force_all(&store.open(options()).journal, 1..=3);
    // Truncated, and newer than anything: sled would fail or hang on it.
    let snapshot = store.path.join("snap.00000000FFFFFFFF");
    fs::write(&snapshot, b"cut").unwrap();
    let opened = store.open(options());
    assert!(opened.report.snapshots_removed >= 1);
    assert!(!snapshot.exists());
    assert_eq!(numbers(opened.replay), [1, 2, 3]);
}

#[test]
fn the_log_file_is_out_of_the_page_cache_before_it_is_read() {
    let store = OnDisk::new();
    let first = store.open(options());
    assert_eq!((first.report.pages_dropped, first.report.drop_attempts), (0, 0));
    block_on(
        first
            .journal
            .wait_durable(first.journal.append(&fold(1..=10_000))),
    );
    drop(first);
    let length = fs::read(store.path.join("db")).unwrap().len() as u64;
    let report = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&report);
    let probe: covenant_journal::Probe = Arc::new(move |stage, _, _| seen.lock().unwrap().push(stage));
    let opened = store.open(Options {
        probe: Some(probe),
        ..options()
    });
    assert_eq!(report.lock().unwrap()[..], [Stage::StartSynced]);
    assert_eq!(opened.report.pages_dropped, length.div_ceil(4096));
    assert!(opened.report.drop_attempts >= 1);
    assert_eq!(numbers(opened.replay).len(), 10_000);
}

#[test]
fn no_blob_is_written_and_one_that_is_there_is_refused() {
    let store = OnDisk::new();
    let opened = store.open(options());
    for _ in 0..200 {
        opened.journal.append(&one(5, 48_000, Force::Now));
    }
    let last = opened.journal.append(&one(5, 48_000, Force::Now));
    block_on(opened.journal.wait_durable(last));
    let archive = (0..200).map(|item| vec![item as u8; 48 * 1024]).collect();
    let mut records = covenant_journal::Records::new();
    (0..100).for_each(|_| push(&mut records, 6, 48_000, Force::Lazy));
    checkpoint(
        &opened.journal,
        Checkpoint {
            lsn: last,
            records,
            archive,
            archive_drop_before: 100,
        },
    );
    assert_eq!(fs::read_dir(store.path.join("blobs")).unwrap().count(), 0);
    drop(opened);
    let blob = store.path.join("blobs/12345");
    fs::write(&blob, b"a large page").unwrap();
    assert!(matches!(refusal(&store.path, ROLE), Error::BlobFound { .. }));
    fs::remove_file(&blob).unwrap();
    assert_eq!(
        store.open(options()).archive.get(150).unwrap().unwrap(),
        vec![150; 48 * 1024]
    );
}

#[test]
fn the_lock_goes_with_the_last_reader() {
    let store = OnDisk::new();
    let opened = store.open(options());
    let reader = opened.archive.clone();
    drop(opened);
    assert!(matches!(refusal(&store.path, ROLE), Error::Locked { .. }));
    let scan = reader.scan(0);
    drop(reader);
    assert!(matches!(refusal(&store.path, ROLE), Error::Locked { .. }));
    drop(scan);
    let Opened { replay, .. } = store.open(options());
    assert!(matches!(refusal(&store.path, ROLE), Error::Locked { .. }));
    drop(replay);
    assert!(!store.open(options()).journal.is_backlogged());
}

/// The story: a first start on a tmpfs went well, and the second was refused when it mattered.
#[test]
fn a_file_system_in_memory_is_refused_at_the_first_start() {
    // POSIX shared memory of Linux is a tmpfs.
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let refused = refusal(&in_memory.path().join("a/b/data"), ROLE);
    assert!(matches!(refused, Error::NotOnDisk { .. }), "{refused}");
    assert!(refused.to_string().contains("tmpfs"), "{refused}");
    let left = || fs::read_dir(in_memory.path()).unwrap().count();
    assert_eq!(left(), 0, "a refused start left something");
    let refused = refusal(in_memory.path(), ROLE);
    assert!(matches!(refused, Error::NotOnDisk { .. }), "{refused}");
    assert_eq!(
        left(),
        0,
        "a refused start left something in a directory that was there"
    );
}

/// The story: sled punches holes where it frees segments; a page in a hole was taken for one that stays cached, and
/// a killed ledger never started again.
#[test]
fn a_log_file_with_holes_opens_again() {
    let store = OnDisk::new();
    let opened = store.open(options());
    force_all(&opened.journal, [1, 2]);
    drop(opened);
    let db = store.path.join("db");
    let file = fs::OpenOptions::new().write(true).open(&db).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length + 1024 * 1024).unwrap();
    drop(file);
    assert_eq!(numbers(store.open(options()).replay), [1, 2]);
}

/// The story: a log that had lost everything was taken for a new one, and the books began anew.
#[test]
fn a_log_file_without_a_segment_in_a_directory_in_use_is_refused_and_kept() {
    for ruin in [Vec::new(), vec![0; 600_000], b"text".repeat(50_000)] {
        let store = OnDisk::new();
        let opened = store.open(options());
        force_all(&opened.journal, [1, 2]);
        drop(opened);
        let db = store.path.join("db");
        fs::write(&db, &ruin).unwrap();
        let refused = refusal(&store.path, ROLE);
        assert!(matches!(refused, Error::Corrupted { .. }), "{refused}");
        assert_eq!(fs::read(&db).unwrap(), ruin, "nothing is overwritten");
    }
}

#[test]
fn a_directory_that_was_made_and_never_written_opens_again() {
    let store = OnDisk::new();
    drop(store.open(options()));
    assert!(numbers(store.open(options()).replay).is_empty());
}

/// The story: starts and stops with frequent checkpoints freed the segment before the last one, and the next start
/// found an empty log.
#[test]
fn starts_and_stops_with_frequent_checkpoints_lose_nothing() {
    let store = OnDisk::new();
    let mut written = 0_u64;
    for _ in 0..60 {
        let opened = store.open(options());
        let journal = opened.journal.clone();
        let found: Vec<u64> = numbers(opened.replay);
        assert_eq!(found, (1..=written).collect::<Vec<_>>());
        force_all(&journal, [written + 1]);
        written += 1;
        let mut records = covenant_journal::Records::new();
        for number in 1..=written {
            push(&mut records, number, 100, Force::Lazy);
        }
        let lsn = journal.durable_lsn();
        let mut checkpoints = journal.checkpoints();
        journal
            .checkpoint(Checkpoint {
                lsn,
                records,
                ..Checkpoint::default()
            })
            .unwrap();
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(checkpoints.wait_for(|status| status.running.is_none()))
            .unwrap();
    }
}

/// The story: one flipped bit in the first message made sled forget the log, and a ledger opened its accounts anew.
#[test]
fn a_log_that_forgot_every_record_is_no_new_directory() {
    let store = OnDisk::new();
    let opened = store.open(options());
    force_all(&opened.journal, [1, 2]);
    drop(opened);
    let db = store.path.join("db");
    let mut bytes = fs::read(&db).unwrap();
    // Behind the header of the first segment, within its first message.
    bytes[24] ^= 1;
    fs::write(&db, bytes).unwrap();
    let refused = refusal(&store.path, ROLE).to_string();
    assert!(refused.contains("restore from a backup"), "{refused}");
}
