//! Numbers that look random and follow from a seed alone (splitmix64), so that a seed names a plan.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed; `stream` tells several streams of one seed apart.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next_u64();
        dice
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `from..=to`.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        assert!(from <= to, "an empty range has no number");
        from + self.next_u64() % (to - from + 1)
    }

    /// One of `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "an empty range has no number");
        // What is left of a division by a usize is one.
        usize::try_from(self.next_u64() % count as u64).unwrap_or(0)
    }

    /// True so many times of a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_stream_and_other_seeds_name_others() {
        let take = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            [dice.next_u64(), dice.next_u64(), dice.next_u64()]
        };
        assert_eq!(take(7, 1), take(7, 1));
        assert_ne!(take(7, 1), take(8, 1));
        assert_ne!(take(7, 1), take(7, 2));
    }

    #[test]
    fn every_number_of_a_range_comes_and_no_other() {
        let mut dice = Dice::new(7, 0);
        let mut seen = [0; 4];
        for _ in 0..400 {
            seen[usize::try_from(dice.within(3, 6)).unwrap() - 3] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
