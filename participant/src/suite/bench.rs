//! The resource under test, its restarts, and calls whose failure names a rule.

use std::collections::BTreeSet;
use std::sync::Arc;

use covenant_codec::words::is_reason_code;
use covenant_rules::participant::{Branch, Recovered, RecoveredState};
use covenant_rules::{Decision, Incarnation, Lineage, Lsn, NoReason, Operator, TransactionId, Vote, Xid};

use super::Samples;
use crate::{InDoubt, Resource};

/// The coordinator log whose attempts the suite makes up.
pub(super) const COORDINATOR: Lineage = Lineage(0x5017_e000_0000_4000_8000_0000_0000_0001);
const INCARNATION: Incarnation = Incarnation {
    counter: 2,
    bits: 0x5017e,
};

pub(super) struct Bench<'a, R, F> {
    open: F,
    pub(super) samples: &'a Samples<R>,
    resource: Option<R>,
    pub(super) recovered: Recovered,
    next: u64,
}

impl<'a, R: Resource, F: AsyncFn() -> R> Bench<'a, R, F> {
    pub(super) async fn new(open: F, samples: &'a Samples<R>) -> Self {
        let resource = open().await;
        let recovered = resource.start().await.expect("RC13: a fresh store starts");
        assert!(
            recovered.branches.is_empty(),
            "the suite needs a store without branches"
        );
        Self {
            open,
            samples,
            resource: Some(resource),
            recovered,
            next: 1,
        }
    }

    pub(super) fn resource(&self) -> &R {
        self.resource
            .as_ref()
            .expect("a resource is open between restarts")
    }

    /// Drops the resource, opens it again, and checks that holds and list agree (RC5).
    pub(super) async fn restart(&mut self) {
        drop(self.resource.take());
        let resource = (self.open)().await;
        self.recovered = resource
            .start()
            .await
            .expect("RC13: a store that was used starts again");
        self.resource = Some(resource);
        let prepared: BTreeSet<Xid> = self
            .recovered
            .branches
            .iter()
            .filter(|branch| matches!(branch.state, RecoveredState::Prepared { .. }))
            .map(|branch| branch.xid)
            .collect();
        assert_eq!(
            self.in_doubt().await,
            prepared,
            "RC5: in_doubt() and start() list the same branches"
        );
    }

    /// A new attempt of a new transaction.
    pub(super) fn branch(&mut self, operation: &Arc<[u8]>) -> Branch {
        let transaction_id = format!("suite-{}", self.next);
        let transaction_id = TransactionId::new(&transaction_id).expect("a short id is an id");
        let first = Branch {
            xid: self.next_xid(),
            transaction_id,
            operation: Arc::clone(operation),
            position: 1,
        };
        self.retry(&first)
    }

    /// A new attempt of the same transaction.
    pub(super) fn retry(&mut self, branch: &Branch) -> Branch {
        let xid = self.next_xid();
        self.next += 1;
        Branch {
            xid,
            ..branch.clone()
        }
    }

    /// The attempt that comes next; every earlier one lies below it.
    pub(super) fn next_xid(&self) -> Xid {
        Xid {
            lineage: COORDINATOR,
            incarnation: INCARNATION,
            seq: self.next,
        }
    }

    /// A new branch that voted YES, and that outsiders do not see (RC8).
    pub(super) async fn prepared(&mut self) -> Branch {
        let before = self.state();
        let yes = Arc::clone(&self.samples.yes);
        let branch = self.branch(&yes);
        assert_eq!(
            self.prepare(&branch).await,
            Vote::Yes,
            "the sample `yes` votes YES"
        );
        assert_eq!(self.state(), before, "RC8: outsiders do not see what is prepared");
        branch
    }

    pub(super) async fn prepare(&self, branch: &Branch) -> Vote {
        let vote = self
            .resource()
            .prepare(branch.clone())
            .await
            .expect("RC4: prepare knows its result on a sound store");
        if let Vote::No(reason) = &vote {
            let code = &*reason.code;
            assert!(
                is_reason_code(code),
                "RC14: {code:?} is no code in upper snake case of at most 64 bytes"
            );
        }
        vote
    }

    pub(super) async fn commit(&self, xid: Xid) {
        self.resource()
            .commit(xid)
            .await
            .expect("RC4: commit knows its result on a sound store");
    }

    pub(super) async fn abort(&self, xid: Xid) {
        self.resource()
            .abort(xid)
            .await
            .expect("RC4: abort knows its result on a sound store");
    }

    pub(super) async fn resolve(&self, xid: Xid, what: Decision) {
        let by = Operator {
            who: Arc::from("suite"),
            why: Arc::from("conformance"),
        };
        self.resource()
            .resolve(xid, what, by)
            .await
            .expect("RC4: resolve knows its result on a sound store");
    }

    pub(super) async fn forget(&self, xid: Xid) {
        self.resource()
            .forget(xid)
            .await
            .expect("RC4: forget knows its result on a sound store");
    }

    pub(super) async fn in_doubt(&self) -> BTreeSet<Xid> {
        let listed = self
            .resource()
            .in_doubt()
            .await
            .expect("RC5: in_doubt() answers on a sound store");
        let count = listed.len();
        let set: BTreeSet<Xid> = listed.into_iter().map(|InDoubt { xid, .. }| xid).collect();
        assert_eq!(set.len(), count, "RC2: in_doubt() lists each branch once");
        set
    }

    pub(super) fn state(&self) -> String {
        (self.samples.state)(self.resource())
    }

    /// What the last restart recovered of a branch.
    pub(super) fn recovered(&self, xid: Xid) -> Option<&RecoveredState> {
        self.recovered
            .branches
            .iter()
            .find(|branch| branch.xid == xid)
            .map(|branch| &branch.state)
    }

    /// The highest position that the last restart recovered of the suite's coordinator.
    pub(super) fn position(&self) -> Lsn {
        let of_ours = self
            .recovered
            .positions
            .iter()
            .filter(|(lineage, _)| *lineage == COORDINATOR);
        of_ours.map(|(_, position)| *position).max().unwrap_or(0)
    }
}

/// Whether a vote is NO(`DUPLICATE_TRANSACTION`).
pub(super) fn is_duplicate(vote: &Vote) -> bool {
    matches!(vote, Vote::No(reason) if &*reason.code == NoReason::DUPLICATE_TRANSACTION)
}
