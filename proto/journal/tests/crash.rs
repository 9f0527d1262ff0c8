//! Crashes and failures at every batch, on the image in memory: what was told durable is there again.
//!
//! It cannot show torn pages of a real file.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::*;
use covenant_journal::{
    Batch, Checkpoint, Error, FatalCause, Force, Image, ImageError, Journal, Key, MemoryImage, Options, Scan,
    Space, Stage, limits,
};
use proptest::prelude::*;

/// An image that keeps, before each force, every crash that could happen there.
struct Camera {
    inner: MemoryImage,
    told: Arc<AtomicU64>,
    shots: Arc<Mutex<Vec<(u64, MemoryImage)>>>,
}

impl Image for Camera {
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError> {
        self.inner.apply(batch)
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.inner.flush()
    }

    fn sync(&self) -> Result<(), ImageError> {
        let told = self.told.load(Ordering::SeqCst);
        let mut shots = self.shots.lock().unwrap();
        for keep in 0..=self.inner.unforced_batches() {
            shots.push((told, self.inner.crash(keep)));
        }
        self.inner.sync()
    }

    fn note_end(&self, lsn: u64) -> Result<(), ImageError> {
        self.inner.note_end(lsn)
    }

    fn force_end(&self) -> Result<(), ImageError> {
        self.inner.force_end()
    }

    fn noted_end(&self) -> Option<u64> {
        self.inner.noted_end()
    }

    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError> {
        self.inner.get(space, key)
    }

    fn scan(&self, space: Space, from: &Key) -> Scan {
        self.inner.scan(space, from)
    }

    fn scan_back(&self, space: Space, to: &Key) -> Scan {
        self.inner.scan_back(space, to)
    }

    fn verify(&self) -> Result<(), ImageError> {
        self.inner.verify()
    }
}

fn item(index: u64) -> Vec<u8> {
    format!("{index:0150}").into_bytes()
}

/// Appends `appends` records a round and checkpoints after each round; every crash image on the way.
fn run(rounds: u64, appends: u64, items: u64) -> Vec<(u64, MemoryImage)> {
    let told = Arc::new(AtomicU64::new(0));
    let shots = Arc::new(Mutex::new(Vec::new()));
    let image = Camera {
        inner: MemoryImage::new(),
        told: Arc::clone(&told),
        shots: Arc::clone(&shots),
    };
    let journal = Journal::open_image(Arc::new(image), options()).unwrap().journal;
    let mut next = 1;
    let mut end = 0;
    for round in 0..rounds {
        let mut force = |count: u64| {
            force_all(&journal, next..next + count);
            next += count;
            told.store(next - 1, Ordering::SeqCst);
        };
        force(appends);
        let lsn = journal.durable_lsn();
        let archive = (end..end + items).map(item).collect();
        end += items;
        let drop_before = round * items / 2;
        let work = Checkpoint {
            lsn,
            records: fold(1..=lsn),
            archive,
            archive_drop_before: drop_before,
        };
        let mut status = journal.checkpoints();
        journal.checkpoint(work).unwrap();
        force(3);
        block_on(async { status.wait_for(|status| status.running.is_none()).await.map(drop) }).unwrap();
    }
    drop(journal);
    Arc::into_inner(shots).unwrap().into_inner().unwrap()
}

fn is_whole(told: u64, image: MemoryImage) {
    let opened = Journal::open_image(Arc::new(image.clone()), options()).unwrap();
    assert_eq!(opened.lost_tail, None, "a crash loses nothing that was forced");
    let found = numbers(opened.replay);
    assert!(
        found.len() as u64 >= told,
        "{} records are left of {told} that were told durable",
        found.len()
    );
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
    let (start, end) = (opened.archive.start(), opened.archive.end());
    let kept: Vec<(u64, Vec<u8>)> = opened.archive.scan(0).map(Result::unwrap).collect();
    assert_eq!(
        kept,
        (start..end).map(|index| (index, item(index))).collect::<Vec<_>>()
    );
    drop((opened.journal, opened.archive));
    nothing_stale_is_left(&image, end);
}

fn nothing_stale_is_left(image: &MemoryImage, archive_end: u64) {
    let generations: std::collections::BTreeSet<Vec<u8>> = image
        .scan(Space::Checkpoint, &Key::new(&[]).unwrap())
        .map(|item| item.unwrap().0.as_bytes()[..8].to_vec())
        .collect();
    assert!(generations.len() <= 1, "{generations:?}");
    let beyond = image
        .scan(Space::Archive, &Key::new(&archive_end.to_be_bytes()).unwrap())
        .next();
    assert!(beyond.is_none(), "{beyond:?}");
}

#[test]
fn every_crash_during_checkpoints_leaves_one_whole() {
    let shots = run(4, 40, 900);
    // A round takes at least seven forces, each with a crash before and after its batch.
    assert!(shots.len() >= 4 * 7 * 2, "only {} crash images", shots.len());
    for (told, image) in shots {
        is_whole(told, image);
    }
}

