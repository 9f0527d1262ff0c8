//! A participant's resource: the ledger's shipped core on a simulated disk; a call is complete when its record is
//! durable (RC1).

use covenant_fault::CrashPoint;
use covenant_ledger::OpenSpec;
use covenant_ledger::simulated::{Prepare, Shown, SimulatedLedger, StoredRecord};
use covenant_rules::participant::Event;
use covenant_rules::{Lsn, NoReason, TransactionId, Vote};

use crate::node::Node;
use crate::participant::Call;
use crate::seen::Seen;
use crate::world::{Happening, World};

impl World {
    /// Calls the resource; what it decides in memory and appends happens at once (RC8).
    pub(crate) fn resource_call(&mut self, who: usize, call: Call) {
        let at = self.participants[who].clock.wall_ms(self.now);
        let forced = self.participants[who].disk.forced;
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        process.called = true;
        let ledger = &mut process.ledger;
        let done: Result<(Option<Lsn>, Event), _> = match call.clone() {
            Call::Prepare(branch) => {
                let xid = branch.xid;
                ledger.prepare(branch, at).map(|prepare| match prepare {
                    Prepare::Yes(lsn) => (Some(lsn), Event::Prepared(xid, Vote::Yes)),
                    Prepare::ReadOnly(lsn) => (Some(lsn), Event::Prepared(xid, Vote::ReadOnly)),
                    Prepare::No(refusal) => {
                        let reason = NoReason::from(refusal);
                        (None, Event::Prepared(xid, Vote::No(reason)))
                    }
                })
            }
            Call::Commit(xid) => ledger
                .commit(xid, at)
                .map(|lsn| (Some(lsn), Event::Committed(xid))),
            Call::Abort(xid) => ledger.abort(xid).map(|()| (None, Event::Aborted(xid))),
            Call::Resolve(xid, what, by) => ledger
                .resolve(xid, what, by, at)
                .map(|lsn| (Some(lsn), Event::Resolved(xid))),
            Call::Forget(xid) => ledger.forget(xid).map(|lsn| (Some(lsn), Event::Forgotten(xid))),
        };
        let id = process.id;
        match done {
            Ok((Some(lsn), event)) if lsn > forced => {
                process.waiting.push((lsn, event));
            }
            Ok((_, event)) => self.after(
                0,
                Happening::Complete {
                    who,
                    process: id,
                    event,
                },
            ),
            Err(error) => {
                self.trace
                    .line(Node::Participant(who), &|| format!("its resource says: {error}"));
                self.after(
                    200_000,
                    Happening::CallAgain {
                        who,
                        process: id,
                        call,
                    },
                );
            }
        }
        self.write_appended(who);
    }

    /// What the ledger appended goes to the disk.
    pub(crate) fn write_appended(&mut self, who: usize) {
        let node = Node::Participant(who);
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        let (lineage, records) = (process.lineage, process.ledger.take_appended());
        for record in records {
            let (id, point) = self.appended_point(&record);
            let disk = &mut self.participants[who].disk;
            let lsn = disk.append(record.clone());
            if record.is_forced() {
                disk.wanted = lsn;
            } else {
                self.lazy_append(node);
            }
            self.trace.line(node, &|| {
                format!("appends {}", crate::show::stored(&record, &self.history))
            });
            self.see(&Seen::Wrote {
                who,
                lineage,
                record: &record,
            });
            if let Some(point) = point
                && self.reach(node, point, id.as_ref())
            {
                return;
            }
        }
    }

    fn appended_point(&self, record: &StoredRecord) -> (Option<TransactionId>, Option<CrashPoint>) {
        match record.shown() {
            Shown::Prepared(_, id, _) => (Some(id.clone()), Some(CrashPoint::PPreparedAppended)),
            Shown::Committed(_, id) => (Some(id.clone()), Some(CrashPoint::PCommittedAppended)),
            Shown::Aborted(xid) => (
                self.history.minted.get(&xid).cloned(),
                Some(CrashPoint::PAbortedAppended),
            ),
            _ => (None, None),
        }
    }

    pub(crate) fn participant_forced(&mut self, who: usize) {
        let node = Node::Participant(who);
        if std::mem::take(&mut self.participants[who].fail_force) {
            self.force_failed(node);
            return;
        }
        let forced = self.participants[who].disk.end_force();
        let upto = *forced.end();
        let id = self.running(node);
        let mut points = Vec::new();
        for lsn in forced {
            points.extend(self.participant_record_durable(who, lsn));
        }
        for (point, transaction_id) in points {
            self.reach(node, point, transaction_id.as_ref());
        }
        if self.running(node) != id {
            return;
        }
        self.complete(who, upto);
        self.force_if_wanted(node);
    }

    /// The crash point that this is.
    fn participant_record_durable(
        &mut self,
        who: usize,
        lsn: Lsn,
    ) -> Option<(CrashPoint, Option<TransactionId>)> {
        let node = Node::Participant(who);
        let (Some(record), Some(lineage)) = (
            self.participants[who].disk.get(lsn).cloned(),
            self.lineage_of(who),
        ) else {
            return None;
        };
        self.trace.line(node, &|| {
            format!("forced {}", crate::show::stored(&record, &self.history))
        });
        self.see(&Seen::WroteDurably {
            who,
            lineage,
            record: &record,
        });
        let (id, point) = match record.shown() {
            Shown::Prepared(_, id, _) => (Some(id.clone()), CrashPoint::PPreparedForced),
            Shown::Committed(_, id) => (Some(id.clone()), CrashPoint::PCommittedForced),
            Shown::ByHand(_, id, _) => (Some(id.clone()), CrashPoint::PHeuristicForced),
            Shown::Forgotten(xid) => (
                self.history.minted.get(&xid).cloned(),
                CrashPoint::PForgottenForced,
            ),
            _ => return None,
        };
        Some((point, id))
    }

    /// Completes the calls whose records are durable, in any order.
    fn complete(&mut self, who: usize, upto: Lsn) {
        let Some(process) = &mut self.participants[who].process else {
            return;
        };
        let id = process.id;
        let recovered = process.recovered.take_if(|(_, start)| *start <= upto);
        let mut done: Vec<Event> = process
            .waiting
            .extract_if(.., |(lsn, _)| *lsn <= upto)
            .map(|(_, event)| event)
            .collect();
        self.rng.shuffle(&mut done);
        for event in done {
            self.after(
                0,
                Happening::Complete {
                    who,
                    process: id,
                    event,
                },
            );
        }
        if let Some((recovered, _)) = recovered {
            self.participant_started(who, recovered);
        }
    }

    pub(crate) fn open_accounts(&self, ledger: &mut SimulatedLedger, at: u64) -> Option<Lsn> {
        let mut last = None;
        for (number, opening) in self.setup.accounts.iter().enumerate() {
            let spec: OpenSpec = match format!("a{number}={opening}:THB").parse() {
                Ok(spec) => spec,
                Err(error) => panic!("an account is not opened: {error}"),
            };
            match ledger.open_account(&spec, at) {
                Ok(lsn) => last = lsn.or(last),
                Err(error) => panic!("an account is not opened: {error}"),
            }
        }
        last
    }
}
