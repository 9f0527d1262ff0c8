//! The archive before and after checkpoints and restarts, its expiry, and items that do not decode.

use std::sync::Arc;

use super::*;
use covenant_journal::{Batch, Checkpoint, Image, Journal, Key, MemoryImage, Options, Records, Space};
use covenant_rules::{AbortReason, Fingerprint, Incarnation, Lineage};

fn outcome(seq: u64, id: &str, decided: u64, committed: bool) -> Outcome {
    Outcome {
        xid: Xid {
            lineage: Lineage(1),
            incarnation: Incarnation { counter: 1, bits: 5 },
            seq,
        },
        transaction_id: TransactionId::new(id).unwrap(),
        fingerprint: Some(Fingerprint([7; 16])),
        created: decided,
        decided,
        aborted: (!committed).then_some(AbortReason::Deadline),
        branches: Vec::new(),
        heuristic: None,
    }
}

fn open(image: &MemoryImage) -> (Journal, OutcomeArchive, Archived) {
    let opened = Journal::open_image(Arc::new(image.clone()), Options::new("test")).unwrap();
    let (archive, archived) = OutcomeArchive::open(opened.archive).unwrap();
    (opened.journal, archive, archived)
}

/// Writes what waits, as the loop does.
async fn checkpoint(journal: &Journal, archive: &mut OutcomeArchive) {
    let (items, archive_drop_before) = archive.checkpoint();
    let lsn = journal.durable_lsn();
    let mut checkpoints = journal.checkpoints();
    let checkpoint = Checkpoint {
        lsn,
        records: Records::new(),
        archive: items,
        archive_drop_before,
    };
    journal.checkpoint(checkpoint).unwrap();
    let status = *checkpoints
        .wait_for(|status| status.running.is_none())
        .await
        .unwrap();
    archive.checkpointed(status.archive_end);
}

fn id(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap()
}

#[tokio::test]
async fn an_outcome_is_found_before_and_after_its_checkpoint_and_after_a_restart() {
    let image = MemoryImage::new();
    let (journal, mut archive, _) = open(&image);
    for seq in 1..=300 {
        archive.add(outcome(seq, &format!("T{seq}"), 1_000 * seq, seq % 3 != 0));
    }
    let check = |archive: &OutcomeArchive| {
        for seq in [1, 2, 3, 150, 299, 300] {
            let by_id = archive.by_id(&id(&format!("T{seq}"))).unwrap().outcome.unwrap();
            assert_eq!(by_id, outcome(seq, &format!("T{seq}"), 1_000 * seq, seq % 3 != 0));
            assert_eq!(archive.by_xid(by_id.xid).unwrap().outcome, Some(by_id));
        }
        assert_eq!(archive.by_id(&id("T301")).unwrap(), Found::default());
        assert_eq!(
            archive.by_xid(outcome(301, "x", 0, true).xid).unwrap(),
            Found::default()
        );
    };
    check(&archive);
    checkpoint(&journal, &mut archive).await;
    assert!(archive.waiting.is_empty());
    check(&archive);
    drop((journal, archive));
    let (_journal, archive, archived) = open(&image);
    check(&archive);
    assert_eq!(archived.last_decided, 300_000);
    assert_eq!(archived.seconds.values().map(|second| second.0).sum::<u32>(), 300);
}

#[tokio::test]
async fn a_commit_stands_before_an_abort_of_the_same_id() {
    let (_journal, mut archive, _) = open(&MemoryImage::new());
    archive.add(outcome(2, "T", 5, true));
    archive.add(outcome(1, "T", 6, false));
    assert_eq!(archive.by_id(&id("T")).unwrap().outcome.unwrap().xid.seq, 2);
    assert_eq!(
        archive
            .by_xid(outcome(1, "T", 6, false).xid)
            .unwrap()
            .outcome
            .unwrap()
            .aborted,
        Some(AbortReason::Deadline)
    );
}

#[tokio::test]
async fn expired_outcomes_go_in_slices_and_the_rest_stays() {
    let (journal, mut archive, _) = open(&MemoryImage::new());
    let count = 3 * EXPIRE_SLICE as u64;
    for seq in 1..=count {
        archive.add(outcome(seq, &format!("T{seq}"), seq, true));
    }
    checkpoint(&journal, &mut archive).await;
    archive.expire_before(count - 1);
    let mut rounds = 1;
    while archive.expire().unwrap() {
        rounds += 1;
    }
    assert_eq!(rounds, 3);
    assert_eq!(archive.bounds(), (count - 2, count));
    assert_eq!(archive.ids.len(), 2);
    assert_eq!(archive.by_id(&id("T1")).unwrap(), Found::default());
    for seq in [count - 1, count] {
        assert_eq!(
            archive
                .by_id(&id(&format!("T{seq}")))
                .unwrap()
                .outcome
                .unwrap()
                .xid
                .seq,
            seq
        );
        assert_eq!(
            archive
                .by_xid(outcome(seq, "T", 0, true).xid)
                .unwrap()
                .outcome
                .unwrap()
                .xid
                .seq,
            seq
        );
    }
    checkpoint(&journal, &mut archive).await;
    assert_eq!(journal.archive().start(), count - 2);
}

