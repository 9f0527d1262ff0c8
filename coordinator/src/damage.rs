//! Archived items that do not decode: quarantined where they are (section 2).
//!
//! They stay in the archive, shown and counted, until the items around them expire; their bytes are not copied. What
//! each still shows goes to the machine, which answers UNKNOWN for it (R3, Q5).

use std::collections::BTreeMap;
use std::sync::Arc;

use covenant_codec::outcome::summarize_outcome;
use covenant_rules::{Quarantined, TransactionId, Xid};

use crate::Error;

/// The most log records, and the most archived outcomes, that may be quarantined; beyond it the directory is given up.
pub(crate) const MAX_QUARANTINED: usize = 10_000;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Damage {
    items: BTreeMap<u64, Quarantined>,
}

/// An item that does not decode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DamagedItem {
    pub(crate) index: u64,
    /// What it still shows, without its bytes.
    pub(crate) shows: Quarantined,
    pub(crate) why: String,
}

/// What an item still shows; `xid` and `id` are what it was asked for, which an unreadable one may be.
pub(crate) fn shown(bytes: Option<&[u8]>, xid: Option<Xid>, id: Option<&TransactionId>) -> Quarantined {
    let summary = bytes.and_then(|bytes| summarize_outcome(bytes).ok());
    let (xid, transaction_id) = match summary {
        Some(summary) => (
            Some(summary.xid),
            TransactionId::new(&summary.transaction_id).ok(),
        ),
        None => (xid, id.cloned()),
    };
    Quarantined {
        xid,
        transaction_id,
        bytes: Arc::from([]),
    }
}

impl Damage {
    /// Notes an item, and says so the first time.
    ///
    /// # Errors
    /// [`Error::TooManyQuarantined`] beyond [`MAX_QUARANTINED`].
    pub(crate) fn insert(&mut self, item: &DamagedItem) -> Result<(), Error> {
        let DamagedItem { index, shows, why } = item;
        if self.items.contains_key(index) {
            return Ok(());
        }
        if self.items.len() >= MAX_QUARANTINED {
            let (found, bound) = (self.items.len() + 1, MAX_QUARANTINED);
            return Err(Error::TooManyQuarantined { found, bound });
        }
        let xid = shows
            .xid
            .map_or_else(|| String::from("unknown"), |xid| xid.to_string());
        let transaction_id = shows.transaction_id.as_ref().map_or("unknown", |id| id.as_str());
        tracing::error!(
            code = "OUTCOME_QUARANTINED",
            index,
            %xid,
            transaction_id,
            %why,
            "an archived outcome does not decode; the answer for its id is UNKNOWN"
        );
        self.items.insert(*index, shows.clone());
        Ok(())
    }

    /// The number of the first item from `start` on that is not noted here.
    pub(crate) fn step_over(&self, start: u64) -> u64 {
        let run = self.items.range(start..).zip(start..);
        start
            + run
                .take_while(|((index, _), expected)| **index == *expected)
                .count() as u64
    }

    /// The item is gone; what it showed.
    pub(crate) fn remove(&mut self, index: u64) -> Option<Quarantined> {
        self.items.remove(&index)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// What they show.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Quarantined> {
        self.items.values()
    }
}
