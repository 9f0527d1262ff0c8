//! The store: holds and refusals over restarts, what outsiders see and when, heuristics.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use covenant_journal::MemoryImage;
use covenant_participant::{Branch, RecoveredState, Resource};
use covenant_rules::{Decision, Vote};

use super::books::{at_least, leg, name};
use super::world::*;
use crate::*;

async fn in_doubt(ledger: &Ledger) -> Vec<String> {
    let in_doubt = ledger.in_doubt().await.unwrap();
    in_doubt
        .into_iter()
        .map(|branch| branch.transaction_id.to_string())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_holds_and_identity() {
    let image = MemoryImage::new();
    let first = ledger(&image).await;
    run(&first, 1, "T1", &transfer("alice", "bob", 200)).await;
    let floor = Operation {
        assertions: vec![at_least("alice", 150, "THB")],
        ..transfer("alice", "bob", 100)
    };
    assert_eq!(vote(&first, 2, "T2", &floor).await, Vote::Yes);
    assert_eq!(vote(&first, 3, "T3", &single("carol", 7)).await, Vote::Yes);
    first.abort(xid(3)).await.unwrap();
    let (lineage, incarnation) = (first.lineage(), first.incarnation());
    let second = restart(first, &image).await;
    assert_eq!(second.lineage(), lineage);
    assert_eq!(second.incarnation().counter, incarnation.counter + 1);
    assert_eq!(balance(&second, "alice"), (300, 100, 0));
    assert_eq!(balance(&second, "bob"), (200, 0, 100));
    assert_eq!(balance(&second, "carol"), (100, 0, 0));
    assert_eq!(in_doubt(&second).await, ["T2"]);
    // 200 are available, and the floor of T2 keeps 150 of them.
    assert_eq!(
        code(&vote(&second, 4, "T4", &single("alice", -51)).await),
        "INSUFFICIENT_FUNDS"
    );
    assert_eq!(vote(&second, 5, "T5", &single("alice", -50)).await, Vote::Yes);
    let recovered = second.start().await.unwrap();
    assert_eq!(recovered.identity.incarnation, second.incarnation());
    assert_eq!(recovered.positions, [(COORDINATOR, 15)]);
    second.commit(xid(2)).await.unwrap();
    second.commit(xid(2)).await.unwrap();
    assert_eq!(balance(&second, "bob"), (300, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_effect_is_refused_after_commit_after_restart_and_from_the_archive() {
    let image = MemoryImage::new();
    let mut ledger = ledger(&image).await;
    let operation = transfer("alice", "bob", 10);
    run(&ledger, 1, "T1", &operation).await;
    for round in 0..3 {
        let refused = vote(&ledger, 10 + round, "T1", &operation).await;
        assert_eq!(code(&refused), "DUPLICATE_TRANSACTION", "round {round}");
        let Vote::No(reason) = refused else {
            panic!("it is a NO")
        };
        assert!(reason.detail.contains(&xid(1).to_string()), "{}", reason.detail);
        if round == 1 {
            checkpoint(&ledger).await;
        }
        ledger = restart(ledger, &image).await;
    }
    // An attempt that aborted had no effect.
    assert_eq!(vote(&ledger, 20, "T2", &operation).await, Vote::Yes);
    ledger.abort(xid(20)).await.unwrap();
    assert_eq!(vote(&ledger, 21, "T2", &operation).await, Vote::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_calls_answer_the_same_and_hold_once() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    let operation = transfer("alice", "bob", 10);
    for _ in 0..2 {
        assert_eq!(vote(&ledger, 1, "T1", &operation).await, Vote::Yes);
    }
    assert_eq!(balance(&ledger, "alice"), (500, 10, 0));
    // The same attempt with another operation is no call of ours (P21).
    assert!(ledger.prepare(branch(1, "T1", &single("bob", 1))).await.is_err());
    for _ in 0..2 {
        ledger.commit(xid(1)).await.unwrap();
    }
    assert_eq!(balance(&ledger, "alice"), (490, 0, 0));
    assert!(ledger.abort(xid(1)).await.is_err());
    assert!(ledger.commit(xid(9)).await.is_err());
    ledger.abort(xid(9)).await.unwrap();
    ledger.forget(xid(9)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_payloads_are_no_votes_and_leave_no_trace() {
    use covenant_proto::ledger::v1 as proto;
    use prost::Message;
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    let before = ledger.journal().next_lsn();
    let raw = |account: &str, direction, currency: &str| {
        let (account, currency) = (account.to_owned(), currency.to_owned());
        let leg = proto::Leg {
            account,
            direction,
            amount: 1,
            currency,
        };
        proto::Operation {
            legs: vec![leg],
            assertions: Vec::new(),
        }
        .encode_to_vec()
    };
    let payloads = [
        b"\xff\xff\xff".to_vec(),
        Vec::new(),
        vec![0; 32 * 1024 + 1],
        raw("alice", 0, "THB"),
        raw("alice", 7, "THB"),
        raw("@clearing:THB", 1, "THB"),
        raw("a/b", 1, "THB"),
        raw(&"x".repeat(65), 1, "THB"),
        raw("alice", 1, "baht"),
        encode(&Operation {
            legs: Vec::new(),
            assertions: vec![at_least("alice", 0, "THB"); 65],
        }),
        encode(&Operation {
            legs: vec![leg("alice", 1, "THB"); 65],
            assertions: Vec::new(),
        }),
    ];
    for (seq, payload) in (1..).zip(payloads) {
        let asked = Branch {
            operation: payload.into(),
            ..branch(seq, "T1", &look("alice", 0))
        };
        assert_eq!(
            code(&ledger.prepare(asked).await.unwrap()),
            "MALFORMED_OPERATION",
            "{seq}"
        );
    }
    assert_eq!(
        code(&vote(&ledger, 99, "T1", &look("alice", 501)).await),
        "ASSERTION_FAILED"
    );
    assert_eq!(vote(&ledger, 99, "T1", &look("alice", 500)).await, Vote::ReadOnly);
    assert_eq!(ledger.journal().next_lsn(), before);
    assert!(in_doubt(&ledger).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn outsiders_and_read_only_votes_wait_for_what_is_durable() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    assert_eq!(
        vote(&ledger, 1, "T1", &transfer("alice", "bob", 100)).await,
        Vote::Yes
    );
    image.hang();
    let mut commit = pin!(ledger.commit(xid(1)));
    assert!(is_pending(commit.as_mut()));
    // The effect may be built upon at once, but nobody outside sees it, nor a vote that depends on it.
    let mut next = pin!(ledger.prepare(branch(2, "T2", &single("bob", -100))));
    assert!(is_pending(next.as_mut()));
    let mut looked = pin!(ledger.prepare(branch(3, "T3", &look("alice", 400))));
    assert!(is_pending(looked.as_mut()));
    assert_eq!(balance(&ledger, "bob"), (0, 0, 100));
    assert!(ledger.entries(&name("bob"), None, 10).unwrap().0.is_empty());
    image.resume();
    commit.await.unwrap();
    assert_eq!(next.await.unwrap(), Vote::Yes);
    assert_eq!(looked.await.unwrap(), Vote::ReadOnly);
    assert_eq!(balance(&ledger, "bob"), (100, 100, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_says_how_long_its_hold_was_held() {
    let image = MemoryImage::new();
    let clock = HandClock::at(1_000);
    let ledger = Ledger::open_image(std::sync::Arc::new(image), clock.options())
        .await
        .unwrap();
    open_three(&ledger).await;
    clock.set(2_000);
    assert_eq!(
        vote(&ledger, 1, "T1", &transfer("alice", "bob", 1)).await,
        Vote::Yes
    );
    let (holds, _) = ledger.holds(None, 10).unwrap();
    let shown: Vec<_> = holds
        .iter()
        .map(|hold| (hold.account.as_str(), hold.held, hold.since))
        .collect();
    assert_eq!(
        shown,
        [
            ("alice", Held::Amount(-1), 2_000),
            ("bob", Held::Amount(1), 2_000)
        ]
    );
    clock.set(2_750);
    ledger.commit(xid(1)).await.unwrap();
    let (entries, next) = ledger.entries(&name("alice"), None, 1).unwrap();
    assert_eq!(
        (entries[0].held_for_ms(), entries[0].committed_at),
        (Some(750), 2_750)
    );
    let (openings, end) = ledger.entries(&name("alice"), next, 10).unwrap();
    assert_eq!(
        (openings[0].cause.clone(), openings[0].held_for_ms(), end),
        (None, None, None)
    );
    assert!(ledger.holds(None, 10).unwrap().0.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_an_account_form_one_chain_over_checkpoints_and_restarts() {
    let image = MemoryImage::new();
    let mut ledger = ledger(&image).await;
    let mut expected = vec![(500, 500)];
    for seq in 1..=9 {
        let amount = i64::try_from(seq).unwrap();
        run(
            &ledger,
            seq,
            &format!("T{seq}"),
            &transfer("alice", "bob", amount),
        )
        .await;
        let left = expected[0].1 - amount;
        expected.insert(0, (-amount, left));
        match seq % 3 {
            0 => checkpoint(&ledger).await,
            1 => ledger = restart(ledger, &image).await,
            _ => {}
        }
    }
    let mut found = Vec::new();
    let mut from = None;
    loop {
        let (entries, next) = ledger.entries(&name("alice"), from, 4).unwrap();
        assert!(entries.len() <= 4);
        for entry in &entries {
            let line = entry.line("alice").unwrap();
            found.push((line.amount, line.balance_after));
            assert_eq!(entry.lines.iter().map(|line| line.amount).sum::<i64>(), 0);
        }
        from = next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(found, expected);
    // Entry 0 is the opening of alice, not of carol.
    assert!(matches!(
        ledger.entries(&name("carol"), Some(0), 4),
        Err(Error::NoSuchPlace { .. })
    ));
    assert!(matches!(
        ledger.entries(&name("carol"), Some(99), 4),
        Err(Error::NoSuchPlace { .. })
    ));
    assert!(matches!(
        ledger.entries(&name("nobody"), None, 4),
        Err(Error::NoAccount(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn heuristics_are_durable_and_stay_until_they_are_forgotten() {
    let image = MemoryImage::new();
    let mut ledger = ledger(&image).await;
    for seq in 1..=3 {
        assert_eq!(
            vote(&ledger, seq, &format!("T{seq}"), &transfer("alice", "bob", 100)).await,
            Vote::Yes
        );
    }
    ledger.resolve(xid(1), Decision::Commit, by()).await.unwrap();
    ledger.resolve(xid(2), Decision::Abort, by()).await.unwrap();
    assert_eq!(balance(&ledger, "alice"), (400, 100, 0));
    ledger.resolve(xid(1), Decision::Commit, by()).await.unwrap();
    assert!(ledger.resolve(xid(1), Decision::Abort, by()).await.is_err());
    assert!(ledger.commit(xid(1)).await.is_err());
    assert!(ledger.forget(xid(3)).await.is_err());
    for round in 0..2 {
        ledger = restart(ledger, &image).await;
        let states: Vec<_> = ledger
            .start()
            .await
            .unwrap()
            .branches
            .into_iter()
            .map(|branch| branch.state)
            .collect();
        assert_eq!(
            states[0],
            RecoveredState::Heuristic(Decision::Commit),
            "round {round}"
        );
        assert_eq!(states[1], RecoveredState::Heuristic(Decision::Abort));
        checkpoint(&ledger).await;
    }
    assert_eq!(
        code(&vote(&ledger, 9, "T1", &single("bob", 1)).await),
        "DUPLICATE_TRANSACTION"
    );
    for seq in [1, 1, 2] {
        ledger.forget(xid(seq)).await.unwrap();
    }
    let ledger = restart(ledger, &image).await;
    let branches = ledger.start().await.unwrap().branches;
    assert_eq!(branches[0].state, RecoveredState::Forgotten { committed: true });
    assert_eq!(branches[1].state, RecoveredState::Forgotten { committed: false });
    assert_eq!(balance(&ledger, "alice"), (400, 100, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_opened_only_if_absent() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    run(&ledger, 1, "T1", &single("alice", -100)).await;
    let (account, opened) = ledger
        .open_account(&"alice=500:THB".parse().unwrap())
        .await
        .unwrap();
    assert_eq!((account.posted, opened), (400, false));
    let other = ledger.open_account(&"alice=500:USD".parse().unwrap()).await;
    assert!(matches!(other, Err(Error::Open(OpenRefusal::Exists(..)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_lets_go_at_once_and_waits_for_nothing() {
    let image = MemoryImage::new();
    let ledger = ledger(&image).await;
    assert_eq!(vote(&ledger, 1, "T1", &single("alice", -500)).await, Vote::Yes);
    image.hang();
    let mut abort = pin!(ledger.abort(xid(1)));
    assert!(matches!(
        abort.as_mut().poll(&mut Context::from_waker(Waker::noop())),
        Poll::Ready(Ok(()))
    ));
    let mut next = pin!(ledger.prepare(branch(2, "T2", &single("alice", -500))));
    assert!(is_pending(next.as_mut()));
    image.resume();
    assert_eq!(next.await.unwrap(), Vote::Yes);
}
