//! Random schedules of the small world keep the invariants of section 10: S1, S2, S4, S5, S8 to S12, S15, the
//! floors of section 6, L1 to L3, and that a checkpoint is the fold.
//!
//! What they cannot show: forces of participants that take time, and expiry, which needs seven days.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::world::{Damage, Op, World};

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        3 => Just(Damage::None),
        2 => any::<u8>().prop_map(Damage::Payload),
        1 => any::<u8>().prop_map(Damage::Whole),
    ]
}

/// Callers, the network, the disk and time.
fn traffic() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<u8>(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(id, other, completed)| Op::Execute { id, other, completed }),
        2 => any::<u8>().prop_map(|id| Op::Get { id }),
        1 => any::<u8>().prop_map(|id| Op::AbortCall { id }),
        16 => any::<u8>().prop_map(|link| Op::Down { link }),
        16 => any::<u8>().prop_map(|link| Op::Up { link }),
        6 => Just(Op::Flow),
        10 => (0..4u8).prop_map(|but| Op::Force { but }),
        3 => prop::sample::select(Vec::from([1, 300, 5_000, 20_000])).prop_map(|ms| Op::Pass { ms }),
    ]
}

/// What goes wrong.
fn faults() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u8>().prop_map(|who| Op::Dial { who }),
        3 => any::<u8>().prop_map(|link| Op::Cut { link }),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(who, what)| Op::Again { who, what }),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(who, what)| Op::Inquire { who, what }),
        3 => (any::<u8>(), any::<u8>(), any::<bool>())
            .prop_map(|(who, which, commit)| Op::ByHand { who, which, commit }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(who, which)| Op::Lose { who, which }),
        2 => any::<u8>().prop_map(|which| Op::Forget { which }),
        4 => (0..4u8, damage(), any::<bool>())
            .prop_map(|(keep, damage, from_checkpoint)| Op::Crash { keep, damage, from_checkpoint }),
        2 => Just(Op::Checkpoint),
    ]
}

/// A schedule; one in a few has a false suspicion in it, which silences much of the rest.
fn schedule() -> impl Strategy<Value = Vec<Op>> {
    let suspect = any::<u8>().prop_map(|who| Op::Suspect { who });
    let calm = prop::collection::vec(prop_oneof![5 => traffic(), 2 => faults()], 1..120);
    let suspicious =
        prop::collection::vec(prop_oneof![40 => traffic(), 16 => faults(), 1 => suspect], 1..120);
    prop_oneof![5 => calm, 1 => suspicious]
}

fn run(schedule: Vec<Op>) -> World {
    let mut world = World::new();
    for op in schedule {
        world.run(op);
    }
    world.heal();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_breaks_an_invariant(schedule in schedule()) {
        run(schedule);
    }
}

/// A run that never sees these proves nothing.
#[test]
fn schedules_sometimes_see_what_matters() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..250 {
        let schedule = schedule().new_tree(&mut runner).unwrap().current();
        seen.extend(run(schedule).truth.seen);
    }
    let all = [
        "commit below the floor",
        "committed across a crash",
        "damage",
        "lost state",
        "presumption",
        "unknown",
        "unknown by damage",
        "unknown to a caller",
    ];
    assert_eq!(Vec::from_iter(seen), all);
}
