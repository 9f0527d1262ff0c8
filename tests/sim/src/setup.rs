//! What a world is made of, how long things take in it, and how its nodes die.

use covenant_rules::Limits;

use crate::node::{Clock, Micros};

/// Times of the world, each from the first to the second number of microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A frame or call on its way.
    pub network_us: (Micros, Micros),
    /// A force.
    pub force_us: (Micros, Micros),
    /// After a lazy append, if nothing else forces.
    pub lazy_us: Micros,
    /// Until a peer notices that a quiet connection is dead.
    pub keep_alive_us: Micros,
    /// Before a participant dials again.
    pub dial_us: (Micros, Micros),
}

impl Timing {
    /// Everything takes a millisecond: what scripts read best with.
    pub const STEADY: Self = Self {
        network_us: (1_000, 1_000),
        force_us: (1_000, 1_000),
        lazy_us: 5_000,
        keep_alive_us: 3_000_000,
        dial_us: (50_000, 50_000),
    };
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many participants, at least 1.
    pub participants: usize,
    /// Bounds and times of all machines.
    pub limits: Limits,
    /// How long things take.
    pub timing: Timing,
    /// Seeds delays, losses and new identities.
    pub seed: u64,
    /// Clocks: the coordinator's, then the participants'; those that are missing are exact.
    pub clocks: Vec<Clock>,
    /// Accounts of each participant: `a0`, `a1`, ... with this many minor units each.
    pub accounts: Vec<i64>,
    /// Tombstones that make a floor worth a record at a participant.
    pub floor_tombstones: usize,
    /// Whether a start makes durable what it found before it reads it, as the journal does. Without, that becomes
    /// durable with the start's own record only, which is the least that section 2 asks for.
    pub sync_at_start: bool,
    /// Whether to keep a line for everything that happens.
    pub trace: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            participants: 2,
            limits: Limits::DEFAULT,
            timing: Timing::STEADY,
            seed: 0,
            clocks: Vec::new(),
            accounts: vec![1_000, 1_000],
            floor_tombstones: 4,
            sync_at_start: true,
            trace: false,
        }
    }
}

/// How a node dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// The process ends; all that it appended stays in the page cache.
    Process,
    /// The process ends; so many records behind the forced ones stay in the page cache.
    ProcessTorn(usize),
    /// The power goes; only what was forced stays.
    Power,
    /// The power goes; so many records behind the forced ones reached the platter.
    PowerTorn(usize),
}
