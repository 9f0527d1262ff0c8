//! What waits for the committer: appended records in groups, and at most one checkpoint.
//!
//! Records keep the order in which they were appended, in groups that each become one entry. The queue
//! decides when the front group is due: at once if a record at or behind it must be forced or another group
//! waits behind it, else when its oldest record has waited for `LAZY_FORCE_MS`. It neither locks nor waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::checkpoint::Checkpoint;
use crate::envelope::{Force, Records};
use crate::limits::{LAZY_FORCE_MS, MAX_ENTRY_BYTES, MAX_ENTRY_RECORDS, SPARE_GROUPS_MAX};

/// Records that become one entry.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) first: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) lens: Vec<u16>,
    since: Instant,
}

impl Group {
    pub(crate) fn last(&self) -> u64 {
        self.first + self.lens.len() as u64 - 1
    }

    fn fits(&self, record: &[u8]) -> bool {
        self.lens.len() < MAX_ENTRY_RECORDS && self.bytes.len() + record.len() <= MAX_ENTRY_BYTES
    }
}

/// What the committer does next.
#[derive(Debug)]
pub(crate) enum Due {
    /// Write this group.
    Group(Group),
    /// Nothing must be written yet; look again when woken, or after this time.
    Wait(Option<Duration>),
    /// Everything was written and no more will come.
    Stop,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Queue {
    groups: VecDeque<Group>,
    spare: Vec<Group>,
    next: u64,
    forced_up_to: u64,
    /// Whether the committer sleeps and must be woken.
    pub(crate) asleep: bool,
    /// Whether the journal closes: write what waits, then end.
    pub(crate) closing: bool,
    /// Why nothing will be written any more.
    pub(crate) stopped: Option<String>,
    /// A checkpoint to begin.
    pub(crate) checkpoint: Option<Checkpoint>,
}

impl Queue {
    /// An empty queue whose first record gets the LSN `next`.
    pub(crate) fn new(next: u64) -> Self {
        Self {
            groups: VecDeque::new(),
            spare: Vec::new(),
            next,
            forced_up_to: 0,
            asleep: false,
            closing: false,
            stopped: None,
            checkpoint: None,
        }
    }

    /// LSN of the next record.
    pub(crate) fn next_lsn(&self) -> u64 {
        self.next
    }

    /// Takes over the records; whether the committer may have something new to do or to wait for.
    pub(crate) fn append(&mut self, records: &Records) -> bool {
        let mut news = false;
        for (record, force) in records.iter() {
            if !self.groups.back().is_some_and(|group| group.fits(record)) {
                self.begin_group();
                news = true;
            }
            if let Some(group) = self.groups.back_mut() {
                group.bytes.extend_from_slice(record);
                group.lens.push(record.len() as u16);
            }
            if force == Force::Now {
                self.forced_up_to = self.next;
                news = true;
            }
            self.next += 1;
        }
        news
    }

    fn begin_group(&mut self) {
        let since = Instant::now();
        let group = match self.spare.pop() {
            Some(spare) => Group {
                first: self.next,
                since,
                ..spare
            },
            None => Group {
                first: self.next,
                bytes: Vec::new(),
                lens: Vec::new(),
                since,
            },
        };
        self.groups.push_back(group);
    }

    /// What is due. `ride`: a force happens anyway, so the front group goes with it.
    pub(crate) fn due(&mut self, ride: bool) -> Due {
        let Some(front) = self.groups.front() else {
            return if self.closing { Due::Stop } else { Due::Wait(None) };
        };
        let at_once = ride || self.closing || self.groups.len() > 1 || self.forced_up_to >= front.first;
        let left = Duration::from_millis(LAZY_FORCE_MS).saturating_sub(front.since.elapsed());
        if !at_once && !left.is_zero() {
            return Due::Wait(Some(left));
        }
        match self.groups.pop_front() {
            Some(group) => Due::Group(group),
            None => Due::Wait(None),
        }
    }

    /// Takes a written group's buffers back for later groups.
    pub(crate) fn recycle(&mut self, mut group: Group) {
        if self.spare.len() < SPARE_GROUPS_MAX {
            group.bytes.clear();
            group.lens.clear();
            self.spare.push(group);
        }
    }

    /// Drops everything and refuses more: nothing is completed any more.
    pub(crate) fn stop(&mut self, why: &str) {
        self.groups.clear();
        self.checkpoint = None;
        if self.stopped.is_none() {
            self.stopped = Some(why.to_owned());
        }
    }
}
