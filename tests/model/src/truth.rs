//! What is true, seen from outside: what was ever durable, sent and told. No crash takes any of it back.
//!
//! It is part of the state, so it is as small as the invariants allow: a few bits for each branch of each attempt.

use covenant_rules::{
    AbortReason, Decision, OutcomeKind, Record, ToCoordinator, ToParticipant, TransactionId, Vote, Xid,
    coordinator::{Effect, Reply, View},
};

use crate::bounds::MAX_PARTICIPANTS;
use crate::names::{id_of, place_of};
use crate::site::Entry;

/// The whole history that the invariants look at.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Truth {
    /// In the order in which they were first seen.
    pub(crate) attempts: Vec<Attempt>,
    /// The final outcome that callers were told, by the number of the id.
    pub(crate) told: [Option<Told>; 2],
    /// A caller was told something else after a final outcome.
    pub(crate) told_otherwise: bool,
    /// One xid was two attempts.
    pub(crate) xid_reused: bool,
    /// A machine raised an alarm that only a broken rule explains.
    pub(crate) alarmed: bool,
    /// A coordinator that serves refused a participant's only session.
    pub(crate) locked_out: bool,
    /// A machine found an impossible state of its own.
    pub(crate) asserted: bool,
}

/// A final outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Told {
    /// Of this attempt.
    Committed(Xid),
    Aborted(Xid),
}

/// One attempt of a transaction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) xid: Xid,
    /// The number of the caller's id.
    pub(crate) id: u8,
    /// Which process of the coordinator minted it.
    pub(crate) process: u8,
    pub(crate) commit_appended: bool,
    pub(crate) commit_durable: bool,
    pub(crate) abort_durable: bool,
    /// An ABORT that callers are told as UNKNOWN (C8).
    pub(crate) duplicate: bool,
    pub(crate) end_appended: bool,
    /// Which branches the COMMIT names.
    pub(crate) voters: [bool; MAX_PARTICIPANTS],
    pub(crate) branches: [Branch; MAX_PARTICIPANTS],
}

/// One branch of an attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Branch {
    /// PREPARED was durable.
    pub(crate) prepared: bool,
    /// YES left.
    pub(crate) yes: bool,
    /// The last vote that left was NO. One that was lost left no trace, and the next one may be YES (P4).
    pub(crate) no: bool,
    /// ACK left.
    pub(crate) ack: bool,
    /// The effect was applied, durably or not.
    pub(crate) effect: bool,
    /// How often the effect became durable.
    pub(crate) effects: u8,
    /// ABORTED was appended.
    pub(crate) aborted: bool,
    /// COMMIT, ABORT left for it.
    pub(crate) commit_sent: bool,
    pub(crate) abort_sent: bool,
    /// A durable decision by hand.
    pub(crate) by_hand: Option<Decision>,
    /// Its FORGOTTEN is durable.
    pub(crate) forgotten: bool,
    /// An operator let it be forgotten.
    pub(crate) operator_forgot: bool,
}

impl Attempt {
    fn new(xid: Xid, id: u8, process: u8) -> Self {
        Self {
            xid,
            id,
            process,
            commit_appended: false,
            commit_durable: false,
            abort_durable: false,
            duplicate: false,
            end_appended: false,
            voters: [false; MAX_PARTICIPANTS],
            branches: Default::default(),
        }
    }

    /// The durable decision for this branch: presumption if there is none.
    pub(crate) fn decision_for(&self, place: usize) -> Decision {
        if self.commit_durable && self.voters[place] {
            Decision::Commit
        } else {
            Decision::Abort
        }
    }

    /// The branches that nobody decided by hand.
    pub(crate) fn untouched(&self) -> impl Iterator<Item = (usize, &Branch)> {
        self.branches
            .iter()
            .enumerate()
            .filter(|(_, branch)| branch.by_hand.is_none())
    }
}

