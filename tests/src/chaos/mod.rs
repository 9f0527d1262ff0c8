//! Chaos: real processes under load, and faults that a seed chooses.
//!
//! A coordinator and some ledgers run as shipped; callers send transfers, read-only assertions, overdrafts, aborts and
//! other content under the same id, and send each id again until it has an answer. Meanwhile a plan that follows from
//! the seed kills and pauses processes, cuts lines, fills disks and steps wall clocks. Then everything is
//! mended, every id is asked for again, everything is killed and started once more, every id is asked for again, and the
//! checker judges what callers were told against what the ledgers hold.
//!
//! Lines are cut by a proxy in each of them, all processes on one host; or each process is a host of its own, in a network
//! namespace, and hosts are cut from each other, both ways or one way.
//!
//! The plan is the same for the same seed; the processes' own timing is not, so a seed that failed may pass the next
//! time. It cannot show the loss of unsynced data (a killed process leaves the page cache behind), nor clocks of
//! different rates.

pub mod checker;
#[cfg(test)]
mod checker_tests;
pub mod clock;
pub mod dice;
pub mod disk;
pub mod history;
pub mod hosts;
mod inject;
pub mod lines;
pub mod load;
pub mod nodes;
pub mod plan;
pub mod private;
pub mod proxy;
pub mod report;
pub mod run;
