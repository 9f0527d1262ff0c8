//! What stays bounded: tombstones, the backlog, the log; and that a directory has one owner.

use std::pin::pin;

use covenant_journal::{MemoryImage, limits::MAX_BACKLOG_BYTES};
use covenant_participant::{Branch, Resource};
use covenant_rules::{Decision, Floor, Vote};

use super::books::name;
use super::world::*;
use crate::live::{FLOOR_TOMBSTONES, Voted};
use crate::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_drops_tombstones_and_never_a_hold_or_a_heuristic() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    let last = FLOOR_TOMBSTONES as u64 + 3;
    for seq in 1..=last {
        assert_eq!(
            vote(&ledger, seq, &format!("T{seq}"), &transfer("alice", "bob", 1)).await,
            Vote::Yes
        );
    }
    ledger.resolve(xid(2), Decision::Abort, by()).await.unwrap();
    ledger.floor(
        COORDINATOR,
        Floor {
            counter: 1,
            seq: last,
        },
    );
    assert_eq!(
        ledger.start().await.unwrap().floors,
        [],
        "few tombstones: no record"
    );
    for seq in (3..=last).rev() {
        ledger.commit(xid(seq)).await.unwrap();
    }
    let floor = Floor {
        counter: 1,
        seq: last,
    };
    ledger.floor(COORDINATOR, floor);
    ledger.floor(COORDINATOR, Floor { counter: 1, seq: 1 });
    let left = |recovered: covenant_participant::Recovered| -> Vec<u64> {
        recovered.branches.iter().map(|branch| branch.xid.seq).collect()
    };
    assert_eq!(left(ledger.start().await.unwrap()), [1, 2, last]);
    // Even the attempt itself has no second effect when its tombstone is gone (S9).
    let again = vote(&ledger, 3, "T3", &transfer("alice", "bob", 1)).await;
    assert_eq!(code(&again), "DUPLICATE_TRANSACTION");
    let recovered = restart(ledger, &image).await.start().await.unwrap();
    assert_eq!(recovered.floors, [(COORDINATOR, floor)]);
    assert_eq!(left(recovered), [1, 2, last]);
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_journals_bound_new_work_is_refused_and_decisions_are_not() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    assert_eq!(
        vote(&ledger, 1, "T1", &transfer("alice", "bob", 1)).await,
        Vote::Yes
    );
    image.hang();
    // Field 15 is unknown to the operation: protobuf passes over it.
    let mut payload = encode(&single("bob", 1));
    payload.extend_from_slice(&[0x7a, 0x80, 0xf0, 0x01]);
    payload.extend_from_slice(&[0; 30 * 1024]);
    let mut refused = None;
    for seq in 2..2_000 {
        let asked = Branch {
            operation: payload.clone().into(),
            ..branch(seq, &format!("T{seq}"), &look("bob", 0))
        };
        match ledger.inner.change(|live| live.prepare(asked, 0)).unwrap() {
            Voted::Yes(_) => {}
            voted => {
                refused = Some((seq, voted));
                break;
            }
        }
    }
    let (seq, voted) = refused.unwrap();
    let Voted::No(refusal) = voted else {
        panic!("{voted:?} is no NO")
    };
    assert_eq!(refusal.code(), "RESOURCE_EXHAUSTED");
    assert!(
        refusal.to_string().contains(&MAX_BACKLOG_BYTES.to_string()),
        "{refusal}"
    );
    assert!(seq > 500, "refused after {seq} branches");
    let spec = "dave=1:THB".parse().unwrap();
    assert!(matches!(
        ledger.open_account(&spec).await,
        Err(Error::Backlogged { .. })
    ));
    let mut commit = pin!(ledger.commit(xid(1)));
    assert!(is_pending(commit.as_mut()));
    image.resume();
    commit.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_come_by_themselves_and_shorten_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        checkpoint_records: 400,
        ..Options::default()
    };
    let ledger = Ledger::open(directory.path(), options()).await.unwrap();
    open_three(&ledger).await;
    let mut checkpoints = ledger.journal().checkpoints();
    for round in 0..30u64 {
        let calls = (0..20u64).map(|at| {
            let (ledger, seq) = (ledger.clone(), round * 20 + at + 1);
            tokio::spawn(
                async move { run(&ledger, seq, &format!("T{seq}"), &transfer("alice", "bob", 1)).await },
            )
        });
        for call in calls.collect::<Vec<_>>() {
            // The account runs dry after 500 of them.
            drop(call.await);
        }
        // Whoever reads brings the folded side up: that may not keep checkpoints away.
        ledger.account(&name("alice")).unwrap();
    }
    let status = *checkpoints
        .wait_for(|status| status.lsn > 0 && status.running.is_none())
        .await
        .unwrap();
    assert!(status.archive_end > 100, "{status:?}");
    let before = ledger.inner.change(|live| live.state.clone());
    assert_eq!(balance(&ledger, "alice"), (0, 0, 0));
    ledger.close().unwrap();
    drop(ledger);
    let ledger = Ledger::open(directory.path(), options()).await.unwrap();
    let mut after = ledger.inner.change(|live| live.state.clone());
    after.incarnations.pop();
    assert_eq!(after, before);
    assert_eq!(
        code(&vote(&ledger, 9_999, "T1", &single("bob", 1)).await),
        "DUPLICATE_TRANSACTION"
    );
}

/// Rounds of transfers beside a branch in doubt, each of so many at once.
const DOUBT_ROUNDS: u64 = 40;
const DOUBT_BATCH: u64 = 50;
const MIB: u64 = 1 << 20;

