//! Archived outcomes that do not decode, and a log that lost its tail: the server starts, says UNKNOWN for what is
//! or may be gone, and serves the rest.

use std::path::Path;

use covenant_codec::outcome::encode_outcome;
use covenant_journal::{Checkpoint, Force, HeadRef, Journal, Options, Records};
use covenant_proto::v1::{ListTransactionsRequest, Outcome};
use covenant_rules::{Incarnation, Lineage, TransactionId, Xid};

use crate::played::{Coordinator, Played, commit_one, get, request, run};

/// Puts these items behind those of the archive, by a checkpoint that changes nothing else.
async fn archive(dir: &Path, archive: Vec<Vec<u8>>) {
    let opened = Journal::open(dir, Options::new("coordinator")).unwrap();
    let mut records = Records::new();
    for replayed in opened.replay {
        let record = replayed.unwrap().record.unwrap();
        let head = HeadRef {
            kind: record.head.kind,
            xid: record.head.xid.as_ref(),
            transaction_id: record.head.transaction_id.as_deref(),
        };
        records.push(head, Force::Lazy, &record.payload);
    }
    let mut checkpoints = opened.journal.checkpoints();
    let checkpoint = Checkpoint {
        lsn: opened.journal.durable_lsn(),
        records,
        archive,
        ..Checkpoint::default()
    };
    opened.journal.checkpoint(checkpoint).unwrap();
    checkpoints
        .wait_for(|status| status.running.is_none())
        .await
        .unwrap();
    opened.journal.close().unwrap();
}

/// An outcome that shows its attempt and its id, and has a branch that is none.
fn damaged(id: &str) -> Vec<u8> {
    const BRANCHES: u8 = 8 << 3 | 2;
    let mut bytes = encode_outcome(&covenant_rules::Outcome {
        xid: Xid {
            lineage: Lineage(9),
            incarnation: Incarnation { counter: 1, bits: 1 },
            seq: 1,
        },
        transaction_id: TransactionId::new(id).unwrap(),
        fingerprint: None,
        created: u64::MAX / 4,
        decided: u64::MAX / 4,
        aborted: None,
        branches: Vec::new(),
        heuristic: None,
    });
    bytes.extend([BRANCHES, 2, 0xff, 0xff]);
    bytes
}

#[tokio::test]
async fn an_archived_outcome_that_does_not_decode_is_unknown_and_the_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(dir.path()).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    commit_one(&coordinator, &mut a, "a", "T1").await;
    coordinator.stop().await;
    archive(dir.path(), vec![damaged("T2")]).await;

    let coordinator = Coordinator::start(dir.path()).await;
    let mut caller = coordinator.caller().await;
    for _ in 0..2 {
        assert_eq!(get(&mut caller, "T2").await.outcome(), Outcome::Unknown);
    }
    assert_eq!(get(&mut caller, "T1").await.outcome(), Outcome::Committed);
    assert_eq!(get(&mut caller, "T3").await.outcome(), Outcome::NotFound);
    let listed = caller.list_transactions(ListTransactionsRequest::default()).await;
    let listed: Vec<_> = listed
        .unwrap()
        .into_inner()
        .transactions
        .into_iter()
        .map(|transaction| (transaction.transaction_id.clone(), transaction.outcome()))
        .collect();
    assert_eq!(
        listed,
        [
            (String::from("T1"), Outcome::Committed),
            (String::from("T2"), Outcome::Unknown)
        ],
        "it is shown"
    );
    let mut a = Played::join(&coordinator.address, "a", 2).await;
    commit_one(&coordinator, &mut a, "a", "T4").await;
    coordinator.stop().await;

    // One that shows nothing stands in the way of every id that is not known and may be older than the start: with R5, of
    // every `created` up to a minute after it.
    archive(dir.path(), vec![vec![0xff; 9]]).await;
    let coordinator = Coordinator::start(dir.path()).await;
    let mut caller = coordinator.caller().await;
    assert_eq!(get(&mut caller, "T3").await.outcome(), Outcome::Unknown);
    assert_eq!(get(&mut caller, "T4").await.outcome(), Outcome::Committed);
    coordinator.stop().await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = (
            entry.as_ref().unwrap().path(),
            to.join(entry.unwrap().file_name()),
        );
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[tokio::test]
async fn a_log_that_ends_below_what_was_forced_is_suspect_until_an_operator_clears_it() {
    let root = tempfile::tempdir().unwrap();
    let (whole, cut) = (root.path().join("whole"), root.path().join("cut"));
    let coordinator = Coordinator::start(&whole).await;
    let mut a = Played::join(&coordinator.address, "a", 1).await;
    commit_one(&coordinator, &mut a, "a", "T1").await;
    coordinator.stop().await;
    copy(&whole, &cut);
    let coordinator = Coordinator::start(&whole).await;
    let mut a = Played::join(&coordinator.address, "a", 2).await;
    commit_one(&coordinator, &mut a, "a", "T2").await;
    let lost = coordinator.ready.incarnation;
    coordinator.stop().await;
    // The log of the first stop beside the mark of the second.
    std::fs::copy(whole.join("end"), cut.join("end")).unwrap();
    let mut last = lost;
    for _ in 0..2 {
        let coordinator = Coordinator::start(&cut).await;
        assert!(
            coordinator.ready.incarnation > last,
            "S12: also above the lost start"
        );
        last = coordinator.ready.incarnation;
        let mut caller = coordinator.caller().await;
        assert_eq!(get(&mut caller, "T1").await.outcome(), Outcome::Committed);
        let gone = get(&mut caller, "T2").await;
        assert_eq!(gone.outcome(), Outcome::Unknown, "not NOT_FOUND");
        assert!(gone.detail.contains("SUSPECT"), "{}", gone.detail);
        let again = run(caller, request("T3", &["a"], "x")).await;
        assert_eq!(again.outcome(), Outcome::Unknown, "nothing is run");
        coordinator.stop().await;
    }
}
