//! What must be seen sometimes: a run that never sees these proves nothing (section 10).

use covenant_rules::{Decision, Record, ToParticipant, Vote, Xid, coordinator::State};

use crate::truth::{Attempt, Told};
use crate::world::{LOG, World};

type Seen = fn(&World) -> bool;

/// All of them, by name.
pub(crate) const SIGHTINGS: &[(&str, Seen)] = &[
    ("told COMMITTED", told_committed),
    ("told ABORTED", told_aborted),
    ("a commit during which every node crashed", every_node_crashed),
    (
        "a restart finds a COMMIT whose force never returned",
        commit_found,
    ),
    ("a restart does not find a COMMIT that was appended", commit_lost),
    ("an inquiry is answered by presumption", presumption),
    ("COMMIT below the floor", commit_below_floor),
    ("heuristic damage", damage),
    ("a heuristic that agrees with the decision", agreement),
    ("a read-only mix commits", read_only_mix),
    ("a retry waits for its first attempt's hold", held_retry),
    ("a duplicate is told as UNKNOWN", duplicate),
    ("a quiet end after every fault of the run", quiet_end),
];

fn any(world: &World, seen: impl Fn(&Attempt) -> bool) -> bool {
    world.truth.attempts.iter().any(seen)
}

fn told_committed(world: &World) -> bool {
    matches!(world.truth.told[0], Some(Told::Committed(_)))
}

fn told_aborted(world: &World) -> bool {
    matches!(world.truth.told[0], Some(Told::Aborted(_)))
}

fn every_node_crashed(world: &World) -> bool {
    let crashed = world.server.process > 1 && world.sites.iter().all(|site| site.has_crashed());
    let one = world.truth.attempts.len() == 1;
    crashed && one && any(world, |attempt| attempt.commit_durable && !attempt.end_appended)
}

/// No COMMIT left, though all participants were joined: the force did not return in the process that appended it.
fn commit_found(world: &World) -> bool {
    !world.server.machine.is_serving()
        && any(world, |attempt| {
            let sent = attempt.branches.iter().any(|branch| branch.commit_sent);
            attempt.commit_durable && !sent && attempt.process + 1 == world.server.process
        })
}

fn commit_lost(world: &World) -> bool {
    !world.server.machine.is_serving()
        && any(world, |attempt| {
            attempt.commit_appended && !attempt.commit_durable
        })
}

fn presumption(world: &World) -> bool {
    let now = world.server.machine.incarnation();
    let unwritten = |xid: &Xid| !world.server.log.holds(|record| record.xid() == Some(*xid));
    world.on_their_way().any(|(_, message)| {
        matches!(message, ToParticipant::Abort(xid) if xid.incarnation != now && unwritten(xid))
    })
}

fn commit_below_floor(world: &World) -> bool {
    world.on_their_way().any(|(place, message)| {
        let floor = world.sites[place].machine.floor(LOG);
        matches!(message, ToParticipant::Commit(xid) if xid.is_below(floor))
    })
}

fn damage(world: &World) -> bool {
    let heuristics = &world.server.machine.fold().heuristics;
    heuristics.values().any(|entry| entry.damage == Some(true))
}

fn agreement(world: &World) -> bool {
    any(world, |attempt| {
        attempt.branches.iter().any(|branch| {
            branch.by_hand == Some(Decision::Commit) && branch.forgotten && !branch.operator_forgot
        })
    })
}

fn read_only_mix(world: &World) -> bool {
    let mix = world.content.contains('r') && world.content.contains('y');
    mix && told_committed(world)
        && world.server.log.holds(|record| {
            matches!(record, Record::Commit(outcome)
                if outcome.branches.iter().any(|branch| branch.vote == Some(Vote::ReadOnly)))
        })
}

fn held_retry(world: &World) -> bool {
    let waits = world.sites.iter().any(|site| site.machine.waiting() > 0);
    waits && world.state_of(0) == Some(State::Preparing)
}

fn duplicate(world: &World) -> bool {
    any(world, |attempt| attempt.duplicate && attempt.abort_durable)
}

fn quiet_end(world: &World) -> bool {
    let spent = &world.left;
    let crashes = spent.coordinator_crashes == 0 && spent.participant_crashes.iter().all(|left| *left == 0);
    crashes && spent.cuts == 0 && spent.heuristics == 0 && world.is_quiet() && told_committed(world)
}
