//! What callers asked for and everything that they were told, and what was left at the end.

use covenant_client::{Branch, Outcome, Transaction, UnixMillis, Wait};
use covenant_proto::ledger::v1::{Assertion, Direction, Leg, Operation};
use covenant_proto::v1::Xid;
use serde::Serialize;

use crate::transfer::{CURRENCY, branch};
use crate::world::World;

/// The accounts of each ledger.
pub const ACCOUNTS: usize = 8;

/// What each account has at the opening, in minor units.
pub const OPENING: i64 = 5_000;

/// The deadline of every transaction, in milliseconds.
const DEADLINE_MS: u64 = 3_000;

/// The name of a ledger.
#[must_use]
pub fn ledger_name(ledger: usize) -> String {
    format!("ledger-{}", ledger + 1)
}

/// The name of an account.
#[must_use]
pub fn account_name(account: usize) -> String {
    format!("a{account}")
}

/// What a caller does with its id, beside sending it until it has an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// Nothing else.
    Plain,
    /// Goes away in the middle of its first call.
    HangUp,
    /// Sends it again after the answer.
    Again,
    /// Aborts it meanwhile.
    Abort,
    /// Sends other content under the same id after the answer.
    OtherContent,
    /// Asks for more than there is.
    Overdraft,
}

/// One movement of money.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Move {
    /// The ledger, from 0.
    pub ledger: usize,
    /// The account there, from 0.
    pub account: usize,
    /// Minor units that come to it; below 0 for those that go.
    pub amount: i64,
}

/// When something was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// While faults were injected.
    Load,
    /// After everything was mended.
    Mended,
    /// After everything was killed and started once more.
    Restarted,
}

/// What was said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// COMMITTED, as this attempt.
    Committed {
        /// The attempt.
        xid: String,
    },
    /// ABORTED, for this reason.
    Aborted {
        /// Its code.
        reason: String,
    },
    /// IN_PROGRESS, UNKNOWN, NOT_FOUND or EXPIRED.
    Open(&'static str),
    /// An error that surely ran nothing: its reason.
    Refused(String),
}

impl Said {
    /// Reads what a call came to.
    #[must_use]
    pub fn of(result: &Result<Outcome, covenant_client::Error>) -> Self {
        match result {
            Ok(Outcome::Committed(view)) => Self::Committed {
                xid: view.xid.map(xid_text).unwrap_or_default(),
            },
            Ok(Outcome::Aborted(view)) => Self::Aborted {
                reason: view.reason.clone().unwrap_or_default().code,
            },
            Ok(open) => Self::Open(open.word()),
            Err(covenant_client::Error::Refused(refusal)) => Self::Refused(refusal.reason.clone()),
            Err(_) => Self::Refused("NEVER_SENT".to_owned()),
        }
    }

    /// Whether no other may follow.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Committed { .. } | Self::Aborted { .. })
    }
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Answer {
    /// When.
    pub when: When,
    /// What.
    pub said: Said,
}

/// One id, and all that became of it in its callers' eyes.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// The transaction's id.
    pub id: String,
    /// The caller's first time for it.
    pub created: UnixMillis,
    /// What the caller does beside.
    pub manner: Manner,
    /// What moves.
    pub moves: Vec<Move>,
    /// A ledger that is only looked at.
    pub looks_at: Option<usize>,
    /// Answers to it, without repetitions.
    pub answers: Vec<Answer>,
    /// Answers to other content under its id.
    pub to_other_content: Vec<Answer>,
}

impl Asked {
    /// What is sent.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        self.with_amounts(1)
    }

    /// Other content: every amount is another.
    #[must_use]
    pub fn other_content(&self) -> Transaction {
        self.with_amounts(3)
    }

    fn with_amounts(&self, times: i64) -> Transaction {
        let mut branches: Vec<Branch> = Vec::new();
        let mut ledgers: Vec<usize> = self.moves.iter().map(|one| one.ledger).collect();
        ledgers.sort_unstable();
        ledgers.dedup();
        for ledger in ledgers {
            let moves = self.moves.iter().filter(|one| one.ledger == ledger);
            let leg = |one: &Move| Leg {
                account: account_name(one.account),
                direction: if one.amount < 0 {
                    Direction::Debit
                } else {
                    Direction::Credit
                }
                .into(),
                amount: one.amount.saturating_abs().saturating_mul(times),
                currency: CURRENCY.to_owned(),
            };
            let operation = Operation {
                legs: moves.map(leg).collect(),
                assertions: Vec::new(),
            };
            branches.push(branch(&ledger_name(ledger), operation));
        }
        branches.extend(self.looks_at.map(|ledger| look(ledger, times)));
        Transaction {
            id: self.id.clone(),
            created: self.created,
            branches,
            timeout: Some(std::time::Duration::from_millis(DEADLINE_MS)),
            wait: Wait::Decided,
        }
    }

    /// Notes an answer, unless it says what the last one said.
    pub fn answered(&mut self, when: When, said: Said) {
        let answer = Answer { when, said };
        if self.answers.last() != Some(&answer) {
            self.answers.push(answer);
        }
    }

    /// The first final answer.
    #[must_use]
    pub fn told(&self) -> Option<&Said> {
        self.answers
            .iter()
            .map(|answer| &answer.said)
            .find(|said| said.is_final())
    }
}

/// A branch that only looks: the first account of the ledger has at least nothing.
fn look(ledger: usize, times: i64) -> Branch {
    let assertion = Assertion {
        account: account_name(0),
        at_least: 1 - times,
        currency: CURRENCY.to_owned(),
    };
    branch(
        &ledger_name(ledger),
        Operation {
            legs: Vec::new(),
            assertions: vec![assertion],
        },
    )
}

/// An attempt as text.
#[must_use]
pub fn xid_text(xid: Xid) -> String {
    format!(
        "{:016x}{:016x}.{}.{:x}.{}",
        xid.lineage_high, xid.lineage_low, xid.counter, xid.bits, xid.seq
    )
}

/// The size of one data directory at the end.
#[derive(Clone, Debug, Serialize)]
pub struct LogSize {
    /// Whose.
    pub process: String,
    /// Its files together, in bytes.
    pub bytes: u64,
    /// What it must keep: the outcomes of all ids at a coordinator, entries at a ledger.
    pub kept: u64,
    /// The records that one more start would replay.
    pub replayed: u64,
    /// How often it was started; the log keeps every start.
    pub starts: u64,
}

/// What was left at the end, when everything was mended, quiet, and then stopped.
#[derive(Clone, Debug)]
pub struct Ends {
    /// The ledgers, as they show themselves; of the coordinator what is not finished.
    pub world: World,
    /// What went wrong with processes: ends that nobody caused, panics, starts that failed, stops that were not clean.
    pub processes: Vec<String>,
    /// Processes that were still there after all were stopped.
    pub leaked: Vec<String>,
    /// The sizes of the data directories.
    pub logs: Vec<LogSize>,
    /// How many starts and stops were looked at.
    pub lives: usize,
}
