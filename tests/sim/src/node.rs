//! Who is who, and what time it is where.

use std::fmt;

use covenant_rules::{Millis, Name, UnixMillis};

/// True time since the beginning of the world, which no node can read, in microseconds.
pub type Micros = u64;

/// The wall clock of a node without an error at true time 0.
pub const EPOCH_MS: UnixMillis = 1_700_000_000_000;

/// A node of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// The coordinator.
    Coordinator,
    /// The participant with this number, from 0; its name is `p` and the number plus 1.
    Participant(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.pad("c"),
            Self::Participant(who) => f.pad(&format!("p{}", who + 1)),
        }
    }
}

/// The name under which a participant joins.
///
/// # Panics
/// Never: the text is a name.
#[must_use]
pub fn name_of(who: usize) -> Name {
    match Name::new(&format!("p{}", who + 1)) {
        Ok(name) => name,
        Err(error) => unreachable!("p and a number is a name: {error}"),
    }
}

/// A node's two clocks. The monotonic one runs at its own rate and never jumps; the wall clock is that plus an
/// offset that faults may change.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Parts per million by which it runs fast; negative: slow.
    pub drift_ppm: i64,
    /// What the wall clock shows beyond the truth, in milliseconds.
    pub wall_error_ms: i64,
}

impl Clock {
    /// A clock without an error.
    pub const EXACT: Self = Self {
        drift_ppm: 0,
        wall_error_ms: 0,
    };

    /// How long this clock says that a stretch of true time was.
    #[must_use]
    pub fn elapsed_ms(&self, from: Micros, to: Micros) -> Millis {
        let true_us = i128::from(to.saturating_sub(from));
        let own_us = true_us + true_us * i128::from(self.drift_ppm) / 1_000_000;
        u64::try_from(own_us / 1_000).unwrap_or(0)
    }

    /// The true time at which this clock will have counted that long.
    #[must_use]
    pub fn at(&self, from: Micros, elapsed_ms: Millis) -> Micros {
        let own_us = i128::from(elapsed_ms) * 1_000;
        let true_us = own_us * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut at = from.saturating_add(u64::try_from(true_us).unwrap_or(u64::MAX / 2));
        // Division rounds down, by less than one step.
        while self.elapsed_ms(from, at) < elapsed_ms {
            at += 1;
        }
        at
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn wall_ms(&self, now: Micros) -> UnixMillis {
        let own = EPOCH_MS + self.elapsed_ms(0, now);
        own.saturating_add_signed(self.wall_error_ms)
    }
}
