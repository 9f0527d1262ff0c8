//! A transfer of money as the tests ask for it, and the operations of its branches.

use std::collections::BTreeMap;
use std::time::Duration;

use covenant_client::{Branch, Transaction, UnixMillis, Wait, unix_now};
use covenant_proto::ledger::v1::{Assertion, Direction, Leg, Operation};
use prost::Message;

use crate::cluster::{LEDGER_A, LEDGER_B};

/// The currency of the case study.
pub const CURRENCY: &str = "THB";

/// An account at a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The name under which the ledger joined.
    pub ledger: String,
    /// The account there.
    pub account: String,
}

/// An amount from one account to another.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The transaction's id.
    pub id: String,
    /// The caller's first time for it.
    pub created: UnixMillis,
    /// Where from.
    pub from: Place,
    /// Where to.
    pub to: Place,
    /// Minor units of [`CURRENCY`].
    pub amount: i64,
    /// The deadline on the coordinator's clock.
    pub timeout: Duration,
    /// When the caller wants its answer.
    pub wait: Wait,
}

impl Transfer {
    /// From alice at ledger A to bob at ledger B, created now, with a deadline that a crash and a restart fit into.
    #[must_use]
    pub fn new(id: impl Into<String>, amount: i64) -> Self {
        let place = |ledger: &str, account: &str| Place {
            ledger: ledger.to_owned(),
            account: account.to_owned(),
        };
        Self {
            id: id.into(),
            created: unix_now(),
            from: place(LEDGER_A, "alice"),
            to: place(LEDGER_B, "bob"),
            amount,
            timeout: Duration::from_secs(15),
            wait: Wait::Decided,
        }
    }

    /// What the client sends.
    #[must_use]
    pub fn transaction(&self) -> Transaction {
        let mut legs: BTreeMap<&str, Vec<Leg>> = BTreeMap::new();
        let leg = |place: &Place, direction: Direction| Leg {
            account: place.account.clone(),
            direction: direction.into(),
            amount: self.amount,
            currency: CURRENCY.to_owned(),
        };
        legs.entry(&self.from.ledger)
            .or_default()
            .push(leg(&self.from, Direction::Debit));
        legs.entry(&self.to.ledger)
            .or_default()
            .push(leg(&self.to, Direction::Credit));
        let branches = legs.into_iter().map(|(ledger, legs)| {
            branch(
                ledger,
                Operation {
                    legs,
                    assertions: Vec::new(),
                },
            )
        });
        Transaction {
            id: self.id.clone(),
            created: self.created,
            branches: branches.collect(),
            timeout: Some(self.timeout),
            wait: self.wait,
        }
    }
}

/// A branch with this operation.
#[must_use]
pub fn branch(ledger: &str, operation: Operation) -> Branch {
    Branch::new(ledger, operation.encode_to_vec())
}

/// A branch that looks and changes nothing: the account has at least so much available.
#[must_use]
pub fn assert_branch(ledger: &str, account: &str, at_least: i64) -> Branch {
    let assertion = Assertion {
        account: account.to_owned(),
        at_least,
        currency: CURRENCY.to_owned(),
    };
    branch(
        ledger,
        Operation {
            legs: Vec::new(),
            assertions: vec![assertion],
        },
    )
}
