//! A seed's story: a cluster, its callers and what goes wrong, all drawn from the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use covenant_fault::CrashPoint;
use covenant_rules::{Decision, Limits, TransactionId, Wait};

use crate::calls::{Does, Transaction};
use crate::checks::Violation;
use crate::faults::Fault;
use crate::node::{Clock, Micros, Node};
use crate::setup::{Death, Setup, Timing};
use crate::sometimes::Sometimes;
use crate::workload::Caller;
use crate::world::{Happening, World};

/// How long callers come and things go wrong.
const ACTIVE_US: Micros = 8_000_000;
/// The fewest transactions of a seed, and how many more it may have.
const TRANSACTIONS: (usize, usize) = (10, 14);
/// The fewest faults of a seed, and how many more it may have.
const FAULTS: (usize, usize) = (6, 12);
/// The fewest faults that come about in a seed, whatever became of those that were drawn.
const COME_ABOUT: u64 = 5;
/// Not an invariant that a checker holds, but an assertion of the shipped code.
pub const ASSERTION: &str = "ASSERTION";

/// What came of a seed.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// How many transactions callers asked for.
    pub transactions: u64,
    /// How many things went wrong.
    pub faults: u64,
    /// How many happenings there were.
    pub steps: u64,
    /// What was seen.
    pub sometimes: Sometimes,
    /// What happened, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64) -> Report {
    play(seed, false)
}

/// Runs a seed and keeps a line for everything that happens.
#[must_use]
pub fn run_traced(seed: u64) -> Report {
    play(seed, true)
}

fn play(seed: u64, trace: bool) -> Report {
    let mut world = None;
    let played = catch_unwind(AssertUnwindSafe(|| {
        let world = world.insert(begin(seed, trace));
        world.run_for(ACTIVE_US / 1_000);
        fill_up(world);
        world.settle();
    }));
    let Some(world) = world else {
        let violation = played.err().map(|panic| assertion(seed, 0, &*panic));
        return Report {
            violation,
            ..Report::default()
        };
    };
    let asserted = played.err().map(|panic| assertion(seed, world.steps(), &*panic));
    Report {
        violation: asserted.or(world.violation().cloned()),
        transactions: world.callers.len() as u64,
        faults: world.history.faults,
        steps: world.steps(),
        sometimes: world.sometimes.clone(),
        trace: world.trace().lines().to_vec(),
    }
}

/// Crashes until enough went wrong.
fn fill_up(world: &mut World) {
    let mut who = 0;
    while world.history.faults < COME_ABOUT && world.violation().is_none() {
        let nodes = world.participants() + 1;
        let node = match who % nodes {
            0 => Node::Coordinator,
            at => Node::Participant(at - 1),
        };
        who += 1;
        world.fault(Fault::Crash {
            node,
            death: Death::Power,
            down_us: 20_000,
        });
        world.run_for(200);
    }
}

/// An assertion of the shipped code is an invariant like any other.
fn assertion(seed: u64, step: u64, panic: &(dyn std::any::Any + Send)) -> Violation {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    Violation {
        invariant: ASSERTION,
        seed,
        step,
        detail: text.unwrap_or_else(|| "a panic without a text".to_owned()),
        also: Vec::new(),
    }
}

