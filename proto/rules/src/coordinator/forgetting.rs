//! FORGET: from its record to its acknowledgement, and what a start does with heuristics.
//!
//! There may be as many heuristics as `max_heuristics`, all of one participant. Whatever looks at more than one of
//! them does so in slices with a pause between: neither a start nor a participant that joins holds up the others.

use alloc::vec::Vec;
use core::ops::Bound;

use super::{AlarmCode, Coordinator, Refusal, Reply, RequestId, SessionId, State, Timer, differs};
use crate::{Backoff, Heuristic, Lineage, Millis, Name, Operator, Record, ToParticipant, Xid};

/// The most heuristics that one step of a walk looks at.
const MAX_SLICE: usize = 256;

/// The pause between two steps of a walk.
const SLICE_PAUSE_MS: Millis = 1;

/// A walk over many heuristics, with where it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Walk {
    /// All of them, at a start; after this branch.
    Start(Option<(Xid, Name)>),
    /// Those with a FORGET of the lineage that joined; after this attempt. It ends with the session.
    Joined(SessionId, Option<Xid>),
    /// Those with a FORGET of lineages that no longer hold this name; after this one.
    Taken(Name, Option<(Lineage, Xid)>),
}

impl Coordinator {
    /// Appends FORGET, unless one is on its way.
    pub(super) fn append_forget(&mut self, xid: Xid, participant: &Name, by: Option<Operator>) {
        let entry = self.fold.heuristic_entry(xid, participant);
        let wanted = entry.is_some_and(|entry| entry.forget.is_none());
        if wanted && !self.on_its_way.has_forget(xid, participant) {
            self.append(
                Record::Forget {
                    xid,
                    participant: participant.clone(),
                    by,
                },
                true,
            );
        }
    }

    /// An operator's FORGET: forced before it is sent.
    pub(super) fn forget_call(&mut self, request: RequestId, xid: Xid, participant: Name, by: Operator) {
        if !self.serving {
            return self.reply(request, Reply::Refused(Refusal::Recovering));
        }
        let state = self.transactions.get(&xid).map(|transaction| transaction.state);
        let decided = match state {
            // Not judged yet: whoever forgets it now cannot know whether it is damage.
            Some(State::Preparing | State::Deciding | State::Aborting) => false,
            Some(State::Committing | State::Committed | State::Aborted) | None => true,
        };
        match self.fold.heuristic_entry(xid, &participant).filter(|_| decided) {
            None => self.reply(request, Reply::Refused(Refusal::NoHeuristic)),
            Some(entry) if entry.forget.is_some() => self.reply(request, Reply::Forgotten),
            Some(_) => {
                let max = self.limits.max_attached_callers;
                let waiting = self.forgetting.entry((xid, participant.clone())).or_default();
                if waiting.len() >= max {
                    return self.reply(request, Reply::Refused(Refusal::attached_callers(max)));
                }
                waiting.push(request);
                self.append_forget(xid, &participant, Some(by));
            }
        }
    }

    /// FORGET is durable: send it; where nobody is left to acknowledge, it resolves by itself.
    pub(super) fn forget_durable(&mut self, xid: Xid, participant: &Name) {
        let waiting = self.forgetting.remove(&(xid, participant.clone()));
        for request in waiting.into_iter().flatten() {
            self.reply(request, Reply::Forgotten);
        }
        let Some(entry) = self.fold.heuristic_entry(xid, participant) else {
            return;
        };
        let holder = self.participants.get(participant).map(|known| known.lineage);
        let gone = holder != Some(entry.lineage);
        if entry.what == Heuristic::Hazard {
            // A report that came meanwhile takes the hazard's place, and must be forgotten itself.
            if self.on_its_way.heuristic(xid, participant).is_none() {
                self.forgotten(xid, participant);
            }
            return;
        }
        self.forget_due(xid, participant.clone(), 0);
        if gone {
            self.forgotten(xid, participant);
        }
    }

    /// Sends FORGET if the participant is here, and again with back-off until it is acknowledged.
    pub(super) fn forget_due(&mut self, xid: Xid, participant: Name, delivery: u32) {
        let Some(entry) = self.fold.heuristic_entry(xid, &participant) else {
            return;
        };
        // Acknowledged, though that is not durable: only a crash that loses FORGET_DONE makes it due again.
        if self.on_its_way.has_forget_done(xid, &participant) {
            return;
        }
        // A hazard was found here: its branch may be prepared, and knows nothing to forget.
        if entry.forget.is_none() || entry.what == Heuristic::Hazard {
            return;
        }
        let Some(session) = self.session_of(&participant, entry.lineage) else {
            return;
        };
        self.send(session, ToParticipant::Forget(xid));
        let backoff = Backoff {
            base_ms: self.limits.retry_base_ms,
            cap_ms: self.limits.retry_cap_ms,
        };
        let at = self.now + backoff.pause(xid, participant.as_str(), delivery);
        if self.forget_timers.insert((xid, participant.clone())) {
            self.timers
                .insert((at, Timer::Forget(xid, participant, delivery.saturating_add(1))));
        }
    }

