//! The logs of processes that have ended: which attempts were prepared, committed and aborted there.
//!
//! Opening a log counts as a start of the journal but appends nothing. What a checkpoint dropped is not seen.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use covenant_journal::{Journal, Options};
use covenant_proto::log::v1::{CoordinatorRecordKind, LedgerRecordKind};

/// How often each record of an attempt stands in one log.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fate {
    /// PREPARED; only in a ledger's.
    pub prepared: u32,
    /// COMMITTED, or COMMIT in the coordinator's.
    pub committed: u32,
    /// ABORTED, or ABORT in the coordinator's.
    pub aborted: u32,
    /// END; only in the coordinator's.
    pub ended: u32,
}

/// The attempts in a coordinator's log, by the bytes of their xid.
///
/// # Errors
/// If it does not open or a record is damaged.
pub fn coordinator(data_dir: &Path) -> Result<BTreeMap<Vec<u8>, Fate>> {
    fates(
        data_dir,
        "coordinator",
        |kind, fate| match CoordinatorRecordKind::try_from(kind) {
            Ok(CoordinatorRecordKind::Commit) => fate.committed += 1,
            Ok(CoordinatorRecordKind::Abort) => fate.aborted += 1,
            Ok(CoordinatorRecordKind::End) => fate.ended += 1,
            Ok(_) | Err(_) => {}
        },
    )
}

/// The attempts in a ledger's log, by the bytes of their xid.
///
/// # Errors
/// If it does not open or a record is damaged.
pub fn ledger(data_dir: &Path) -> Result<BTreeMap<Vec<u8>, Fate>> {
    fates(
        data_dir,
        "ledger",
        |kind, fate| match LedgerRecordKind::try_from(kind) {
            Ok(LedgerRecordKind::Prepared) => fate.prepared += 1,
            Ok(LedgerRecordKind::Committed) => fate.committed += 1,
            Ok(LedgerRecordKind::Aborted) => fate.aborted += 1,
            Ok(_) | Err(_) => {}
        },
    )
}

fn fates(data_dir: &Path, role: &str, count: impl Fn(i32, &mut Fate)) -> Result<BTreeMap<Vec<u8>, Fate>> {
    let opened = Journal::open(data_dir, Options::new(role))?;
    opened.refuse_lost_tail()?;
    let mut fates = BTreeMap::new();
    for replayed in opened.replay {
        let envelope = replayed?
            .record
            .map_err(|damaged| anyhow!("a record is damaged: {}", damaged.why))?;
        if let Some(xid) = envelope.head.xid {
            count(envelope.head.kind.into(), fates.entry(xid.to_vec()).or_default());
        }
    }
    opened.journal.close()?;
    Ok(fates)
}

/// How many records a start on a stopped server's log would replay, those of its checkpoint among them.
///
/// # Errors
/// If it does not open.
pub fn records_to_replay(data_dir: &Path, role: &str) -> Result<u64> {
    let opened = Journal::open(data_dir, Options::new(role))?;
    let mut records = 0;
    for replayed in opened.replay {
        replayed?;
        records += 1;
    }
    drop(opened.archive);
    opened.journal.close()?;
    Ok(records)
}
