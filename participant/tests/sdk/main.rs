//! The SDK from outside: the suite over an in-memory resource, and the driver against a coordinator that is a
//! script. They cannot show what a real log or a real coordinator does.

#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod conformance;
mod crashing;
mod joining;
mod leaving;
mod script;
mod shelf;
mod voting;
