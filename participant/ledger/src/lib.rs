//! The demo participant: a double-entry ledger on the journal.
//!
//! A branch is a list of legs on this ledger's accounts, each a debit or a credit in integer minor units, and of
//! assertions. What the legs do not balance goes against the currency's clearing account, so of every currency all
//! balances add up to 0. Preparing holds: debits are not available any more, credits not yet, and an assertion
//! that comes with legs is a floor; so transfers on one account are in flight together as long as they fit. An
//! operation of assertions alone changes nothing and votes READ_ONLY. Refusals are NO votes with stable codes
//! ([`Refusal`]).
//!
//! [`Ledger`] is a `covenant_participant::Resource`; [`LedgerService`] shows and opens accounts. Outsiders are
//! told only what is durable. What a ledger leaves out: interest, currencies' exchange, and any authority over
//! who may move what.

mod account;
mod accounts;
mod branch;
mod crash;
mod entry;
mod error;
mod folded;
mod live;
mod log;
mod operation;
mod page;
mod read;
mod record;
mod refusal;
mod resource;
mod service;
pub mod simulated;
mod state;
mod status;
mod store;
mod stored;
#[cfg(test)]
mod tests;
mod wire;

pub use account::{
    Account, AccountName, Currency, MAX_ACCOUNT_NAME_BYTES, NameError, OpenSpec, OpenSpecError,
};
pub use accounts::{Books, CloseRefusal, MAX_ACCOUNTS, OpenRefusal, Posted};
pub use entry::{Entry, Line};
pub use error::Error;
pub use operation::{Assertion, Direction, Leg, MAX_ASSERTIONS, MAX_LEGS, Movement, Movements, Operation};
pub use read::{Held, Hold, HoldPlace};
pub use record::Quarantined;
pub use refusal::Refusal;
pub use service::LedgerService;
pub use store::{CHECKPOINT_BYTES, CHECKPOINT_RECORDS, Clock, Ledger, Options};
pub use wire::{decode, encode};
