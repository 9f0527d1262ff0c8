//! A simulated disk: records above a checkpoint, of which a beginning is forced.
//!
//! Appending puts a record into the page cache. A force covers all that was appended when it began, takes time, and
//! may fail. When the process dies, the cache keeps a beginning of what was not forced; when the power goes, the
//! platter keeps a beginning of that. So a start may read records that a second loss takes away again, until they
//! were forced themselves.

use covenant_rules::Lsn;

/// The log of one node.
#[derive(Clone, Debug)]
pub struct Disk<T> {
    /// The LSN that the checkpoint folds up to: the records follow it.
    pub base: Lsn,
    /// The records above `base`.
    pub records: Vec<T>,
    /// The last record that is forced.
    pub forced: Lsn,
    /// The last record that the force under way covers.
    pub forcing: Option<Lsn>,
    /// The last record that somebody waits for.
    pub wanted: Lsn,
}

impl<T> Default for Disk<T> {
    fn default() -> Self {
        Self {
            base: 0,
            records: Vec::new(),
            forced: 0,
            forcing: None,
            wanted: 0,
        }
    }
}

impl<T> Disk<T> {
    /// The last record appended.
    #[must_use]
    pub fn appended(&self) -> Lsn {
        self.base + self.records.len() as Lsn
    }

    /// Appends; the LSN.
    pub fn append(&mut self, record: T) -> Lsn {
        self.records.push(record);
        self.appended()
    }

    /// The record with that LSN, if it is above the checkpoint.
    #[must_use]
    pub fn get(&self, lsn: Lsn) -> Option<&T> {
        let at = lsn.checked_sub(self.base + 1)?;
        self.records.get(usize::try_from(at).unwrap_or(usize::MAX))
    }

    /// The records that are forced.
    #[must_use]
    pub fn durable(&self) -> &[T] {
        let count = self.forced.saturating_sub(self.base);
        &self.records[..usize::try_from(count)
            .unwrap_or(usize::MAX)
            .min(self.records.len())]
    }

    /// Begins a force, if one is wanted and none is under way; the last record that it covers.
    pub fn begin_force(&mut self) -> Option<Lsn> {
        if self.forcing.is_some() || self.wanted <= self.forced {
            return None;
        }
        self.forcing = Some(self.appended());
        self.forcing
    }

    /// Ends the force; the LSNs that it made durable.
    pub fn end_force(&mut self) -> std::ops::RangeInclusive<Lsn> {
        let upto = self.forcing.take().unwrap_or(self.forced).max(self.forced);
        let from = self.forced + 1;
        self.forced = upto;
        from..=upto
    }

    /// The process is gone: at most `keep` records behind the forced ones stay in the cache. What does not.
    pub fn process_died(&mut self, keep: usize) -> Vec<(Lsn, T)> {
        self.forcing = None;
        self.wanted = 0;
        let kept = usize::try_from(self.forced.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let kept = kept.saturating_add(keep).min(self.records.len());
        let from = self.base + kept as Lsn + 1;
        (from..).zip(self.records.drain(kept..)).collect()
    }

    /// The power is gone too: what stays is on the platter.
    pub fn power_lost(&mut self, keep: usize) -> Vec<(Lsn, T)> {
        let lost = self.process_died(keep);
        self.forced = self.appended();
        lost
    }

    /// A checkpoint up to there is installed.
    pub fn checkpointed(&mut self, lsn: Lsn) {
        let count = usize::try_from(lsn.saturating_sub(self.base)).unwrap_or(usize::MAX);
        self.records.drain(..count.min(self.records.len()));
        self.base = lsn.max(self.base);
    }
}
