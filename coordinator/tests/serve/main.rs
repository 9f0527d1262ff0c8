//! The server in this process against participants played by hand over real gRPC.
//!
//! Cannot show: what a kill or a power cut does (the process stays), nor the forcing (tests/ does, under strace).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod callers;
mod connections;
mod damage;
mod keeping;
mod played;
mod streams;
mod transactions;