impl Truth {
    pub(crate) fn attempt(&self, xid: Xid) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.xid == xid)
    }

    fn attempt_mut(&mut self, xid: Xid) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.xid == xid)
    }

    fn branch(&mut self, xid: Xid, place: usize) -> Option<&mut Branch> {
        self.attempt_mut(xid).map(|attempt| &mut attempt.branches[place])
    }

    /// An attempt was heard of: its PREPARE leaves, or its decision is appended.
    fn heard_of(&mut self, xid: Xid, id: &TransactionId, process: u8) -> &mut Attempt {
        let number = id_of(id);
        let at = self.attempts.iter().position(|attempt| attempt.xid == xid);
        let at = at.unwrap_or_else(|| {
            self.attempts.push(Attempt::new(xid, number, process));
            self.attempts.len() - 1
        });
        self.xid_reused |= self.attempts[at].process != process || self.attempts[at].id != number;
        &mut self.attempts[at]
    }

    /// The coordinator's process number `process` does this. `to` is where a message goes.
    pub(crate) fn coordinator_does(&mut self, effect: &Effect, to: Option<usize>, process: u8) {
        match effect {
            Effect::Append { record, .. } => self.appended(record, process),
            Effect::Send { message, .. } => {
                if let Some(place) = to {
                    self.coordinator_sends(message, place, process);
                }
            }
            Effect::Reply { reply, .. } => {
                if let Reply::Transaction(view) = reply {
                    self.caller_hears(view);
                }
            }
            Effect::Alarm(alarm) => {
                use covenant_rules::coordinator::AlarmCode as Code;
                self.alarmed |= match alarm.code {
                    Code::HeuristicDamage => false,
                    Code::ContraryVote
                    | Code::FitsNoRow
                    | Code::LostState
                    | Code::LineageChanged
                    | Code::ForeignLineage
                    | Code::NeverMinted
                    | Code::IncarnationConflict
                    | Code::Suspect
                    | Code::TooManyHeuristics => true,
                };
            }
            Effect::Welcome(_)
            | Effect::RefuseJoin(..)
            | Effect::Replaced(_)
            | Effect::Serving
            | Effect::Archive(_)
            | Effect::Expire(_)
            | Effect::Changed(_) => {}
        }
    }

    fn appended(&mut self, record: &Record, process: u8) {
        match record {
            Record::Commit(outcome) => {
                let attempt = self.heard_of(outcome.xid, &outcome.transaction_id, process);
                attempt.commit_appended = true;
                for (name, _) in outcome.yes_voters() {
                    attempt.voters[place_of(name)] = true;
                }
            }
            Record::Abort(outcome) => {
                let attempt = self.heard_of(outcome.xid, &outcome.transaction_id, process);
                attempt.duplicate = outcome.aborted.as_ref().is_some_and(AbortReason::is_duplicate);
            }
            Record::End(xid) => {
                if let Some(attempt) = self.attempt_mut(*xid) {
                    attempt.end_appended = true;
                }
            }
            _ => {}
        }
    }

    /// A record of the coordinator is durable.
    pub(crate) fn durable(&mut self, record: &Record) {
        match record {
            Record::Commit(outcome) => {
                if let Some(attempt) = self.attempt_mut(outcome.xid) {
                    attempt.commit_durable = true;
                }
            }
            Record::Abort(outcome) => {
                if let Some(attempt) = self.attempt_mut(outcome.xid) {
                    attempt.abort_durable = true;
                }
            }
            Record::Forget {
                xid,
                participant,
                by: Some(_),
            } => {
                if let Some(branch) = self.branch(*xid, place_of(participant)) {
                    branch.operator_forgot = true;
                }
            }
            _ => {}
        }
    }

    fn coordinator_sends(&mut self, message: &ToParticipant, place: usize, process: u8) {
        match message {
            ToParticipant::Prepare {
                xid, transaction_id, ..
            } => {
                self.heard_of(*xid, transaction_id, process);
            }
            ToParticipant::Commit(xid) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.commit_sent = true;
                }
            }
            ToParticipant::Abort(xid) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.abort_sent = true;
                }
            }
            ToParticipant::Pending(_)
            | ToParticipant::Unknown(_)
            | ToParticipant::ReportRecorded(_)
            | ToParticipant::Forget(_) => {}
        }
    }

    /// A caller is answered.
    pub(crate) fn caller_hears(&mut self, view: &View) {
        let told = match (view.outcome, view.xid) {
            (OutcomeKind::Committed, Some(xid)) => Some(Told::Committed(xid)),
            (OutcomeKind::Aborted, Some(xid)) => Some(Told::Aborted(xid)),
            _ => None,
        };
        let before = &mut self.told[usize::from(id_of(&view.transaction_id))];
        match (&before, told) {
            (None, told) => *before = told,
            (Some(before), Some(told)) => self.told_otherwise |= *before != told,
            (Some(_), None) => self.told_otherwise = true,
        }
    }

    /// A participant says this.
    pub(crate) fn participant_sends(&mut self, message: &ToCoordinator, place: usize) {
        match message {
            ToCoordinator::Vote(xid, vote) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.yes |= *vote == Vote::Yes;
                    branch.no = matches!(vote, Vote::No(_));
                }
            }
            ToCoordinator::Ack(xid) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.ack = true;
                }
            }
            ToCoordinator::LostState(_)
            | ToCoordinator::Inquire(_)
            | ToCoordinator::Report(..)
            | ToCoordinator::ForgetAck(_) => {}
        }
    }

    /// A participant's record was appended.
    pub(crate) fn participant_appended(&mut self, entry: &Entry, place: usize) {
        match entry {
            Entry::Committed(xid) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.effect = true;
                }
            }
            Entry::Aborted(xid) => {
                if let Some(branch) = self.branch(*xid, place) {
                    branch.aborted = true;
                }
            }
            Entry::Prepared(_) | Entry::Heuristic(..) | Entry::Forgotten(_) | Entry::Floor(_) => {}
        }
    }

    /// A participant's record is durable.
    pub(crate) fn participant_durable(&mut self, entry: &Entry, place: usize) {
        let Some(xid) = entry.xid() else { return };
        let Some(branch) = self.branch(xid, place) else {
            return;
        };
        match entry {
            Entry::Prepared(_) => branch.prepared = true,
            Entry::Committed(_) => branch.effects = branch.effects.saturating_add(1),
            Entry::Heuristic(_, what) => branch.by_hand = Some(*what),
            Entry::Forgotten(_) => branch.forgotten = true,
            Entry::Aborted(_) | Entry::Floor(_) => {}
        }
    }
}
