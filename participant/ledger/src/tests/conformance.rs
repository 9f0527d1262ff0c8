//! The SDK's conformance suite over the ledger: on a directory, and in memory with a power cut at every restart.

use std::cell::RefCell;

use covenant_journal::MemoryImage;
use covenant_participant::suite::{self, Samples};

use super::world::*;
use crate::*;

fn samples() -> Samples<Ledger> {
    let state = |ledger: &Ledger| {
        let accounts = ledger.accounts(None, 100, true).unwrap();
        let shown = accounts
            .iter()
            .map(|(name, account)| format!("{name} {}", account.posted));
        shown.collect::<Vec<_>>().join(", ")
    };
    Samples {
        yes: encode(&transfer("alice", "bob", 1)).into(),
        no: encode(&transfer("alice", "bob", 1_000_000)).into(),
        read_only: Some(encode(&look("alice", 1)).into()),
        exclusive: Some(encode(&transfer("alice", "bob", 300)).into()),
        state: Box::new(state),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_holds_in_memory_with_a_power_cut_at_every_restart() {
    let image = RefCell::new(MemoryImage::new());
    let open = async || {
        let left = image.borrow().crash(0);
        image.replace(left.clone());
        let ledger = open(&left).await;
        open_three(&ledger).await;
        ledger
    };
    suite::run(open, &samples()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_holds_on_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let open = async || {
        let ledger = Ledger::open(directory.path(), Options::default()).await.unwrap();
        open_three(&ledger).await;
        ledger
    };
    suite::run(open, &samples()).await;
}
