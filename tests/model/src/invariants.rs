//! What must always hold: one function for each invariant of section 10, named by it.
//!
//! Each looks at one state. What was sent, told or durable is remembered in the history, and a message that leaves
//! too early shows in the very state after the step that sent it.

use covenant_rules::{Decision, Record, ToParticipant, Xid, coordinator::State};

use crate::names::name_of;
use crate::truth::{Attempt, Branch, Told};
use crate::world::{LOG, World};

type Holds = fn(&World) -> bool;

/// All of them, by name.
pub(crate) const INVARIANTS: &[(&str, Holds)] = &[
    ("S1 agreement", s1_agreement),
    ("S2 commit validity", s2_commit_validity),
    ("S3 non-triviality", s3_non_triviality),
    ("S4 stability", s4_stability),
    ("S5 send after force", s5_send_after_force),
    ("S6 forget rule", s6_forget_rule),
    ("S7 presumption", s7_presumption),
    ("S8 immobility", s8_immobility),
    ("S9 no resurrection", s9_no_resurrection),
    ("S10 heuristic accounting", s10_heuristic_accounting),
    ("S11 caller truth", s11_caller_truth),
    ("S12 identity", s12_identity),
    ("S14 conservation", s14_conservation),
    ("S15 one commit", s15_one_commit),
    ("L1 leaves PREPARING", l1_leaves_preparing),
    ("L2 doubt ends", l2_doubt_ends),
    ("L3 reaches END", l3_reaches_end),
    ("L4 nothing is kept for ever", l4_nothing_is_kept),
    ("no alarm that only a broken rule explains", no_alarm),
    ("nobody is locked out", nobody_is_locked_out),
    ("no machine asserts", no_machine_asserts),
];

fn all(world: &World, holds: impl Fn(&Attempt) -> bool) -> bool {
    world.truth.attempts.iter().all(holds)
}

fn s1_agreement(world: &World) -> bool {
    all(world, |attempt| {
        let effect = attempt.untouched().any(|(_, branch)| branch.effect);
        let aborted = attempt.untouched().any(|(_, branch)| branch.aborted || branch.no);
        !(effect && aborted)
    })
}

/// Looked at from the moment when COMMIT is appended: every branch that does not only read was durably PREPARED.
fn s2_commit_validity(world: &World) -> bool {
    let writes = |place: usize| world.content.as_bytes().get(place) == Some(&b'y');
    all(world, |attempt| {
        let decided = !attempt.commit_appended
            || (0..world.sites.len()).all(|place| {
                let prepared = attempt.branches[place].prepared;
                prepared == writes(place) && prepared == attempt.voters[place]
            });
        let of_voters = attempt
            .untouched()
            .all(|(place, branch)| !branch.effect || (attempt.commit_durable && attempt.voters[place]));
        decided && of_voters
    })
}

/// A run without faults, jumps of time, refusals and aborts has spent nothing of what it may.
fn s3_non_triviality(world: &World) -> bool {
    let undisturbed = !world.disturbed && world.is_quiet();
    let committed = |id: usize| !world.sent[id] || matches!(world.truth.told[id], Some(Told::Committed(_)));
    !undisturbed || (committed(0) && committed(1))
}

fn s4_stability(world: &World) -> bool {
    all(world, |attempt| {
        let contrary = |(place, branch): (usize, &Branch)| {
            branch.abort_sent && (branch.commit_sent || (attempt.commit_durable && attempt.voters[place]))
        };
        let both = attempt.commit_durable && attempt.abort_durable;
        !both && !attempt.branches.iter().enumerate().any(contrary)
    })
}

fn s5_send_after_force(world: &World) -> bool {
    let told = world.truth.told.iter().flatten().all(|told| match told {
        Told::Committed(xid) => is(world, *xid, |attempt| attempt.commit_durable),
        Told::Aborted(xid) => is(world, *xid, |attempt| attempt.abort_durable),
    });
    told && all(world, |attempt| {
        attempt.branches.iter().all(|branch| {
            (!branch.commit_sent || attempt.commit_durable)
                && (!branch.yes || branch.prepared)
                && (!branch.ack || branch.effects > 0)
        })
    })
}

