//! Tests of the ledger. What they cannot show: a real power cut, and a coordinator; other crates' tests do.

mod books;
mod bounds;
mod conformance;
mod crashes;
mod fold;
mod identity;
mod quarantine;
mod records;
mod service;
mod simulated;
mod store;
mod world;
