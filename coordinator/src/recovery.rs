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
use tokio::time::Instant;

use crate::archive::OutcomeArchive;
use crate::crash::Crash;
use crate::damage::MAX_QUARANTINED;
use crate::{Config, Error};

/// Quarantined bytes are carried on in pieces of this size.
const QUARANTINE_PIECE_BYTES: usize = 32 * 1024;

/// A recovered coordinator, not serving yet.
pub(crate) struct Recovered {
    pub(crate) journal: Journal,
    pub(crate) machine: Coordinator,
    /// What the machine asked for at its start.
    pub(crate) effects: Vec<Effect>,
    /// From where the machine counts its time.
    pub(crate) started: Instant,
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
    // The two clocks are read together: every later time of the machine is one plus what the other has moved on.
    let started = Instant::now();
    let identity = Identity {
        new_lineage: Lineage(random()?),
        bits: random()? as u64,
        started: unix_millis(),
        archived,
        tail_lost: opened.lost_tail.map(|lost| lost.forced),
        quarantined: archive.damage().shown().cloned().collect(),
    };
    // One record at a time: a log of millions must not stand in memory as a whole.
    let mut reader = Reader::new(opened.replay);
    let (machine, effects) = Coordinator::recover(config.limits(), identity, &mut reader, last);
    if let Some(failed) = reader.failed {
        return Err(failed);
    }
    // A log that lost all its records is no new one.
    if let Some(lost) = opened.lost_tail.filter(|_| !reader.has_lineage) {
        return Err(covenant_journal::Error::TailLost(lost).into());
    }
    if last > 0 && !reader.has_lineage {
        return Err(Error::NoLineage { last });
    }
    archive.expire_before(machine.fold().retained_since);
    Ok(Recovered {
        journal: opened.journal,
        machine,
        effects,
        started,
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
        let piece = |bytes: &[u8]| {
            let transaction_id = transaction_id.clone();
            Record::Quarantined(Quarantined {
                xid,
                transaction_id,
                bytes: Arc::from(bytes),
            })
        };
        // A payload without bytes stands in the way of presumption like any other.
        let (first, rest) = bytes.split_at(bytes.len().min(QUARANTINE_PIECE_BYTES));
        self.pieces.push_back(piece(first));
        self.pieces.extend(rest.chunks(QUARANTINE_PIECE_BYTES).map(piece));
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

#[cfg(test)]
mod tests {
    use super::*;
    use covenant_journal::MemoryImage;

    /// What the next start reads of one record with this kind and payload.
    fn read_again(kind: u8, payload: &[u8]) -> Vec<Record> {
        let image = Arc::new(MemoryImage::new());
        let opened = Journal::open_image(image.clone(), Options::new("test")).unwrap();
        let mut records = Records::new();
        let xid = [7; 40];
        let head = HeadRef {
            kind,
            xid: Some(&xid),
            transaction_id: Some("T1"),
        };
        records.push(head, Force::Now, payload);
        opened.journal.append(&records);
        opened.journal.close().unwrap();
        drop(opened);
        let opened = Journal::open_image(image, Options::new("test")).unwrap();
        Reader::new(opened.replay).collect()
    }

    #[test]
    fn a_record_that_does_not_decode_is_quarantined_whole_also_one_without_payload() {
        const UNKNOWN_KIND: u8 = 200;
        for size in [0, 1, QUARANTINE_PIECE_BYTES, QUARANTINE_PIECE_BYTES + 1] {
            let payload = vec![9; size];
            let mut bytes = Vec::new();
            let read = read_again(UNKNOWN_KIND, &payload);
            assert!(!read.is_empty(), "nothing stands in the way of {size} lost bytes");
            for record in read {
                let Record::Quarantined(piece) = record else {
                    panic!("{record:?}")
                };
                assert_eq!(piece.xid, Some(Xid::from_bytes(&[7; 40])));
                assert_eq!(piece.transaction_id, Some(TransactionId::new("T1").unwrap()));
                bytes.extend_from_slice(&piece.bytes);
            }
            assert_eq!(bytes, payload);
        }
    }
}
