//! Proof: the harness of the tests that drive the shipped binary as real processes.
//!
//! | file | what |
//! |---|---|
//! | `binary.rs` | builds `covenant` once, in the profile of the tests, and says where it is |
//! | `process.rs` | one child process: its output, its end, and no leak even when a test panics |
//! | `server.rs` | a coordinator or a ledger: started, killed, restarted on the same directory and port |
//! | `cluster.rs` | a coordinator and two ledgers with the accounts of the case study |
//! | `transfer.rs` | what the tests ask for, as the client sends it |
//! | `world.rs`, `checks.rs` | everything that can be seen from outside, and the invariants of section 10 over it |
//! | `offline.rs` | the logs of processes that have ended |
//! | `attack.rs` | honest transfers beside an attack, and the judgement of what is left |
//! | `rogue.rs`, `numbered.rs`, `unfinished.rs` | a participant, and a stream of calls, that are played by a test; calls that never finish their message |
//! | `trace.rs`, `frames.rs` | what strace saw, and the messages in it |
//! | `chaos/` | a cluster under faults that a seed chooses, and the checker of what it did |
//! | `growth/` | a cluster with much of something beside one with little |
//! | `power/` | the power-cut proof: what the processes did to their files, and images of it |
//! | `wait.rs`, `os_package.rs` | waiting for a condition; programs that a test needs |
//!
//! What cannot be shown with it: networks that reorder. Losing unsynced data is shown in `power/` alone: a killed
//! process leaves the page cache behind.

pub mod attack;
pub mod binary;
pub mod chaos;
pub mod checks;
pub mod cluster;
pub mod frames;
pub mod growth;
pub mod numbered;
pub mod offline;
pub mod os_package;
pub mod power;
pub mod process;
pub mod rogue;
pub mod server;
pub mod trace;
pub mod transfer;
pub mod unfinished;
pub mod wait;
pub mod world;

pub use cluster::{Cluster, Who};
pub use process::{Process, Ran};
pub use server::{Launch, Server};
pub use transfer::Transfer;
pub use wait::wait_until;
