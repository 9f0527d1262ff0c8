//! A conformance suite for any [`Resource`]: one function per rule of the contract that can be seen from outside.
//!
//! ```no_run
//! # async fn example<R: covenant_participant::Resource>(open_my_store: impl AsyncFn() -> R) {
//! use covenant_participant::suite::{self, Samples};
//!
//! let samples = Samples {
//!     yes: b"take 1".as_slice().into(),
//!     no: b"take 1000000".as_slice().into(),
//!     read_only: None,
//!     exclusive: None,
//!     state: Box::new(|resource: &R| balance(resource)),
//! };
//! suite::run(open_my_store, &samples).await;
//! # }
//! # fn balance<R>(_: &R) -> String { String::new() }
//! ```
//!
//! It cannot show RC3 and RC4, which bind the driver, nor that RC7's unit is atomic in a power cut: a store that loses
//! what was not forced belongs under `open` for that.

mod bench;
mod branches;
mod identity;

use std::sync::Arc;

use crate::Resource;
use bench::Bench;

/// Operations of the resource under test, and a view of it.
pub struct Samples<R> {
    /// Votes YES, about 40 times in a row, and each commit changes `state`.
    pub yes: Arc<[u8]>,
    /// Votes NO for a reason of its own.
    pub no: Arc<[u8]>,
    /// Votes READ_ONLY, if there is such an operation.
    pub read_only: Option<Arc<[u8]>>,
    /// Votes YES on the store as it is opened first, and while it is prepared the same operation of another transaction
    /// votes NO; if there is one.
    pub exclusive: Option<Arc<[u8]>>,
    /// What outsiders read, as a text to compare.
    #[allow(
        clippy::type_complexity,
        reason = "a named alias would say less than the signature"
    )]
    pub state: Box<dyn Fn(&R) -> String>,
}

/// Runs every rule against one store. Each `open` is a restart on that store, at the first one without a
/// branch; the resource opened before has been dropped by then.
///
/// # Panics
/// With the name of the rule that does not hold, e.g. `RC9: ...`.
pub async fn run<R: Resource>(open: impl AsyncFn() -> R, samples: &Samples<R>) {
    let mut bench = Bench::new(open, samples).await;
    branches::r5_a_prepared_branch_excludes(&mut bench).await;
    branches::r1_completion_is_durability(&mut bench).await;
    branches::r2_calls_are_repeatable(&mut bench).await;
    branches::r5_holds_survive(&mut bench).await;
    branches::r6_abort_leaves_nothing(&mut bench).await;
    branches::r12_no_and_read_only_leave_no_trace(&mut bench).await;
    branches::r7_r8_an_effect_is_applied_once(&mut bench).await;
    branches::r9_once_per_transaction(&mut bench).await;
    branches::r11_heuristics_last_until_forgotten(&mut bench).await;
    branches::r10_floors_drop_no_doubt_and_no_heuristic(&mut bench).await;
    identity::r13_identity_and_positions(&mut bench).await;
}