#[test]
fn a_crash_after_a_crash_leaves_one_whole() {
    for (told, image) in run(2, 10, 500) {
        // The next life dies too, within its own first checkpoint.
        let shots = Arc::new(Mutex::new(Vec::new()));
        let camera = Camera {
            inner: image,
            told: Arc::new(AtomicU64::new(told)),
            shots: Arc::clone(&shots),
        };
        let opened = Journal::open_image(Arc::new(camera), options()).unwrap();
        let lsn = opened.journal.durable_lsn();
        let end = opened.archive.end();
        let archive = (end..end + 5).map(item).collect();
        checkpoint(
            &opened.journal,
            Checkpoint {
                lsn,
                records: fold(1..=lsn),
                archive,
                archive_drop_before: 0,
            },
        );
        drop(opened);
        for (told, image) in Arc::into_inner(shots).unwrap().into_inner().unwrap() {
            is_whole(told, image);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn any_mix_of_rounds_survives_every_crash(rounds in 1_u64..4, appends in 1_u64..30, items in 0_u64..60) {
        for (told, image) in run(rounds, appends, items) {
            is_whole(told, image);
        }
    }
}

/// Whether the future is still waiting.
fn waits(future: impl Future<Output = ()>) -> bool {
    let mut future = pin!(future);
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
}

#[test]
fn nothing_completes_before_its_force() {
    let image = MemoryImage::new();
    let (written, reached) = mpsc::channel();
    let written = Mutex::new(written);
    let probe =
        Arc::new(move |stage, first, last| written.lock().unwrap().send((stage, first, last)).unwrap());
    let options = Options {
        probe: Some(probe),
        ..options()
    };
    let journal = Journal::open_image(Arc::new(image.clone()), options)
        .unwrap()
        .journal;
    assert_eq!(reached.recv_timeout(PATIENCE).unwrap().0, Stage::StartSynced);
    image.hang();
    let lsn = journal.append(&one(1, 0, Force::Now));
    assert_eq!(reached.recv_timeout(PATIENCE).unwrap(), (Stage::Written, 1, 1));
    let waiter = journal.wait_durable(lsn);
    let mut waiter = pin!(waiter);
    assert!(waits(waiter.as_mut()));
    assert_eq!(journal.durable_lsn(), 0);
    assert!(journal.backlog_bytes() > 0);
    // The next group fills meanwhile.
    assert_eq!(journal.append(&fold(2..=4)), 4);
    let crashed = Journal::open_image(Arc::new(image.crash(0)), Options::new(ROLE)).unwrap();
    assert!(crashed.created);
    image.resume();
    block_on(poll_fn(|context| waiter.as_mut().poll(context)));
    assert_eq!(reached.recv_timeout(PATIENCE).unwrap(), (Stage::Forced, 1, 1));
    block_on(journal.wait_durable(4));
    assert_eq!(reached.recv_timeout(PATIENCE).unwrap(), (Stage::Written, 2, 4));
}

fn fails_once_and_tells_nobody(
    image: &MemoryImage,
    break_it: impl Fn(),
    is_expected: fn(&FatalCause) -> bool,
) {
    let (options, causes) = surviving();
    let options = Options {
        force_timeout: Duration::from_millis(200),
        ..options
    };
    let journal = Journal::open_image(Arc::new(image.clone()), options)
        .unwrap()
        .journal;
    force_all(&journal, [1, 2]);
    break_it();
    let lsn = journal.append(&one(3, 0, Force::Now));
    let early = journal.wait_durable(lsn);
    let mut watched = journal.durable();
    let stopped = std::time::Instant::now();
    while causes.lock().unwrap().is_empty() {
        assert!(stopped.elapsed() < PATIENCE, "nothing fatal was told");
        assert_eq!(journal.durable_lsn(), 2, "it went on");
        std::thread::yield_now();
    }
    image.resume();
    assert_eq!(journal.append(&one(4, 0, Force::Now)), 4);
    let late = journal.wait_durable(4);
    let closed = journal.close();
    assert!(matches!(closed, Err(Error::Stopped { .. })), "{closed:?}");
    assert!(waits(early) && waits(late));
    assert_eq!(journal.durable_lsn(), 2);
    assert_eq!(*watched.borrow_and_update(), 2);
    let causes = causes.lock().unwrap();
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(is_expected(&causes[0]), "{causes:?}");
}

#[test]
fn a_failed_force_is_fatal_once_and_completes_nobody() {
    let image = MemoryImage::new();
    fails_once_and_tells_nobody(
        &image,
        || image.fail_next_force(),
        |cause| matches!(cause, FatalCause::Force(_)),
    );
}

#[test]
fn a_failed_write_is_fatal_once_and_completes_nobody() {
    let image = MemoryImage::new();
    fails_once_and_tells_nobody(
        &image,
        || image.fail_next_apply(),
        |cause| matches!(cause, FatalCause::Write(_)),
    );
}

#[test]
fn a_force_that_hangs_is_fatal_once_and_completes_nobody() {
    let image = MemoryImage::new();
    fails_once_and_tells_nobody(
        &image,
        || image.hang(),
        |cause| matches!(cause, FatalCause::TimedOut { .. }),
    );
}

#[test]
fn a_panic_of_the_committer_is_fatal() {
    let (options, causes) = surviving();
    let probe: covenant_journal::Probe =
        Arc::new(|stage, _, _| assert!(stage != Stage::Forced, "a planted panic"));
    let options = Options {
        probe: Some(probe),
        ..options
    };
    let journal = Journal::open_image(Arc::new(MemoryImage::new()), options)
        .unwrap()
        .journal;
    let lsn = journal.append(&one(1, 0, Force::Now));
    let waiter = journal.wait_durable(lsn);
    assert!(journal.close().is_err());
    assert!(waits(waiter));
    assert_eq!(journal.durable_lsn(), 0);
    let causes = causes.lock().unwrap();
    assert!(
        matches!(&causes[..], [FatalCause::Panicked { why }] if why.contains("planted")),
        "{causes:?}"
    );
}

/// A record appended between two slices is durable before the slice after the next.
#[test]
fn a_checkpoint_does_not_hold_back_forced_records() {
    let handle: Arc<Mutex<Option<Journal>>> = Arc::default();
    let durable_at_slices: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let (appender, slices) = (Arc::clone(&handle), Arc::clone(&durable_at_slices));
    let probe: covenant_journal::Probe = Arc::new(move |stage, _, _| {
        if let (Stage::CheckpointMid, Some(journal)) = (stage, &*appender.lock().unwrap()) {
            let durable = journal.durable_lsn();
            let appended = journal.append(&one(1, 0, Force::Now));
            slices.lock().unwrap().push((durable, appended));
        }
    });
    let options = Options {
        probe: Some(probe),
        ..options()
    };
    let journal = Journal::open_image(Arc::new(MemoryImage::new()), options)
        .unwrap()
        .journal;
    force_all(&journal, [1]);
    *handle.lock().unwrap() = Some(journal.clone());
    checkpoint(
        &journal,
        Checkpoint {
            lsn: 1,
            records: fold(1..=10_000),
            ..Checkpoint::default()
        },
    );
    drop(handle.lock().unwrap().take());
    let slices = durable_at_slices.lock().unwrap();
    assert!(slices.len() > 10, "only {} slices", slices.len());
    for pair in slices.windows(2) {
        assert!(
            pair[1].0 >= pair[0].1,
            "record {} waited for more than one slice",
            pair[0].1
        );
    }
}

#[test]
fn the_backlog_is_counted_and_does_not_refuse() {
    let image = MemoryImage::new();
    let journal = Journal::open_image(Arc::new(image.clone()), options())
        .unwrap()
        .journal;
    image.hang();
    let large = one(1, 48_000, Force::Now);
    let mut last = 0;
    while !journal.is_backlogged() {
        last = journal.append(&large);
    }
    assert!(journal.backlog_bytes() > limits::MAX_BACKLOG_BYTES);
    image.resume();
    block_on(journal.wait_durable(last));
    assert_eq!(journal.backlog_bytes(), 0);
}

#[test]
fn close_ends_in_time_although_a_force_hangs() {
    let image = MemoryImage::new();
    let (options, _causes) = surviving();
    let options = Options {
        force_timeout: Duration::from_millis(100),
        ..options
    };
    let journal = Journal::open_image(Arc::new(image.clone()), options)
        .unwrap()
        .journal;
    image.hang();
    journal.append(&one(1, 0, Force::Now));
    assert!(matches!(journal.close(), Err(Error::CloseTimedOut { .. })));
    image.resume();
}

#[test]
fn probes_of_the_open_come_in_order() {
    let image = MemoryImage::new();
    force_all(
        &Journal::open_image(Arc::new(image.clone()), options())
            .unwrap()
            .journal,
        1..=9,
    );
    let stages = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&stages);
    let probe: covenant_journal::Probe =
        Arc::new(move |stage, first, _| seen.lock().unwrap().push((stage, first)));
    let opened = Journal::open_image(
        Arc::new(image),
        Options {
            probe: Some(probe),
            ..options()
        },
    )
    .unwrap();
    assert_eq!(*stages.lock().unwrap(), [(Stage::StartSynced, 0)]);
    assert_eq!(opened.replay.count(), 9);
    assert_eq!(
        *stages.lock().unwrap(),
        [(Stage::StartSynced, 0), (Stage::ReplayMid, 5)]
    );
}

#[test]
#[should_panic(expected = "lies above 1, the durable end")]
fn a_checkpoint_above_the_durable_end_is_a_mistake_that_shows() {
    let journal = Journal::open_image(Arc::new(MemoryImage::new()), options())
        .unwrap()
        .journal;
    force_all(&journal, [1]);
    let _ = journal.checkpoint(Checkpoint {
        lsn: 2,
        ..Checkpoint::default()
    });
}
