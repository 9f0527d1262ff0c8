//! Crash at every batch: whatever prefix of the unforced batches survives, the next start finds the fold of exactly
//! the records that it has, and nothing that was told is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use covenant_participant::Resource;
use covenant_rules::{Decision, Lsn, Vote};

use super::books::{at_least, name};
use super::world::*;
use crate::state::State;
use crate::*;

/// A ledger whose every state and every answer is remembered.
struct Filming {
    ledger: Ledger,
    film: Filmed,
    states: BTreeMap<Lsn, State>,
    /// The last record when each answer was given.
    told: Vec<Lsn>,
}

impl Filming {
    async fn start() -> Self {
        let film = Filmed::default();
        let ledger = Ledger::open_image(Arc::new(film.clone()), Options::default())
            .await
            .unwrap();
        let mut filming = Self {
            ledger,
            film,
            states: BTreeMap::new(),
            told: Vec::new(),
        };
        filming.told();
        filming
    }

    fn state(&self) -> (Lsn, State) {
        self.ledger
            .inner
            .change(|live| (live.appended(), live.state.clone()))
    }

    /// A call changed the state.
    fn changed(&mut self) {
        let (lsn, state) = self.state();
        self.states.insert(lsn, state);
    }

    /// A call that completes when it is durable has completed.
    fn told(&mut self) {
        self.changed();
        self.told.push(self.state().0);
        self.film.tell();
    }

    async fn open_account(&mut self, spec: &str) {
        self.ledger.open_account(&spec.parse().unwrap()).await.unwrap();
        self.told();
    }

    async fn prepare(&mut self, seq: u64, operation: &Operation) {
        assert_eq!(
            vote(&self.ledger, seq, &format!("T{seq}"), operation).await,
            Vote::Yes
        );
        self.told();
    }

    async fn commit(&mut self, seq: u64) {
        self.ledger.commit(xid(seq)).await.unwrap();
        self.told();
    }

    async fn abort(&mut self, seq: u64) {
        self.ledger.abort(xid(seq)).await.unwrap();
        self.changed();
    }

    async fn resolve(&mut self, seq: u64, what: Decision) {
        self.ledger.resolve(xid(seq), what, by()).await.unwrap();
        self.told();
    }

    async fn forget(&mut self, seq: u64) {
        self.ledger.forget(xid(seq)).await.unwrap();
        self.told();
    }

    async fn checkpointed(&self) {
        let mut status = self.ledger.journal().checkpoints();
        status.wait_for(|status| status.running.is_none()).await.unwrap();
    }

    /// Opens every crash that was filmed; how many there were.
    async fn check(self) -> usize {
        self.ledger.close().unwrap();
        let crashes = std::mem::take(&mut *self.film.crashes.lock().unwrap());
        for (image, told) in &crashes.images {
            let ledger = open(image).await;
            let (last, mut state) = ledger.inner.change(|live| (live.appended(), live.state.clone()));
            state.incarnations.pop();
            assert!(state.books.totals().values().all(|total| *total == 0));
            let durable = if state.incarnations.is_empty() {
                0
            } else {
                last - 1
            };
            assert!(
                durable >= told.checked_sub(1).map_or(0, |told| self.told[told]),
                "something told is lost"
            );
            match self.states.get(&durable) {
                Some(expected) => assert_eq!(state, *expected, "the state at record {durable}"),
                None => assert!(durable < 2, "record {durable} is none of ours"),
            }
        }
        crashes.images.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_batch_leaves_the_fold_of_a_prefix_and_loses_nothing_told() {
    let mut filming = Filming::start().await;
    for spec in ["alice=500:THB", "bob=0:THB", "carol=100:THB", "empty=0:USD"] {
        filming.open_account(spec).await;
    }
    for seq in 1..=6 {
        filming
            .prepare(seq, &transfer("alice", "bob", 10 + seq as i64))
            .await;
    }
    filming.commit(1).await;
    filming.abort(2).await;
    filming.resolve(3, Decision::Commit).await;
    filming.resolve(4, Decision::Abort).await;
    filming.forget(3).await;
    filming.ledger.close_account(&name("empty")).await.unwrap();
    filming.told();
    let floor = Operation {
        assertions: vec![at_least("alice", 200, "THB")],
        ..single("alice", -50)
    };
    filming.prepare(7, &floor).await;
    assert!(filming.ledger.checkpoint().unwrap());
    filming.commit(5).await;
    filming.prepare(8, &single("carol", 5)).await;
    filming.abort(7).await;
    filming.checkpointed().await;
    filming.commit(8).await;
    assert!(filming.ledger.checkpoint().unwrap());
    filming.checkpointed().await;
    filming.forget(4).await;
    let filmed = filming.check().await;
    assert!(filmed > 50, "only {filmed} crashes were filmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_a_restart_keeps_what_the_first_run_told() {
    let image = covenant_journal::MemoryImage::new();
    let ledger = ledger(&image).await;
    run(&ledger, 1, "T1", &transfer("alice", "bob", 100)).await;
    assert_eq!(
        vote(&ledger, 2, "T2", &transfer("alice", "bob", 50)).await,
        Vote::Yes
    );
    // The process dies without a close, and so does the next one.
    let second = open(&image.crash(0)).await;
    second.commit(xid(2)).await.unwrap();
    let third = open(&image.crash(0)).await;
    assert_eq!(balance(&third, "alice"), (400, 50, 0));
    assert_eq!(balance(&third, "bob"), (100, 0, 50));
}
