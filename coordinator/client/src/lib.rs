//! A caller of the coordinator (PROTOCOL.md, section 7).
//!
//! [`Client::execute`] sends one id with one `created` until an outcome is there or the caller's patience ends, so a
//! caller that retries can never run its transaction twice. What it returns makes lying hard: [`Outcome`] is what may
//! be said of the transaction, with UNKNOWN as a value of its own, and [`Error`] is only what surely ran nothing. After
//! an earlier send got no answer, no error is returned any more: a refusal or a dead coordinator is then UNKNOWN too.
//!
//! It leaves out: choosing ids (any unique text will do; one id is one transaction for ever), storing them (whoever
//! must survive its own crash writes down the id, `created` and the branches before the first send), and TLS.
//!
//! ```no_run
//! use std::time::Duration;
//! use covenant_client::{Branch, Client, Outcome, Transaction, Wait, unix_now};
//!
//! # async fn pay(debit: Vec<u8>, credit: Vec<u8>) -> Result<(), covenant_client::Error> {
//! let client = Client::new("http://127.0.0.1:7400")?;
//! let transaction = Transaction {
//!     id: "order-4711".into(),
//!     created: unix_now(), // once per id: store it with the order, and give it again in every retry
//!     branches: vec![Branch::new("ledger-a", debit), Branch::new("ledger-b", credit)],
//!     timeout: Some(Duration::from_secs(5)),
//!     wait: Wait::Decided,
//! };
//! match client.execute(&transaction, Duration::from_secs(6)).await? {
//!     Outcome::Committed(_) => println!("paid"),
//!     Outcome::Aborted(view) => println!("not paid: {:?}", view.reason),
//!     Outcome::Unknown(unknown) => println!("{unknown}; {}", unknown.safe_next_step()),
//!     Outcome::InProgress(_) => println!("not decided yet: ask again"),
//!     Outcome::NotFound(_) | Outcome::Expired(_) => println!("too old to say"),
//! }
//! # Ok(())
//! # }
//! ```

mod bounds;
mod calls;
mod client;
mod error;
mod link;
mod outcome;
#[cfg(test)]
mod tests;
mod transaction;

pub use bounds::{MAX_BRANCHES, MAX_EXECUTE_BYTES, MAX_ID_BYTES, MAX_OPERATION_BYTES};
pub use client::{Client, TransactionPage, Watch};
pub use covenant_proto::v1;
pub use error::{Error, Refusal, RefusalKind};
pub use link::{Link, Retry, bounded};
pub use outcome::{Outcome, Unknown, Why};
pub use transaction::{Branch, Transaction, UnixMillis, View, Wait, from_timestamp, to_timestamp, unix_now};

/// The longest wait for a TCP connection, in milliseconds.
pub const CONNECT_TIMEOUT_MS: u64 = 1_000;
/// How often an idle or silent connection is pinged, in milliseconds.
pub const KEEP_ALIVE_INTERVAL_MS: u64 = 5_000;
/// How long a ping may go unanswered before the connection is given up, in milliseconds.
pub const KEEP_ALIVE_TIMEOUT_MS: u64 = 5_000;
/// The longest response that is taken, in bytes: a page of 1,000 transactions with 128 branches each.
pub const MAX_RESPONSE_BYTES: usize = 32 * 1024 * 1024;
/// The first pause between two sends, in milliseconds, before jitter; each next one is twice as long.
pub const RETRY_BASE_MS: u64 = 25;
/// The longest pause between two sends, in milliseconds.
pub const RETRY_CAP_MS: u64 = 1_000;
/// The longest patience, in milliseconds: 7 days, for as long as a coordinator retains outcomes. More counts as this.
pub const MAX_PATIENCE_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// How much of the patience of [`Client::execute`] is kept to ask for the outcome when no answer came, in milliseconds;
/// at most an eighth of it.
pub const LAST_LOOK_MS: u64 = 500;
