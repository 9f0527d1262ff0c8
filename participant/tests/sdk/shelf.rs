//! A shelf of goods: the sample resource. Its disk outlives it, so that opening it again is a restart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use covenant_participant::rules::{
    Decision, Floor, Incarnation, Lineage, Lsn, NoReason, Operator, TransactionId, Vote, Xid,
};
use covenant_participant::{
    Branch, Error, Identity, InDoubt, Recovered, RecoveredBranch, RecoveredState, Resource,
};
use tokio::sync::Semaphore;

/// What the suite must find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    LosesPrepared,
    AppliesTwice,
    ForgetsHolds,
    KeepsAborted,
    ShowsPrepared,
    ForgetsEffects,
    FloorDropsDoubt,
    LosesHeuristics,
    WritesNo,
    KeepsIncarnation,
    HidesDoubt,
    SaysWhatItLikes,
}

#[derive(Clone)]
struct Row {
    branch: Branch,
    state: RecoveredState,
}

/// What is durable.
#[derive(Default)]
pub(crate) struct Disk {
    starts: u64,
    rows: BTreeMap<Xid, Row>,
    floors: BTreeMap<Lineage, Floor>,
    stock: i64,
    /// The calls in the order in which they decided, e.g. `prepare 1`.
    calls: Vec<String>,
}

impl Disk {
    pub(crate) fn stocked(stock: i64) -> Self {
        Self {
            stock,
            ..Self::default()
        }
    }

    /// A disk on which these attempts, each of its own transaction, are prepared.
    pub(crate) fn in_doubt(attempts: impl Iterator<Item = Xid>) -> Self {
        let operation: Arc<[u8]> = b"+1".as_slice().into();
        let row = |xid: Xid| {
            let transaction_id = TransactionId::new(&format!("T{}", xid.seq)).unwrap();
            let branch = Branch {
                xid,
                transaction_id,
                operation: Arc::clone(&operation),
                position: 0,
            };
            (
                xid,
                Row {
                    branch,
                    state: RecoveredState::Prepared {
                        operation: Arc::clone(&operation),
                    },
                },
            )
        };
        Self {
            rows: attempts.map(row).collect(),
            ..Self::default()
        }
    }
}

pub(crate) struct Shelf {
    disk: Arc<Mutex<Disk>>,
    fault: Fault,
    holds: Mutex<BTreeMap<Xid, i64>>,
    /// A permit lets one force return; without a semaphore each returns at once.
    forces: Option<Semaphore>,
    /// How many calls still fail before one is answered.
    pub(crate) failures: AtomicU32,
}

/// How many goods an operation takes: `-N`, `+N`, or `?` for none.
fn amount(operation: &[u8]) -> Option<i64> {
    std::str::from_utf8(operation).ok()?.parse().ok()
}

impl Shelf {
    pub(crate) fn on(disk: &Arc<Mutex<Disk>>) -> Self {
        Self::with(disk, Fault::None)
    }

    pub(crate) fn with(disk: &Arc<Mutex<Disk>>, fault: Fault) -> Self {
        let disk = Arc::clone(disk);
        Self {
            disk,
            fault,
            holds: Mutex::default(),
            forces: None,
            failures: AtomicU32::new(0),
        }
    }

    /// A shelf whose forces return only when [`Shelf::let_force`] says so.
    pub(crate) fn slow() -> Self {
        Self {
            forces: Some(Semaphore::new(0)),
            ..Self::on(&Arc::default())
        }
    }

    /// Lets so many forces return.
    pub(crate) fn let_force(&self, count: usize) {
        self.forces.as_ref().unwrap().add_permits(count);
    }

    pub(crate) fn stock(&self) -> i64 {
        let shown: i64 = if self.fault == Fault::ShowsPrepared {
            self.holds.lock().unwrap().values().sum()
        } else {
            0
        };
        self.disk().stock + shown
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap()
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.disk().calls.clone()
    }

    async fn force(&self) {
        if let Some(forces) = &self.forces {
            forces.acquire().await.unwrap().forget();
        }
    }

    fn note(&self, call: &str, xid: Xid) -> Result<(), Error> {
        self.disk().calls.push(format!("{call} {}", xid.seq));
        let failing = self
            .failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if failing.is_ok() {
            Err(Error::resource("the shelf is out of reach"))
        } else {
            Ok(())
        }
    }

    fn apply(&self, xid: Xid, state: RecoveredState) {
        let mut disk = self.disk();
        let Some(row) = disk.rows.get_mut(&xid) else {
            return;
        };
        let again = !matches!(row.state, RecoveredState::Prepared { .. });
        if again && self.fault != Fault::AppliesTwice {
            return;
        }
        row.state = state;
        let amount = amount(&row.branch.operation).unwrap();
        disk.stock += amount;
        self.holds.lock().unwrap().remove(&xid);
    }

