//! Damaged records: served where the head tells the effect, refused where nobody can tell what is touched (section 2).

use covenant_journal::{MemoryImage, Space};
use covenant_participant::Resource;
use covenant_rules::Vote;

use super::books::name;
use super::world::*;
use crate::*;

/// How protobuf writes a number: what to look for in a stored payload.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

const PREPARED_AT: u64 = 0x0011_2233_4455;
const COMMITTED_AT: u64 = 0x0055_4433_2211;

/// T1 committed, T2 prepared at `PREPARED_AT`.
async fn two_branches(image: &MemoryImage) -> Ledger {
    let clock = HandClock::at(1);
    let ledger = Ledger::open_image(std::sync::Arc::new(image.clone()), clock.options())
        .await
        .unwrap();
    open_three(&ledger).await;
    assert_eq!(
        vote(&ledger, 1, "T1", &transfer("alice", "bob", 100)).await,
        Vote::Yes
    );
    clock.set(COMMITTED_AT);
    ledger.commit(xid(1)).await.unwrap();
    clock.set(PREPARED_AT);
    assert_eq!(
        vote(&ledger, 2, "T2", &transfer("alice", "carol", 50)).await,
        Vote::Yes
    );
    ledger
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_committed_keeps_its_effect_and_loses_only_its_time() {
    let image = MemoryImage::new();
    two_branches(&image).await.close().unwrap();
    damage(&image, Space::Log, &varint(COMMITTED_AT));
    let ledger = open(&image).await;
    assert_eq!(balance(&ledger, "bob"), (100, 0, 0));
    let (entries, _) = ledger.entries(&name("bob"), None, 10).unwrap();
    assert_eq!((entries[0].committed_at, entries[0].held_for_ms()), (0, None));
    assert_eq!(
        code(&vote(&ledger, 9, "T1", &single("bob", 1)).await),
        "DUPLICATE_TRANSACTION"
    );
    let found = ledger.quarantined().unwrap();
    assert_eq!(
        (found.len(), found[0].xid, found[0].transaction_id.clone()),
        (1, Some(xid(1)), Some(id("T1")))
    );
    // It is carried on.
    assert!(ledger.checkpoint().unwrap());
    ledger
        .journal()
        .checkpoints()
        .wait_for(|status| status.running.is_none())
        .await
        .unwrap();
    ledger.close().unwrap();
    assert_eq!(open(&image).await.quarantined().unwrap(), found);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_prepared_that_has_not_ended_refuses_to_start() {
    let image = MemoryImage::new();
    two_branches(&image).await.close().unwrap();
    damage(&image, Space::Log, &varint(PREPARED_AT));
    let error = reopen(&image).await.err().unwrap();
    assert!(
        matches!(error, Error::Unreadable { xid: found, .. } if found == xid(2)),
        "{error}"
    );
    assert!(error.to_string().contains("T2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_prepared_that_aborted_touched_nothing() {
    let image = MemoryImage::new();
    let ledger = two_branches(&image).await;
    ledger.abort(xid(2)).await.unwrap();
    ledger.close().unwrap();
    damage(&image, Space::Log, &varint(PREPARED_AT));
    let ledger = open(&image).await;
    assert_eq!(balance(&ledger, "alice"), (400, 0, 0));
    assert_eq!(ledger.quarantined().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_prepared_that_committed_refuses_to_start() {
    let image = MemoryImage::new();
    let ledger = two_branches(&image).await;
    ledger.commit(xid(2)).await.unwrap();
    ledger.close().unwrap();
    damage(&image, Space::Log, &varint(PREPARED_AT));
    assert!(matches!(
        reopen(&image).await,
        Err(Error::Record { lsn: Some(_), .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_start_takes_its_counter_with_it() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    let bits = ledger.incarnation().bits.to_le_bytes();
    ledger.close().unwrap();
    damage(&image, Space::Log, &bits);
    let ledger = open(&image).await;
    assert_eq!(ledger.incarnation().counter, 2);
    ledger.close().unwrap();
    assert_eq!(open(&image).await.incarnation().counter, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_that_may_touch_any_account_refuses_to_start() {
    let targets: [fn(&Ledger) -> Vec<u8>; 3] = [
        |_| b"alice".to_vec(),
        |ledger| ((ledger.lineage().0 >> 64) as u64).to_le_bytes().to_vec(),
        |_| xid(2).to_bytes().to_vec(),
    ];
    for target in targets {
        let image = MemoryImage::new();
        let ledger = two_branches(&image).await;
        let target = target(&ledger);
        ledger.close().unwrap();
        damage(&image, Space::Log, &target);
        let error = reopen(&image).await.err().unwrap();
        assert!(matches!(error, Error::Record { .. }), "{error}");
        assert!(
            error.to_string().contains("cannot be told what it touches"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_entry_in_the_archive_refuses_to_start() {
    let image = MemoryImage::new();
    let ledger = two_branches(&image).await;
    assert!(ledger.checkpoint().unwrap());
    ledger
        .journal()
        .checkpoints()
        .wait_for(|status| status.running.is_none())
        .await
        .unwrap();
    ledger.close().unwrap();
    damage(&image, Space::Archive, b"alice");
    let error = reopen(&image).await.err().unwrap();
    assert!(error.to_string().contains("archive"), "{error}");
}