const DAMAGED: &[u8] = &[0xff; 9];

/// A journal whose archive holds these items.
async fn holding(items: Vec<Vec<u8>>) -> MemoryImage {
    let image = MemoryImage::new();
    let opened = Journal::open_image(Arc::new(image.clone()), Options::new("test")).unwrap();
    let mut checkpoints = opened.journal.checkpoints();
    let checkpoint = Checkpoint {
        archive: items,
        ..Checkpoint::default()
    };
    opened.journal.checkpoint(checkpoint).unwrap();
    let done = checkpoints.wait_for(|status| status.running.is_none()).await;
    done.unwrap();
    drop(opened);
    image
}

fn stored(seq: u64, id: &str, decided: u64) -> Vec<u8> {
    encode_outcome(&outcome(seq, id, decided, true))
}

/// Its summary reads, the whole does not: a branch that is no message.
fn shown_only(seq: u64, id: &str) -> Vec<u8> {
    const BRANCHES: u8 = 8 << 3 | 2;
    let mut bytes = stored(seq, id, 2_000);
    bytes.extend([BRANCHES, 2, 0xff, 0xff]);
    assert!(summarize_outcome(&bytes).is_ok() && decode_outcome(&bytes).is_err());
    bytes
}

#[tokio::test]
async fn an_item_that_does_not_decode_is_quarantined_and_the_rest_is_served() {
    let items = vec![stored(1, "T1", 1_000), DAMAGED.to_vec(), shown_only(3, "T3")];
    let image = holding(items).await;
    let (_journal, archive, archived) = open(&image);
    assert_eq!(archive.by_id(&id("T1")).unwrap().outcome.unwrap().xid.seq, 1);
    assert_eq!(archived.last_decided, 2_000);
    assert_eq!(archive.damage().len(), 1, "one shows nothing, from the start on");
    let found = archive.by_id(&id("T3")).unwrap();
    assert_eq!(found.outcome, None);
    let shows = &found.damaged[0].shows;
    assert_eq!(shows.transaction_id, Some(id("T3")));
    assert_eq!(shows.xid, Some(outcome(3, "T3", 0, true).xid));
    assert_eq!(archive.by_xid(outcome(3, "T3", 0, true).xid).unwrap(), found);
    assert_eq!(archive.by_id(&id("T4")).unwrap(), Found::default());
}

#[tokio::test]
async fn expiry_steps_over_what_does_not_decode_when_the_item_behind_it_goes() {
    let items = vec![DAMAGED.to_vec(), stored(2, "T2", 2_000), shown_only(3, "T3")];
    let more = vec![stored(4, "T4", 4_000), DAMAGED.to_vec()];
    let image = holding([items, more].concat()).await;
    let (journal, mut archive, _) = open(&image);
    archive.expire_before(1_500);
    while archive.expire().unwrap() {}
    assert_eq!(archive.bounds().0, 0, "the first one stays while the second does");
    archive.expire_before(2_500);
    while archive.expire().unwrap() {}
    assert_eq!(archive.bounds().0, 2);
    archive.expire_before(5_000);
    while archive.expire().unwrap() {}
    assert_eq!(archive.bounds(), (4, 5), "the last one has none behind it");
    assert_eq!(archive.damage().len(), 1);
    checkpoint(&journal, &mut archive).await;
    assert_eq!(journal.archive().start(), 4);
}

#[tokio::test]
async fn beside_damage_of_the_same_id_an_abort_is_not_told_and_a_commit_is() {
    let abort = encode_outcome(&outcome(1, "T1", 1_000, false));
    let items = vec![
        abort,
        shown_only(2, "T1"),
        stored(3, "T2", 1_000),
        shown_only(4, "T2"),
    ];
    let (_journal, archive, _) = open(&holding(items).await);
    let found = archive.by_id(&id("T1")).unwrap();
    assert!(found.outcome.is_none() && found.damaged.len() == 1);
    assert!(archive.by_id(&id("T2")).unwrap().outcome.is_some());
}

#[tokio::test]
async fn a_block_that_is_damaged_on_disk_is_quarantined_too() {
    let image = holding(vec![stored(1, "T1", 1_000), stored(2, "T2", 2_000)]).await;
    let (_journal, live, _) = open(&image);
    let key = |item: covenant_journal::Item| item.unwrap().0;
    let blocks: Vec<_> = image
        .scan(Space::Archive, &Key::new(&[0]).unwrap())
        .map(key)
        .collect();
    assert_eq!(blocks.len(), 1);
    let mut batch = Batch::new();
    batch.put(Space::Archive, blocks[0], DAMAGED);
    image.apply(&batch).unwrap();
    let found = live.by_xid(outcome(2, "T2", 0, true).xid).unwrap();
    assert_eq!(found.damaged[0].shows.xid, Some(outcome(2, "T2", 0, true).xid));
    drop((_journal, live));
    let (_journal, archive, _) = open(&image);
    assert_eq!(archive.damage().len(), 2);
}
