//! The contract of a journal, on both images: order, durability, checkpoints, archive.
//!
//! It cannot show what a power cut does to a file (a replay of recorded writes does that), and no crash
//! between two batches (`crash.rs` does).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use common::*;
use covenant_journal::{ArchiveReader, Checkpoint, Error, Force, Key, Records, Space, limits};

on_both!(
    a_new_journal_is_empty_and_says_so,
    replay_gives_records_in_append_order,
    what_was_waited_for_is_durable,
    a_lazy_record_becomes_durable_by_itself,
    a_lazy_record_rides_on_the_next_force,
    reopen_goes_on_at_the_next_lsn,
    close_forces_what_waits_and_takes_no_more,
    records_of_every_size_come_back,
    a_large_append_is_cut_into_bounded_entries,
    thousands_of_waiters_all_complete,
    a_checkpoint_replaces_the_log_below_it,
    a_checkpoint_may_end_inside_an_entry,
    checkpoints_follow_each_other_under_load,
    a_second_checkpoint_at_once_is_refused,
    archive_items_of_every_size_come_back,
    the_archive_drops_what_it_is_told_to,
);

fn reopened_numbers(store: &dyn Store) -> Vec<u64> {
    numbers(store.open(options()).replay)
}

fn a_new_journal_is_empty_and_says_so(store: &dyn Store) {
    let opened = store.open(options());
    assert!(opened.created);
    assert_eq!(opened.journal.next_lsn(), 1);
    assert_eq!(opened.journal.durable_lsn(), 0);
    assert_eq!((opened.archive.start(), opened.archive.end()), (0, 0));
    assert_eq!(opened.replay.count(), 0);
}

fn replay_gives_records_in_append_order(store: &dyn Store) {
    let opened = store.open(options());
    force_all(&opened.journal, 1..=500);
    drop(opened);
    let again = store.open(options());
    assert!(!again.created);
    assert_eq!(numbers(again.replay), (1..=500).collect::<Vec<_>>());
}

fn what_was_waited_for_is_durable(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let mut durable = journal.durable();
    for number in 1..=50 {
        let lsn = journal.append(&one(number, 0, Force::Now));
        assert_eq!(lsn, number);
        block_on(journal.wait_durable(lsn));
        assert!(journal.durable_lsn() >= lsn);
        block_on(async { durable.wait_for(|durable| *durable >= lsn).await.map(drop) }).unwrap();
    }
    assert_eq!(journal.backlog_bytes(), 0);
    let stats = journal.stats();
    assert_eq!(stats.records, 50);
    assert!(stats.forces >= stats.entries && stats.entries <= 50 && stats.bytes > 50 * 20);
}

fn a_lazy_record_becomes_durable_by_itself(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let lsn = journal.append(&one(1, 0, Force::Lazy));
    block_on(journal.wait_durable(lsn));
    assert_eq!(journal.stats().entries, 1);
}

fn a_lazy_record_rides_on_the_next_force(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let mut records = one(1, 0, Force::Lazy);
    push(&mut records, 2, 0, Force::Now);
    block_on(journal.wait_durable(journal.append(&records)));
    assert_eq!(journal.stats().entries, 1);
    assert_eq!(journal.durable_lsn(), 2);
}

fn reopen_goes_on_at_the_next_lsn(store: &dyn Store) {
    for round in 0..4 {
        let opened = store.open(options());
        assert_eq!(opened.journal.next_lsn(), round * 10 + 1);
        assert_eq!(opened.journal.durable_lsn(), round * 10);
        force_all(&opened.journal, round * 10 + 1..=round * 10 + 10);
    }
    assert_eq!(reopened_numbers(store), (1..=40).collect::<Vec<_>>());
}

fn close_forces_what_waits_and_takes_no_more(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let last = journal.append(&fold(1..=100));
    let waiter = journal.wait_durable(last);
    journal.close().unwrap();
    block_on(waiter);
    assert_eq!(journal.append(&one(101, 0, Force::Now)), 101);
    assert!(matches!(
        journal.checkpoint(Checkpoint::default()),
        Err(Error::Stopped { .. })
    ));
    journal.close().unwrap();
    drop(journal);
    assert_eq!(reopened_numbers(store), (1..=100).collect::<Vec<_>>());
}

/// Bytes of a record of `push` around its padding, for numbers of one digit.
const AROUND: usize = 8 + 40 + 2 + 8 + 8;

