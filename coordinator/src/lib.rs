//! The coordinator server.
