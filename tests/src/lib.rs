//! Proof: tests that drive the shipped types and binaries.
