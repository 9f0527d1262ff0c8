//! Recovery: the log becomes the machine (section 2).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use covenant_codec::record;
use covenant_journal::{
    Damaged, Envelope, Force, Head, HeadRef, Journal, Options, Records, Replay, Replayed, StartReport,
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
    let (mut archive, archived) = OutcomeArchive::open(opened.archive)?;
    let checkpoint = opened.replay.checkpoint_lsn();
    let identity = Identity {
        new_lineage: Lineage(random()?),
        bits: random()? as u64,
        started: unix_millis(),
        archived,
    };
    // One record at a time: a log of millions must not stand in memory as a whole.
    let mut reader = Reader::new(opened.replay);
    let (machine, effects) = Coordinator::recover(config.limits(), identity, &mut reader, last);
    if let Some(failed) = reader.failed {
        return Err(failed);
    }
    if last > 0 && !reader.has_lineage {
        return Err(Error::NoLineage { last });
    }
    archive.expire_before(machine.fold().retained_since);
    Ok(Recovered {
        journal: opened.journal,
        machine,
        effects,
        archive,
        replayed: reader.replayed,
        checkpoint,
        report: opened.report,
    })
}

/// The records of a replay, decoded or quarantined; it ends early when it fails.
struct Reader {
    replay: Replay,
    /// Pieces of quarantined bytes that come next.
    pieces: VecDeque<Record>,
    replayed: u64,
    quarantined: usize,
    has_lineage: bool,
    failed: Option<Error>,
}

impl Reader {
    fn new(replay: Replay) -> Self {
        Self {
            replay,
            pieces: VecDeque::new(),
            replayed: 0,
            quarantined: 0,
            has_lineage: false,
            failed: None,
        }
    }

    fn quarantine(
        &mut self,
        lsns: Option<&RangeInclusive<u64>>,
        head: Option<&Head>,
        bytes: &[u8],
        why: &str,
    ) {
        self.quarantined += 1;
        if self.quarantined > MAX_QUARANTINED {
            let (found, bound) = (self.quarantined, MAX_QUARANTINED);
            self.failed = Some(Error::TooManyQuarantined { found, bound });
            return;
        }
        let xid = head.and_then(|head| head.xid.as_ref()).map(Xid::from_bytes);
        let shown = head.and_then(|head| head.transaction_id.as_deref());
        let transaction_id = shown.and_then(|id| TransactionId::new(id).ok());
        let about = xid.map_or_else(|| String::from("an unknown transaction"), |xid| xid.to_string());
        tracing::error!(code = "RECORD_QUARANTINED", ?lsns, %about, why, "a log record does not decode");
        self.pieces
            .extend(bytes.chunks(QUARANTINE_PIECE_BYTES).map(|piece| {
                let transaction_id = transaction_id.clone();
                Record::Quarantined(Quarantined {
                    xid,
                    transaction_id,
                    bytes: Arc::from(piece),
                })
            }));
    }

    fn decode(&mut self, replayed: Replayed) -> Option<Record> {
        let lsns = replayed.lsns.as_ref();
        match replayed.record {
            Ok(Envelope { head, payload }) => {
                let xid = head.xid.as_ref().map(Xid::from_bytes);
                match record::decode(head.kind, xid, head.transaction_id.as_deref(), &payload) {
                    Ok(record) => return Some(record),
                    Err(why) => self.quarantine(lsns, Some(&head), &payload, &why.to_string()),
                }
            }
            Err(Damaged { head, bytes, why, .. }) => self.quarantine(lsns, head.as_ref(), &bytes, why),
        }
        None
    }
}

impl Iterator for Reader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Some(piece);
            }
            if self.failed.is_some() {
                return None;
            }
            match self.replay.next()? {
                Ok(replayed) => {
                    self.replayed += 1;
                    if let Some(record) = self.decode(replayed) {
                        self.has_lineage |= matches!(record, Record::Lineage { .. });
                        return Some(record);
                    }
                }
                Err(failed) => self.failed = Some(failed.into()),
            }
        }
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
