//! Damage above the image, on both images: what is missing or altered is refused or quarantined, never invented.
//!
//! It cannot show damage of sled's own bytes (`damage.rs` does).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use common::*;
use covenant_journal::{Batch, Checkpoint, Error, Force, HeadRef, Journal, Key, Records, Space};

on_both!(
    a_damaged_archive_block_hides_only_its_items,
    a_gap_in_the_log_is_refused,
    a_damaged_payload_is_quarantined_under_its_head,
    a_damaged_head_is_quarantined_without_a_name,
    a_damaged_entry_is_quarantined_as_a_whole,
    a_missing_chunk_quarantines_its_entry,
    a_checkpoint_with_a_missing_slice_is_refused,
    damage_in_a_checkpoint_is_quarantined,
    a_damaged_switch_is_refused,
);

/// Changes the value of one key of a closed store.
fn alter(store: &dyn Store, space: Space, number: usize, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let image = store.image();
    let (key, value) = image
        .scan(space, &Key::new(&[]).unwrap())
        .nth(number)
        .unwrap()
        .unwrap();
    let changed = change(value);
    let mut batch = Batch::new();
    match &changed {
        Some(value) => batch.put(space, key, value),
        None => batch.delete(space, key),
    }
    image.apply(&batch).unwrap();
    image.flush().unwrap();
    image.sync().unwrap();
}

fn flip(at: usize) -> impl FnOnce(Vec<u8>) -> Option<Vec<u8>> {
    move |mut value| {
        value[at] ^= 0x10;
        Some(value)
    }
}

fn flip_from_end(back: usize) -> impl FnOnce(Vec<u8>) -> Option<Vec<u8>> {
    move |value| flip(value.len() - back)(value)
}

fn a_damaged_archive_block_hides_only_its_items(store: &dyn Store) {
    let opened = store.open(options());
    let archive = (0..100_u8).map(|item| vec![item; 300]).collect();
    checkpoint(
        &opened.journal,
        Checkpoint {
            archive,
            ..Checkpoint::default()
        },
    );
    drop(opened);
    alter(store, Space::Archive, 3, flip(50));
    alter(store, Space::Archive, 9, |_| None);
    let reader = store.open(options()).archive;
    let mut hidden = Vec::new();
    let mut seen = 0;
    for item in reader.scan(0) {
        match item {
            Ok((index, bytes)) => {
                assert_eq!(bytes, vec![index as u8; 300]);
                assert_eq!(reader.get(index).unwrap(), Some(bytes));
                seen += 1;
            }
            Err(Error::ArchiveDamaged { first, last, .. }) => hidden.extend(first..=last),
            Err(other) => panic!("{other}"),
        }
    }
    // Six items of 300 bytes fill a block.
    assert_eq!(hidden, (18..24).chain(54..60).collect::<Vec<_>>());
    assert_eq!(seen, 88);
    for index in hidden {
        assert!(
            matches!(reader.get(index), Err(Error::ArchiveDamaged { .. })),
            "item {index}"
        );
    }
}

fn one_entry_each(store: &dyn Store, numbers: std::ops::RangeInclusive<u64>) {
    let journal: Journal = store.open(options()).journal;
    for number in numbers {
        force_all(&journal, [number]);
    }
}

fn a_gap_in_the_log_is_refused(store: &dyn Store) {
    one_entry_each(store, 1..=5);
    alter(store, Space::Log, 2, |_| None);
    match store.try_open().err() {
        Some(Error::Gap {
            expected: 3,
            found: 4,
        }) => {}
        other => panic!("{other:?}"),
    }
}

/// The LSNs that damage covers, and the id that it still shows.
type Quarantined = (std::ops::RangeInclusive<u64>, Option<String>);

/// Records of a replay: the number of each that decodes, or what the damage says.
fn told(store: &dyn Store) -> Vec<Result<u64, Quarantined>> {
    let opened = store.open(options());
    let told = opened
        .replay
        .map(|replayed| {
            let replayed = replayed.unwrap();
            replayed
                .record
                .map(|envelope| number_of(&envelope))
                .map_err(|damaged| {
                    assert!(!damaged.why.is_empty());
                    let id = damaged
                        .head
                        .and_then(|head| head.transaction_id)
                        .map(String::from);
                    (replayed.lsns.unwrap_or(0..=0), id)
                })
        })
        .collect();
    force_all(&opened.journal, [77]);
    told
}

