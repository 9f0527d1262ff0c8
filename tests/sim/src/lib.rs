//! A whole cluster in one thread, with a seed: the shipped coordinator, the shipped participants with the ledger's
//! core behind them, and simulated disks, network, clocks and callers.
//!
//! *What it can show.* Every decision here is the shipped code's: both machines of covenant-rules, and the ledger's
//! records, holds, effects, replay and checkpoint fold. The world lets records be lost, forces fail, nodes die
//! anywhere, messages be late, lost, repeated or of a replaced session, clocks jump, operators decide by hand, disks
//! vanish and records stop to decode; [`checks`] holds a checker for each invariant of section 10. The same seed
//! gives the same run.
//!
//! *What it cannot show.* The shells: the two drivers, gRPC, the codec of frames, the journal on sled and real disks
//! are not here (durability is what [`disk`] says it is), nor threads. A participant's checkpoint is the fold of a
//! replay of what is durable, where the server keeps that fold running.
//!
//! *Scripts.* A test that wants one story instead of a random one drives a [`World`] by hand:
//!
//! ```
//! use covenant_fault::CrashPoint;
//! use covenant_sim::{Ask, Death, Does, Node, Setup, World};
//!
//! let mut world = World::new(Setup { trace: true, ..Setup::default() });
//! let transfer = world.transaction("T1", &[(0, Does::Moves(0, -5)), (1, Does::Moves(0, 5))]);
//! world.crash_at(Node::Coordinator, CrashPoint::CCommitForced, None, Death::Process);
//! let call = world.ask(Ask::Execute(transfer.execute()));
//! assert!(world.run_until_crashed(10_000));
//! world.run_for(20_000); // the others time out meanwhile
//! world.restart(Node::Coordinator);
//! assert!(world.settle(), "{:?}", world.violation());
//! # let _ = call;
//! for line in world.trace().lines() {
//!     println!("{line}");
//! }
//! ```
//!
//! [`World::crash_at`] names a point of section 9, a node and a [`Death`]; [`World::restart`] brings a node back,
//! [`World::lose_power`] takes what was not forced, also from a node that has restarted and acted.
//! [`World::settle`] ends all faults, brings everything back, waits for quiet and runs the checks of section 10.
//! [`matrix`] has such a script for every cell of section 9 and for every anomaly of a message or call; what they show stands in
//! `golden/`.

pub mod batch;
pub mod calls;
pub mod checks;
pub mod coordinator;
mod deaths;
pub mod disk;
pub mod faults;
pub mod history;
pub mod matrix;
mod network;
pub mod node;
mod participant;
mod resource;
pub mod scenario;
pub mod seen;
mod settle;
pub mod setup;
pub mod show;
pub mod sometimes;
mod stops;
pub mod trace;
pub mod workload;
pub mod world;

pub use calls::{Ask, Does, Fate, Transaction};
pub use checks::{Check, Violation, invariants};
pub use faults::Fault;
pub use history::History;
pub use node::{Clock, Node};
pub use scenario::{Report, run, run_traced};
pub use setup::{Death, Setup, Timing};
pub use sometimes::Sometimes;
pub use world::{Answer, World};