fn is(world: &World, xid: Xid, so: impl Fn(&Attempt) -> bool) -> bool {
    world.truth.attempt(xid).is_some_and(so)
}

/// END needs every voter's durable effect, or its heuristic forgotten; no PREPARE, and no COMMIT that is owed an
/// effect, is on its way to a participant that holds a floor above it.
fn s6_forget_rule(world: &World) -> bool {
    let ended = all(world, |attempt| {
        let owes = |(place, branch): (usize, &Branch)| {
            attempt.voters[place] && branch.effects == 0 && !branch.forgotten
        };
        !attempt.end_appended || !attempt.branches.iter().enumerate().any(owes)
    });
    let floor = |place: usize| world.sites[place].machine.floor(LOG);
    let owed = |place: usize, xid: &Xid| {
        is(world, *xid, |attempt| {
            let branch = &attempt.branches[place];
            branch.effects == 0 && branch.by_hand.is_none()
        })
    };
    ended
        && world.on_their_way().all(|(place, message)| match message {
            ToParticipant::Prepare { xid, .. } => !xid.is_below(floor(place)),
            ToParticipant::Commit(xid) => !(xid.is_below(floor(place)) && owed(place, xid)),
            _ => true,
        })
}

/// ABORT leaves only when the coordinator does not run the attempt, or has decided it so; and no COMMIT that names
/// a branch is ever appended once an ABORT left to any branch it names.
fn s7_presumption(world: &World) -> bool {
    let server = &world.server;
    all(world, |attempt| {
        let sent = |branch: &Branch| branch.abort_sent;
        if !attempt.branches.iter().any(sent) {
            return true;
        }
        let mut running = server.machine.running_after(None);
        let active = running.any(|view| {
            view.xid == Some(attempt.xid) && matches!(view.state, Some(State::Preparing | State::Deciding))
        });
        let commits =
            |record: &Record| matches!(record, Record::Commit(outcome) if outcome.xid == attempt.xid);
        let named = |(place, branch): (usize, &Branch)| branch.abort_sent && attempt.voters[place];
        let reversed = attempt.branches.iter().enumerate().any(named) && server.log.holds(commits);
        !active && !reversed
    })
}

/// PREPARED stays, across restarts too, until a decision left the coordinator or a heuristic is forced.
fn s8_immobility(world: &World) -> bool {
    let by_decision = all(world, |attempt| {
        attempt
            .branches
            .iter()
            .all(|branch| (!branch.aborted || branch.abort_sent) && (!branch.effect || branch.commit_sent))
    });
    by_decision && world.sites.iter().all(|site| site.keeps_what_it_prepared())
}

fn s9_no_resurrection(world: &World) -> bool {
    all(world, |attempt| {
        world.sites.iter().all(|site| {
            let pending =
                site.disk.pending.iter().filter(
                    |entry| matches!(entry, crate::site::Entry::Committed(xid) if *xid == attempt.xid),
                );
            let branch = &attempt.branches[site.place];
            let by_hand = u8::from(branch.by_hand == Some(Decision::Commit));
            usize::from(branch.effects + by_hand) + pending.count() <= 1
        })
    })
}

/// What a branch decided by hand is in the coordinator's fold, judged as the decision says, until FORGET; and
/// damage is forgotten by operators only.
fn s10_heuristic_accounting(world: &World) -> bool {
    let quiet = world.is_quiet();
    all(world, |attempt| {
        attempt.branches.iter().enumerate().all(|(place, branch)| {
            let Some(what) = branch.by_hand else { return true };
            let damage = what != attempt.decision_for(place);
            let entry = world
                .server
                .machine
                .fold()
                .heuristic_entry(attempt.xid, &name_of(place));
            let recorded = entry.is_some_and(|entry| {
                entry.damage == Some(damage)
                    && (entry.what == covenant_rules::Heuristic::Commit) == (what == Decision::Commit)
            });
            let accounted = branch.forgotten || recorded;
            (!quiet || accounted) && (!branch.forgotten || !damage || branch.operator_forgot)
        })
    })
}

