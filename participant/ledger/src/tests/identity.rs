//! Starts that a ledger refuses because the directory is not what it would go on with.

use covenant_journal::{Image, MemoryImage};

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
