//! Everything that can go wrong in a ledger but a NO vote, which is a [`crate::Refusal`] and no error.

use covenant_rules::{Lsn, Name, TransactionId, Xid};

use crate::account::AccountName;
use crate::accounts::{CloseRefusal, OpenRefusal};

/// Why a ledger could not be opened, changed or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal refused.
    #[error(transparent)]
    Journal(#[from] covenant_journal::Error),
    /// A record does not follow from those before it, or is damaged so that it cannot be told what it touches.
    #[error(
        "the ledger's record {} cannot be applied: {why}; keep the directory, copy it, and restore from a backup",
        place(*lsn)
    )]
    Record {
        /// Where it stands in the log; `None` in the checkpoint.
        lsn: Option<Lsn>,
        /// What is wrong with it.
        why: String,
    },
    /// A prepared branch holds something, and its operation is damaged.
    #[error(
        "the PREPARED record of {xid} (transaction {transaction_id}) is damaged and the branch has not ended, so it \
         cannot be told which accounts it holds; keep the directory, copy it, and restore from a backup"
    )]
    Unreadable {
        /// The attempt.
        xid: Xid,
        /// The caller's id.
        transaction_id: TransactionId,
    },
    /// The log has records but does not say which log it is.
    #[error("the ledger's log has no LINEAGE record; keep the directory, copy it, and restore from a backup")]
    NoLineage,
    /// The directory is that of a ledger of another name.
    #[error(
        "this data directory is that of the ledger {found}, not of {asked}; start it as {found}, or name another directory"
    )]
    OtherName {
        /// The name that it was first opened with.
        found: Name,
        /// The name asked for.
        asked: Name,
    },
    /// An entry of the archive does not decode.
    #[error("entry {index} does not decode ({why}); keep the directory, copy it, and restore from a backup")]
    Entry {
        /// Its number.
        index: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes for the identity of the ledger ({0}); start it again")]
    Random(getrandom::Error),
    /// The thread that opens the journal ended without a result.
    #[error("opening the ledger's journal ended without a result; start it again")]
    OpenEnded,
    /// The thread of a read ended without a result.
    #[error("a read of the ledger ended without a result")]
    ReadEnded(#[source] tokio::task::JoinError),
    /// An account was not opened.
    #[error(transparent)]
    Open(#[from] OpenRefusal),
    /// An account was not closed.
    #[error(transparent)]
    Close(#[from] CloseRefusal),
    /// The journal has more waiting than its bound.
    #[error("{waiting} bytes wait to be forced, more than MAX_BACKLOG_BYTES, {bound}; try again later")]
    Backlogged {
        /// What waits, in bytes.
        waiting: usize,
        /// The bound, in bytes.
        bound: usize,
    },
    /// The account to show does not exist.
    #[error("this ledger has no account {0:?}; list the accounts to see which there are")]
    NoAccount(AccountName),
    /// A place to go on from in a list is no place of that list.
    #[error("entry {index} is no entry of the account {account}; begin with the first page")]
    NoSuchPlace {
        /// The account whose entries are listed.
        account: AccountName,
        /// The number of the entry.
        index: u64,
    },
    /// A call about a branch that the log does not know.
    #[error("the branch {0} is unknown here; nothing changed")]
    UnknownBranch(Xid),
    /// A call that the branch's state does not allow (P21).
    #[error("the branch {xid} is {state} here, so it cannot {call}; nothing changed")]
    WrongState {
        /// The attempt.
        xid: Xid,
        /// Where the branch stands.
        state: &'static str,
        /// What was asked.
        call: &'static str,
    },
    /// A branch committed by hand would be a second effect of its transaction (P14).
    #[error(
        "the transaction {transaction_id} took effect here as attempt {effect}, so {xid} cannot be committed by hand"
    )]
    SecondEffect {
        /// The branch.
        xid: Xid,
        /// The caller's id.
        transaction_id: TransactionId,
        /// The attempt that took effect.
        effect: Xid,
    },
}

fn place(lsn: Option<Lsn>) -> String {
    lsn.map_or_else(|| "in the checkpoint".to_owned(), |lsn| lsn.to_string())
}
