//! The ledger as a participant's resource: the SDK's contract on the store.
//!
//! Each call changes the live state and appends before its first await, so append order is the order of calls; what
//! it completes with is durable by then, but ABORTED, which nothing waits for (P10). READ_ONLY waits until
//! everything that the assertions saw is durable: its voter is an outsider like any other (section 4).
//!
//! A heuristic changes the live state when it is appended, as every record does, so that append order stays the
//! order of changes of state. *Forced before holds or effects change* holds for all that can be seen: outsiders read
//! what is durable, and a YES that builds on what it freed stands behind it in the log and is forced with it.

use covenant_participant::{Branch, Error, InDoubt, Recovered, RecoveredBranch, RecoveredState, Resource};
use covenant_rules::participant::Identity;
use covenant_rules::{Decision, Floor, Lineage, Operator, Vote, Xid};

use crate::branch::{self, Phase};
use crate::live::{Live, Voted};
use crate::state::State;
use crate::store::Ledger;

impl Resource for Ledger {
    async fn start(&self) -> Result<Recovered, Error> {
        let identity = Identity {
            lineage: self.lineage(),
            incarnation: self.incarnation(),
        };
        Ok(self.inner.change(|live| recovered(identity, &live.state)))
    }

    async fn prepare(&self, branch: Branch) -> Result<Vote, Error> {
        let at = self.inner.now();
        match self
            .inner
            .change(|live| live.prepare(branch, at))
            .map_err(Error::resource)?
        {
            Voted::Yes(lsn) => {
                self.inner.wait_durable(lsn).await;
                Ok(Vote::Yes)
            }
            Voted::ReadOnly(lsn) => {
                self.inner.wait_durable(lsn).await;
                Ok(Vote::ReadOnly)
            }
            Voted::No(refusal) => Ok(Vote::No(refusal.into())),
        }
    }

    async fn commit(&self, xid: Xid) -> Result<(), Error> {
        let at = self.inner.now();
        let lsn = self
            .inner
            .change(|live| live.commit(xid, at))
            .map_err(Error::resource)?;
        self.inner.wait_durable(lsn).await;
        Ok(())
    }

    async fn abort(&self, xid: Xid) -> Result<(), Error> {
        self.inner.change(|live| live.abort(xid)).map_err(Error::resource)
    }

    async fn resolve(&self, xid: Xid, what: Decision, by: Operator) -> Result<(), Error> {
        let at = self.inner.now();
        let lsn = self
            .inner
            .change(|live| live.resolve(xid, what, by, at))
            .map_err(Error::resource)?;
        self.inner.wait_durable(lsn).await;
        Ok(())
    }

    async fn forget(&self, xid: Xid) -> Result<(), Error> {
        let lsn = self
            .inner
            .change(|live| live.forget(xid))
            .map_err(Error::resource)?;
        self.inner.wait_durable(lsn).await;
        Ok(())
    }

    fn floor(&self, lineage: Lineage, floor: Floor) {
        if let Err(error) = self.inner.change(|live| live.raise_floor(lineage, floor)) {
            tracing::warn!(%error, "a floor was not recorded; tombstones stay longer");
        }
    }

    async fn in_doubt(&self) -> Result<Vec<InDoubt>, Error> {
        let prepared = |live: &mut Live| {
            let in_doubt = live.state.prepared().map(|prepared| InDoubt {
                xid: prepared.xid,
                transaction_id: prepared.transaction_id.clone(),
            });
            in_doubt.collect()
        };
        Ok(self.inner.change(prepared))
    }
}

/// What the state after replay tells the machine.
pub(crate) fn recovered(identity: Identity, state: &State) -> Recovered {
    let branch = |(xid, branch): (&Xid, &branch::Branch)| RecoveredBranch {
        xid: *xid,
        transaction_id: branch.transaction_id.clone(),
        state: match &branch.phase {
            Phase::Prepared { operation, .. } => RecoveredState::Prepared {
                operation: operation.clone(),
            },
            Phase::Committed { .. } => RecoveredState::Committed,
            Phase::ByHand {
                commit,
                forgotten: true,
                ..
            } => RecoveredState::Forgotten { committed: *commit },
            Phase::ByHand {
                commit: true,
                forgotten: false,
                ..
            } => RecoveredState::Heuristic(Decision::Commit),
            Phase::ByHand {
                commit: false,
                forgotten: false,
                ..
            } => RecoveredState::Heuristic(Decision::Abort),
        },
    };
    Recovered {
        identity,
        floors: state
            .floors
            .iter()
            .map(|(lineage, floor)| (*lineage, *floor))
            .collect(),
        positions: state
            .positions
            .iter()
            .map(|(lineage, lsn)| (*lineage, *lsn))
            .collect(),
        branches: state.branches.iter().map(branch).collect(),
    }
}