fn a_damaged_payload_is_quarantined_under_its_head(store: &dyn Store) {
    one_entry_each(store, 1..=3);
    alter(store, Space::Log, 1, flip_from_end(1));
    assert_eq!(told(store), [Ok(1), Err((2..=2, Some("T2".to_owned()))), Ok(3)]);
}

fn a_damaged_head_is_quarantined_without_a_name(store: &dyn Store) {
    let journal = store.open(options()).journal;
    block_on(journal.wait_durable(journal.append(&fold(1..=3))));
    drop(journal);
    // 76 bytes a record, the last one's xid.
    alter(store, Space::Log, 0, flip_from_end(50));
    assert_eq!(told(store), [Ok(1), Ok(2), Err((3..=3, None))]);
}

fn a_damaged_entry_is_quarantined_as_a_whole(store: &dyn Store) {
    one_entry_each(store, 1..=1);
    let journal = store.open(options()).journal;
    block_on(journal.wait_durable(journal.append(&fold(2..=6))));
    force_all(&journal, [7]);
    drop(journal);
    alter(store, Space::Log, 1, flip(8));
    assert_eq!(told(store), [Ok(1), Err((2..=6, None)), Ok(7)]);
}

fn a_missing_chunk_quarantines_its_entry(store: &dyn Store) {
    for missing in 0..3 {
        let first = store.open(options()).journal.next_lsn();
        let journal = store.open(options()).journal;
        block_on(journal.wait_durable(journal.append(&one(1, 5_000, Force::Now))));
        force_all(&journal, [2]);
        drop(journal);
        let before = store
            .image()
            .scan(Space::Log, &Key::new(&[]).unwrap())
            .take_while(|item| item.as_ref().unwrap().0.as_bytes() < &first.to_be_bytes()[..])
            .count();
        alter(store, Space::Log, before + missing, |_| None);
        let told = told(store);
        assert!(
            told.contains(&Err((first..=first, None))),
            "{told:?} should name {first}"
        );
        assert_eq!(told.last(), Some(&Ok(2)));
    }
}

fn a_checkpoint_with_a_missing_slice_is_refused(store: &dyn Store) {
    let journal = store.open(options()).journal;
    let mut records = Records::new();
    for _ in 0..3 {
        records.push(
            HeadRef {
                kind: 1,
                xid: None,
                transaction_id: None,
            },
            Force::Lazy,
            &[0; 2_000],
        );
    }
    (0..3).for_each(|_| push(&mut records, 5, 48_000, Force::Lazy));
    checkpoint(
        &journal,
        Checkpoint {
            records,
            ..Checkpoint::default()
        },
    );
    drop(journal);
    // All chunks of the second slice.
    let image = store.image();
    let mut batch = Batch::new();
    let keys: Vec<Key> = image
        .scan(Space::Checkpoint, &Key::new(&[]).unwrap())
        .map(|item| item.unwrap().0)
        .collect();
    let slice_of = |key: &Key| key.as_bytes()[8..12].to_vec();
    let second = slice_of(keys.iter().find(|key| slice_of(key) != [0; 4]).unwrap());
    keys.iter()
        .filter(|key| slice_of(key) == second)
        .for_each(|key| batch.delete(Space::Checkpoint, *key));
    image.apply(&batch).unwrap();
    image.flush().unwrap();
    image.sync().unwrap();
    drop(image);
    let refused = store.try_open().err();
    assert!(
        matches!(refused, Some(Error::CheckpointIncomplete { expected: 6, .. })),
        "{refused:?}"
    );
}

fn damage_in_a_checkpoint_is_quarantined(store: &dyn Store) {
    let journal = store.open(options()).journal;
    checkpoint(
        &journal,
        Checkpoint {
            records: fold(1..=3),
            ..Checkpoint::default()
        },
    );
    drop(journal);
    alter(store, Space::Checkpoint, 0, flip_from_end(1));
    assert_eq!(told(store), [Ok(1), Ok(2), Err((0..=0, Some("T3".to_owned())))]);
}

fn a_damaged_switch_is_refused(store: &dyn Store) {
    let journal = store.open(options()).journal;
    checkpoint(
        &journal,
        Checkpoint {
            records: fold(1..=3),
            ..Checkpoint::default()
        },
    );
    drop(journal);
    alter(store, Space::Meta, 0, flip(4));
    assert!(matches!(store.try_open().err(), Some(Error::Corrupted { .. })));
}
