//! The participant SDK: a [`Resource`], and the driver that joins it to a coordinator.
//!
//! A program implements [`Resource`] (contract RC1 to RC14 in its docs), checks it with [`suite`], and gives it to
//! [`Participant::start`]. From there the driver does everything else: it dials, joins and joins again with jittered
//! pauses of at most a second, votes, acknowledges, inquires for what is in doubt and reports what was decided by hand.
//! The rules are `covenant_rules::participant`; this crate adds time, sockets and the calls.
//!
//! What is not here: a log. The resource's own log is the participant's log.
//!
//! # Quick start
//!
//! Seats of one flight; one operation takes one seat. (Memory is no durable store: a real resource forces its
//! records before it answers, see RC1.)
//!
//! ```no_run
//! use std::{collections::BTreeMap, sync::{Arc, Mutex}, time::Duration};
//! use covenant_participant::rules::{Decision, Floor, Incarnation, Lineage, Name, NoReason, Operator, Vote, Xid};
//! use covenant_participant::{Branch, Config, Error, Identity, InDoubt, Participant, Recovered, Resource};
//!
//! #[derive(Default)]
//! struct Seats { free: u32, held: BTreeMap<Xid, Branch>, sold: BTreeMap<Xid, Branch> }
//! struct Flight(Mutex<Seats>);
//!
//! impl Flight {
//!     fn seats(&self) -> std::sync::MutexGuard<'_, Seats> { self.0.lock().unwrap() }
//! }
//!
//! impl Resource for Flight {
//!     // A real one makes a random lineage once, and at every start forces counter + 1 with new random bits (RC13).
//!     async fn start(&self) -> Result<Recovered, Error> {
//!         let incarnation = Incarnation { counter: 1, bits: 4 };
//!         let identity = Identity { lineage: Lineage(7), incarnation };
//!         Ok(Recovered { identity, floors: vec![], positions: vec![], branches: vec![] })
//!     }
//!     // branch.operation is what the caller of covenant-client put there: bytes that you define.
//!     async fn prepare(&self, branch: Branch) -> Result<Vote, Error> {
//!         let mut seats = self.seats();
//!         if seats.held.contains_key(&branch.xid) { return Ok(Vote::Yes) }
//!         if seats.sold.values().any(|sold| sold.transaction_id == branch.transaction_id) {
//!             return Ok(Vote::No(NoReason::new(NoReason::DUPLICATE_TRANSACTION, "it has its seat")));
//!         }
//!         if seats.free == 0 { return Ok(Vote::No(NoReason::new("SOLD_OUT", "no seat is free"))) }
//!         seats.free -= 1;
//!         seats.held.insert(branch.xid, branch);
//!         Ok(Vote::Yes)
//!     }
//!     async fn commit(&self, xid: Xid) -> Result<(), Error> {
//!         let mut seats = self.seats();
//!         if let Some(branch) = seats.held.remove(&xid) { seats.sold.insert(xid, branch); }
//!         Ok(())
//!     }
//!     async fn abort(&self, xid: Xid) -> Result<(), Error> {
//!         let mut seats = self.seats();
//!         if seats.held.remove(&xid).is_some() { seats.free += 1; }
//!         Ok(())
//!     }
//!     async fn resolve(&self, xid: Xid, what: Decision, _by: Operator) -> Result<(), Error> {
//!         match what { Decision::Commit => self.commit(xid).await, Decision::Abort => self.abort(xid).await }
//!     }
//!     async fn forget(&self, _xid: Xid) -> Result<(), Error> { Ok(()) }
//!     fn floor(&self, _lineage: Lineage, _floor: Floor) {}
//!     async fn in_doubt(&self) -> Result<Vec<InDoubt>, Error> {
//!         Ok(self.seats().held.values().map(InDoubt::from).collect())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let flight = Arc::new(Flight(Mutex::new(Seats { free: 180, ..Seats::default() })));
//! let config = Config::new(Name::new("flight-7")?, "http://127.0.0.1:7400");
//! let handle = Participant::start(config, flight).await?;
//! handle.joined().wait_for(|state| state.is_joined()).await?;
//! // A server would wait for its stop signal or for handle.ended() here.
//! handle.shutdown(Duration::from_secs(5)).await?;
//! # Ok(())
//! # }
//! ```

mod call;
pub mod config;
mod driver;
mod error;
mod handle;
mod leave;
mod link;
mod participant;
mod points;
mod resource;
mod session;
pub mod suite;

pub use config::Config;
pub use covenant_rules as rules;
pub use covenant_rules::participant::{
    Branch, Identity, Recovered, RecoveredBranch, RecoveredState, Refusal,
};
pub use error::Error;
pub use handle::{Handle, InDoubtBranch, InDoubtList, JoinState};
pub use participant::Participant;
pub use resource::{InDoubt, Resource};