fn records_of_every_size_come_back(store: &dyn Store) {
    let around_a_chunk = (limits::CHUNK_BYTES - 40..=limits::CHUNK_BYTES + 3).map(|size| size - AROUND);
    let largest = limits::MAX_RECORD_BYTES - AROUND;
    let sizes: Vec<usize> = [
        0,
        1,
        4095 - AROUND,
        4096 - AROUND,
        4097 - AROUND,
        largest - 1,
        largest,
    ]
    .into_iter()
    .chain(around_a_chunk)
    .collect();
    let journal = store.open(options()).journal;
    for size in &sizes {
        block_on(journal.wait_durable(journal.append(&one(5, *size, Force::Now))));
    }
    let mut together = Records::new();
    sizes
        .iter()
        .for_each(|size| push(&mut together, 6, *size, Force::Now));
    block_on(journal.wait_durable(journal.append(&together)));
    drop(journal);
    let found: Vec<usize> = store
        .open(options())
        .replay
        .map(|replayed| {
            let envelope = replayed.unwrap().record.unwrap();
            number_of(&envelope);
            envelope.payload.len() - 8
        })
        .collect();
    assert_eq!(found, [&sizes[..], &sizes[..]].concat());
}

fn a_large_append_is_cut_into_bounded_entries(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let records = fold(1..=20_000);
    block_on(journal.wait_durable(journal.append(&records)));
    let stats = journal.stats();
    let least = records.encoded_bytes().div_ceil(limits::MAX_ENTRY_BYTES) as u64;
    assert!(
        (least..=least + 1).contains(&stats.entries),
        "{} entries, {least} would do",
        stats.entries
    );
    drop(journal);
    let image = store.image();
    image.verify().unwrap();
    for item in image.scan(Space::Log, &Key::new(&[]).unwrap()) {
        assert!(item.unwrap().1.len() <= limits::CHUNK_BYTES);
    }
    drop(image);
    assert_eq!(reopened_numbers(store).len(), 20_000);
}

fn thousands_of_waiters_all_complete(store: &dyn Store) {
    let journal = store.open(options()).journal;
    // They wait before the records are appended, in falling order.
    let waiters: Vec<_> = (1..=5_000).rev().map(|lsn| journal.wait_durable(lsn)).collect();
    journal.append(&fold(1..=5_000));
    block_on(async {
        for waiter in waiters {
            waiter.await;
        }
    });
    assert_eq!(journal.durable_lsn(), 5_000);
}

fn a_checkpoint_replaces_the_log_below_it(store: &dyn Store) {
    let journal = store.open(options()).journal;
    force_all(&journal, 1..=2_000);
    let before = journal.log_bytes();
    checkpoint(
        &journal,
        Checkpoint {
            lsn: 2_000,
            records: fold([1, 2, 3]),
            ..Checkpoint::default()
        },
    );
    assert!(
        before > 0 && journal.log_bytes() == 0,
        "{before} bytes, then {}",
        journal.log_bytes()
    );
    force_all(&journal, 2_001..=2_005);
    let log_bytes = journal.log_bytes();
    drop(journal);
    let opened = store.open(options());
    assert_eq!(opened.journal.log_bytes(), log_bytes);
    assert_eq!(opened.replay.checkpoint_lsn(), 2_000);
    assert_eq!(
        numbers(opened.replay),
        [1, 2, 3, 2_001, 2_002, 2_003, 2_004, 2_005]
    );
    drop((opened.journal, opened.archive));
    let first = store
        .image()
        .scan(Space::Log, &Key::new(&[]).unwrap())
        .next()
        .unwrap()
        .unwrap();
    assert!(
        first.0.as_bytes() >= &2_001_u64.to_be_bytes()[..],
        "{first:?} should be gone"
    );
}

fn a_checkpoint_may_end_inside_an_entry(store: &dyn Store) {
    let journal = store.open(options()).journal;
    block_on(journal.wait_durable(journal.append(&fold(1..=10))));
    checkpoint(
        &journal,
        Checkpoint {
            lsn: 4,
            records: fold([100]),
            ..Checkpoint::default()
        },
    );
    drop(journal);
    assert_eq!(reopened_numbers(store), [100, 5, 6, 7, 8, 9, 10]);
    let journal = store.open(options()).journal;
    assert_eq!(journal.next_lsn(), 11);
    checkpoint(
        &journal,
        Checkpoint {
            lsn: 10,
            ..Checkpoint::default()
        },
    );
    assert_eq!(journal.log_bytes(), 0);
    drop(journal);
    let opened = store.open(options());
    assert_eq!(opened.journal.next_lsn(), 11);
    assert!(!opened.created);
}

