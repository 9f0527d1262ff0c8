//! Between the rules and their bytes: frames on the wire and records in the log.
