//! The coordinator server: the rules' machine, the forced log and the sessions, behind gRPC.
//!
//! | file | what |
//! |---|---|
//! | `config.rs` | the typed configuration, its defaults and bounds |
//! | `connections.rs` | how many connections are kept, and how long a silent one |
//! | `driver.rs` | the ONE loop: owns the machine, performs its effects, feeds completions back |
//! | `calls.rs` | what the loop does with calls and messages |
//! | `effects.rs` | what the loop does with each effect |
//! | `input.rs` | everything that can reach the loop, and the cheap handle that sends it |
//! | `archive.rs` | finished outcomes: on disk, found by id and by attempt |
//! | `damage.rs` | archived items that do not decode |
//! | `attempts.rs` | which archived outcome an attempt has |
//! | `recovery.rs` | log to machine |
//! | `listing.rs` | pages of transactions and participants |
//! | `outbox.rs` | what waits for one participant, cut into frames as its socket drains |
//! | `crash.rs` | the coordinator's crash points |
//! | `grpc/` | one thin file per service; `convert` (wire to rules), `status` (refusal to Status) |
//!
//! *Architecture invariant:* nothing that must finish lives in a handler. A handler puts an input into the
//! loop and waits for the answer; a caller that goes away changes nothing.

mod answers;
mod archive;
mod attempts;
mod calls;
pub mod config;
mod connections;
mod crash;
mod damage;
mod driver;
mod effects;
mod error;
mod grpc;
mod input;
mod listing;
mod outbox;
mod receiving;
mod recovery;
mod server;

pub use config::Config;
pub use error::Error;
pub use server::{Ready, serve};
