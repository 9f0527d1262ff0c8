//! A simple participant for the random world: section 4 with a disk that is always forced.
//!
//! It is written from the table alone and knows nothing of the crate's own participant. What it leaves out:
//! forces that take time (completions come at once) and its own crashes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use crate::{
    Floor, Heuristic, Lineage, Name, NoReason, ToCoordinator, ToParticipant, TransactionId, Vote, Xid,
};

/// What a participant knows of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Prepared,
    Committed,
    Heuristic(Heuristic),
    Forgotten,
}

/// One lineage under one name.
pub(super) struct Participant {
    pub(super) name: Name,
    pub(super) lineage: Lineage,
    pub(super) branches: BTreeMap<Xid, (TransactionId, Held)>,
    /// P3: PREPAREs that wait for another attempt of their transaction.
    waiting: Vec<(Xid, TransactionId, u8)>,
    pub(super) floor: Floor,
    pub(super) position: u64,
    /// All it ever said: what a late duplicate may be.
    pub(super) said: Vec<ToCoordinator>,
    /// Which attempt of a transaction has its effect here; kept for ever (P2).
    pub(super) effects: BTreeMap<TransactionId, Xid>,
    /// Attempts that COMMIT and ABORT ended here, heuristics apart.
    pub(super) committed: BTreeSet<Xid>,
    pub(super) aborted: BTreeSet<Xid>,
    /// COMMITs below the floor for branches whose tombstone is gone (P8).
    pub(super) acked_below_floor: usize,
}

impl Participant {
    pub(super) fn new(name: Name, lineage: Lineage) -> Self {
        Self {
            name,
            lineage,
            branches: BTreeMap::new(),
            waiting: Vec::new(),
            floor: Floor::default(),
            position: 0,
            said: Vec::new(),
            effects: BTreeMap::new(),
            committed: BTreeSet::new(),
            aborted: BTreeSet::new(),
            acked_below_floor: 0,
        }
    }

    fn held(&self, xid: Xid) -> Option<Held> {
        self.branches.get(&xid).map(|(_, held)| *held)
    }

    pub(super) fn is_prepared(&self, xid: Xid) -> bool {
        self.held(xid) == Some(Held::Prepared)
    }

    pub(super) fn prepared(&self) -> Vec<Xid> {
        self.branches
            .keys()
            .copied()
            .filter(|xid| self.is_prepared(*xid))
            .collect()
    }

    /// Another attempt of the transaction is prepared here.
    fn other_is_prepared(&self, xid: Xid, id: &TransactionId) -> bool {
        let other = |(of, (whose, held)): (&Xid, &(TransactionId, Held))| {
            *of != xid && whose == id && *held == Held::Prepared
        };
        self.branches.iter().any(other)
    }

    /// On joining: inquiries and reports (section 8).
    pub(super) fn welcomed(&mut self) -> Vec<ToCoordinator> {
        let due = |(xid, (_, held)): (&Xid, &(TransactionId, Held))| match held {
            Held::Prepared => Some(ToCoordinator::Inquire(*xid)),
            Held::Heuristic(what) => Some(ToCoordinator::Report(*xid, *what)),
            Held::Committed | Held::Forgotten => None,
        };
        let due = self.branches.iter().filter_map(due).collect();
        self.says(due)
    }

    pub(super) fn session_ended(&mut self) {
        self.waiting.clear();
    }

    fn says(&mut self, said: Vec<ToCoordinator>) -> Vec<ToCoordinator> {
        self.said.extend(said.iter().cloned());
        said
    }

    /// Takes one message and answers as the table says.
    pub(super) fn hears(&mut self, message: ToParticipant) -> Vec<ToCoordinator> {
        let said = match message {
            ToParticipant::Prepare {
                xid,
                transaction_id,
                operation,
            } => self.prepare(xid, transaction_id, operation[0]),
            ToParticipant::Commit(xid) => vec![self.commit(xid)].into_iter().flatten().collect(),
            ToParticipant::Abort(xid) => self.abort(xid),
            ToParticipant::Forget(xid) => self.forget(xid),
            ToParticipant::Pending(_) | ToParticipant::Unknown(_) | ToParticipant::ReportRecorded(_) => {
                vec![]
            }
        };
        let mut said = self.says(said);
        said.extend(self.wake());
        said
    }

