//! Whose the heuristics are: the attempts of each participant lineage, and those of them with a durable FORGET.
//!
//! Derived from the fold's heuristics, so that a participant that joins, or a lineage that takes a name, is not
//! answered by a look at everybody's.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use crate::{Lineage, Name, Xid};

type ByReporter = BTreeMap<(Name, Lineage), BTreeSet<Xid>>;

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Reporters {
    all: ByReporter,
    to_forget: ByReporter,
}

impl Reporters {
    /// Notes a heuristic of this lineage, and whether its FORGET is durable.
    pub(super) fn insert(&mut self, participant: &Name, lineage: Lineage, xid: Xid, forget: bool) {
        let reporter = (participant.clone(), lineage);
        if forget {
            self.to_forget.entry(reporter.clone()).or_default().insert(xid);
        } else {
            remove(&mut self.to_forget, &reporter, xid);
        }
        self.all.entry(reporter).or_default().insert(xid);
    }

    /// Its heuristic is forgotten, or another lineage's took its place.
    pub(super) fn remove(&mut self, participant: &Name, lineage: Lineage, xid: Xid) {
        let reporter = (participant.clone(), lineage);
        remove(&mut self.all, &reporter, xid);
        remove(&mut self.to_forget, &reporter, xid);
    }

    /// Whether the lineage has any.
    pub(super) fn has(&self, participant: &Name, lineage: Lineage) -> bool {
        self.all.contains_key(&(participant.clone(), lineage))
    }

    /// The attempts with a durable FORGET of one lineage, above `after`.
    pub(super) fn to_forget(
        &self,
        participant: &Name,
        lineage: Lineage,
        after: Option<Xid>,
    ) -> impl Iterator<Item = Xid> {
        let attempts = self.to_forget.get(&(participant.clone(), lineage));
        attempts
            .into_iter()
            .flat_map(move |attempts| above(attempts, after))
    }

    /// The attempts with a durable FORGET of all lineages of a name but its holder's, above `after`.
    pub(super) fn to_forget_of_others(
        &self,
        participant: &Name,
        holder: Option<Lineage>,
        after: Option<(Lineage, Xid)>,
    ) -> impl Iterator<Item = (Lineage, Xid)> {
        let lowest = after.map_or(Lineage(0), |(lineage, _)| lineage);
        let range = (participant.clone(), lowest)..=(participant.clone(), Lineage(u128::MAX));
        self.to_forget
            .range(range)
            .filter(move |((_, lineage), _)| Some(*lineage) != holder)
            .flat_map(move |((_, lineage), attempts)| {
                let after = after.filter(|(of, _)| of == lineage).map(|(_, xid)| xid);
                above(attempts, after).map(|xid| (*lineage, xid))
            })
    }
}

fn above(attempts: &BTreeSet<Xid>, after: Option<Xid>) -> impl Iterator<Item = Xid> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    attempts.range((from, Bound::Unbounded)).copied()
}

fn remove(from: &mut ByReporter, reporter: &(Name, Lineage), xid: Xid) {
    if let Some(attempts) = from.get_mut(reporter) {
        attempts.remove(&xid);
        if attempts.is_empty() {
            from.remove(reporter);
        }
    }
}
