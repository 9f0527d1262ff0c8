//! A compact index from an id to the archive items that may hold it, and the filter before the disk.
//!
//! It keeps 8 bytes an entry (a 32-bit hash and a 32-bit index relative to a base) in a hash table, so with
//! the table's own byte and its load of 7/16 to 7/8 about 10 to 21 bytes an entry: 19 MB for 1,000,000
//! entries, 75 MB for 5,000,000. An id without candidates is surely absent; of 5,000,000 entries about one
//! absent id in 900 has a candidate, which the caller's comparison of the whole id removes.
//! The hash is keyed anew in every index: the index is never stored, and callers choose the ids.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    tag: u32,
    index: u32,
}

/// A multi-map from the hash of an id to archive indices; see the module's documentation.
#[derive(Debug, Default)]
pub struct IdIndex {
    table: HashTable<Slot>,
    keys: RandomState,
    base: u64,
}

impl IdIndex {
    /// An empty index; `base` is the lowest archive index it will hold.
    pub fn new(base: u64) -> Self {
        Self {
            base,
            ..Self::default()
        }
    }

    fn tag(&self, id: &[u8]) -> u32 {
        (self.keys.hash_one(id) >> 32) as u32
    }

    // The table wants 64 well mixed bits and only the tag is kept.
    fn spread(tag: u32) -> u64 {
        (u64::from(tag) | 1 << 32)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32)
    }

    fn absolute(&self, index: u32) -> u64 {
        self.base + u64::from(index.wrapping_sub(self.base as u32))
    }

    /// Adds that the item at `index` holds `id`; one id may have several items.
    ///
    /// # Panics
    /// If `index` is below the base or 2^32 or more above it: the archive's bound keeps it nearer.
    pub fn insert(&mut self, id: &[u8], index: u64) {
        assert!(
            index
                .checked_sub(self.base)
                .is_some_and(|above| above <= u64::from(u32::MAX)),
            "index {index} is not within 2^32 of the base {}",
            self.base
        );
        let slot = Slot {
            tag: self.tag(id),
            index: index as u32,
        };
        self.table
            .insert_unique(Self::spread(slot.tag), slot, |slot| Self::spread(slot.tag));
    }

    /// The indices of the items that may hold `id`, in no order; none: no item holds it.
    pub fn candidates(&self, id: &[u8]) -> impl Iterator<Item = u64> {
        let tag = self.tag(id);
        self.table
            .iter_hash(Self::spread(tag))
            .filter(move |slot| slot.tag == tag)
            .map(|slot| self.absolute(slot.index))
    }

    /// Removes the entry for `id` at `index`; whether there was one.
    pub fn remove(&mut self, id: &[u8], index: u64) -> bool {
        let slot = Slot {
            tag: self.tag(id),
            index: index as u32,
        };
        match self
            .table
            .find_entry(Self::spread(slot.tag), |found| *found == slot)
        {
            Ok(entry) => {
                entry.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Raises the base, after the entries below it were removed.
    ///
    /// # Panics
    /// If `base` is below the present one.
    pub fn raise_base(&mut self, base: u64) {
        assert!(
            base >= self.base,
            "the base {base} would fall below {}",
            self.base
        );
        self.base = base;
    }

    /// Makes room for this many more entries, so that inserting them moves the table once.
    pub fn reserve(&mut self, additional: usize) {
        self.table.reserve(additional, |slot| Self::spread(slot.tag));
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes of memory that the table holds.
    pub fn memory_bytes(&self) -> usize {
        self.table.allocation_size()
    }
}
