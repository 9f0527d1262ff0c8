//! The failure matrix: every cell of section 9 and every anomaly of a message or call as a script, and what each side did in it.
//!
//! A cell is a crash point, what becomes of the transaction otherwise ([`Mix`]), how the node dies ([`Dying`]) and
//! when it comes back ([`Return`]). Every script shows that its point was reached and that the death happened, ends in
//! [`World::settle`](crate::World::settle) with all checks of section 10, and is rendered into a page of `golden/`,
//! which is to be read as the protocol's documentation. Cells that cannot occur stand in [`plan`] with the reason.
//!
//! What it leaves out: two crashes at once, and everything that the crate's documentation says the world is not.

mod anomaly;
mod call;
mod cell;
mod coverage;
mod golden;
mod message;
mod pages;
mod plan;
mod render;
mod words;

use std::fmt;

use covenant_fault::CrashPoint;

pub use anomaly::Anomaly;
pub use call::{Call, CallAnomaly};
pub use coverage::{Cell, cells, gaps};
pub use golden::{Difference, differences, directory, write};
pub use message::Message;
pub use pages::{Page, pages};
pub use plan::{How, Plan, plan};

/// What becomes of the transaction if nothing fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mix {
    /// Both participants vote YES.
    Commit,
    /// p1 votes NO, p2 votes YES.
    Abort,
    /// p1 votes READ_ONLY, p2 votes YES; at points of an abort the caller aborts it in between.
    ReadOnly,
}

impl Mix {
    /// In the order of section 9.
    pub const ALL: [Self; 3] = [Self::Commit, Self::Abort, Self::ReadOnly];
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Commit => "commit",
            Self::Abort => "abort",
            Self::ReadOnly => "read-only mix",
        })
    }
}

/// How the node dies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dying {
    /// The process ends; what it wrote stays in the page cache.
    Process,
    /// The process ends, and what was not forced is lost.
    Unsynced,
    /// The process ends, starts again at once, says something, and then what was not forced is lost.
    Again,
}

impl Dying {
    /// In the order of section 9.
    pub const ALL: [Self; 3] = [Self::Process, Self::Unsynced, Self::Again];
}

/// When the node comes back from its last death.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Return {
    /// Before anybody can miss it.
    AtOnce,
    /// After every deadline and keep-alive of the others.
    Late,
}

impl Return {
    /// In the order of section 9.
    pub const ALL: [Self; 2] = [Self::AtOnce, Self::Late];
}

/// How the node dies and when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Way {
    /// How it dies.
    pub dying: Dying,
    /// When it comes back.
    pub back: Return,
}

impl Way {
    /// All six, in the order of section 9.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |dying| Return::ALL.map(|back| Self { dying, back });
        Dying::ALL.into_iter().flat_map(of)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dying = match self.dying {
            Dying::Process => "dies",
            Dying::Unsynced => "dies, unsynced data is lost",
            Dying::Again => "dies, restarts, acts, unsynced data is lost",
        };
        let back = match self.back {
            Return::AtOnce => "restarts at once",
            Return::Late => "restarts after the others timed out",
        };
        write!(f, "{dying}; {back}")
    }
}

/// Every crash point with every mix: the cells that share a story up to the crash.
pub fn stories() -> impl Iterator<Item = (CrashPoint, Mix)> {
    let of = |point: &CrashPoint| Mix::ALL.map(|mix| (*point, mix));
    CrashPoint::ALL.iter().flat_map(of)
}