fn checkpoints_follow_each_other_under_load(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let mut next = 1;
    for round in 1..=8_u64 {
        force_all(&journal, next..next + 300);
        next += 300;
        let lsn = journal.durable_lsn();
        let items = (0..40)
            .map(|item| format!("item {round} {item}").into_bytes())
            .collect();
        let work = Checkpoint {
            lsn,
            records: fold(1..=lsn),
            archive: items,
            archive_drop_before: 0,
        };
        let mut status = journal.checkpoints();
        journal.checkpoint(work).unwrap();
        force_all(&journal, next..next + 20);
        next += 20;
        block_on(async { status.wait_for(|status| status.running.is_none()).await.map(drop) }).unwrap();
        assert_eq!(status.borrow().lsn, lsn);
    }
    drop(journal);
    let opened = store.open(options());
    assert_eq!(numbers(opened.replay), (1..next).collect::<Vec<_>>());
    assert_eq!(opened.archive.end(), 320);
    assert_eq!(opened.archive.get(3 * 40 + 7).unwrap().unwrap(), b"item 4 7");
}

/// How often two checkpoints may miss each other.
const MEETINGS: usize = 100;

fn a_second_checkpoint_at_once_is_refused(store: &dyn Store) {
    let journal = store.open(options()).journal;
    force_all(&journal, 1..=3);
    // On a busy machine the first may be done before the second comes: then the two did not meet, and they try again.
    for _ in 0..MEETINGS {
        let large = Checkpoint {
            lsn: 3,
            records: fold(1..=30_000),
            ..Checkpoint::default()
        };
        journal.checkpoint(large).unwrap();
        let second = journal.checkpoint(Checkpoint {
            lsn: 3,
            ..Checkpoint::default()
        });
        let met = matches!(second, Err(Error::CheckpointBusy { lsn: 3 }));
        assert!(met || second.is_ok(), "{second:?}");
        let mut status = journal.checkpoints();
        block_on(async { status.wait_for(|status| status.running.is_none()).await.map(drop) }).unwrap();
        if met {
            return;
        }
    }
    panic!("a second checkpoint was never refused in {MEETINGS} tries");
}

fn items() -> Vec<Vec<u8>> {
    let sizes = [
        0,
        1,
        80,
        80,
        80,
        2_038,
        2_039,
        2_040,
        2_041,
        2_048,
        20_000,
        5,
        48 * 1024,
        80,
    ];
    (0..200_usize)
        .map(|item| vec![item as u8; sizes[item % sizes.len()]])
        .collect()
}

fn archived(reader: &ArchiveReader, from: u64) -> Vec<(u64, Vec<u8>)> {
    reader.scan(from).map(Result::unwrap).collect()
}

fn archive_items_of_every_size_come_back(store: &dyn Store) {
    let items = items();
    let opened = store.open(options());
    let work = Checkpoint {
        archive: items.clone(),
        ..Checkpoint::default()
    };
    checkpoint(&opened.journal, work);
    let expected: Vec<(u64, Vec<u8>)> = (0..).zip(items).collect();
    assert_eq!(archived(&opened.archive, 0), expected);
    drop(opened);
    let reader = store.open(options()).archive;
    assert_eq!((reader.start(), reader.end()), (0, 200));
    for (index, item) in &expected {
        assert_eq!(reader.get(*index).unwrap().as_ref(), Some(item), "item {index}");
    }
    assert_eq!(reader.get(200).unwrap(), None);
    for from in [0, 1, 4, 11, 12, 13, 150, 199, 200, 1_000] {
        let rest = expected.get(from as usize..).unwrap_or_default();
        assert_eq!(archived(&reader, from), rest, "from {from}");
    }
}

fn the_archive_drops_what_it_is_told_to(store: &dyn Store) {
    let opened = store.open(options());
    let (journal, reader) = (opened.journal, opened.archive);
    let item = |index: u64| format!("{index:0100}").into_bytes();
    let work = |archive, archive_drop_before| Checkpoint {
        archive,
        archive_drop_before,
        ..Checkpoint::default()
    };
    checkpoint(&journal, work((0..1_000).map(item).collect(), 0));
    checkpoint(&journal, work((1_000..1_100).map(item).collect(), 505));
    assert_eq!((reader.start(), reader.end()), (505, 1_100));
    assert_eq!(reader.get(504).unwrap(), None);
    assert_eq!(
        archived(&reader, 0),
        (505..1_100).map(|index| (index, item(index))).collect::<Vec<_>>()
    );
    drop((journal, reader, opened.replay));
    let first = store
        .image()
        .scan(Space::Archive, &Key::new(&[]).unwrap())
        .next()
        .unwrap()
        .unwrap();
    let first = u64::from_be_bytes(*first.0.as_bytes().first_chunk().unwrap());
    assert!(
        (480..=505).contains(&first),
        "block {first} should have been dropped or kept"
    );

    let opened = store.open(options());
    assert_eq!(opened.archive.get(505).unwrap(), Some(item(505)));
    checkpoint(&opened.journal, work(Vec::new(), 1_100));
    assert_eq!(archived(&opened.archive, 0), []);
    checkpoint(&opened.journal, work(vec![item(1_100)], 0));
    assert_eq!(archived(&opened.archive, 0), [(1_100, item(1_100))]);
}
