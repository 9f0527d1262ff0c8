//! The rules about branches: RC1, RC2 and RC5 to RC12.

use std::sync::Arc;

use covenant_rules::participant::RecoveredState;
use covenant_rules::{Decision, Floor, Vote};

use super::bench::{Bench, COORDINATOR, is_duplicate};
use crate::Resource;

pub(super) async fn r1_completion_is_durability<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    let branch = bench.prepared().await;
    bench.restart().await;
    let prepared = RecoveredState::Prepared {
        operation: Arc::clone(&branch.operation),
    };
    assert_eq!(
        bench.recovered(branch.xid),
        Some(&prepared),
        "RC1: a YES survives a restart, with its operation"
    );
    let before = bench.state();
    bench.commit(branch.xid).await;
    let after = bench.state();
    assert_ne!(before, after, "RC1: the effect of a completed commit is there");
    bench.restart().await;
    let committed = Some(&RecoveredState::Committed);
    assert_eq!(
        bench.recovered(branch.xid),
        committed,
        "RC1: COMMITTED survives a restart"
    );
    assert_eq!(bench.state(), after, "RC1: the effect survives a restart");
}

pub(super) async fn r2_calls_are_repeatable<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    let branch = bench.prepared().await;
    assert_eq!(
        bench.prepare(&branch).await,
        Vote::Yes,
        "RC2: prepare again is YES again"
    );
    assert_eq!(
        bench.in_doubt().await.len(),
        1,
        "RC2: prepare again is one branch still"
    );
    bench.commit(branch.xid).await;
    let after = bench.state();
    bench.commit(branch.xid).await;
    assert_eq!(bench.state(), after, "RC2: commit again has no second effect");
    bench.restart().await;
    bench.commit(branch.xid).await;
    assert_eq!(
        bench.state(),
        after,
        "RC2: commit again after a restart has no second effect"
    );

    let branch = bench.prepared().await;
    bench.abort(branch.xid).await;
    bench.abort(branch.xid).await;
    assert_eq!(bench.state(), after, "RC2: abort again changes nothing");

    let branch = bench.prepared().await;
    bench.resolve(branch.xid, Decision::Commit).await;
    let after = bench.state();
    bench.resolve(branch.xid, Decision::Commit).await;
    assert_eq!(bench.state(), after, "RC2: resolve again has no second effect");
    bench.forget(branch.xid).await;
    bench.forget(branch.xid).await;
    assert_eq!(bench.state(), after, "RC2: forget again changes nothing");
}

pub(super) async fn r5_holds_survive<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    let branches = [
        bench.prepared().await,
        bench.prepared().await,
        bench.prepared().await,
    ];
    bench.abort(branches[1].xid).await;
    let held = [branches[0].xid, branches[2].xid];
    assert!(
        bench.in_doubt().await.iter().eq(held.iter()),
        "RC5: in_doubt() lists what is prepared and nothing else"
    );
    bench.restart().await;
    // An aborted branch may be back: its ABORTED is lazy (RC6).
    let listed = bench.in_doubt().await;
    assert!(
        held.iter().all(|xid| listed.contains(xid)),
        "RC5: what is prepared is in doubt after a restart"
    );
    for xid in listed {
        bench.abort(xid).await;
    }
}

pub(super) async fn r5_a_prepared_branch_excludes<R: Resource>(
    bench: &mut Bench<'_, R, impl AsyncFn() -> R>,
) {
    let Some(exclusive) = bench.samples.exclusive.clone() else {
        return;
    };
    let holder = bench.branch(&exclusive);
    assert_eq!(
        bench.prepare(&holder).await,
        Vote::Yes,
        "the sample `exclusive` votes YES"
    );
    for restarted in [false, true] {
        if restarted {
            bench.restart().await;
        }
        let other = bench.branch(&exclusive);
        let refused = matches!(bench.prepare(&other).await, Vote::No(_));
        assert!(
            refused,
            "RC5: a prepared branch holds (after a restart: {restarted})"
        );
    }
    bench.abort(holder.xid).await;
    let other = bench.branch(&exclusive);
    assert_eq!(bench.prepare(&other).await, Vote::Yes, "RC6: an abort releases");
    bench.abort(other.xid).await;
}

pub(super) async fn r6_abort_leaves_nothing<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    let before = bench.state();
    let branch = bench.prepared().await;
    bench.abort(branch.xid).await;
    assert!(
        bench.in_doubt().await.is_empty(),
        "RC6: an aborted branch is not in doubt"
    );
    assert_eq!(bench.state(), before, "RC6: an aborted branch has no effect");
    bench.abort(bench.next_xid()).await;
    assert!(
        bench.in_doubt().await.is_empty(),
        "RC6: abort of the unknown does nothing"
    );
    let retry = bench.retry(&branch);
    assert_eq!(
        bench.prepare(&retry).await,
        Vote::Yes,
        "RC6: a retry of an aborted transaction can prepare"
    );
    bench.abort(retry.xid).await;
}

pub(super) async fn r7_r8_an_effect_is_applied_once<R: Resource>(
    bench: &mut Bench<'_, R, impl AsyncFn() -> R>,
) {
    let before = bench.state();
    let branch = bench.prepared().await;
    bench.commit(branch.xid).await;
    let after = bench.state();
    assert_ne!(after, before, "RC8: outsiders see what is committed and durable");
    for _ in 0..2 {
        bench.restart().await;
        assert_eq!(
            bench.state(),
            after,
            "RC7: effect and COMMITTED are one: a replay applies it once"
        );
    }
}

