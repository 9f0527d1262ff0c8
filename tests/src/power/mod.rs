//! The power-cut proof: what real servers did to their files is recorded below them, images of any moment are built as a loss of power
//! could leave them, and each must open and hold what anybody had been told.
//!
//! | file | what |
//! |---|---|
//! | `shim.rs`, `../../power/shim.c` | records every change and every sync of the files, in order |
//! | `trace.rs` | the record |
//! | `disk.rs` | what is on the disk for sure, and what is not yet |
//! | `tear.rs` | an image: which unsynced sectors, pages, lengths and names survive |
//! | `recording.rs` | the load, and what callers were told when |
//! | `cut.rs` | the moments, and the images checked |
//! | `logs.rs` | the three logs of an image, judged together |
//! | `entries.rs` | a journal alone with large entries, in chunks or not |
//! | `life.rs` | one life of a journal alone, what it told, and whether an image holds it |
//! | `starts.rs` | a journal alone that starts again and again, cut in its starts |
//! | `proof.rs` | all of it in one run, and the real servers on images |
//!
//! It shows what holds for every order in which a disk may keep unsynced writes, under the load that was recorded. It cannot show that a
//! disk keeps what it synced, that a sector is never torn inside, or what a file system does to its own structures.

pub mod cut;
pub mod disk;
pub mod entries;
mod life;
pub mod logs;
pub mod proof;
pub mod recording;
pub mod shim;
pub mod starts;
pub mod tear;
pub mod trace;
