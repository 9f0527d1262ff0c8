//! The demo participant: a double-entry ledger on the journal.
