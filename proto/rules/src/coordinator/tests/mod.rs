//! Tests of the coordinator's machine, by theme.
//!
//! Row tests are golden scripts: a [`Bench`] feeds one event and gives the effects back as short lines
//! (`script.rs`). `table.rs` meets every state with every event. `properties.rs` runs random schedules of a
//! small world (`world.rs`, `network.rs`, `disk.rs`, `model.rs`) against the invariants of section 10 (`checks.rs`).
//!
//! What they cannot show: that a driver performs effects in order, and that a log keeps what it forced.

mod bench;
mod bounds;
mod calls;
mod checks;
mod disk;
mod floods;
mod heuristics;
mod inquiry;
mod model;
mod network;
mod properties;
mod recovery;
mod retention;
mod rows;
mod script;
mod sessions;
mod table;
mod views;
mod world;

use bench::{Archive, Bench, LOG, name, operator, tid, xid};
