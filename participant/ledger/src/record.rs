//! What a ledger's log stores (section 2), as plain values.
//!
//! Kind, xid and transaction id stand in the envelope under a checksum of their own; the payload is `stored`'s.
//! What is a record's effect is written at each of them; what it takes to apply it is the fold's (`state`).

use std::sync::Arc;

use covenant_journal::{Force, HeadRef, Records};
use covenant_proto::log::v1::LedgerRecordKind as Kind;
use covenant_rules::{Floor, Incarnation, Lineage, Lsn, Name, Operator, TransactionId, UnixMillis, Xid};

use crate::account::{Account, AccountName, OpenSpec};
use crate::operation::Movements;

/// The most bytes of a quarantined record that one QUARANTINED record carries on.
pub(crate) const QUARANTINE_PIECE_BYTES: usize = 40_000;

/// A branch and what it holds, as PREPARED stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prepared {
    pub(crate) xid: Xid,
    pub(crate) transaction_id: TransactionId,
    /// The redo, byte for byte as it came.
    pub(crate) operation: Arc<[u8]>,
    /// What the redo comes to; not stored, since it follows.
    pub(crate) movements: Arc<Movements>,
    /// The highest position seen of the xid's lineage.
    pub(crate) position: Lsn,
    pub(crate) prepared_at: UnixMillis,
}

/// A branch decided by hand, as HEURISTIC_COMMIT and HEURISTIC_ABORT store it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ByHand {
    pub(crate) xid: Xid,
    pub(crate) transaction_id: TransactionId,
    pub(crate) commit: bool,
    pub(crate) by: Operator,
    pub(crate) at: UnixMillis,
}

/// A stored record that did not decode, or a piece of one: kept and shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantined {
    /// Where it stood in the log; `None` in a checkpoint.
    pub lsn: Option<Lsn>,
    /// The attempt, if its envelope shows it.
    pub xid: Option<Xid>,
    /// The caller's id, if its envelope shows it.
    pub transaction_id: Option<TransactionId>,
    /// What was wrong with it.
    pub why: Arc<str>,
    /// Its bytes as they were found.
    pub bytes: Arc<[u8]>,
}

/// One record of a ledger's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Record {
    /// **Forced.** Which log this is, and under which name it joins; a second one, of the same lineage, gives a log
    /// without a name the one it keeps.
    Lineage {
        lineage: Lineage,
        made_at: UnixMillis,
        name: Option<Name>,
    },
    /// **Forced.** One start.
    Incarnation(Incarnation),
    /// **Forced** before YES leaves (P6).
    Prepared(Prepared),
    /// The effect with it; lazy, and forced before ACK leaves (P12). In a checkpoint: a tombstone.
    Committed {
        xid: Xid,
        transaction_id: TransactionId,
        committed_at: UnixMillis,
    },
    /// Lazy (P10).
    Aborted(Xid),
    /// **Forced** (P14). In a checkpoint the effect is in the balances already.
    Heuristic(ByHand),
    /// **Forced** (P19).
    Forgotten(Xid),
    /// Lazy (section 6).
    Floor { lineage: Lineage, floor: Floor },
    /// **Forced.**
    AccountOpened { spec: OpenSpec, at: UnixMillis },
    /// **Forced.**
    AccountClosed(AccountName),
    /// Only in checkpoints; what is pending follows from PREPARED.
    Account(AccountName, Account),
    /// Only in checkpoints.
    Position { lineage: Lineage, lsn: Lsn },
    /// Only in checkpoints.
    Quarantined(Quarantined),
}

impl Record {
    /// The kind byte of its envelope.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Lineage { .. } => Kind::Lineage,
            Self::Incarnation(_) => Kind::Incarnation,
            Self::Prepared(_) => Kind::Prepared,
            Self::Committed { .. } => Kind::Committed,
            Self::Aborted(_) => Kind::Aborted,
            Self::Heuristic(ByHand { commit: true, .. }) => Kind::HeuristicCommit,
            Self::Heuristic(ByHand { commit: false, .. }) => Kind::HeuristicAbort,
            Self::Forgotten(_) => Kind::Forgotten,
            Self::Floor { .. } => Kind::Floor,
            Self::AccountOpened { .. } => Kind::AccountOpened,
            Self::AccountClosed(_) => Kind::AccountClosed,
            Self::Account(..) => Kind::Account,
            Self::Position { .. } => Kind::Position,
            Self::Quarantined(_) => Kind::Quarantined,
        }
    }

    /// The attempt and the caller's id that its envelope shows.
    pub(crate) fn about(&self) -> (Option<Xid>, Option<&TransactionId>) {
        match self {
            Self::Prepared(Prepared {
                xid, transaction_id, ..
            })
            | Self::Committed {
                xid, transaction_id, ..
            }
            | Self::Heuristic(ByHand {
                xid, transaction_id, ..
            }) => (Some(*xid), Some(transaction_id)),
            Self::Aborted(xid) | Self::Forgotten(xid) => (Some(*xid), None),
            Self::Quarantined(quarantined) => (quarantined.xid, quarantined.transaction_id.as_ref()),
            Self::Lineage { .. }
            | Self::Incarnation(_)
            | Self::Floor { .. }
            | Self::AccountOpened { .. }
            | Self::AccountClosed(_)
            | Self::Account(..)
            | Self::Position { .. } => (None, None),
        }
    }

    /// Whether what depends on it waits for its force, and nothing else would bring that about soon.
    pub(crate) fn force(&self) -> Force {
        match self {
            Self::Committed { .. } | Self::Aborted(_) | Self::Floor { .. } => Force::Lazy,
            Self::Lineage { .. }
            | Self::Incarnation(_)
            | Self::Prepared(_)
            | Self::Heuristic(_)
            | Self::Forgotten(_)
            | Self::AccountOpened { .. }
            | Self::AccountClosed(_)
            | Self::Account(..)
            | Self::Position { .. }
            | Self::Quarantined(_) => Force::Now,
        }
    }

    /// Adds it to what the journal is handed.
    pub(crate) fn push(&self, records: &mut Records) {
        let (xid, transaction_id) = self.about();
        let xid = xid.map(|xid| xid.to_bytes());
        let kind = u8::try_from(i32::from(self.kind())).unwrap_or_default();
        let head = HeadRef {
            kind,
            xid: xid.as_ref(),
            transaction_id: transaction_id.map(TransactionId::as_str),
        };
        records.push_with(head, self.force(), |buffer| self.write(buffer));
    }
}