fn s11_caller_truth(world: &World) -> bool {
    let committed = |xid: Xid| {
        is(world, xid, |attempt| {
            !attempt.untouched().any(|(_, branch)| branch.aborted || branch.no)
        })
    };
    let aborted = |id: usize| {
        let takes_effect = |attempt: &Attempt| {
            attempt.commit_durable || attempt.untouched().any(|(_, branch)| branch.effect)
        };
        let mut of_id = world
            .truth
            .attempts
            .iter()
            .filter(|attempt| usize::from(attempt.id) == id);
        !of_id.any(takes_effect)
    };
    let told = world.truth.told.iter().enumerate().all(|(id, told)| match told {
        Some(Told::Committed(xid)) => committed(*xid),
        Some(Told::Aborted(xid)) => aborted(id) && !is(world, *xid, |attempt| attempt.duplicate),
        None => true,
    });
    told && !world.truth.told_otherwise
}

fn s12_identity(world: &World) -> bool {
    let own = world.server.machine.incarnation();
    let mut starts = world.server.machine.fold().starts.iter();
    let rises = starts.all(|start| start.counter < own.counter || *start == own);
    rises && !world.truth.xid_reused
}

/// The first participant pays one to each of the others, within every attempt.
fn s14_conservation(world: &World) -> bool {
    let touched = all(world, |attempt| {
        attempt.branches.iter().any(|branch| branch.by_hand.is_some())
    });
    let others = world
        .content
        .bytes()
        .skip(1)
        .filter(|letter| *letter == b'y')
        .count();
    // A transfer needs somebody on both sides.
    let moves = world.content.starts_with('y') && others > 0;
    if touched || !moves || !world.is_quiet() {
        return true;
    }
    all(world, |attempt| {
        if attempt.branches.iter().any(|branch| branch.by_hand.is_some()) {
            return true;
        }
        let paid = usize::from(attempt.branches[0].effects) * others;
        let received: usize = attempt.branches[1..]
            .iter()
            .map(|branch| usize::from(branch.effects))
            .sum();
        paid == received
    })
}

fn s15_one_commit(world: &World) -> bool {
    (0..2).all(|id| {
        let mut attempts = world.truth.attempts.iter().filter(|attempt| attempt.id == id);
        let effective = |attempt: &&Attempt| {
            attempt.commit_durable
                || attempt.branches.iter().any(|branch| {
                    let by_hand = branch.by_hand == Some(Decision::Commit) && !branch.forgotten;
                    branch.effect || by_hand
                })
        };
        attempts.by_ref().find(effective).is_none() || !attempts.any(|attempt| effective(&attempt))
    })
}

/// At a quiet point nothing waits for votes any more, but for time.
fn l1_leaves_preparing(world: &World) -> bool {
    !world.is_quiet()
        || world
            .server
            .machine
            .running_after(None)
            .all(|view| view.state != Some(State::Preparing))
}

fn l2_doubt_ends(world: &World) -> bool {
    !world.is_quiet() || world.sites.iter().all(|site| site.in_doubt().is_empty())
}

fn l3_reaches_end(world: &World) -> bool {
    !world.is_quiet() || world.server.machine.in_progress() == 0
}

/// At a quiet point nothing is open at the coordinator, and no participant waits with a PREPARE.
fn l4_nothing_is_kept(world: &World) -> bool {
    let fold = world.server.machine.fold();
    !world.is_quiet()
        || (fold.open.is_empty()
            && fold.heuristics.is_empty()
            && world.sites.iter().all(|site| site.machine.waiting() == 0))
}

fn no_alarm(world: &World) -> bool {
    !world.truth.alarmed
}

fn nobody_is_locked_out(world: &World) -> bool {
    !world.truth.locked_out
}

fn no_machine_asserts(world: &World) -> bool {
    !world.truth.asserted
}