pub(super) async fn r9_once_per_transaction<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    let committed = bench.prepared().await;
    bench.commit(committed.xid).await;
    let by_hand = bench.prepared().await;
    bench.resolve(by_hand.xid, Decision::Commit).await;
    for (branch, how) in [(&committed, "commit"), (&by_hand, "resolve")] {
        let retry = bench.retry(branch);
        let vote = bench.prepare(&retry).await;
        assert!(
            is_duplicate(&vote),
            "RC9: after {how} a retry is a duplicate, not {vote:?}"
        );
    }
    bench.restart().await;
    let next = bench.next_xid();
    bench.resource().floor(
        COORDINATOR,
        Floor {
            counter: next.incarnation.counter,
            seq: next.seq,
        },
    );
    let retry = bench.retry(&committed);
    let vote = bench.prepare(&retry).await;
    assert!(
        is_duplicate(&vote),
        "RC9: below the floor a retry is a duplicate still, not {vote:?}"
    );
    bench.restart().await;
    let retry = bench.retry(&committed);
    let vote = bench.prepare(&retry).await;
    assert!(
        is_duplicate(&vote),
        "RC9: after a restart a retry is a duplicate still, not {vote:?}"
    );
    bench.forget(by_hand.xid).await;
}

pub(super) async fn r10_floors_drop_no_doubt_and_no_heuristic<R: Resource>(
    bench: &mut Bench<'_, R, impl AsyncFn() -> R>,
) {
    let doubt = bench.prepared().await;
    let by_hand = bench.prepared().await;
    bench.resolve(by_hand.xid, Decision::Abort).await;
    let next = bench.next_xid();
    let floor = Floor {
        counter: next.incarnation.counter,
        seq: next.seq,
    };
    bench.resource().floor(COORDINATOR, floor);
    // Forces whatever was lazy, on a store that appends in order.
    let later = bench.prepared().await;
    bench.restart().await;
    let kept = matches!(bench.recovered(doubt.xid), Some(RecoveredState::Prepared { .. }));
    assert!(kept, "RC10: a floor never drops a branch in doubt");
    let by_hand_kept = bench.recovered(by_hand.xid) == Some(&RecoveredState::Heuristic(Decision::Abort));
    assert!(by_hand_kept, "RC10: a floor never drops a heuristic");
    for (lineage, stored) in &bench.recovered.floors {
        assert!(
            *lineage != COORDINATOR || *stored <= floor,
            "RC10: a floor that nobody told: {stored:?}"
        );
    }
    bench.commit(doubt.xid).await;
    bench.abort(later.xid).await;
    bench.forget(by_hand.xid).await;
}

pub(super) async fn r11_heuristics_last_until_forgotten<R: Resource>(
    bench: &mut Bench<'_, R, impl AsyncFn() -> R>,
) {
    for what in [Decision::Commit, Decision::Abort] {
        let before = bench.state();
        let branch = bench.prepared().await;
        bench.resolve(branch.xid, what).await;
        assert!(
            bench.in_doubt().await.is_empty(),
            "RC11: a resolved branch is not in doubt"
        );
        let after = bench.state();
        let committed = what == Decision::Commit;
        assert_eq!(
            after != before,
            committed,
            "RC11: {what:?} by hand has its effect, and no other"
        );
        bench.restart().await;
        let by_hand = Some(&RecoveredState::Heuristic(what));
        assert_eq!(
            bench.recovered(branch.xid),
            by_hand,
            "RC11: a heuristic survives a restart"
        );
        bench.forget(branch.xid).await;
        bench.restart().await;
        let forgotten = Some(&RecoveredState::Forgotten { committed });
        assert_eq!(
            bench.recovered(branch.xid),
            forgotten,
            "RC11: FORGOTTEN keeps whether there was an effect"
        );
        assert_eq!(bench.state(), after, "RC11: forgetting undoes nothing");
    }
}

pub(super) async fn r12_no_and_read_only_leave_no_trace<R: Resource>(
    bench: &mut Bench<'_, R, impl AsyncFn() -> R>,
) {
    let before = bench.state();
    let no = bench.branch(&Arc::clone(&bench.samples.no));
    let vote = bench.prepare(&no).await;
    assert!(
        matches!(vote, Vote::No(_)),
        "the sample `no` votes NO, not {vote:?}"
    );
    let mut traceless = vec![no.xid];
    if let Some(read_only) = bench.samples.read_only.clone() {
        let branch = bench.branch(&read_only);
        assert_eq!(
            bench.prepare(&branch).await,
            Vote::ReadOnly,
            "the sample `read_only` votes READ_ONLY"
        );
        traceless.push(branch.xid);
    }
    assert!(
        bench.in_doubt().await.is_empty(),
        "RC12: NO and READ_ONLY hold nothing"
    );
    bench.restart().await;
    for xid in traceless {
        assert_eq!(bench.recovered(xid), None, "RC12: NO and READ_ONLY write nothing");
    }
    assert_eq!(bench.state(), before, "RC12: NO and READ_ONLY have no effect");
}
