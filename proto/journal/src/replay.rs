//! What an open journal gives back: the checkpoint's records, then the log's above it, in order.
//!
//! Records stream from the image; memory holds one entry at a time. A record that does not decode comes as
//! [`Damaged`], and the rest follows. That the log has no gap was checked before (`survey`).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::checkpoint::Manifest;
use crate::committer::{Probe, Stage};
use crate::entry::{Assembler, ChunkKey, LogKey, SliceKey, decode_records};
use crate::envelope::{Damaged, Envelope};
use crate::error::Error;
use crate::image::{Image, Key, Space};

/// One record of the replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The LSNs that it covers: one, or for damage all of its entry; `None` for the checkpoint's records.
    pub lsns: Option<RangeInclusive<u64>>,
    /// The record, or what is left of it.
    pub record: Result<Envelope, Damaged>,
}

/// Iterates over the records; it ends after an error.
pub struct Replay {
    // While scans live, so does the store below: its lock must not go before them.
    _image: Arc<dyn Image>,
    checkpoint: Assembler<SliceKey>,
    log: Assembler<LogKey>,
    manifest: Manifest,
    ready: VecDeque<Replayed>,
    in_checkpoint: bool,
    given: u64,
    total: u64,
    probe: Option<Probe>,
    ended: bool,
}

impl Replay {
    pub(crate) fn new(image: Arc<dyn Image>, survey: &Survey, probe: Option<Probe>) -> Self {
        let manifest = survey.manifest;
        Self {
            checkpoint: Assembler::new(image.scan(Space::Checkpoint, &generation_key(manifest.generation))),
            log: Assembler::new(image.scan(Space::Log, &Key::from_parts(&[]))),
            manifest,
            ready: VecDeque::new(),
            in_checkpoint: true,
            _image: image,
            given: 0,
            total: manifest.records + (survey.last_lsn - manifest.lsn),
            probe,
            ended: false,
        }
    }

    /// How many records there are, damaged ones among them.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// LSN of the checkpoint that the replay starts from; 0 for none.
    pub fn checkpoint_lsn(&self) -> u64 {
        self.manifest.lsn
    }

    /// Reads the next entry; whether there was one.
    fn refill(&mut self) -> Result<bool, Error> {
        if self.in_checkpoint {
            match self.checkpoint.next().transpose()? {
                Some(slice) if slice.key.generation == self.manifest.generation => {
                    let records = decode_records(slice.bytes, slice.key.count, slice.whole);
                    self.ready
                        .extend(records.into_iter().map(|record| Replayed { lsns: None, record }));
                    return Ok(true);
                }
                Some(_) | None => self.in_checkpoint = false,
            }
        }
        let Some(entry) = self.log.next().transpose()? else {
            return Ok(false);
        };
        let mut first = entry.key.first;
        for record in decode_records(entry.bytes, entry.key.count, entry.whole) {
            let records = record.as_ref().map_or_else(|damaged| damaged.records, |_| 1);
            let last = first + records - 1;
            // An entry may reach over the checkpoint.
            if last > self.manifest.lsn {
                self.ready.push_back(Replayed {
                    lsns: Some(first.max(self.manifest.lsn + 1)..=last),
                    record,
                });
            }
            first = last + 1;
        }
        Ok(true)
    }

    fn advance(&mut self) -> Result<Option<Replayed>, Error> {
        while self.ready.is_empty() {
            if !self.refill()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    fn call_probe(&mut self, next: &Replayed) {
        if self.given >= self.total / 2
            && let Some(probe) = self.probe.take()
        {
            let (first, last) = next.lsns.clone().map_or((0, 0), RangeInclusive::into_inner);
            probe(Stage::ReplayMid, first, last);
        }
    }
}

impl Iterator for Replay {
    type Item = Result<Replayed, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.advance().transpose();
        match &next {
            Some(Ok(replayed)) => {
                self.call_probe(replayed);
                self.given += replayed
                    .record
                    .as_ref()
                    .map_or_else(|damaged| damaged.records, |_| 1);
            }
            Some(Err(_)) | None => self.ended = true,
        }
        next
    }
}

fn generation_key(generation: u64) -> Key {
    Key::from_parts(&[&generation.to_be_bytes()])
}

/// What one walk over all keys found, before anything is changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Survey {
    pub(crate) manifest: Manifest,
    pub(crate) last_lsn: u64,
    pub(crate) log_bytes: u64,
}

impl Survey {
    /// Walks over the whole image, so that damage shows here, under the open's watchdog, and refuses gaps.
    pub(crate) fn of(image: &Arc<dyn Image>) -> Result<Self, Error> {
        let manifest = Manifest::load(&**image)?;
        survey_checkpoint(&**image, &manifest)?;
        let (last_lsn, log_bytes) = survey_log(&**image, &manifest)?;
        for item in image.scan(Space::Archive, &Key::from_parts(&[])) {
            item?;
        }
        Ok(Self {
            manifest,
            last_lsn,
            log_bytes,
        })
    }
}

fn survey_checkpoint(image: &dyn Image, manifest: &Manifest) -> Result<(), Error> {
    let mut found: u64 = 0;
    for item in image.scan(Space::Checkpoint, &generation_key(manifest.generation)) {
        match SliceKey::parse(&item?.0) {
            Some((slice, _)) if slice.generation != manifest.generation => break,
            Some((slice, _)) if u64::from(slice.first) == found => found += u64::from(slice.count),
            // A further part of the slice before, or one behind a missing slice, which leaves `found` short.
            Some(_) | None => {}
        }
    }
    if found == manifest.records {
        return Ok(());
    }
    Err(Error::CheckpointIncomplete {
        generation: manifest.generation,
        expected: manifest.records,
        found,
    })
}

/// The last LSN, and the bytes of the entries that stay.
fn survey_log(image: &dyn Image, manifest: &Manifest) -> Result<(u64, u64), Error> {
    let mut last = manifest.lsn;
    let mut bytes = 0;
    let mut present = None;
    for item in image.scan(Space::Log, &Key::from_parts(&[])) {
        let (key, value) = item?;
        let Some((entry, _)) = LogKey::parse(&key).filter(|(entry, _)| entry.last() > manifest.lsn) else {
            continue;
        };
        bytes += value.len() as u64;
        if present == Some(entry) {
            continue;
        }
        let reaches_over = present.is_none() && entry.first <= manifest.lsn;
        if entry.first != last + 1 && !reaches_over {
            return Err(Error::Gap {
                expected: last + 1,
                found: entry.first,
            });
        }
        present = Some(entry);
        last = entry.last();
    }
    Ok((last, bytes))
}
