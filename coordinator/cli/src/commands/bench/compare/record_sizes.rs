//! How large the records of a transfer are, as the product has just written them.

use std::path::Path;

use covenant_journal::{Journal, Options};
use covenant_proto::log::v1::{CoordinatorRecordKind, LedgerRecordKind};
use serde::Serialize;

use super::LEDGERS;
use crate::exit::Failure;
use crate::servers::journal_failure;

/// Mean bytes behind the envelope's fixed part, rounded; those of the transaction id where the floor has none at hand.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RecordSizes {
    commit: usize,
    end: usize,
    prepared: usize,
    committed: usize,
}

impl RecordSizes {
    /// Reads the logs of the bench in this directory, whose processes have ended; blocks.
    pub(super) fn read(directory: &Path) -> Result<Self, Failure> {
        let coordinator = Sums::read(&directory.join("coordinator"), "coordinator")?;
        let ledger = Sums::read(&directory.join(LEDGERS[0]), "ledger")?;
        Ok(Self {
            commit: coordinator.mean(CoordinatorRecordKind::Commit as u8, false)?,
            end: coordinator.mean(CoordinatorRecordKind::End as u8, true)?,
            prepared: ledger.mean(LedgerRecordKind::Prepared as u8, false)?,
            committed: ledger.mean(LedgerRecordKind::Committed as u8, true)?,
        })
    }

    /// The forced and the lazy record of a coordinator.
    pub(super) fn coordinator(&self) -> [usize; 2] {
        [self.commit, self.end]
    }

    /// The forced and the lazy record of a ledger.
    pub(super) fn ledger(&self) -> [usize; 2] {
        [self.prepared, self.committed]
    }
}

/// By kind: how many records, bytes of their payloads, and bytes of their ids.
struct Sums(Vec<[usize; 3]>);

impl Sums {
    fn read(directory: &Path, role: &str) -> Result<Self, Failure> {
        let opened = Journal::open(directory, Options::new(role)).map_err(|error| journal_failure(&error))?;
        let mut sums = vec![[0; 3]; usize::from(u8::MAX) + 1];
        for replayed in opened.replay {
            let replayed = replayed.map_err(|error| journal_failure(&error))?;
            // A checkpoint's records are not those of transfers.
            let (Some(_), Ok(envelope)) = (replayed.lsns, replayed.record) else {
                continue;
            };
            let [count, payloads, ids] = &mut sums[usize::from(envelope.head.kind)];
            *count += 1;
            *payloads += envelope.payload.len();
            *ids += envelope.head.transaction_id.map_or(0, |id| id.len());
        }
        Ok(Self(sums))
    }

    fn mean(&self, kind: u8, with_id: bool) -> Result<usize, Failure> {
        let [count, payloads, ids] = self.0[usize::from(kind)];
        if count == 0 {
            let why = format!("the log holds no record of kind {kind} above its checkpoint; run it again");
            return Err(Failure::internal("RECORD_SIZES", why));
        }
        let sum = payloads + if with_id { ids } else { 0 };
        Ok((sum + count / 2) / count)
    }
}
