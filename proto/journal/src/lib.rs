//! The forced log: the only code that knows sled and fsync.