/// The bytes of a directory's files.
fn bytes_in(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    let bytes = entries.map(|entry| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => bytes_in(&entry.path()),
            false => entry.metadata().unwrap().len(),
        }
    });
    bytes.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_in_doubt_over_many_checkpoints_is_kept_and_the_log_stays_short() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        checkpoint_records: 400,
        ..Options::default()
    };
    let ledger = Ledger::open(directory.path(), options()).await.unwrap();
    open_three(&ledger).await;
    // Its coordinator is gone; the others are another one's.
    let doubt = Branch {
        xid: covenant_rules::Xid {
            lineage: covenant_rules::Lineage(0xDEAD),
            ..xid(1)
        },
        ..branch(1, "DOUBT", &transfer("carol", "bob", 7))
    };
    assert_eq!(ledger.prepare(doubt.clone()).await.unwrap(), Vote::Yes);
    for round in 0..DOUBT_ROUNDS {
        let calls = (1..=DOUBT_BATCH).map(|at| {
            let (ledger, seq) = (ledger.clone(), round * DOUBT_BATCH + at);
            let (from, to) = if round % 2 == 0 {
                ("alice", "bob")
            } else {
                ("bob", "alice")
            };
            tokio::spawn(async move { run(&ledger, seq, &format!("T{seq}"), &transfer(from, to, 1)).await })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap();
        }
        let next = 1 + (round + 1) * DOUBT_BATCH;
        ledger.floor(
            COORDINATOR,
            Floor {
                counter: 1,
                seq: next,
            },
        );
    }
    ledger.close().unwrap();
    drop(ledger);
    let entries = 2 * DOUBT_ROUNDS * DOUBT_BATCH;
    let bytes = bytes_in(directory.path());
    let opened =
        covenant_journal::Journal::open(directory.path(), covenant_journal::Options::new("ledger")).unwrap();
    let covenant_journal::Opened {
        journal,
        replay,
        archive,
        ..
    } = opened;
    let records = replay.count();
    // A checkpoint of 400 records may have come just before the last ones, and it holds the accounts and the branch.
    assert!(
        records < 1_000,
        "{records} records are replayed after {entries} entries"
    );
    let bound = 4 * MIB + 256 * entries;
    assert!(
        bytes < bound,
        "{bytes} bytes for {entries} entries; the bound is {bound}"
    );
    journal.close().unwrap();
    drop((journal, archive));
    let ledger = Ledger::open(directory.path(), options()).await.unwrap();
    let in_doubt = ledger.in_doubt().await.unwrap();
    assert_eq!((in_doubt.len(), in_doubt[0].xid), (1, doubt.xid));
    assert_eq!(balance(&ledger, "carol"), (100, 7, 0));
    ledger.commit(doubt.xid).await.unwrap();
    assert_eq!(balance(&ledger, "carol"), (93, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_serves_one_ledger_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(directory.path(), Options::default()).await.unwrap();
    let second = Ledger::open(directory.path(), Options::default()).await;
    assert!(matches!(
        second,
        Err(Error::Journal(covenant_journal::Error::Locked { .. }))
    ));
    ledger.close().unwrap();
}

#[test]
fn the_last_account_opens_and_the_next_is_refused_by_the_bound() {
    let mut books = Books::default();
    books.open(&"a0=0:THB".parse().unwrap()).unwrap();
    let held = Account::empty("THB".parse().unwrap());
    // The two system accounts of the currency count.
    for number in 1..MAX_ACCOUNTS - 3 {
        books.put(name(&format!("a{number}")), held.clone());
    }
    books.open(&"last=0:THB".parse().unwrap()).unwrap();
    assert_eq!(books.len(), MAX_ACCOUNTS);
    for spec in ["more=0:THB", "more=0:USD"] {
        let refused = books.open(&spec.parse().unwrap()).unwrap_err();
        assert_eq!(refused, OpenRefusal::TooMany(MAX_ACCOUNTS));
    }
}

/// How long what the test holds back may keep the others waiting.
const HOLD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The story: a checkpoint of a million accounts held up every call of the process, because an account was opened.
#[tokio::test]
async fn opening_an_account_does_not_wait_on_an_async_thread_for_the_folded_side() {
    let ledger = ledger(&MemoryImage::new()).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (held, holding) = tokio::sync::oneshot::channel();
    let holder = std::thread::spawn({
        let ledger = ledger.clone();
        move || {
            let folded = ledger.inner.folded().unwrap();
            held.send(()).unwrap();
            let in_time = released.recv_timeout(HOLD_TIMEOUT).is_ok();
            drop(folded);
            in_time
        }
    });
    holding.await.unwrap();
    let spec = "dave=1:THB".parse().unwrap();
    let lsn = ledger.journal().next_lsn();
    let others = async {
        ledger.journal().wait_durable(lsn).await;
        // By then the opening has been polled with its record durable.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
    };
    let (opened, ()) = tokio::join!(ledger.open_account(&spec), others);
    assert!(opened.unwrap().1);
    assert!(holder.join().unwrap(), "the async thread was held up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_panicked_is_no_busy_fold() {
    let ledger = ledger(&MemoryImage::new()).await;
    let poisoned = ledger.clone();
    let panicked = std::thread::spawn(move || {
        let _folded = poisoned.inner.folded().unwrap();
        panic!("planted");
    });
    assert!(panicked.join().is_err());
    // Sooner or later a change folds what waits.
    let changes = tokio::spawn(async move {
        for seq in 1..2_000 {
            vote(&ledger, seq, &format!("T{seq}"), &single("bob", 1)).await;
        }
    });
    assert!(changes.await.is_err_and(|error| error.is_panic()), "it went on");
}
