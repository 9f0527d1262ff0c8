//! Crash points by name, and the socket meter that makes the sent ones exact.