    /// P1 to P6, P11, P17, P18, P20.
    fn prepare(&mut self, xid: Xid, id: TransactionId, operation: u8) -> Vec<ToCoordinator> {
        let no = |code| vec![ToCoordinator::Vote(xid, Vote::No(NoReason::new(code, "")))];
        match self.held(xid) {
            Some(Held::Prepared) => return vec![ToCoordinator::Vote(xid, Vote::Yes)],
            Some(Held::Committed) => return vec![ToCoordinator::Ack(xid)],
            Some(Held::Heuristic(what)) => return vec![ToCoordinator::Report(xid, what)],
            Some(Held::Forgotten) => return vec![],
            None => {}
        }
        if xid.is_below(self.floor) {
            return no(NoReason::BELOW_FLOOR);
        }
        if self.effects.get(&id).is_some_and(|of| *of != xid) {
            return no(NoReason::DUPLICATE_TRANSACTION);
        }
        if self.other_is_prepared(xid, &id) {
            self.waiting.push((xid, id, operation));
            return vec![];
        }
        match operation {
            b'n' => no("NO_FUNDS"),
            b'r' => vec![ToCoordinator::Vote(xid, Vote::ReadOnly)],
            _ => {
                self.branches.insert(xid, (id, Held::Prepared));
                vec![ToCoordinator::Vote(xid, Vote::Yes)]
            }
        }
    }

    /// P8, P12, P17, P18, P20.
    fn commit(&mut self, xid: Xid) -> Option<ToCoordinator> {
        match self.held(xid) {
            Some(Held::Prepared) => {
                let (id, held) = self.branches.get_mut(&xid)?;
                *held = Held::Committed;
                let before = self.effects.insert(id.clone(), xid);
                assert_eq!(before, None, "S15: a second effect of {id} at {}", self.name);
                assert!(self.committed.insert(xid), "S9: {xid} took effect twice");
                Some(ToCoordinator::Ack(xid))
            }
            Some(Held::Committed) => Some(ToCoordinator::Ack(xid)),
            Some(Held::Heuristic(what)) => Some(ToCoordinator::Report(xid, what)),
            Some(Held::Forgotten) => None,
            None if xid.is_below(self.floor) => {
                self.acked_below_floor += 1;
                Some(ToCoordinator::Ack(xid))
            }
            None => Some(ToCoordinator::LostState(xid)),
        }
    }

    /// P7, P10, P18.
    fn abort(&mut self, xid: Xid) -> Vec<ToCoordinator> {
        self.waiting.retain(|(of, _, _)| *of != xid);
        match self.held(xid) {
            Some(Held::Prepared) => {
                self.branches.remove(&xid);
                self.aborted.insert(xid);
                vec![]
            }
            Some(Held::Committed) => panic!("S4: ABORT of {xid}, which committed at {}", self.name),
            Some(Held::Heuristic(what)) => vec![ToCoordinator::Report(xid, what)],
            Some(Held::Forgotten) | None => vec![],
        }
    }

    /// P7, P19, P20.
    fn forget(&mut self, xid: Xid) -> Vec<ToCoordinator> {
        match self.held(xid) {
            Some(Held::Heuristic(_)) => {
                if let Some((_, held)) = self.branches.get_mut(&xid) {
                    *held = Held::Forgotten;
                }
            }
            Some(Held::Prepared) => panic!("S8: FORGET of {xid}, which is prepared at {}", self.name),
            Some(Held::Committed | Held::Forgotten) | None => {}
        }
        vec![ToCoordinator::ForgetAck(xid)]
    }

    /// PREPAREs whose wait is over (P3).
    fn wake(&mut self) -> Vec<ToCoordinator> {
        let mut said = Vec::new();
        for (xid, id, operation) in core::mem::take(&mut self.waiting) {
            said.extend(self.prepare(xid, id, operation));
        }
        self.says(said)
    }

    /// The floor rides on a frame, behind its messages: tombstones below it go (section 6).
    pub(super) fn hears_floor(&mut self, floor: Floor, position: u64) {
        self.position = self.position.max(position);
        self.floor = self.floor.max(floor);
        let floor = self.floor;
        self.branches.retain(|xid, (_, held)| match held {
            Held::Committed | Held::Forgotten => !xid.is_below(floor),
            Held::Prepared | Held::Heuristic(_) => true,
        });
    }

    /// P14: an operator decides a prepared branch.
    pub(super) fn resolves(&mut self, xid: Xid, what: Heuristic) -> Vec<ToCoordinator> {
        let Some((id, Held::Prepared)) = self.branches.get(&xid).cloned() else {
            return vec![];
        };
        if what == Heuristic::Commit {
            if self.effects.contains_key(&id) || self.other_is_prepared(xid, &id) {
                return vec![];
            }
            self.effects.insert(id.clone(), xid);
        }
        self.branches.insert(xid, (id, Held::Heuristic(what)));
        let mut said = self.says(vec![ToCoordinator::Report(xid, what)]);
        said.extend(self.wake());
        said
    }
}
