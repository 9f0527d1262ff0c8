//! What the tests of records and of the store share: attempts, operations, ledgers in memory, and an image that
//! remembers every crash.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use covenant_journal::{Batch, Image, ImageError, Key, MemoryImage, Scan, Space};
use covenant_participant::{Branch, Resource};
use covenant_rules::{Incarnation, Lineage, Operator, TransactionId, Vote, Xid};

use super::books::{at_least, leg, name};
use crate::*;

/// The coordinator's log in these tests.
pub(super) const COORDINATOR: Lineage = Lineage(0xC0);

pub(super) fn xid(seq: u64) -> Xid {
    Xid {
        lineage: COORDINATOR,
        incarnation: Incarnation { counter: 1, bits: 9 },
        seq,
    }
}

pub(super) fn id(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap()
}

pub(super) fn by() -> Operator {
    Operator {
        who: "ann".into(),
        why: "the coordinator burnt down".into(),
    }
}

/// Moves an amount from one account to the other.
pub(super) fn transfer(from: &str, to: &str, amount: i64) -> Operation {
    Operation {
        legs: vec![leg(from, -amount, "THB"), leg(to, amount, "THB")],
        assertions: Vec::new(),
    }
}

/// Takes an amount from an account, or gives it one.
pub(super) fn single(account: &str, amount: i64) -> Operation {
    Operation {
        legs: vec![leg(account, amount, "THB")],
        assertions: Vec::new(),
    }
}

/// Only looks.
pub(super) fn look(account: &str, n: i64) -> Operation {
    Operation {
        legs: Vec::new(),
        assertions: vec![at_least(account, n, "THB")],
    }
}

pub(super) fn branch(seq: u64, transaction_id: &str, operation: &Operation) -> Branch {
    Branch {
        xid: xid(seq),
        transaction_id: id(transaction_id),
        operation: encode(operation).into(),
        position: 10 + seq,
    }
}

/// A clock that stands still until it is set.
#[derive(Clone)]
pub(super) struct HandClock(Arc<AtomicU64>);

impl HandClock {
    pub(super) fn at(ms: u64) -> Self {
        Self(Arc::new(AtomicU64::new(ms)))
    }

    pub(super) fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::SeqCst);
    }

    pub(super) fn options(&self) -> Options {
        let clock = Arc::clone(&self.0);
        Options {
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            ..Options::default()
        }
    }
}

pub(super) async fn open(image: &MemoryImage) -> Ledger {
    reopen(image).await.unwrap()
}

pub(super) async fn reopen(image: &MemoryImage) -> Result<Ledger, Error> {
    Ledger::open_image(Arc::new(image.clone()), Options::default()).await
}

/// A ledger in memory with alice (500), bob (0) and carol (100), all in THB.
pub(super) async fn ledger(image: &MemoryImage) -> Ledger {
    let ledger = open(image).await;
    open_three(&ledger).await;
    ledger
}

pub(super) async fn open_three(ledger: &Ledger) {
    for spec in ["alice=500:THB", "bob=0:THB", "carol=100:THB"] {
        ledger.open_account(&spec.parse().unwrap()).await.unwrap();
    }
}

pub(super) async fn vote(ledger: &Ledger, seq: u64, transaction_id: &str, operation: &Operation) -> Vote {
    ledger
        .prepare(branch(seq, transaction_id, operation))
        .await
        .unwrap()
}

/// Prepares and commits.
pub(super) async fn run(ledger: &Ledger, seq: u64, transaction_id: &str, operation: &Operation) {
    assert_eq!(vote(ledger, seq, transaction_id, operation).await, Vote::Yes);
    ledger.commit(xid(seq)).await.unwrap();
}

/// The code of a NO vote.
pub(super) fn code(vote: &Vote) -> &str {
    match vote {
        Vote::No(reason) => &reason.code,
        Vote::Yes | Vote::ReadOnly => panic!("{vote:?} is no NO"),
    }
}

/// Posted, pending debits, pending credits.
pub(super) fn balance(ledger: &Ledger, account: &str) -> (i64, i64, i64) {
    let account = ledger.account(&name(account)).unwrap();
    (account.posted, account.pending_debit, account.pending_credit)
}

/// Writes a checkpoint and waits until it is done.
pub(super) async fn checkpoint(ledger: &Ledger) {
    assert!(ledger.checkpoint().unwrap());
    ledger
        .journal()
        .checkpoints()
        .wait_for(|status| status.running.is_none())
        .await
        .unwrap();
}

/// Closes the ledger and starts it again.
pub(super) async fn restart(ledger: Ledger, image: &MemoryImage) -> Ledger {
    ledger.close().unwrap();
    drop(ledger);
    open(image).await
}

/// Polls once.
pub(super) fn is_pending(future: impl Future) -> bool {
    pin!(future)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// What a crash before, inside and after each force would have left, with what had been told by then.
#[derive(Default)]
pub(super) struct Crashes {
    pub(super) images: Vec<(MemoryImage, usize)>,
    /// How many answers were given so far.
    pub(super) told: usize,
}

/// A memory image that takes a picture of every crash that can happen.
#[derive(Clone, Default)]
pub(super) struct Filmed {
    pub(super) image: MemoryImage,
    pub(super) crashes: Arc<Mutex<Crashes>>,
}

impl Filmed {
    fn film(&self) {
        let mut crashes = self.crashes.lock().unwrap();
        let told = crashes.told;
        for keep in 0..=self.image.unforced_batches() {
            crashes.images.push((self.image.crash(keep), told));
        }
    }

    pub(super) fn tell(&self) {
        self.crashes.lock().unwrap().told += 1;
    }
}

impl Image for Filmed {
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError> {
        self.image.apply(batch)
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.image.flush()
    }

    fn sync(&self) -> Result<(), ImageError> {
        self.film();
        self.image.sync()
    }

    fn note_end(&self, lsn: u64) -> Result<(), ImageError> {
        self.image.note_end(lsn)
    }

    fn force_end(&self) -> Result<(), ImageError> {
        self.image.force_end()
    }

    fn noted_end(&self) -> Option<u64> {
        self.image.noted_end()
    }

    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError> {
        self.image.get(space, key)
    }

    fn scan(&self, space: Space, from: &Key) -> Scan {
        self.image.scan(space, from)
    }

    fn scan_back(&self, space: Space, to: &Key) -> Scan {
        self.image.scan_back(space, to)
    }

    fn verify(&self) -> Result<(), ImageError> {
        self.image.verify()
    }
}

/// Flips one byte in the first stored value that holds these bytes, right at them.
pub(super) fn damage(image: &MemoryImage, space: Space, at: &[u8]) {
    let first = Key::new(&[]).unwrap();
    for item in image.scan(space, &first) {
        let (key, mut value) = item.unwrap();
        if let Some(found) = value.windows(at.len()).position(|window| window == at) {
            value[found] ^= 0x20;
            let mut batch = Batch::new();
            batch.put(space, key, &value);
            image.apply(&batch).unwrap();
            image.flush().unwrap();
            image.sync().unwrap();
            return;
        }
    }
    panic!("no stored value holds {at:?}");
}
