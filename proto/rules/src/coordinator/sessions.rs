//! Sessions (section 8): joining, replacing, and who may say what.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{AlarmCode, Coordinator, Effect, State};
use crate::{AbortReason, Hello, Incarnation, Lineage, Lsn, Name, Outcome, Record, ToCoordinator, Xid};

/// Names one stream of one connection, given by whoever owns the socket; never used again.
pub type SessionId = u64;

/// Why a session was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum JoinRefusal {
    /// Replay is not over: come again.
    Recovering,
    /// Another lineage of this name is joined and alive.
    OtherLineageJoined,
    /// A newer session of the same participant is joined.
    Outdated,
    /// Another start with the same counter is joined: the data directory was copied.
    IncarnationConflict,
    /// The bound `max_participants` is reached.
    TooManyParticipants,
}

/// One live session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Session {
    pub(super) name: Name,
    pub(super) lineage: Lineage,
    pub(super) incarnation: Incarnation,
    connection: u64,
}

/// One participant name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Known {
    /// The lineage that holds the name.
    pub(super) lineage: Lineage,
    /// Live sessions, by lineage.
    sessions: BTreeMap<Lineage, SessionId>,
    /// Attempts for which it may still get a PREPARE, or a COMMIT that it has not acknowledged.
    pub(super) owed: BTreeSet<Xid>,
    /// Bytes of the operations that undecided transactions hold for it.
    pub(super) operation_bytes: usize,
}

impl Known {
    pub(super) fn new(lineage: Lineage) -> Self {
        Self {
            lineage,
            sessions: BTreeMap::new(),
            owed: BTreeSet::new(),
            operation_bytes: 0,
        }
    }

    pub(super) fn lowest_owed(&self, lineage: Lineage) -> Option<Xid> {
        self.owed.iter().find(|xid| xid.lineage == lineage).copied()
    }
}

/// A participant as operators see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ParticipantView {
    /// Its name.
    pub name: Name,
    /// The lineage that holds the name.
    pub lineage: Lineage,
    /// Its live session and start, if it is joined.
    pub session: Option<(SessionId, Incarnation)>,
    /// Branches not resolved.
    pub in_progress: usize,
    /// YES voters among them that do not know a decision.
    pub in_doubt: usize,
}

