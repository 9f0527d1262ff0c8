//! The bounds of both machines, each with its name. Sizes of payloads are bounded where bytes come in.

use crate::Millis;

/// Bounds and times of a machine. All times are milliseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// The deadline of a transaction that names none.
    pub default_deadline_ms: Millis,
    /// The longest deadline a caller may ask for.
    pub max_deadline_ms: Millis,
    /// The most branches of one transaction.
    pub max_branches: usize,
    /// The most transactions that are not finished, in all.
    pub max_in_progress: usize,
    /// The most transactions not finished in which one participant has a branch. Less than all of them by
    /// default, so that one that is away does not fill the coordinator for everybody.
    pub max_in_progress_per_participant: usize,
    /// The most bytes of operations that undecided transactions hold, in all. An operation is held until its branch
    /// has voted or the transaction is decided: so long PREPARE may have to be sent again.
    pub max_in_progress_bytes: usize,
    /// The most callers attached to one transaction.
    pub max_attached_callers: usize,
    /// The most participant names known.
    pub max_participants: usize,
    /// The most outcomes retained, unfinished ones included (section 6).
    pub max_retained_outcomes: u64,
    /// The most fences among them (section 7, R7).
    pub max_fences: u64,
    /// How long an outcome is retained at the longest.
    pub retention_ms: Millis,
    /// How far a caller's `created` may lie ahead of the coordinator's clock (R5).
    pub max_created_ahead_ms: Millis,
    /// How often retention is looked at.
    pub retention_check_ms: Millis,
    /// The most heuristics not forgotten and the most quarantined records kept in memory.
    pub max_heuristics: usize,
    /// First pause before COMMIT, FORGET or an inquiry is sent again.
    pub retry_base_ms: Millis,
    /// The longest such pause.
    pub retry_cap_ms: Millis,
    /// How long a participant's branch may be in doubt before an alarm (P13).
    pub in_doubt_alarm_ms: Millis,
    /// The most PREPAREs of a participant that wait for another attempt of their transaction (P3).
    pub max_waiting_prepares: usize,
    /// The most branches a participant keeps, tombstones included.
    pub max_participant_branches: usize,
}

impl Limits {
    /// The defaults; `covenant config show` prints them.
    pub const DEFAULT: Self = Self {
        default_deadline_ms: 5_000,
        max_deadline_ms: 60_000,
        max_branches: 128,
        max_in_progress: 20_000,
        max_in_progress_per_participant: 10_000,
        max_in_progress_bytes: 64 * 1024 * 1024,
        max_attached_callers: 64,
        max_participants: 4_096,
        max_retained_outcomes: 5_000_000,
        max_fences: 100_000,
        retention_ms: 7 * 24 * 3_600 * 1_000,
        max_created_ahead_ms: 60_000,
        retention_check_ms: 60_000,
        max_heuristics: 100_000,
        retry_base_ms: 200,
        retry_cap_ms: 10_000,
        in_doubt_alarm_ms: 10_000,
        max_waiting_prepares: 20_000,
        max_participant_branches: 1_000_000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
