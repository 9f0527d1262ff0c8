//! Scripts over the simulated world: what one can say, and that it happens as it is said.

use covenant_fault::CrashPoint;
use covenant_rules::coordinator::Reply;
use covenant_rules::{Decision, OutcomeKind};
use covenant_sim::{Answer, Ask, Death, Does, Fault, Node, Setup, Transaction, World};

fn world() -> World {
    World::new(Setup {
        trace: true,
        ..Setup::default()
    })
}

fn transfer(world: &World) -> Transaction {
    world.transaction("T1", &[(0, Does::Moves(0, -5)), (1, Does::Moves(0, 5))])
}

fn outcome(world: &mut World, transaction: &Transaction) -> OutcomeKind {
    let asked = Ask::Get(transaction.transaction_id.clone(), Some(transaction.created));
    let call = world.ask(asked);
    assert!(
        world.run_until(1_000, |world| world.answer(call).is_some()),
        "no answer"
    );
    match world.answer(call) {
        Some(Answer::Said(Reply::Transaction(view))) => view.outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transfer_without_faults_commits_in_eight_messages() {
    let mut world = world();
    let transfer = transfer(&world);
    world.ask(Ask::Execute(transfer.execute()));
    assert!(world.settle(), "{:?}", world.violation());
    let sent = world
        .trace()
        .lines()
        .iter()
        .filter(|line| line.contains("-> ") && line.contains("T1#1.1"));
    assert_eq!(sent.count(), 8, "{:#?}", world.trace().lines());
    assert_eq!(outcome(&mut world, &transfer), OutcomeKind::Committed);
}

#[test]
fn a_crash_between_append_and_force_keeps_or_loses_the_decision_as_the_disk_did() {
    for (death, expected) in [
        (Death::Process, OutcomeKind::Committed),
        (Death::Power, OutcomeKind::NotFound),
        (Death::PowerTorn(1), OutcomeKind::Committed),
    ] {
        let mut world = world();
        let transfer = transfer(&world);
        let point = CrashPoint::CCommitAppended;
        world.crash_at(Node::Coordinator, point, Some(&transfer.transaction_id), death);
        world.ask(Ask::Execute(transfer.execute()));
        assert!(world.run_until_crashed(10_000), "{death:?}");
        assert_eq!(world.crashed_at(), Some((point, Node::Coordinator)));
        world.restart(Node::Coordinator);
        assert!(world.settle(), "{death:?}: {:?}", world.violation());
        assert_eq!(outcome(&mut world, &transfer), expected, "{death:?}");
    }
}

#[test]
fn what_a_process_left_in_the_page_cache_can_be_lost_until_the_next_start_has_forced_it() {
    let mut world = world();
    let transfer = transfer(&world);
    let who = Node::Participant(0);
    world.crash_at(who, CrashPoint::PPreparedAppended, None, Death::Process);
    world.ask(Ask::Execute(transfer.execute()));
    assert!(world.run_until_crashed(10_000));
    world.lose_power(who, 0);
    world.restart(who);
    assert!(world.settle(), "{:?}", world.violation());
    assert_eq!(
        outcome(&mut world, &transfer),
        OutcomeKind::Committed,
        "PREPARE goes again on joining"
    );
}

#[test]
fn every_crash_point_of_a_commit_can_be_reached_and_survived() {
    let of_a_commit = [
        "c.execute.received",
        "c.prepare.sent_some",
        "c.votes.all",
        "c.commit.appended",
        "c.commit.forced",
        "c.commit.sent_some",
        "c.acks.all",
        "c.end.appended",
        "p.prepare.received",
        "p.prepared.appended",
        "p.prepared.forced",
        "p.vote.sent",
        "p.decision.received",
        "p.committed.appended",
        "p.committed.forced",
        "p.ack.sent",
    ];
    for name in of_a_commit {
        for death in [Death::Process, Death::Power] {
            let mut world = world();
            let transfer = transfer(&world);
            let point: CrashPoint = name.parse().unwrap();
            let node = if name.starts_with('c') {
                Node::Coordinator
            } else {
                Node::Participant(1)
            };
            world.crash_at(node, point, None, death);
            world.ask(Ask::Execute(transfer.execute()));
            assert!(world.run_until_crashed(10_000), "{name} is never reached");
            world.run_for(20_000);
            world.restart(node);
            assert!(world.settle(), "{name} {death:?}: {:?}", world.violation());
        }
    }
}

#[test]
fn forget_that_is_acknowledged_is_not_sent_again_while_the_disk_is_slow() {
    let mut world = world();
    let transfer = transfer(&world);
    world.ask(Ask::Execute(transfer.execute()));
    let in_doubt = |world: &World| {
        let machine = world.participant(1)?;
        machine.in_doubt().next().map(|doubt| doubt.xid)
    };
    assert!(world.run_until(1_000, |world| in_doubt(world).is_some()));
    let xid = in_doubt(&world).unwrap();
    world.resolve(1, xid, Decision::Commit);
    let lines = |world: &World, text: &str| {
        let lines = world.trace().lines().iter();
        lines.filter(|line| line.contains(text)).count()
    };
    assert!(world.run_until(1_000, |world| lines(world, "c   forced FORGET T1") == 1));
    // The force that covers FORGET_DONE takes longer than any pause between two FORGETs.
    world.fault(Fault::SlowForce(Node::Coordinator, 60_000_000));
    assert!(world.run_until(1_000, |world| lines(world, "appends lazily FORGET_DONE") == 1));
    world.cut(1, false, false, false);
    world.run_for(50_000);
    assert!(world.all_joined());
    assert_eq!(lines(&world, "forced FORGET_DONE"), 0, "the disk is slow");
    assert_eq!(
        lines(&world, "c   -> p2  FORGET T1"),
        1,
        "{:#?}",
        world.trace().lines()
    );
    assert!(world.settle(), "{:?}", world.violation());
    assert_eq!(outcome(&mut world, &transfer), OutcomeKind::Committed);
}
