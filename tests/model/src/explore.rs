//! The model as stateright takes it, and a run of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use stateright::{
    Checker, HasDiscoveries, Model, Property,
    report::{ReportData, ReportDiscovery, Reporter},
};

use crate::bounds::Bounds;
use crate::invariants::INVARIANTS;
use crate::sightings::SIGHTINGS;
use crate::step::Step;
use crate::world::World;

struct TwoPhaseCommit {
    bounds: Bounds,
    /// Which invariants are known to be broken: the first way to it is the one to keep.
    broken: [AtomicBool; INVARIANTS.len()],
}

impl TwoPhaseCommit {
    fn holds(&self, at: usize, world: &World) -> bool {
        (INVARIANTS[at].1)(world) || self.broken[at].swap(true, Ordering::Relaxed)
    }
}

/// Properties are function pointers, which cannot know their place in a table: it is written into each.
macro_rules! properties {
    ([$($always:literal)*], [$($sometimes:literal)*]) => {
        vec![
            $(Property::always(INVARIANTS[$always].0, |model: &TwoPhaseCommit, world| model.holds($always, world)),)*
            $(Property::sometimes(SIGHTINGS[$sometimes].0, |_, world| (SIGHTINGS[$sometimes].1)(world)),)*
        ]
    };
}

impl Model for TwoPhaseCommit {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let world = |content: &String| World::new(content, &self.bounds);
        self.bounds.contents.iter().map(world).collect()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.bounds, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        world.after(&step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let properties = properties!(
            [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20],
            [0 1 2 3 4 5 6 7 8 9 10 11 12]
        );
        assert_eq!(
            properties.len(),
            INVARIANTS.len() + SIGHTINGS.len(),
            "each has its place"
        );
        properties
    }
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Different states.
    pub states: usize,
    /// Steps taken.
    pub steps: usize,
    /// The longest run of steps.
    pub depth: usize,
    /// Invariants that broke, each with the steps that lead there.
    pub broken: BTreeMap<&'static str, Vec<String>>,
    /// What was seen.
    pub seen: Vec<&'static str>,
}

/// Explores all states within the bounds, or up to the first broken invariant. `shortest` finds the shortest way to
/// one, on one thread and with more memory. `progress` hears how far it is, now and then.
///
/// # Errors
/// The bounds are out of bounds themselves.
pub fn explore(
    bounds: Bounds,
    threads: usize,
    shortest: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Findings> {
    bounds.validate()?;
    let model = TwoPhaseCommit {
        bounds,
        broken: Default::default(),
    };
    let builder = model.checker().finish_when(HasDiscoveries::AnyFailures);
    let mut listener = Listener {
        progress,
        findings: Findings::default(),
    };
    if shortest {
        finish(builder.threads(1).spawn_bfs(), &mut listener);
    } else {
        finish(builder.threads(threads).spawn_dfs(), &mut listener);
    }
    Ok(listener.findings)
}

fn finish(checker: impl Checker<TwoPhaseCommit>, listener: &mut Listener) {
    let checker = checker.report(listener);
    listener.findings.states = checker.unique_state_count();
    listener.findings.steps = checker.state_count();
    listener.findings.depth = checker.max_depth();
}

struct Listener<'a> {
    progress: &'a mut dyn FnMut(&str),
    findings: Findings,
}

impl Reporter<TwoPhaseCommit> for Listener<'_> {
    fn report_checking(&mut self, data: ReportData) {
        (self.progress)(&format!(
            "{} s: {} states, {} steps, depth {}{}",
            data.duration.as_secs(),
            data.unique_states,
            data.total_states,
            data.max_depth,
            if data.done { ", done" } else { "" },
        ));
    }

    fn report_discoveries(
        &mut self,
        model: &TwoPhaseCommit,
        discoveries: BTreeMap<&'static str, ReportDiscovery<TwoPhaseCommit>>,
    ) {
        for (name, discovery) in discoveries {
            if model.property(name).expectation.discovery_is_failure() {
                let steps = discovery.path.into_actions();
                let steps = steps.iter().map(|step| format!("{step:?}")).collect();
                self.findings.broken.insert(name, steps);
            } else {
                self.findings.seen.push(name);
            }
        }
    }
}
