//! How much may happen in one run of the model: the faults, calls and jumps of time that are left to it.
//!
//! Each is a budget that an action uses up, so a state space is finite, and two states that differ in what may
//! still happen are two states.

use covenant_rules::Limits;

/// The most participants: histories keep one branch for each.
pub const MAX_PARTICIPANTS: usize = 3;

/// The bounds of a run, and what its transactions do.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// One initial state for each: what every participant does with its operation, one letter a participant.
    /// `y` votes YES, `r` votes READ_ONLY.
    pub contents: Vec<String>,
    /// How many callers' ids there are.
    pub transactions: u8,
    /// What may happen.
    pub budget: Budget,
    /// Whether participants learn the coordinator's position. Without, no join says one, and SUSPECT is out
    /// of the picture.
    pub positions: bool,
}

/// What may still happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Budget {
    /// Crashes of the coordinator, a force that fails among them.
    pub coordinator_crashes: u8,
    /// Crashes of each participant.
    pub participant_crashes: Vec<u8>,
    /// Sessions cut while both ends live.
    pub cuts: u8,
    /// Jumps to the coordinator's next deadline.
    pub coordinator_ticks: u8,
    /// Jumps to a participant's next deadline, of all of them together.
    pub participant_ticks: u8,
    /// Attempts that callers may begin by sending an id again, of all ids together.
    pub retries: u8,
    /// AbortTransaction.
    pub aborts: u8,
    /// NO votes of participants that could vote YES.
    pub refusals: u8,
    /// Branches that an operator decides by hand.
    pub heuristics: u8,
}

impl Bounds {
    /// How many participants every transaction has.
    #[must_use]
    pub fn participants(&self) -> usize {
        self.contents.first().map_or(0, String::len)
    }

    /// Checks that the machines and the histories can be asked for so much.
    ///
    /// # Errors
    /// Names the value and the bound.
    pub fn validate(&self) -> anyhow::Result<()> {
        let participants = self.participants();
        anyhow::ensure!(
            (1..=MAX_PARTICIPANTS).contains(&participants),
            "a content has 1 to {MAX_PARTICIPANTS} letters, not {participants}"
        );
        for content in &self.contents {
            let letters = content.bytes().all(|letter| b"yr".contains(&letter));
            anyhow::ensure!(
                letters && content.len() == participants,
                "the content {content:?} is not {participants} letters of y and r"
            );
        }
        anyhow::ensure!(
            (1..=2).contains(&self.transactions),
            "1 or 2 transactions, not {}",
            self.transactions
        );
        anyhow::ensure!(
            self.budget.participant_crashes.len() == participants,
            "one number of crashes for each of {participants} participants"
        );
        Ok(())
    }
}

/// The deadline of a transaction.
pub(crate) const TIMEOUT_MS: u64 = 10;

/// No jump of time goes beyond it: retention and the alarms of a doubt lie there.
pub(crate) const HORIZON_MS: u64 = 1_000_000;

/// Pauses of one millisecond leave no jitter, so a jump of time has one result.
pub(crate) fn limits() -> Limits {
    Limits {
        default_deadline_ms: TIMEOUT_MS,
        max_deadline_ms: TIMEOUT_MS,
        retention_check_ms: HORIZON_MS,
        in_doubt_alarm_ms: HORIZON_MS,
        retry_base_ms: 1,
        retry_cap_ms: 1,
        ..Limits::DEFAULT
    }
}
