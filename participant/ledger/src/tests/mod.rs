//! Tests of the ledger. What they cannot show: a real power cut, and a coordinator; other crates' tests do.

mod books;
mod crashes;
mod quarantine;
mod records;
mod service;
mod store;
mod world;
