//! Inquiry (section 5): what a participant is told of its branch. First match wins, Q1 to Q7.

use super::{AlarmCode, Coordinator, State};
use crate::{Decision, Lineage, Name, Outcome, ToParticipant, Xid};

/// The answer to an inquiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Q1.
    Commit,
    /// Q3, Q7.
    Abort,
    /// Q6.
    Pending,
    /// Q2, Q4, Q5; with an alarm if the attempt is not this log's, or the log lost its tail.
    Unknown(Option<AlarmCode>),
}

impl Answer {
    pub(super) fn decision(self) -> Option<Decision> {
        match self {
            Self::Commit => Some(Decision::Commit),
            Self::Abort => Some(Decision::Abort),
            Self::Pending | Self::Unknown(_) => None,
        }
    }
}

impl Coordinator {
    /// What the asker's lineage is told of `xid`. `known` is what the archive has.
    pub(super) fn answer(&self, xid: Xid, asker: Lineage, known: Option<&Outcome>) -> Answer {
        let resolved = self
            .fold
            .resolved
            .get(&xid)
            .map(|resolved| resolved.answer(asker));
        let own = xid.lineage == self.lineage || self.fold.former.contains(&xid.lineage);
        let durable = self.fold.open.get(&xid).map(|open| &open.outcome).or(known);
        let commits = durable.is_some_and(|outcome| outcome.xid == xid && outcome.commits(asker));
        if own && (commits || resolved == Some(Decision::Commit)) {
            return Answer::Commit; // Q1
        }
        if xid.lineage != self.lineage {
            return Answer::Unknown(Some(AlarmCode::ForeignLineage)); // Q2
        }
        if resolved == Some(Decision::Abort) {
            return Answer::Abort; // Q3
        }
        let current = xid.incarnation == self.incarnation;
        let minted = self.fold.starts.contains(&xid.incarnation) && !(current && xid.seq >= self.next_seq);
        if self.is_suspect() || !minted {
            let alarm = if minted {
                AlarmCode::Suspect
            } else {
                AlarmCode::NeverMinted
            };
            return Answer::Unknown(Some(alarm)); // Q4
        }
        if self.is_behind_quarantine(xid, durable) {
            return Answer::Unknown(None); // Q5
        }
        match self.transactions.get(&xid).map(|transaction| transaction.state) {
            Some(State::Preparing | State::Deciding) => Answer::Pending, // Q6
            Some(State::Committing | State::Committed | State::Aborting | State::Aborted) | None => {
                Answer::Abort // Q7
            }
        }
    }

    /// Q5: a quarantined record may be this attempt's decision.
    fn is_behind_quarantine(&self, xid: Xid, durable: Option<&Outcome>) -> bool {
        let otherwise_known = durable.is_some() || self.transactions.contains_key(&xid);
        let hidden = self.quarantine.hides_an_attempt() && xid.incarnation != self.incarnation;
        self.quarantine.shows_attempt(xid) || (hidden && !otherwise_known)
    }

    /// An inquiry, or a YES that came after the decision (C14).
    pub(super) fn answer_inquiry(
        &mut self,
        session: super::SessionId,
        participant: &Name,
        asker: Lineage,
        xid: Xid,
        known: Option<&Outcome>,
    ) {
        let message = match self.answer(xid, asker, known) {
            Answer::Commit => ToParticipant::Commit(xid),
            Answer::Abort => ToParticipant::Abort(xid),
            Answer::Pending => ToParticipant::Pending(xid),
            Answer::Unknown(alarm) => {
                if let Some(code) = alarm {
                    self.alarm(code, Some(participant), Some(xid));
                }
                ToParticipant::Unknown(xid)
            }
        };
        self.send(session, message);
    }
}
