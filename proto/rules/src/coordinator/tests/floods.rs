//! Floods: what one of many heuristics costs does not depend on how many there are, and no single event, a start
//! included, asks for unbounded work.

extern crate std;

use alloc::vec::Vec;
use std::time::{Duration, Instant};

use super::super::{Effect, Event};
use super::bench::{START, lineage_of};
use super::{Archive, Bench, name, xid};
use crate::{Heuristic, Limits, Lineage, Lsn, Record, ToCoordinator};

/// The most effects that one event may have beside those it is answered with: slices, timers, their records.
const MOST_EFFECTS: usize = 4_096;

/// A machine in its second start that `a` has joined, so that attempts of the first are judged by presumption.
fn second_start() -> Bench {
    // Nobody knows these attempts, so they may take half of the room.
    let limits = Limits {
        max_heuristics: 2 * Limits::DEFAULT.max_heuristics,
        ..Limits::DEFAULT
    };
    let mut bench = Bench::recovering(Bench::new("a b").log, Archive::default(), limits, START + 1_000);
    bench.forces();
    bench.joins("a");
    bench.forces();
    bench
}

/// `count` messages of `a` about attempts of the first start; how long each took on average.
fn floods(bench: &mut Bench, count: u64, message: impl Fn(crate::Xid) -> ToCoordinator) -> Duration {
    let session = bench.session("a");
    let began = Instant::now();
    for seq in 1..=count {
        let event = Event::Message {
            session,
            message: message(xid(1, seq)),
            known: None,
        };
        bench.takes(event);
    }
    began.elapsed() / u32::try_from(count).unwrap()
}

/// All that was appended becomes durable, a hundred records at a time.
fn forces(bench: &mut Bench) {
    while bench.machine.position() < bench.log.len() as Lsn {
        let upto = (bench.machine.position() + 100).min(bench.log.len() as Lsn);
        bench.takes(Event::Durable(upto));
    }
}

/// Ticks until no walk is left; the most effects of one of them.
fn ticks(bench: &mut Bench) -> usize {
    let mut most = 0;
    for _ in 0..2_000 {
        bench.now += 1;
        most = most.max(bench.takes(Event::Tick));
        forces(bench);
    }
    most
}

fn report(what: Heuristic) -> impl Fn(crate::Xid) -> ToCoordinator {
    move |xid| ToCoordinator::Report(xid, what)
}

#[test]
fn a_report_costs_the_same_among_many() {
    let per_report = |count| {
        let mut bench = second_start();
        // Said twice: the second time each is found among those on their way.
        let each = floods(&mut bench, count, report(Heuristic::Commit))
            + floods(&mut bench, count, report(Heuristic::Commit));
        assert_eq!(bench.log.len() as u64 - bench.machine.position(), count);
        forces(&mut bench);
        assert_eq!(bench.machine.fold().heuristics.len() as u64, count);
        each
    };
    let few = per_report(1_000);
    let many = per_report(100_000);
    assert!(many < 20 * few, "{many:?} among 100,000, {few:?} among 1,000");
}

#[test]
fn forgetting_costs_the_same_among_many() {
    let per_report = |count| {
        let mut bench = second_start();
        let began = Instant::now();
        floods(&mut bench, count, report(Heuristic::Abort));
        forces(&mut bench);
        floods(&mut bench, count, ToCoordinator::ForgetAck);
        forces(&mut bench);
        assert!(bench.machine.fold().heuristics.is_empty());
        began.elapsed() / u32::try_from(count).unwrap()
    };
    let few = per_report(1_000);
    let many = per_report(100_000);
    assert!(many < 20 * few, "{many:?} among 100,000, {few:?} among 1,000");
}

/// A log with so many heuristics of `a` that agree with presumption; with a FORGET of each, or without one.
fn log_of(count: u64, forget: bool) -> Vec<Record> {
    let mut log = Bench::new("a b").log;
    for seq in 1..=count {
        log.push(Record::Heuristic {
            xid: xid(1, seq),
            participant: name("a"),
            lineage: lineage_of("a"),
            what: Heuristic::Abort,
            damage: Some(false),
            outcome: None,
        });
        if forget {
            log.push(Record::Forget {
                xid: xid(1, seq),
                participant: name("a"),
                by: None,
            });
        }
    }
    log
}

#[test]
fn a_start_with_many_heuristics_is_paced_and_gets_through_all_of_them() {
    let began = Instant::now();
    let mut bench = Bench::recovering(
        log_of(100_000, false),
        Archive::default(),
        Limits::DEFAULT,
        START + 1_000,
    );
    let upto = bench.log.len() as Lsn;
    assert!(bench.takes(Event::Durable(upto)) <= MOST_EFFECTS);
    assert!(ticks(&mut bench) <= MOST_EFFECTS);
    let forgets = |record: &&Record| matches!(record, Record::Forget { .. });
    assert_eq!(bench.log.iter().filter(forgets).count(), 100_000);
    std::eprintln!("start with 100,000 heuristics: {:?}", began.elapsed());
}

#[test]
fn a_join_with_many_forgets_due_is_paced_and_gets_all_of_them() {
    let mut bench = Bench::recovering(
        log_of(10_000, true),
        Archive::default(),
        Limits::DEFAULT,
        START + 1_000,
    );
    bench.forces();
    ticks(&mut bench);
    bench.joins("a");
    let mut sent = forgets_sent(&bench.effects);
    assert!(sent > 0 && bench.effects.len() <= MOST_EFFECTS);
    // Before the first of them is due again.
    for _ in 0..100 {
        bench.now += 1;
        let effects = bench.machine.step(bench.now, Event::Tick);
        assert!(effects.len() <= MOST_EFFECTS);
        sent += forgets_sent(&effects);
    }
    assert_eq!(sent, 10_000);
}

#[test]
fn a_name_that_is_taken_from_many_heuristics_is_paced_and_resolves_all_of_them() {
    let mut bench = Bench::recovering(
        log_of(10_000, true),
        Archive::default(),
        Limits::DEFAULT,
        START + 1_000,
    );
    bench.forces();
    ticks(&mut bench);
    bench.joins_as("a", Lineage(0x99), 1);
    assert!(bench.effects.len() <= MOST_EFFECTS);
    assert!(ticks(&mut bench) <= MOST_EFFECTS);
    assert!(bench.machine.fold().heuristics.is_empty());
}

fn forgets_sent(effects: &[Effect]) -> usize {
    let forget = |effect: &&Effect| {
        matches!(
            effect,
            Effect::Send {
                message: crate::ToParticipant::Forget(_),
                ..
            }
        )
    };
    effects.iter().filter(forget).count()
}