/// Draws the cluster, its callers and its faults.
fn begin(seed: u64, trace: bool) -> World {
    // The world draws delays from the same seed; the story must not repeat its numbers.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5EED_57A7_0000_0001);
    let participants = rng.usize(2..=5);
    let accounts: Vec<i64> = (0..rng.usize(1..=3)).map(|_| rng.i64(60..=300)).collect();
    let mut setup = Setup {
        participants,
        limits: limits(&mut rng),
        timing: timing(&mut rng),
        seed,
        clocks: (0..=participants).map(|_| clock(&mut rng)).collect(),
        accounts,
        floor_tombstones: rng.usize(1..=4),
        sync_at_start: rng.bool(),
        trace,
    };
    if rng.u8(..) < 96 {
        setup.clocks.clear();
    }
    let mut world = World::new(setup);
    let start = world.now();
    for number in 0..TRANSACTIONS.0 + rng.usize(0..=TRANSACTIONS.1) {
        let at = start + rng.u64(0..ACTIVE_US * 3 / 4);
        let caller = caller(&mut rng, &world, number, at);
        world.add_caller(caller, at);
    }
    let rare = rng.u8(..);
    for _ in 0..FAULTS.0 + rng.usize(0..=FAULTS.1) {
        let at = start + rng.u64(0..ACTIVE_US);
        let fault = fault(&mut rng, participants);
        world.at(at, Happening::Fault(fault));
    }
    if let Some(fault) = rare_fault(rare, &mut rng, participants) {
        let at = start + rng.u64(ACTIVE_US / 4..ACTIVE_US);
        if matches!(fault, Fault::Damage { .. }) && rng.bool() {
            let later = rng.u64(ACTIVE_US / 8..ACTIVE_US / 2);
            world.at(at + later, Happening::Fault(Fault::Resolve));
            for who in 0..participants {
                // Whoever it is about, everybody asks.
                let asks = Fault::Asks(who, rng.usize(..));
                let soon = later + rng.u64(ACTIVE_US / 8..ACTIVE_US / 4);
                world.at(at + soon, Happening::Fault(asks));
            }
        }
        world.at(at, Happening::Fault(fault));
    }
    world
}

fn limits(rng: &mut fastrand::Rng) -> Limits {
    let mut limits = Limits {
        retry_cap_ms: 2_000,
        in_doubt_alarm_ms: 1_000,
        ..Limits::DEFAULT
    };
    if rng.u8(..) < 32 {
        limits.retention_ms = rng.u64(1_000..6_000);
        limits.retention_check_ms = 500;
    }
    if rng.u8(..) < 16 {
        limits.max_waiting_prepares = 1;
        limits.max_attached_callers = 2;
    }
    limits
}

fn timing(rng: &mut fastrand::Rng) -> Timing {
    let slowest = *rng.choice([2_000, 20_000, 200_000].iter()).unwrap_or(&2_000);
    let force = *rng.choice([1_000, 10_000, 100_000].iter()).unwrap_or(&1_000);
    Timing {
        network_us: (100, slowest),
        force_us: (200, force),
        lazy_us: 5_000,
        keep_alive_us: 1_500_000,
        dial_us: (1_000, 100_000),
    }
}

fn clock(rng: &mut fastrand::Rng) -> Clock {
    Clock {
        drift_ppm: rng.i64(-30_000..=30_000),
        wall_error_ms: rng.i64(-3_000..=3_000),
    }
}

fn caller(rng: &mut fastrand::Rng, world: &World, number: usize, at: Micros) -> Caller {
    let id = format!("T{number}");
    let mut transaction = Transaction {
        transaction_id: match TransactionId::new(&id) {
            Ok(id) => id,
            Err(error) => unreachable!("T and a number is an id: {error}"),
        },
        created: Clock::EXACT.wall_ms(at),
        branches: branches(rng, world),
        timeout_ms: *rng.choice([300, 1_000, 5_000].iter()).unwrap_or(&1_000),
        wait: if rng.u8(..) < 64 {
            Wait::Completed
        } else {
            Wait::Decided
        },
    };
    if rng.u8(..) < 16 {
        transaction.created = transaction.created.saturating_sub(rng.u64(0..4_000));
    }
    let mut caller = Caller::new(transaction);
    match rng.u8(..) {
        0..24 => caller.aborts_after = Some(rng.u64(0..1_000_000)),
        24..48 => {
            let other = Transaction {
                branches: branches(rng, world),
                ..caller.transaction.clone()
            };
            caller.other = Some(other.execute());
        }
        48..96 => caller.impatient_us = Some(rng.u64(1_000..600_000)),
        _ => {}
    }
    caller
}