    /// The branch acknowledged FORGET.
    pub(super) fn forget_acked(&mut self, participant: &Name, lineage: Lineage, xid: Xid) {
        let entry = self.fold.heuristic_entry(xid, participant);
        if entry.is_some_and(|entry| entry.lineage == lineage && entry.forget.is_some()) {
            self.forgotten(xid, participant);
        }
    }

    fn forgotten(&mut self, xid: Xid, participant: &Name) {
        if self.on_its_way.has_forget_done(xid, participant) {
            return;
        }
        self.append(
            Record::ForgetDone {
                xid,
                participant: participant.clone(),
            },
            false,
        );
        let of = self
            .fold
            .heuristic_entry(xid, participant)
            .map(|entry| entry.lineage);
        let branch = self
            .transactions
            .get_mut(&xid)
            .and_then(|t| t.branch(participant));
        // A heuristic of a lineage that was not asked resolves nothing.
        if branch.is_some_and(|branch| branch.lineage == of) {
            self.resolve_branch(xid, participant);
        }
    }

    /// FORGETs due on joining (section 8).
    pub(super) fn forgets_due(&mut self, session: SessionId) {
        self.walk(Walk::Joined(session, None));
    }

    /// Another lineage took the name: nobody is left to acknowledge what may be forgotten.
    pub(super) fn forget_the_gone(&mut self, participant: &Name) {
        self.walk(Walk::Taken(participant.clone(), None));
    }

    /// Takes the next slice of a walk; another step takes the one after it.
    pub(super) fn walk(&mut self, walk: Walk) {
        let next = match walk {
            Walk::Start(after) => self.resume(after.as_ref()).map(|last| Walk::Start(Some(last))),
            Walk::Joined(session, after) => self
                .walk_joined(session, after)
                .map(|last| Walk::Joined(session, Some(last))),
            Walk::Taken(name, after) => self
                .walk_taken(&name, after)
                .map(|last| Walk::Taken(name, Some(last))),
        };
        if let Some(next) = next {
            self.timers.insert((self.now + SLICE_PAUSE_MS, Timer::Walk(next)));
        }
    }

    fn walk_joined(&mut self, session: SessionId, after: Option<Xid>) -> Option<Xid> {
        let joined = self.sessions.get(&session)?;
        let (name, lineage) = (joined.name.clone(), joined.lineage);
        let attempts = self.fold.reporters.to_forget(&name, lineage, after);
        let slice: Vec<Xid> = attempts.take(MAX_SLICE).collect();
        for xid in &slice {
            self.forget_due(*xid, name.clone(), 0);
        }
        slice.get(MAX_SLICE - 1).copied()
    }

    fn walk_taken(&mut self, name: &Name, after: Option<(Lineage, Xid)>) -> Option<(Lineage, Xid)> {
        let holder = self.participants.get(name).map(|known| known.lineage);
        let attempts = self.fold.reporters.to_forget_of_others(name, holder, after);
        let slice: Vec<(Lineage, Xid)> = attempts.take(MAX_SLICE).collect();
        for (_, xid) in &slice {
            self.forgotten(*xid, name);
        }
        slice.get(MAX_SLICE - 1).copied()
    }

    /// At start: judge by section 5 what was not judged, and forget what has no damage.
    fn resume(&mut self, after: Option<&(Xid, Name)>) -> Option<(Xid, Name)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.fold.heuristics.range((from, Bound::Unbounded));
        let slice: Vec<_> = entries
            .take(MAX_SLICE)
            .map(|(branch, entry)| (branch.clone(), entry.clone()))
            .collect();
        let last = slice.get(MAX_SLICE - 1).map(|(branch, _)| branch.clone());
        for ((xid, participant), entry) in slice {
            match (entry.damage, &entry.forget) {
                (_, Some(_)) => self.forget_durable(xid, &participant),
                (None, None) => {
                    let decision = self.answer(xid, entry.lineage, None).decision();
                    if let Some(decision) = decision {
                        let damage = Some(differs(entry.what, decision));
                        self.record_heuristic(xid, &participant, entry.lineage, entry.what, damage, None);
                    }
                }
                (Some(false), None) => self.append_forget(xid, &participant, None),
                (Some(true), None) => self.alarm(AlarmCode::HeuristicDamage, Some(&participant), Some(xid)),
            }
        }
        last
    }
}
