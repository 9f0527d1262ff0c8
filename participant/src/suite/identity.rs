//! RC13: who a participant is, and what it has seen.

use std::sync::Arc;

use covenant_rules::Vote;

use super::bench::Bench;
use crate::Resource;

pub(super) async fn r13_identity_and_positions<R: Resource>(bench: &mut Bench<'_, R, impl AsyncFn() -> R>) {
    const HIGH: u64 = 1_000;
    let yes = Arc::clone(&bench.samples.yes);
    for position in [HIGH, 7] {
        let mut branch = bench.branch(&yes);
        branch.position = position;
        assert_eq!(
            bench.prepare(&branch).await,
            Vote::Yes,
            "the sample `yes` votes YES"
        );
        bench.commit(branch.xid).await;
    }
    let before = bench.recovered.identity;
    bench.restart().await;
    let after = bench.recovered.identity;
    assert_eq!(after.lineage, before.lineage, "RC13: the lineage stays");
    assert!(
        after.incarnation.counter > before.incarnation.counter,
        "RC13: the incarnation's counter rises"
    );
    assert_ne!(
        after.incarnation.bits, before.incarnation.bits,
        "RC13: each incarnation has its own bits"
    );
    assert_eq!(
        bench.position(),
        HIGH,
        "RC13: the highest position stored in PREPARED comes back"
    );
}
