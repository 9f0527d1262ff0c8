//! S12 identity: incarnations only rise, xids are unique, a foreign lineage never gets an outcome; and for one
//! identity speaks its newest session alone (section 8).

use std::collections::BTreeMap;

use covenant_ledger::simulated::Shown;
use covenant_rules::{Lineage, Record, ToParticipant, TransactionId, Xid};

use super::{Check, Verdict, fail};
use crate::history::History;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Identity {
    /// The highest durable start of each log.
    starts: BTreeMap<Lineage, u64>,
    minted: BTreeMap<Xid, TransactionId>,
    operations: BTreeMap<(Xid, usize), std::sync::Arc<[u8]>>,
}

impl Identity {
    fn started(&mut self, lineage: Lineage, counter: u64) -> Verdict {
        match self.starts.insert(lineage, counter) {
            Some(before) if before >= counter => {
                fail(format!("start {counter} of a log follows its start {before}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn sent(&mut self, history: &History, who: usize, message: &ToParticipant) -> Verdict {
        match message {
            ToParticipant::Prepare {
                xid,
                transaction_id,
                operation,
            } => {
                let current =
                    history.incarnation == Some(xid.incarnation) && history.lineage() == Some(xid.lineage);
                if !current {
                    return fail(format!(
                        "PREPARE of {}, an attempt of another start",
                        history.shown(*xid)
                    ));
                }
                let before = self.minted.entry(*xid).or_insert_with(|| transaction_id.clone());
                let asked = self
                    .operations
                    .entry((*xid, who))
                    .or_insert_with(|| operation.clone());
                if before != transaction_id || asked != operation {
                    return fail(format!("{} is also {transaction_id}", history.shown(*xid)));
                }
                Ok(())
            }
            ToParticipant::Commit(xid) | ToParticipant::Abort(xid)
                if history.lineage() != Some(xid.lineage) =>
            {
                fail(format!(
                    "an outcome of {}, an attempt of another log",
                    history.shown(*xid)
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Check for Identity {
    fn invariant(&self) -> &'static str {
        "S12"
    }

    fn see(&mut self, history: &History, seen: &Seen<'_>) -> Verdict {
        match seen {
            Seen::Forced(Record::Incarnation(incarnation)) => match history.lineage() {
                Some(lineage) => self.started(lineage, incarnation.counter),
                None => Ok(()),
            },
            Seen::WroteDurably { lineage, record, .. } => match record.shown() {
                Shown::Incarnation(incarnation) => self.started(*lineage, incarnation.counter),
                _ => Ok(()),
            },
            Seen::Sent { who, message, .. } => self.sent(history, *who, message),
            Seen::HeardReplaced { session, effects } if *effects > 0 => {
                fail(format!("a frame of the replaced session {session} was taken"))
            }
            _ => Ok(()),
        }
    }
}
