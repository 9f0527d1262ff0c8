//! The invariants of section 10, a checker for each in a file of its own, and convergence.
//!
//! A checker sees observations and the ground truth that they add up to, and never a machine's own view of itself;
//! at quiet points it also sees the books and what is left in the nodes. *Heuristics apart* means that an operator
//! or a lost disk had a hand in the attempt. What is not here: whether anything happened at all (`sometimes`).

mod convergence;
mod l1;
mod l2;
mod l3;
mod l4;
mod s1;
mod s10;
mod s11;
mod s12;
mod s13;
mod s14;
mod s15;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;
mod s7;
mod s8;
mod s9;

use crate::history::History;
use crate::seen::Seen;
use crate::world::World;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its name.
    pub invariant: &'static str,
    /// The seed of the run.
    pub seed: u64,
    /// The happening, counted from the beginning of the run.
    pub step: u64,
    /// What was seen.
    pub detail: String,
    /// Other invariants that the same observation breaks.
    pub also: Vec<&'static str>,
}

/// What one checker says of what it sees.
pub type Verdict = Result<(), String>;

/// One invariant.
pub trait Check {
    /// Its name, that of section 10 if it is one of those.
    fn invariant(&self) -> &'static str;

    /// Looks at one observation; `history` has it already.
    ///
    /// # Errors
    /// What was seen that may not be.
    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict;

    /// Looks at a world in which every fault has ended and nothing should be under way any more.
    ///
    /// # Errors
    /// What is left that may not be.
    fn quiet(&mut self, world: &World) -> Verdict {
        let _ = world;
        Ok(())
    }
}

/// Every checker, in the order of section 10; convergence, which asks for the most at a quiet point, is the last.
#[must_use]
pub fn all_checks() -> Vec<Box<dyn Check>> {
    vec![
        Box::new(s1::Agreement::default()),
        Box::new(s2::CommitValidity),
        Box::new(s3::NonTriviality::default()),
        Box::new(s4::Stability::default()),
        Box::new(s5::SendAfterForce),
        Box::new(s6::ForgetRule::default()),
        Box::new(s7::Presumption),
        Box::new(s8::Immobility::default()),
        Box::new(s9::NoResurrection),
        Box::new(s10::HeuristicAccounting::default()),
        Box::new(s11::CallerTruth::default()),
        Box::new(s12::Identity::default()),
        Box::new(s13::ForceFailure::default()),
        Box::new(s14::Conservation),
        Box::new(s15::OneCommit::default()),
        Box::new(l1::LeavesPreparing),
        Box::new(l2::DoubtEnds),
        Box::new(l3::ReachesEnd),
        Box::new(l4::Bounded::default()),
        Box::new(convergence::Convergence),
    ]
}

/// The names of all invariants that have a checker.
#[must_use]
pub fn invariants() -> Vec<&'static str> {
    all_checks().iter().map(|check| check.invariant()).collect()
}

fn fail(detail: String) -> Verdict {
    Err(detail)
}
