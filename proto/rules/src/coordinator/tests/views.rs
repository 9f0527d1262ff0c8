//! What callers and operators see beside the outcome: who did not vote, why nobody may say, what was done by hand.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::super::{Effect, Reply, View};
use super::bench::START;
use super::rows::{aborting, committing, preparing};
use super::{Archive, Bench, name, tid, xid};
use crate::{BranchState, Heuristic, Limits, Quarantined, Record, UnknownCause};

/// The transaction as it stands, running, open or archived.
fn view(bench: &Bench) -> View {
    let archived = bench.archive.by_id(&tid("T1"));
    let archived = || archived.map(|outcome| bench.machine.view_of_outcome(&outcome));
    bench.machine.find_view(&tid("T1")).or_else(archived).unwrap()
}

/// State, heuristic and damage of each branch.
fn branches(bench: &Bench) -> Vec<(BranchState, Option<Heuristic>, Option<bool>)> {
    let branches = view(bench).branches.into_iter();
    branches
        .map(|branch| (branch.state, branch.heuristic, branch.damage))
        .collect()
}

const COMMITTED: (BranchState, Option<Heuristic>, Option<bool>) = (BranchState::Committed, None, None);

#[test]
fn a_deadline_names_who_had_not_voted_also_after_a_restart() {
    let mut bench = preparing();
    bench.says("b", "YES 1/1");
    bench.passes(5_000);
    assert_eq!(view(&bench).missing_votes, [], "ABORT is not durable");
    bench.forces();
    assert_eq!(view(&bench).missing_votes, [name("a")]);
    bench.crashes();
    let replayed = bench.effects.iter().find_map(|effect| {
        if let Effect::Archive(outcome) = effect {
            Some(bench.machine.view_of_outcome(outcome))
        } else {
            None
        }
    });
    assert_eq!(replayed.unwrap().missing_votes, [name("a")]);
    let mut bench = aborting();
    bench.forces();
    assert_eq!(view(&bench).missing_votes, [], "it was a NO");
}

#[test]
fn a_branch_decided_by_hand_never_passes_for_an_ordinary_one() {
    for (report, what, damage) in [
        ("COMMIT", Heuristic::Commit, false),
        ("ABORT", Heuristic::Abort, true),
    ] {
        let mut bench = committing();
        bench.says("a", &alloc::format!("REPORT 1/1 {report}"));
        bench.forces();
        let by_hand = if damage {
            BranchState::HeuristicAbort
        } else {
            BranchState::HeuristicCommit
        };
        assert_eq!(branches(&bench)[0], (by_hand, Some(what), Some(damage)));
        if damage {
            bench.forgets("1/1", "a");
        }
        bench.forces();
        bench.says("a", "FORGET_ACK 1/1");
        bench.forces();
        let forgotten = (BranchState::Forgotten, Some(what), Some(damage));
        let still_committing = (BranchState::Committing, None, None);
        assert_eq!(branches(&bench), [forgotten, still_committing]);
        // A checkpoint and a restart carry it on.
        let mut bench = Bench::recovering(
            bench.machine.fold().records(),
            Archive::default(),
            Limits::DEFAULT,
            bench.wall(),
        );
        bench.forces();
        assert_eq!(branches(&bench)[0], forgotten);
        bench.joins("b");
        bench.says("b", "ACK 1/1");
        assert_eq!(branches(&bench), [forgotten, COMMITTED], "END is not durable");
        bench.forces();
        assert_eq!(bench.machine.fold().open.len(), 0);
        assert_eq!(branches(&bench), [forgotten, COMMITTED], "archived");
    }
}

#[test]
fn an_aborted_branch_that_was_committed_by_hand_shows_it_after_it_is_forgotten() {
    let mut bench = aborting();
    bench.says("a", "REPORT 1/1 COMMIT");
    bench.forces();
    bench.forces();
    bench.forgets("1/1", "a");
    bench.forces();
    bench.says("a", "FORGET_ACK 1/1");
    bench.forces();
    let aborted = (BranchState::Aborted, None, None);
    let forgotten = (BranchState::Forgotten, Some(Heuristic::Commit), Some(true));
    assert_eq!(branches(&bench), [forgotten, aborted]);
}

#[test]
fn a_hazard_that_a_late_ack_cleared_leaves_an_ordinary_branch() {
    let mut bench = committing();
    bench.says("b", "ACK 1/1");
    bench.leaves("a");
    bench.joins_as("a", crate::Lineage(0x99), 1);
    bench.forces();
    bench.joins("a");
    bench.says("a3", "ACK 1/1");
    bench.forces();
    assert_eq!(branches(&bench), [COMMITTED, COMMITTED]);
}

#[test]
fn every_unknown_says_why() {
    let told = |bench: &mut Bench, created: u64| {
        bench.gets_of("T1", Some(created));
        let view = bench.effects.iter().find_map(|effect| {
            if let Effect::Reply {
                reply: Reply::Transaction(view),
                ..
            } = effect
            {
                Some(view.unknown)
            } else {
                None
            }
        });
        view.unwrap()
    };
    let over = |extra: Vec<Record>| {
        let mut log = Bench::new("a b").log;
        log.extend(extra);
        let mut bench = Bench::recovering(log, Archive::default(), Limits::DEFAULT, START + 60_000);
        bench.forces();
        bench
    };
    assert_eq!(told(&mut over(vec![]), START), None, "NOT_FOUND");
    assert_eq!(
        told(&mut over(vec![]), START - 9_000),
        Some(UnknownCause::BeforeBirth)
    );
    let suspect = Record::Suspect {
        participant: Some(name("a")),
        position: 99,
    };
    assert_eq!(told(&mut over(vec![suspect]), START), Some(UnknownCause::Suspect));
    let damaged = Record::Quarantined(Quarantined {
        xid: Some(xid(1, 1)),
        transaction_id: Some(tid("T1")),
        bytes: Arc::from([]),
    });
    assert_eq!(
        told(&mut over(vec![damaged]), START),
        Some(UnknownCause::Quarantined)
    );
    let mut bench = preparing();
    bench.says("a", "NO 1/1 DUPLICATE_TRANSACTION");
    bench.forces();
    assert_eq!(view(&bench).unknown, Some(UnknownCause::OtherAttempt));
}