/// A transfer between two or more participants' accounts, some of them only looked at.
fn branches(rng: &mut fastrand::Rng, world: &World) -> Vec<(usize, Does)> {
    let accounts = world.setup.accounts.len();
    let mut order: Vec<usize> = (0..world.participants()).collect();
    rng.shuffle(&mut order);
    order.truncate(rng.usize(2..=order.len().min(4)));
    let amount = rng.i64(1..=60);
    let looks = rng.u8(..) < 64 && order.len() > 2;
    let all_look = rng.u8(..) < 12;
    let movers = if looks { order.len() - 1 } else { order.len() };
    let mut branches: Vec<(usize, Does)> = Vec::new();
    for (at, who) in order.iter().enumerate() {
        let account = rng.usize(0..accounts);
        let does = if all_look || at >= movers {
            Does::Looks(account, rng.i64(0..=80))
        } else if at == 0 {
            Does::Moves(account, -amount * (movers as i64 - 1))
        } else {
            Does::Moves(account, amount)
        };
        branches.push((*who, does));
    }
    branches.sort_by_key(|(who, _)| *who);
    branches
}

fn node(rng: &mut fastrand::Rng, participants: usize) -> Node {
    match rng.usize(0..=participants + 1) {
        0 | 1 => Node::Coordinator,
        who => Node::Participant(who - 2),
    }
}

fn death(rng: &mut fastrand::Rng) -> Death {
    match rng.u8(0..4) {
        0 => Death::Process,
        1 => Death::ProcessTorn(rng.usize(0..3)),
        2 => Death::Power,
        _ => Death::PowerTorn(rng.usize(0..3)),
    }
}

fn down(rng: &mut fastrand::Rng) -> Micros {
    if rng.bool() {
        rng.u64(100..50_000)
    } else {
        rng.u64(50_000..4_000_000)
    }
}

fn fault(rng: &mut fastrand::Rng, participants: usize) -> Fault {
    let (node, who) = (node(rng, participants), rng.usize(0..participants));
    match rng.u8(0..32) {
        0..6 => Fault::Crash {
            node,
            death: death(rng),
            down_us: down(rng),
        },
        6..14 => {
            let of_node = |point: &&CrashPoint| point.name().starts_with('c') == (node == Node::Coordinator);
            let points: Vec<CrashPoint> = CrashPoint::ALL.iter().filter(of_node).copied().collect();
            Fault::CrashAt {
                point: points[rng.usize(0..points.len())],
                node,
                death: death(rng),
                down_us: down(rng),
            }
        }
        14..16 => Fault::PowerLoss {
            node,
            keep: rng.usize(0..3),
            down_us: down(rng),
        },
        16..19 => Fault::Cut {
            who,
            loses: (rng.bool(), rng.bool()),
            half_open: rng.bool(),
        },
        19..22 => Fault::Partition {
            who,
            towards_coordinator: rng.bool(),
            for_us: rng.u64(10_000..4_000_000),
        },
        22..24 => Fault::FailForce(node),
        24 => Fault::SlowForce(node, rng.u64(10_000..2_000_000)),
        25 => Fault::ClockJump(node, rng.i64(-20_000..20_000)),
        26..28 => Fault::Again(who, rng.usize(..)),
        28 => Fault::ByHand(
            who,
            rng.usize(..),
            if rng.bool() {
                Decision::Commit
            } else {
                Decision::Abort
            },
        ),
        29 => Fault::Checkpoint(node),
        30 => Fault::Asks(who, rng.usize(..)),
        _ => Fault::DamageBranch(who, rng.usize(..)),
    }
}

/// What excuses so much that most seeds must do without it.
fn rare_fault(rare: u8, rng: &mut fastrand::Rng, participants: usize) -> Option<Fault> {
    match rare {
        0..8 => Some(Fault::NewDisk(rng.usize(0..participants))),
        8..12 => Some(Fault::WipeCoordinator),
        12..28 => Some(Fault::Damage {
            which: rng.usize(..),
            hidden: rng.bool(),
        }),
        _ => None,
    }
}