    /// What `prepare` answers at once; `None` if it must be stored.
    fn validate(&self, branch: &Branch) -> Option<Vote> {
        let disk = self.disk();
        let no = |code: &str| Some(Vote::No(NoReason::new(code, "")));
        if disk
            .rows
            .get(&branch.xid)
            .is_some_and(|row| matches!(row.state, RecoveredState::Prepared { .. }))
        {
            return Some(Vote::Yes);
        }
        let has_effect = |row: &&Row| match row.state {
            RecoveredState::Committed | RecoveredState::Heuristic(Decision::Commit) => true,
            RecoveredState::Forgotten { committed } => committed,
            RecoveredState::Prepared { .. } | RecoveredState::Heuristic(Decision::Abort) => false,
        };
        let mut same = disk
            .rows
            .values()
            .filter(|row| row.branch.transaction_id == branch.transaction_id);
        if self.fault != Fault::ForgetsEffects && same.any(|row| has_effect(&row)) {
            return no(NoReason::DUPLICATE_TRANSACTION);
        }
        if &*branch.operation == b"?" {
            return Some(Vote::ReadOnly);
        }
        let held: i64 = self
            .holds
            .lock()
            .unwrap()
            .values()
            .filter(|held| **held < 0)
            .sum();
        match amount(&branch.operation) {
            None => no("MALFORMED_OPERATION"),
            Some(amount) if disk.stock + held + amount < 0 => no(match self.fault {
                Fault::SaysWhatItLikes => "out of stock",
                _ => "OUT_OF_STOCK",
            }),
            Some(_) => None,
        }
    }
}

impl Resource for Shelf {
    async fn start(&self) -> Result<Recovered, Error> {
        let mut disk = self.disk();
        if self.fault != Fault::KeepsIncarnation || disk.starts == 0 {
            disk.starts += 1;
        }
        if self.fault == Fault::LosesPrepared {
            disk.rows
                .retain(|_, row| !matches!(row.state, RecoveredState::Prepared { .. }));
        }
        if self.fault == Fault::LosesHeuristics {
            disk.rows
                .retain(|_, row| !matches!(row.state, RecoveredState::Heuristic(_)));
        }
        let mut positions: BTreeMap<Lineage, Lsn> = BTreeMap::new();
        let mut branches = Vec::new();
        for (xid, row) in &disk.rows {
            let seen = positions.entry(xid.lineage).or_default();
            *seen = (*seen).max(row.branch.position);
            if matches!(row.state, RecoveredState::Prepared { .. }) && self.fault != Fault::ForgetsHolds {
                self.holds
                    .lock()
                    .unwrap()
                    .insert(*xid, amount(&row.branch.operation).unwrap_or(0));
            }
            let (transaction_id, state) = (row.branch.transaction_id.clone(), row.state.clone());
            branches.push(RecoveredBranch {
                xid: *xid,
                transaction_id,
                state,
            });
        }
        let incarnation = Incarnation {
            counter: disk.starts,
            bits: disk.starts << 8,
        };
        Ok(Recovered {
            identity: Identity {
                lineage: Lineage(77),
                incarnation,
            },
            floors: disk
                .floors
                .iter()
                .map(|(lineage, floor)| (*lineage, *floor))
                .collect(),
            positions: positions.into_iter().collect(),
            branches,
        })
    }

    async fn prepare(&self, branch: Branch) -> Result<Vote, Error> {
        self.note("prepare", branch.xid)?;
        let state = RecoveredState::Prepared {
            operation: Arc::clone(&branch.operation),
        };
        if let Some(vote) = self.validate(&branch) {
            if self.fault == Fault::WritesNo && matches!(vote, Vote::No(_)) {
                self.disk().rows.insert(branch.xid, Row { branch, state });
            }
            return Ok(vote);
        }
        self.holds
            .lock()
            .unwrap()
            .insert(branch.xid, amount(&branch.operation).unwrap_or(0));
        self.force().await;
        self.disk().rows.insert(branch.xid, Row { branch, state });
        Ok(Vote::Yes)
    }

    async fn commit(&self, xid: Xid) -> Result<(), Error> {
        self.note("commit", xid)?;
        self.force().await;
        self.apply(xid, RecoveredState::Committed);
        Ok(())
    }

    async fn abort(&self, xid: Xid) -> Result<(), Error> {
        self.note("abort", xid)?;
        if self.fault != Fault::KeepsAborted {
            self.disk().rows.remove(&xid);
        }
        self.holds.lock().unwrap().remove(&xid);
        Ok(())
    }

    async fn resolve(&self, xid: Xid, what: Decision, _by: Operator) -> Result<(), Error> {
        self.note("resolve", xid)?;
        match what {
            Decision::Commit => self.apply(xid, RecoveredState::Heuristic(what)),
            Decision::Abort => {
                if let Some(row) = self.disk().rows.get_mut(&xid) {
                    row.state = RecoveredState::Heuristic(what);
                }
                self.holds.lock().unwrap().remove(&xid);
            }
        }
        Ok(())
    }

    async fn forget(&self, xid: Xid) -> Result<(), Error> {
        self.note("forget", xid)?;
        if let Some(row) = self.disk().rows.get_mut(&xid)
            && let RecoveredState::Heuristic(what) = row.state
        {
            row.state = RecoveredState::Forgotten {
                committed: what == Decision::Commit,
            };
        }
        Ok(())
    }

    fn floor(&self, lineage: Lineage, floor: Floor) {
        let mut disk = self.disk();
        disk.floors.insert(lineage, floor);
        if self.fault == Fault::FloorDropsDoubt {
            let tombstone = |state: &RecoveredState| {
                matches!(
                    state,
                    RecoveredState::Committed | RecoveredState::Forgotten { .. }
                )
            };
            disk.rows
                .retain(|xid, row| !xid.is_below(floor) || tombstone(&row.state));
        }
    }

    async fn in_doubt(&self) -> Result<Vec<InDoubt>, Error> {
        let disk = self.disk();
        if self.fault == Fault::HidesDoubt {
            return Ok(Vec::new());
        }
        let prepared = |row: &&Row| matches!(row.state, RecoveredState::Prepared { .. });
        Ok(disk
            .rows
            .values()
            .filter(prepared)
            .map(|row| InDoubt::from(&row.branch))
            .collect())
    }
}
