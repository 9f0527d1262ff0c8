//! The conformance suite passes a resource that keeps its contract, and finds each planted fault by its rule.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use covenant_participant::suite::{self, Samples};
use futures_util::FutureExt;

use crate::shelf::{Disk, Fault, Shelf};

fn samples() -> Samples<Shelf> {
    Samples {
        yes: b"+5".as_slice().into(),
        no: b"-1000000".as_slice().into(),
        read_only: Some(b"?".as_slice().into()),
        exclusive: None,
        state: Box::new(|shelf| shelf.stock().to_string()),
    }
}

/// What the suite says of a shelf with this fault.
async fn said(fault: Fault, exclusive: Option<Arc<[u8]>>) -> Result<(), String> {
    let disk = Arc::new(Mutex::new(Disk::stocked(20)));
    let samples = Samples {
        exclusive,
        ..samples()
    };
    let run = suite::run(async || Shelf::with(&disk, fault), &samples);
    AssertUnwindSafe(run).catch_unwind().await.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no text")
            .to_owned()
    })
}

#[tokio::test]
async fn the_suite_passes_a_resource_that_keeps_its_contract() {
    let all_there_is = b"-20".as_slice().into();
    for exclusive in [None, Some(all_there_is)] {
        assert_eq!(said(Fault::None, exclusive).await, Ok(()));
    }
}

#[tokio::test]
async fn the_suite_finds_each_planted_fault_by_its_rule() {
    let cases = [
        (Fault::LosesPrepared, "RC1"),
        (Fault::AppliesTwice, "RC2"),
        (Fault::KeepsAborted, "RC5"),
        (Fault::HidesDoubt, "RC5"),
        (Fault::ShowsPrepared, "RC8"),
        (Fault::ForgetsEffects, "RC9"),
        (Fault::FloorDropsDoubt, "RC10"),
        (Fault::LosesHeuristics, "RC11"),
        (Fault::WritesNo, "RC12"),
        (Fault::KeepsIncarnation, "RC13"),
        (Fault::SaysWhatItLikes, "RC14"),
    ];
    for (fault, rule) in cases {
        let said = said(fault, None).await.unwrap_err();
        assert!(
            said.contains(&format!("{rule}:")),
            "{fault:?} was found as: {said}"
        );
    }
}

#[tokio::test]
async fn the_suite_finds_holds_that_do_not_come_back() {
    let all_there_is = b"-20".as_slice().into();
    let said = said(Fault::ForgetsHolds, Some(all_there_is)).await.unwrap_err();
    assert!(
        said.contains("RC5: a prepared branch holds (after a restart: true)"),
        "{said}"
    );
}
