//! The image in memory, with a live and a durable state: what tests and simulations crash.
//!
//! It behaves as the disk does where it matters: `apply` changes the live state, only `sync` makes the
//! batches flushed before it durable, and a crash keeps the durable state and a prefix of the other batches.
//! It does not tear a batch: sled's batches are atomic, which the crash images of real files showed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::image::{Batch, Image, ImageError, Key, Scan, Space};

type Map = BTreeMap<(Space, Key), Vec<u8>>;
type OwnedBatch = Vec<((Space, Key), Option<Vec<u8>>)>;

#[derive(Default)]
struct State {
    live: Map,
    durable: Map,
    /// Applied and not yet durable, in order.
    unforced: Vec<OwnedBatch>,
    /// How many of `unforced` were flushed.
    flushed: usize,
    applies: u64,
    forces: u64,
    fail_next_force: bool,
    fail_next_apply: bool,
    hung: bool,
    noted_end: Option<u64>,
    forced_end: Option<u64>,
}

/// A store in memory; clones share it.
#[derive(Clone, Default)]
pub struct MemoryImage {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl MemoryImage {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a crash now would leave, as a new store of its own: the durable state and the first
    /// `keep_batches` of the batches that were applied and not yet forced. What `note_end` kept stays, as it does when a
    /// process dies: an older one would only find less.
    pub fn crash(&self, keep_batches: usize) -> Self {
        let state = self.state();
        let mut durable = state.durable.clone();
        for batch in state.unforced.iter().take(keep_batches) {
            change(&mut durable, batch.clone());
        }
        let left = State {
            live: durable.clone(),
            durable,
            noted_end: state.noted_end,
            forced_end: state.forced_end,
            ..State::default()
        };
        Self {
            shared: Arc::new((Mutex::new(left), Condvar::new())),
        }
    }

    /// Batches applied and not yet durable.
    pub fn unforced_batches(&self) -> usize {
        self.state().unforced.len()
    }

    /// Batches applied so far.
    pub fn applies(&self) -> u64 {
        self.state().applies
    }

    /// Forces that succeeded so far.
    pub fn forces(&self) -> u64 {
        self.state().forces
    }

    /// What `force_end` made durable: the mark of the log's end that a loss of power would leave at least.
    pub fn forced_end(&self) -> Option<u64> {
        self.state().forced_end
    }

    /// Lets the next `sync` fail; what it should have made durable stays unforced.
    pub fn fail_next_force(&self) {
        self.state().fail_next_force = true;
    }

    /// Lets the next `apply` fail and change nothing.
    pub fn fail_next_apply(&self) {
        self.state().fail_next_apply = true;
    }

    /// Lets every `sync` wait until [`MemoryImage::resume`].
    pub fn hang(&self) {
        self.state().hung = true;
    }

    /// Ends [`MemoryImage::hang`].
    pub fn resume(&self) {
        self.state().hung = false;
        self.shared.1.notify_all();
    }
}

fn change(map: &mut Map, batch: OwnedBatch) {
    for (key, value) in batch {
        match value {
            Some(value) => drop(map.insert(key, value)),
            None => drop(map.remove(&key)),
        }
    }
}

/// Looks each key up anew, so that it sees changes made meanwhile and holds no lock between items.
struct LiveScan {
    image: MemoryImage,
    space: Space,
    next: Option<Bound<Key>>,
    forward: bool,
}

impl Iterator for LiveScan {
    type Item = Result<(Key, Vec<u8>), ImageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bound = self.next.take()?.map(|key| (self.space, key));
        let state = self.image.state();
        let found = if self.forward {
            state.live.range((bound, Bound::Unbounded)).next()
        } else {
            state.live.range((Bound::Unbounded, bound)).next_back()
        };
        let ((space, key), value) = found?;
        if *space != self.space {
            return None;
        }
        self.next = Some(Bound::Excluded(*key));
        Some(Ok((*key, value.clone())))
    }
}

impl Image for MemoryImage {
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError> {
        let owned: OwnedBatch = batch
            .changes()
            .iter()
            .map(|change| ((change.space, change.key), change.value.map(<[u8]>::to_vec)))
            .collect();
        let mut state = self.state();
        if std::mem::take(&mut state.fail_next_apply) {
            return Err(ImageError::new(
                "writing to memory",
                "a test asked for this failure",
            ));
        }
        change(&mut state.live, owned.clone());
        state.unforced.push(owned);
        state.applies += 1;
        Ok(())
    }

    fn flush(&self) -> Result<(), ImageError> {
        let mut state = self.state();
        state.flushed = state.unforced.len();
        Ok(())
    }

    fn sync(&self) -> Result<(), ImageError> {
        let mut state = self.state();
        while state.hung {
            state = self.shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if std::mem::take(&mut state.fail_next_force) {
            return Err(ImageError::new("syncing memory", "a test asked for this failure"));
        }
        let flushed = std::mem::take(&mut state.flushed);
        let batches: Vec<OwnedBatch> = state.unforced.drain(..flushed).collect();
        for batch in batches {
            change(&mut state.durable, batch);
        }
        state.forces += 1;
        Ok(())
    }

    fn note_end(&self, lsn: u64) -> Result<(), ImageError> {
        self.state().noted_end = Some(lsn);
        Ok(())
    }

    fn force_end(&self) -> Result<(), ImageError> {
        let mut state = self.state();
        state.forced_end = state.noted_end;
        Ok(())
    }

    fn noted_end(&self) -> Option<u64> {
        self.state().noted_end
    }

    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError> {
        Ok(self.state().live.get(&(space, *key)).cloned())
    }

    fn scan(&self, space: Space, from: &Key) -> Scan {
        Box::new(LiveScan {
            image: self.clone(),
            space,
            next: Some(Bound::Included(*from)),
            forward: true,
        })
    }

    fn scan_back(&self, space: Space, to: &Key) -> Scan {
        Box::new(LiveScan {
            image: self.clone(),
            space,
            next: Some(Bound::Included(*to)),
            forward: false,
        })
    }

    fn verify(&self) -> Result<(), ImageError> {
        Ok(())
    }
}
