//! Recovery: the log becomes the machine (section 2).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use covenant_codec::record;
use covenant_journal::{
    Damaged, Envelope, Force, Head, HeadRef, Journal, Options, Records, Replayed, StartReport,
};
use covenant_rules::coordinator::{Effect, Identity};
use covenant_rules::{Coordinator, Lineage, Quarantined, Record, TransactionId, UnixMillis, Xid};

use crate::archive::OutcomeArchive;
use crate::crash::Crash;
use crate::{Config, Error};

/// The most log records that may be quarantined; beyond it the log is given up.
pub(crate) const MAX_QUARANTINED: usize = 10_000;

/// Quarantined bytes are carried on in pieces of this size.
const QUARANTINE_PIECE_BYTES: usize = 32 * 1024;

/// A recovered coordinator, not serving yet.
pub(crate) struct Recovered {
    pub(crate) journal: Journal,
    pub(crate) machine: Coordinator,
    /// What the machine asked for at its start.
    pub(crate) effects: Vec<Effect>,
    pub(crate) archive: OutcomeArchive,
    /// Records replayed, and what the start did on disk.
    pub(crate) replayed: u64,
    pub(crate) checkpoint: u64,
    pub(crate) report: StartReport,
}

/// Opens the journal and replays it. Blocks.
pub(crate) fn recover(config: &Config, crash: &Crash) -> Result<Recovered, Error> {
    let options = Options {
        force_timeout: Duration::from_millis(config.log.force_timeout_ms),
        open_timeout: Duration::from_millis(config.log.open_timeout_ms),
        probe: crash.probe(),
        ..Options::new("coordinator")
    };
    let opened = Journal::open(Path::new(&config.data_dir), options)?;
    let last = opened.journal.next_lsn() - 1;
    let (archive, archived) = OutcomeArchive::open(opened.archive)?;
    let checkpoint = opened.replay.checkpoint_lsn();
    let mut records = Vec::new();
    let mut replayed = 0;
    let mut quarantined = 0;
    for record in opened.replay {
        replayed += 1;
        read(record?, &mut records, &mut quarantined);
        if quarantined > MAX_QUARANTINED {
            return Err(Error::TooManyQuarantined {
                found: quarantined,
                bound: MAX_QUARANTINED,
            });
        }
    }
    if last > 0
        && !records
            .iter()
            .any(|record| matches!(record, Record::Lineage { .. }))
    {
        return Err(Error::NoLineage { last });
    }
    let identity = Identity {
        new_lineage: Lineage(random()?),
        bits: random()? as u64,
        started: unix_millis(),
        archived,
    };
    let (machine, effects) = Coordinator::recover(config.limits(), identity, records, last);
    let mut archive = archive;
    archive.expire_before(machine.fold().retained_since);
    Ok(Recovered {
        journal: opened.journal,
        machine,
        effects,
        archive,
        replayed,
        checkpoint,
        report: opened.report,
    })
}

/// Decodes one record, or quarantines it.
fn read(replayed: Replayed, records: &mut Vec<Record>, quarantined: &mut usize) {
    let (head, bytes, why) = match replayed.record {
        Ok(Envelope { head, payload }) => {
            let xid = head.xid.as_ref().map(Xid::from_bytes);
            match record::decode(head.kind, xid, head.transaction_id.as_deref(), &payload) {
                Ok(record) => return records.push(record),
                Err(why) => (Some(head), payload, why.to_string()),
            }
        }
        Err(Damaged { head, bytes, why, .. }) => (head, bytes, why.to_owned()),
    };
    *quarantined += 1;
    let xid = head
        .as_ref()
        .and_then(|head| head.xid.as_ref())
        .map(Xid::from_bytes);
    let shown = |head: &Head| {
        head.transaction_id
            .as_deref()
            .and_then(|id| TransactionId::new(id).ok())
    };
    let transaction_id = head.as_ref().and_then(shown);
    let about = xid.map_or_else(|| String::from("an unknown transaction"), |xid| xid.to_string());
    tracing::error!(code = "RECORD_QUARANTINED", lsns = ?replayed.lsns, %about, why, "a log record does not decode");
    for piece in bytes.chunks(QUARANTINE_PIECE_BYTES) {
        let transaction_id = transaction_id.clone();
        records.push(Record::Quarantined(Quarantined {
            xid,
            transaction_id,
            bytes: Arc::from(piece),
        }));
    }
}

/// Puts a record behind those that are to be handed to the journal.
pub(crate) fn push_record(records: &mut Records, record: &Record, force: bool) {
    let (kind, payload) = record::encode(record);
    let xid = record.xid().map(|xid| xid.to_bytes());
    let head = HeadRef {
        kind,
        xid: xid.as_ref(),
        transaction_id: record.transaction_id().map(TransactionId::as_str),
    };
    records.push(head, if force { Force::Now } else { Force::Lazy }, &payload);
}

/// The wall clock.
pub(crate) fn unix_millis() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn random() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(Error::Random)?;
    // The version and variant of a random UUID (RFC 9562, section 5.4).
    let random = u128::from_be_bytes(bytes);
    Ok((random & !(0xf000 << 64) & !(0xc000 << 48)) | (0x4000 << 64) | (0x8000 << 48))
}
