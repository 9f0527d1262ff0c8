//! Which archived item an attempt is: an index by xid, in memory.
//!
//! Attempts of one start are numbered one after the other and finish nearly in that order, so their items stand in
//! pages of neighbours, at about 6 bytes an attempt. A page exists while one of its attempts does: a transaction that
//! finishes weeks after its neighbours costs one page, not the way back to them.

use std::collections::BTreeMap;

use covenant_rules::{Incarnation, Xid};

/// Attempts of one page; a bit of a `u64` each.
const PAGE_ATTEMPTS: u64 = u64::BITS as u64;

/// Lineage and start.
type Start = (u128, Incarnation);

/// The pages of one start, by number. Boxed: the map's nodes are half empty where keys only rise.
type Pages = BTreeMap<u64, Box<Page>>;

struct Page {
    /// Bit n: the nth attempt has an item.
    present: u64,
    /// Item numbers modulo 2^32; the live window is far smaller than that.
    items: [u32; PAGE_ATTEMPTS as usize],
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Attempts {
    starts: BTreeMap<Start, Pages>,
}

fn place(xid: Xid) -> (Start, u64, usize) {
    let (page, slot) = (xid.seq / PAGE_ATTEMPTS, xid.seq % PAGE_ATTEMPTS);
    ((xid.lineage.0, xid.incarnation), page, slot as usize)
}

impl Attempts {
    /// Notes the attempt's item; a later one takes the place of an earlier one.
    pub(crate) fn insert(&mut self, xid: Xid, item: u64) {
        let (start, number, slot) = place(xid);
        let page = self.starts.entry(start).or_default().entry(number);
        let page = page.or_insert_with(|| {
            Box::new(Page {
                present: 0,
                items: [0; PAGE_ATTEMPTS as usize],
            })
        });
        page.present |= 1 << slot;
        page.items[slot] = item as u32;
    }

    /// The attempt's item: the first one from `lowest` on with the number that was noted.
    pub(crate) fn get(&self, xid: Xid, lowest: u64) -> Option<u64> {
        let (start, number, slot) = place(xid);
        let page = self.starts.get(&start)?.get(&number)?;
        let item = page.items[slot].wrapping_sub(lowest as u32);
        (page.present & (1 << slot) != 0).then(|| lowest + u64::from(item))
    }

    /// Forgets the attempt, unless another item took the place of this one.
    pub(crate) fn remove(&mut self, xid: Xid, item: u64) {
        let (start, number, slot) = place(xid);
        let Some(pages) = self.starts.get_mut(&start) else {
            return;
        };
        let Some(page) = pages.get_mut(&number) else {
            return;
        };
        if page.items[slot] == item as u32 {
            page.present &= !(1 << slot);
        }
        if page.present == 0 {
            pages.remove(&number);
        }
        if pages.is_empty() {
            self.starts.remove(&start);
        }
    }

    #[cfg(test)]
    fn pages(&self) -> usize {
        self.starts.values().map(BTreeMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_rules::Lineage;

    fn xid(counter: u64, seq: u64) -> Xid {
        Xid {
            lineage: Lineage(1),
            incarnation: Incarnation { counter, bits: 5 },
            seq,
        }
    }

    #[test]
    fn an_attempt_is_found_until_it_is_removed_and_takes_its_page_along() {
        let mut attempts = Attempts::default();
        for seq in 1..=200 {
            attempts.insert(xid(1, seq), 1_000 + seq);
        }
        attempts.insert(xid(2, 7), 3_000);
        for seq in 1..=200 {
            assert_eq!(attempts.get(xid(1, seq), 1_001), Some(1_000 + seq));
        }
        for absent in [xid(1, 0), xid(1, 201), xid(2, 8), xid(3, 7)] {
            assert_eq!(attempts.get(absent, 1_001), None, "{absent}");
        }
        for seq in 1..=200 {
            attempts.remove(xid(1, seq), 1_000 + seq);
            assert_eq!(attempts.get(xid(1, seq), 1_001), None);
        }
        assert_eq!(attempts.get(xid(2, 7), 1_001), Some(3_000));
        assert_eq!((attempts.starts.len(), attempts.pages()), (1, 1));
    }

    #[test]
    fn an_item_that_took_the_place_of_another_outlives_it() {
        let mut attempts = Attempts::default();
        attempts.insert(xid(1, 1), 10);
        attempts.insert(xid(1, 1), 20);
        attempts.remove(xid(1, 1), 10);
        assert_eq!(attempts.get(xid(1, 1), 11), Some(20));
    }

    #[test]
    fn item_numbers_go_on_beyond_32_bits() {
        let mut attempts = Attempts::default();
        let start = u64::from(u32::MAX) - 2;
        for n in 0..6 {
            attempts.insert(xid(1, n), start + n);
        }
        for n in 0..6 {
            assert_eq!(attempts.get(xid(1, n), start), Some(start + n));
        }
    }

    #[test]
    fn a_transaction_that_finishes_a_billion_attempts_late_costs_one_page() {
        const LATE: u64 = 1_000_000_000;
        // It may be the first of the scan at a start, or come while the others are there.
        for order in [[5, LATE, LATE + 1], [LATE, LATE + 1, 5]] {
            let mut attempts = Attempts::default();
            for (item, seq) in (0..).zip(order) {
                attempts.insert(xid(1, seq), item);
            }
            assert_eq!(attempts.pages(), 2);
            for (item, seq) in (0..).zip(order) {
                assert_eq!(attempts.get(xid(1, seq), 0), Some(item));
            }
        }
    }
}
