//! The three logs of an image, opened as a start opens them, and what must be in them.
//!
//! Archived outcomes and entries count too. What the logs promise is judged as the protocol would end it: a branch that is prepared
//! and not aborted ends with its coordinator's decision. Balances are left to the real servers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use covenant_codec::ids::from_xid;
use covenant_journal::{Journal, Options};
use covenant_proto::log::v1::{
    CoordinatorRecordKind, LedgerEntry, LedgerPosition, LedgerPrepared, LedgerRecordKind, OutcomeRecord,
    StoredVote,
};
use prost::Message;

use crate::checks::Told;
use crate::cluster::{LEDGER_A, LEDGER_B};

type XidBytes = Vec<u8>;

/// A decided attempt in the coordinator's log.
#[derive(Clone, Debug)]
struct Decision {
    id: String,
    committed: bool,
    yes_voters: Vec<String>,
}

/// The coordinator's log.
#[derive(Clone, Default, Debug)]
struct CoordinatorLog {
    decisions: BTreeMap<XidBytes, Decision>,
    /// Attempts with END, or with an archived outcome: every YES voter had acknowledged.
    ended: BTreeSet<XidBytes>,
    last_lsn: u64,
}

/// A ledger's log.
#[derive(Clone, Default, Debug)]
struct LedgerLog {
    prepared: BTreeSet<XidBytes>,
    committed: BTreeSet<XidBytes>,
    aborted: BTreeSet<XidBytes>,
    /// The highest position of the coordinator that it saw.
    position: u64,
}

struct Record {
    kind: i32,
    xid: XidBytes,
    id: String,
    payload: Vec<u8>,
}

/// All records and archive items of a log, and the LSN of its last record.
fn read(data_dir: &Path, role: &str) -> Result<(Vec<Record>, Vec<Vec<u8>>, u64)> {
    // With the bound of a server's start: what is longer hangs for a server, too.
    let opened = Journal::open(data_dir, Options::new(role)).context("it does not open")?;
    opened
        .refuse_lost_tail()
        .context("no cut alone loses what was forced")?;
    let mut records = Vec::new();
    for replayed in opened.replay {
        let envelope = replayed?
            .record
            .map_err(|damaged| anyhow!("a record is damaged: {}", damaged.why))?;
        records.push(Record {
            kind: envelope.head.kind.into(),
            xid: envelope.head.xid.map(|xid| xid.to_vec()).unwrap_or_default(),
            id: envelope.head.transaction_id.map(String::from).unwrap_or_default(),
            payload: envelope.payload,
        });
    }
    let start = opened.archive.start();
    let mut items = Vec::new();
    for item in opened.archive.scan(start) {
        items.push(item?.1);
    }
    drop(opened.archive);
    let last_lsn = opened.journal.durable_lsn();
    opened.journal.close()?;
    Ok((records, items, last_lsn))
}

fn decision(id: String, outcome: OutcomeRecord) -> Decision {
    let yes = |branch: &covenant_proto::log::v1::StoredBranch| branch.vote() == StoredVote::Yes;
    Decision {
        id,
        committed: outcome.reason.is_none(),
        yes_voters: outcome
            .branches
            .into_iter()
            .filter(yes)
            .map(|branch| branch.participant)
            .collect(),
    }
}

impl CoordinatorLog {
    fn read(data_dir: &Path) -> Result<Self> {
        let (records, items, last_lsn) = read(data_dir, "coordinator")?;
        let mut log = Self {
            last_lsn,
            ..Self::default()
        };
        for record in records {
            let kind = CoordinatorRecordKind::try_from(record.kind);
            if kind == Ok(CoordinatorRecordKind::End) {
                log.ended.insert(record.xid);
                continue;
            }
            if !matches!(
                kind,
                Ok(CoordinatorRecordKind::Commit | CoordinatorRecordKind::Abort)
            ) {
                continue;
            }
            log.add(
                record.xid,
                decision(record.id, OutcomeRecord::decode(&record.payload[..])?),
            )?;
        }
        for item in items {
            let outcome = OutcomeRecord::decode(&item[..])?;
            let xid = outcome.xid.context("an archived outcome has an xid")?;
            let xid = from_xid(xid);
            let id = outcome.transaction_id.clone();
            let xid = xid.to_bytes().to_vec();
            log.ended.insert(xid.clone());
            log.add(xid, decision(id, outcome))?;
        }
        Ok(log)
    }

    fn add(&mut self, xid: XidBytes, decision: Decision) -> Result<()> {
        if let Some(before) = self.decisions.insert(xid, decision.clone()) {
            ensure!(
                before.committed == decision.committed,
                "S4: {} is decided twice, and not alike",
                decision.id
            );
        }
        Ok(())
    }
}

impl LedgerLog {
    fn read(data_dir: &Path) -> Result<Self> {
        let (records, items, _) = read(data_dir, "ledger")?;
        let mut log = Self::default();
        for record in records {
            match LedgerRecordKind::try_from(record.kind) {
                Ok(LedgerRecordKind::Prepared) => {
                    let prepared = LedgerPrepared::decode(&record.payload[..])?;
                    log.position = log.position.max(prepared.position);
                    log.prepared.insert(record.xid);
                }
                Ok(LedgerRecordKind::Committed) => {
                    log.committed.insert(record.xid);
                }
                Ok(LedgerRecordKind::Aborted) => {
                    log.aborted.insert(record.xid);
                }
                Ok(LedgerRecordKind::Position) => {
                    let position = LedgerPosition::decode(&record.payload[..])?;
                    log.position = log.position.max(position.lsn);
                }
                Ok(_) | Err(_) => {}
            }
        }
        for item in items {
            let entry = LedgerEntry::decode(&item[..])?;
            if !entry.xid.is_empty() {
                log.committed.insert(entry.xid);
            }
        }
        Ok(log)
    }

