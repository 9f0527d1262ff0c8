//! Entries: what the ledger keeps for ever of every committed branch and every opening.
//!
//! An entry has one line per account, and the amounts of one currency add up to 0. It is one item of the journal's
//! archive; its number there is its name. Each line names the account's previous entry, so that the entries
//! of an account, newest first, are a chain that starts at `Account::last_entry`.

use covenant_proto::log::v1 as proto;
use covenant_rules::{TransactionId, UnixMillis, Xid};
use prost::Message;

use crate::account::AccountName;

/// One account's part of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The account.
    pub account: AccountName,
    /// What was added, in minor units; negative for a debit.
    pub amount: i64,
    /// The balance after it, in minor units.
    pub balance_after: i64,
    /// The number of the account's previous entry, if it has one.
    pub previous: Option<u64>,
}

/// Everything that one branch or one opening did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The attempt and the caller's id; `None` for an opening.
    pub cause: Option<(Xid, TransactionId)>,
    /// One line per account, sorted by account.
    pub lines: Vec<Line>,
    /// When it was prepared; for an opening, when it was opened. For display.
    pub prepared_at: UnixMillis,
    /// When it was committed, for display; 0 if that is not known any more.
    pub committed_at: UnixMillis,
}

impl Entry {
    /// The archive item.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (xid, transaction_id) = match &self.cause {
            Some((xid, transaction_id)) => (xid.to_bytes().to_vec(), transaction_id.to_string()),
            None => (Vec::new(), String::new()),
        };
        let line = |line: &Line| proto::LedgerEntryLine {
            account: line.account.to_string(),
            amount: line.amount,
            balance_after: line.balance_after,
            previous: line.previous,
        };
        let lines = self.lines.iter().map(line).collect();
        let (prepared_at_ms, committed_at_ms) = (self.prepared_at, self.committed_at);
        proto::LedgerEntry {
            transaction_id,
            xid,
            lines,
            prepared_at_ms,
            committed_at_ms,
        }
        .encode_to_vec()
    }

    /// Reads an archive item.
    pub(crate) fn decode(item: &[u8]) -> Result<Self, String> {
        let entry = proto::LedgerEntry::decode(item).map_err(|error| error.to_string())?;
        let cause = if entry.transaction_id.is_empty() {
            None
        } else {
            let xid: &[u8; 40] = entry.xid[..]
                .try_into()
                .map_err(|_| format!("its xid has {} bytes, not 40", entry.xid.len()))?;
            let transaction_id =
                TransactionId::new(&entry.transaction_id).map_err(|error| error.to_string())?;
            Some((Xid::from_bytes(xid), transaction_id))
        };
        let line = |line: proto::LedgerEntryLine| {
            Ok(Line {
                account: AccountName::any(&line.account).map_err(|error| error.to_string())?,
                amount: line.amount,
                balance_after: line.balance_after,
                previous: line.previous,
            })
        };
        Ok(Self {
            cause,
            lines: entry.lines.into_iter().map(line).collect::<Result<_, String>>()?,
            prepared_at: entry.prepared_at_ms,
            committed_at: entry.committed_at_ms,
        })
    }

    /// The transaction id of an archive item, empty for an opening: all that a start needs of a million of them.
    pub(crate) fn decode_transaction_id(item: &[u8]) -> Result<String, String> {
        let head = proto::LedgerEntryHead::decode(item).map_err(|error| error.to_string())?;
        Ok(head.transaction_id)
    }

    /// From PREPARED to COMMITTED, in milliseconds of the wall clock; `None` for an opening and where the end is
    /// not known.
    #[must_use]
    pub fn held_for_ms(&self) -> Option<u64> {
        let known = self.cause.is_some() && self.committed_at != 0;
        // A wall clock may be set back: then it was held for no time that it could tell.
        known.then(|| self.committed_at.saturating_sub(self.prepared_at))
    }

    /// The line of an account.
    #[must_use]
    pub fn line(&self, account: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.account.as_str() == account)
    }
}