impl Coordinator {
    /// All participants, sorted by name.
    pub fn participants(&self) -> impl Iterator<Item = ParticipantView> + '_ {
        self.participants.iter().map(|(name, known)| ParticipantView {
            name: name.clone(),
            lineage: known.lineage,
            session: known
                .sessions
                .get(&known.lineage)
                .and_then(|id| self.sessions.get(id).map(|session| (*id, session.incarnation))),
            in_progress: known.owed.len(),
            in_doubt: known
                .owed
                .iter()
                .filter(|xid| self.is_in_doubt(**xid, name))
                .count(),
        })
    }

    fn is_in_doubt(&self, xid: Xid, name: &Name) -> bool {
        let branches = self
            .transactions
            .get(&xid)
            .map(|transaction| transaction.branches.iter());
        branches
            .into_iter()
            .flatten()
            .any(|b| b.participant == *name && b.voted_yes() && !b.resolved)
    }

    /// The session of the lineage that holds the name.
    pub(super) fn full_session(&self, participant: &Name) -> Option<(SessionId, Lineage)> {
        let known = self.participants.get(participant)?;
        known
            .sessions
            .get(&known.lineage)
            .map(|session| (*session, known.lineage))
    }

    /// The session of this lineage under this name, full or for decisions only.
    pub(super) fn session_of(&self, participant: &Name, lineage: Lineage) -> Option<SessionId> {
        self.participants
            .get(participant)?
            .sessions
            .get(&lineage)
            .copied()
    }

    pub(super) fn no_longer_owed(&mut self, participant: &Name, xid: Xid) {
        if let Some(known) = self.participants.get_mut(participant) {
            known.owed.remove(&xid);
        }
    }

    /// A participant said Hello.
    pub(super) fn join(&mut self, session: SessionId, hello: Hello) {
        if !self.serving {
            return self
                .effects
                .push(Effect::RefuseJoin(session, JoinRefusal::Recovering));
        }
        self.look_at_positions(&hello);
        if let Some(refusal) = self.join_refusal(&hello) {
            return self.effects.push(Effect::RefuseJoin(session, refusal));
        }
        let Hello {
            name,
            lineage,
            incarnation,
            connection,
            ..
        } = hello;
        let holder = self.participants.get(&name).map(|known| known.lineage);
        let decisions_only =
            holder.is_some_and(|holder| holder != lineage) && self.has_unresolved(&name, lineage);
        if holder != Some(lineage) && !decisions_only {
            self.take_name(&name, lineage);
        }
        let joined = Session {
            name: name.clone(),
            lineage,
            incarnation,
            connection,
        };
        self.sessions.insert(session, joined);
        let known = self
            .participants
            .entry(name.clone())
            .or_insert_with(|| Known::new(lineage));
        if let Some(replaced) = known.sessions.insert(lineage, session) {
            self.sessions.remove(&replaced);
            self.effects.push(Effect::Replaced(replaced));
        }
        self.effects.push(Effect::Welcome(session));
        self.send_due(session, &name, decisions_only);
    }

    /// A position beyond this log's end: its tail was lost (section 5).
    fn look_at_positions(&mut self, hello: &Hello) {
        let said = hello
            .positions
            .iter()
            .find(|(lineage, _)| *lineage == self.lineage);
        if let Some((_, position)) = said
            && *position > self.appended
            && !self.is_suspect()
        {
            self.suspect(Some(hello.name.clone()), *position);
        }
    }

    /// Nothing is presumed from here on, also before SUSPECT is durable.
    pub(super) fn suspect(&mut self, participant: Option<Name>, position: Lsn) {
        self.alarm(AlarmCode::Suspect, participant.as_ref(), None);
        self.suspecting = true;
        self.append(
            Record::Suspect {
                participant,
                position,
            },
            true,
        );
    }

    fn join_refusal(&mut self, hello: &Hello) -> Option<JoinRefusal> {
        let Some(known) = self.participants.get(&hello.name) else {
            let full = self.participants.len() >= self.limits.max_participants;
            return full.then_some(JoinRefusal::TooManyParticipants);
        };
        let same = known
            .sessions
            .get(&hello.lineage)
            .and_then(|id| self.sessions.get(id));
        if let Some(session) = same {
            let (live, said) = (session.incarnation, hello.incarnation);
            if live.counter == said.counter && live.bits != said.bits {
                self.alarm(AlarmCode::IncarnationConflict, Some(&hello.name), None);
                return Some(JoinRefusal::IncarnationConflict);
            }
            if (said.counter, hello.connection) <= (live.counter, session.connection) {
                return Some(JoinRefusal::Outdated);
            }
        }
        let other_lives = known.lineage != hello.lineage && known.sessions.contains_key(&known.lineage);
        (other_lives && !self.has_unresolved(&hello.name, hello.lineage))
            .then_some(JoinRefusal::OtherLineageJoined)
    }

    /// Whether this lineage voted YES and is not resolved, or waits for a FORGET, under this name.
    fn has_unresolved(&self, name: &Name, lineage: Lineage) -> bool {
        let owed = self
            .participants
            .get(name)
            .into_iter()
            .flat_map(|known| known.owed.iter());
        let voted = owed
            .filter_map(|xid| self.transactions.get(xid))
            .any(|transaction| {
                transaction.state == State::Committing
                    && transaction.branches.iter().any(|branch| {
                        branch.participant == *name && branch.lineage == Some(lineage) && branch.voted_yes()
                    })
            });
        voted || self.fold.reporters.has(name, lineage)
    }

    /// A new lineage takes the name: branches that asked the old one abort, or are hazards (C4, C12).
    fn take_name(&mut self, name: &Name, lineage: Lineage) {
        self.append(
            Record::Participant {
                name: name.clone(),
                lineage,
            },
            false,
        );
        let known = self
            .participants
            .entry(name.clone())
            .or_insert_with(|| Known::new(lineage));
        known.lineage = lineage;
        self.forget_the_gone(name);
        let known = self.participants.get(name);
        let owed: Vec<Xid> = known
            .into_iter()
            .flat_map(|known| known.owed.iter().copied())
            .collect();
        for xid in owed {
            let Some(transaction) = self.transactions.get_mut(&xid) else {
                continue;
            };
            let state = transaction.state;
            let asked = transaction.branch(name).and_then(|branch| branch.lineage);
            match state {
                State::Preparing if asked.is_some_and(|asked| asked != lineage) => {
                    self.abort(xid, AbortReason::LineageChanged(name.clone()));
                }
                State::Committing => self.find_hazards(xid),
                State::Preparing | State::Deciding | State::Committed | State::Aborting | State::Aborted => {}
            }
        }
    }

    /// On joining: COMMITs and FORGETs due, then PREPAREs (section 8).
    fn send_due(&mut self, session: SessionId, name: &Name, decisions_only: bool) {
        let owed: Vec<Xid> = self
            .participants
            .get(name)
            .into_iter()
            .flat_map(|known| known.owed.iter().copied())
            .collect();
        let state = |machine: &Self, xid: &Xid| machine.transactions.get(xid).map(|t| t.state);
        for xid in &owed {
            if state(self, xid) == Some(State::Committing) {
                self.send_commits(*xid, Some(name));
            }
        }
        self.forgets_due(session);
        for xid in owed.iter().filter(|_| !decisions_only) {
            if state(self, xid) == Some(State::Preparing) {
                self.send_prepare(*xid, name);
            }
        }
    }

    /// The stream ended.
    pub(super) fn leave(&mut self, session: SessionId) {
        let Some(left) = self.sessions.remove(&session) else {
            return;
        };
        if let Some(known) = self.participants.get_mut(&left.name)
            && known.sessions.get(&left.lineage) == Some(&session)
        {
            known.sessions.remove(&left.lineage);
        }
    }

    /// A message of a session; those of a replaced one are dropped (section 8).
    pub(super) fn message(&mut self, session: SessionId, message: ToCoordinator, known: Option<&Outcome>) {
        let Some(from) = self.sessions.get(&session) else {
            return;
        };
        let (name, lineage) = (from.name.clone(), from.lineage);
        match message {
            ToCoordinator::Inquire(xid) => self.answer_inquiry(session, &name, lineage, xid, known),
            ToCoordinator::Vote(xid, _)
            | ToCoordinator::Ack(xid)
            | ToCoordinator::LostState(xid)
            | ToCoordinator::Report(xid, _)
            | ToCoordinator::ForgetAck(xid)
                if xid.lineage != self.lineage && !self.fold.former.contains(&xid.lineage) =>
            {
                self.alarm(AlarmCode::ForeignLineage, Some(&name), Some(xid));
            }
            ToCoordinator::Vote(xid, vote) => self.vote(session, &name, lineage, xid, vote, known),
            ToCoordinator::Ack(xid) => self.ack(&name, lineage, xid),
            ToCoordinator::LostState(xid) => self.lost_state(&name, lineage, xid),
            ToCoordinator::Report(xid, what) => self.report(&name, lineage, xid, what, known),
            ToCoordinator::ForgetAck(xid) => self.forget_acked(&name, lineage, xid),
        }
    }
}