    /// Whether the branch commits, once its coordinator says so.
    fn will_commit(&self, xid: &XidBytes) -> bool {
        self.committed.contains(xid) || (self.prepared.contains(xid) && !self.aborted.contains(xid))
    }
}

/// What a caller was told of a transfer between the two ledgers, by the time of a cut.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The transaction's id.
    pub id: String,
    /// What it was told.
    pub told: Told,
}

/// Opens the three logs of an image and judges them together.
///
/// # Errors
/// The first thing that does not hold.
pub fn check<'a>(image: &Path, promises: impl IntoIterator<Item = &'a Promise>) -> Result<()> {
    let coordinator = CoordinatorLog::read(&image.join("c1")).context("the coordinator's log")?;
    let ledger =
        |name: &str| LedgerLog::read(&image.join(name)).with_context(|| format!("the log of {name}"));
    let ledgers = BTreeMap::from([
        (LEDGER_A.to_owned(), ledger(LEDGER_A)?),
        (LEDGER_B.to_owned(), ledger(LEDGER_B)?),
    ]);
    agreement(&coordinator, &ledgers)?;
    let mut by_id: BTreeMap<&str, Vec<&Decision>> = BTreeMap::new();
    for decision in coordinator.decisions.values() {
        by_id.entry(&decision.id).or_default().push(decision);
    }
    for promise in promises {
        let known = by_id.get(promise.id.as_str()).map_or(&[][..], Vec::as_slice);
        let commits = known.iter().filter(|decision| decision.committed).count();
        match promise.told {
            Told::Committed => ensure!(
                commits == 1,
                "S11: the caller of {} was told COMMITTED, and the log has {commits} COMMIT of it",
                promise.id
            ),
            Told::Aborted => ensure!(
                commits == 0 && !known.is_empty(),
                "S11: the caller of {} was told ABORTED, and the log has {known:?}",
                promise.id
            ),
            Told::Nothing => ensure!(commits <= 1, "S15: {} has {commits} COMMIT", promise.id),
        }
    }
    Ok(())
}

fn agreement(coordinator: &CoordinatorLog, ledgers: &BTreeMap<String, LedgerLog>) -> Result<()> {
    for (name, ledger) in ledgers {
        ensure!(
            ledger.position <= coordinator.last_lsn,
            "{name} saw position {}, and the coordinator's log ends at {}",
            ledger.position,
            coordinator.last_lsn
        );
        for xid in &ledger.committed {
            let decision = coordinator.decisions.get(xid);
            ensure!(
                decision.is_some_and(|decision| decision.committed),
                "S5: {name} committed an attempt of which the coordinator has {decision:?}"
            );
        }
    }
    for (xid, decision) in coordinator
        .decisions
        .iter()
        .filter(|(_, decision)| decision.committed)
    {
        for name in &decision.yes_voters {
            let ledger = ledgers.get(name).with_context(|| format!("no ledger {name}"))?;
            ensure!(
                ledger.will_commit(xid),
                "S2: {} is committed, and {name} that voted YES has lost it",
                decision.id
            );
            ensure!(
                ledger.committed.contains(xid) || !coordinator.ended.contains(xid),
                "S5: {} has ended, and {name} has lost the COMMITTED that it acknowledged",
                decision.id
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer with COMMIT and perhaps END; ledger A has COMMITTED, ledger B what is given.
    fn judged(ended: bool, ledger_b: LedgerLog) -> Result<()> {
        let xid = vec![7];
        let decision = Decision {
            id: "T".to_owned(),
            committed: true,
            yes_voters: vec![LEDGER_A.to_owned(), LEDGER_B.to_owned()],
        };
        let coordinator = CoordinatorLog {
            decisions: BTreeMap::from([(xid.clone(), decision)]),
            ended: ended.then(|| xid.clone()).into_iter().collect(),
            ..CoordinatorLog::default()
        };
        let ledger_a = LedgerLog {
            committed: BTreeSet::from([xid]),
            ..LedgerLog::default()
        };
        let ledgers = [(LEDGER_A.to_owned(), ledger_a), (LEDGER_B.to_owned(), ledger_b)];
        agreement(&coordinator, &BTreeMap::from(ledgers))
    }

    #[test]
    fn what_a_ledger_acknowledged_is_committed_there() {
        let with = |prepared: &[u8], committed: &[u8]| LedgerLog {
            prepared: prepared.iter().map(|one| vec![*one]).collect(),
            committed: committed.iter().map(|one| vec![*one]).collect(),
            ..LedgerLog::default()
        };
        for ended in [false, true] {
            judged(ended, with(&[7], &[7])).unwrap();
            judged(ended, with(&[], &[7])).unwrap();
            let lost = judged(ended, with(&[], &[])).unwrap_err();
            assert!(lost.to_string().starts_with("S2"), "{lost}");
        }
        judged(false, with(&[7], &[])).unwrap();
        let acknowledged = judged(true, with(&[7], &[])).unwrap_err();
        assert!(acknowledged.to_string().contains("has ended"), "{acknowledged}");
    }
}
