//! Starts that a ledger refuses because the directory is not what it would go on with.

use covenant_journal::{Image, MemoryImage};
use covenant_rules::Name;

use super::world::*;
use crate::*;

/// The error of a start that must be refused; nothing is appended by it.
async fn refusal(image: &MemoryImage, options: Options) -> Error {
    let before = image.applies();
    let opened = Ledger::open_image(std::sync::Arc::new(image.clone()), options).await;
    assert_eq!(image.applies(), before, "a refused start wrote something");
    match opened {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

/// The story: a flipped bit at the end of the log took 500 transfers out of the books, and the next start went on.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_ends_below_what_was_forced_is_refused_at_every_start() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    let last = ledger.journal().durable_lsn();
    ledger.close().unwrap();
    drop(ledger);
    image.note_end(last + 2).unwrap();
    for _ in 0..2 {
        let error = refusal(&image, Options::default()).await;
        let gone = format!("records {} to {} are gone", last + 1, last + 2);
        assert!(
            matches!(error, Error::Journal(covenant_journal::Error::TailLost(_))),
            "{error}"
        );
        assert!(error.to_string().contains(&gone), "{error}");
        assert!(error.to_string().contains("restore from a backup"), "{error}");
    }
    image.note_end(last).unwrap();
    assert_eq!(balance(&open(&image).await, "alice"), (500, 0, 0));
}

fn named(name: &str) -> Options {
    Options {
        name: Some(Name::new(name).unwrap()),
        ..Options::default()
    }
}

async fn open_as(image: &MemoryImage, name: &str) -> Ledger {
    Ledger::open_image(std::sync::Arc::new(image.clone()), named(name))
        .await
        .unwrap()
}

/// The story: the books of one ledger, started under the name of another, moved the other's money.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_its_name_and_refuses_another_before_it_writes() {
    let image = MemoryImage::new();
    let first = open_as(&image, "bank-a").await;
    let lineage = first.lineage();
    first.close().unwrap();
    drop(first);
    let error = refusal(&image, named("bank-b")).await;
    assert!(matches!(error, Error::OtherName { .. }), "{error}");
    let words = error.to_string();
    assert!(
        words.contains("bank-a") && words.contains("bank-b") && words.contains("another directory"),
        "{words}"
    );
    let again = open_as(&image, "bank-a").await;
    assert_eq!(again.lineage(), lineage);
    // The checkpoint carries the name on.
    checkpoint(&again).await;
    again.close().unwrap();
    drop(again);
    assert!(matches!(
        refusal(&image, named("bank-b")).await,
        Error::OtherName { .. }
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_a_name_takes_the_first_one_it_is_opened_with() {
    let image = MemoryImage::new();
    let nameless = ledger(&image).await;
    let lineage = nameless.lineage();
    let nameless = restart(nameless, &image).await;
    nameless.close().unwrap();
    drop(nameless);
    let bound = open_as(&image, "bank-a").await;
    assert_eq!(bound.lineage(), lineage);
    assert_eq!(balance(&bound, "alice"), (500, 0, 0));
    bound.close().unwrap();
    drop(bound);
    assert!(matches!(
        refusal(&image, named("bank-b")).await,
        Error::OtherName { .. }
    ));
    let bound = open_as(&image, "bank-a").await;
    restart(bound, &image).await.close().unwrap();
}
