//! Payloads of stored records: `covenant.log.v1.Ledger*` messages, written and read back.
//!
//! Reading never panics: what does not decode says why, and [`About::salvage`] tells what the head of its envelope
//! alone still says. For a record whose effect is its kind and xid that is everything but what people read.

use std::sync::Arc;

use covenant_codec::{MAX_OPERATOR_WHO_BYTES, MAX_OPERATOR_WHY_BYTES};
use covenant_journal::{Envelope, Head};
use covenant_proto::log::v1 as proto;
use covenant_proto::log::v1::LedgerRecordKind as Kind;
use covenant_rules::{Floor, Incarnation, Lineage, Operator, TransactionId, UnixMillis, Xid};
use prost::Message;

use crate::account::{Account, AccountName, OpenSpec};
use crate::record::{ByHand, Prepared, Quarantined, Record};
use crate::wire;

impl Record {
    /// Appends the payload to the buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Lineage { lineage, made_at } => {
                let (lineage_high, lineage_low) = halves(*lineage);
                put(
                    &proto::LedgerLineage {
                        lineage_high,
                        lineage_low,
                        made_at_ms: *made_at,
                    },
                    buffer,
                );
            }
            Self::Incarnation(Incarnation { counter, bits }) => {
                put(
                    &proto::LedgerIncarnation {
                        counter: *counter,
                        bits: *bits,
                    },
                    buffer,
                );
            }
            Self::Prepared(Prepared {
                operation,
                position,
                prepared_at,
                ..
            }) => {
                let (operation, position, prepared_at_ms) = (operation.to_vec(), *position, *prepared_at);
                put(
                    &proto::LedgerPrepared {
                        operation,
                        position,
                        prepared_at_ms,
                    },
                    buffer,
                );
            }
            Self::Committed { committed_at, .. } => {
                put(
                    &proto::LedgerCommitted {
                        committed_at_ms: *committed_at,
                    },
                    buffer,
                );
            }
            Self::Aborted(_) => put(&proto::LedgerAborted {}, buffer),
            Self::Heuristic(ByHand { by, at, .. }) => {
                let who = cut(&by.who, MAX_OPERATOR_WHO_BYTES).to_owned();
                let why = cut(&by.why, MAX_OPERATOR_WHY_BYTES).to_owned();
                put(
                    &proto::LedgerHeuristic {
                        who,
                        why,
                        decided_at_ms: *at,
                    },
                    buffer,
                );
            }
            Self::Forgotten(_) => put(&proto::LedgerForgotten {}, buffer),
            Self::Floor { lineage, floor } => {
                let (lineage_high, lineage_low) = halves(*lineage);
                let Floor { counter, seq } = *floor;
                put(
                    &proto::LedgerFloor {
                        lineage_high,
                        lineage_low,
                        counter,
                        seq,
                    },
                    buffer,
                );
            }
            Self::AccountOpened { spec, at } => {
                let (account, currency) = (spec.account.to_string(), spec.currency.to_string());
                let (opening, opened_at_ms) = (spec.opening, *at);
                put(
                    &proto::LedgerAccountOpened {
                        account,
                        currency,
                        opening,
                        opened_at_ms,
                    },
                    buffer,
                );
            }
            Self::AccountClosed(account) => {
                put(
                    &proto::LedgerAccountClosed {
                        account: account.to_string(),
                    },
                    buffer,
                );
            }
            Self::Account(
                name,
                Account {
                    currency,
                    posted,
                    closed,
                    last_entry,
                    ..
                },
            ) => {
                let (account, currency) = (name.to_string(), currency.to_string());
                let (posted, closed, last_entry) = (*posted, *closed, *last_entry);
                put(
                    &proto::LedgerAccount {
                        account,
                        currency,
                        posted,
                        closed,
                        last_entry,
                    },
                    buffer,
                );
            }
            Self::Position { lineage, lsn } => {
                let (lineage_high, lineage_low) = halves(*lineage);
                put(
                    &proto::LedgerPosition {
                        lineage_high,
                        lineage_low,
                        lsn: *lsn,
                    },
                    buffer,
                );
            }
            Self::Quarantined(Quarantined { lsn, why, bytes, .. }) => {
                let (lsn, why, bytes) = (lsn.unwrap_or(0), why.to_string(), bytes.to_vec());
                put(&proto::LedgerQuarantined { lsn, why, bytes }, buffer);
            }
        }
    }

    /// Reads a record back.
    pub(crate) fn decode(envelope: &Envelope) -> Result<Self, String> {
        let about = About::of(&envelope.head)?;
        let payload = &*envelope.payload;
        Ok(match about.kind {
            Kind::Unspecified => return Err("its kind is 0".to_owned()),
            Kind::Lineage => {
                let lineage: proto::LedgerLineage = get(payload)?;
                let made_at = lineage.made_at_ms;
                Self::Lineage {
                    lineage: whole(lineage.lineage_high, lineage.lineage_low),
                    made_at,
                }
            }
            Kind::Incarnation => {
                let proto::LedgerIncarnation { counter, bits } = get(payload)?;
                Self::Incarnation(Incarnation { counter, bits })
            }
            Kind::Prepared => {
                let prepared: proto::LedgerPrepared = get(payload)?;
                let movements =
                    wire::movements(&prepared.operation).map_err(|refusal| refusal.to_string())?;
                Self::Prepared(Prepared {
                    xid: about.xid()?,
                    transaction_id: about.transaction_id()?,
                    movements: Arc::new(movements),
                    operation: prepared.operation.into(),
                    position: prepared.position,
                    prepared_at: prepared.prepared_at_ms,
                })
            }
            Kind::Committed => {
                let committed_at = get::<proto::LedgerCommitted>(payload)?.committed_at_ms;
                Self::Committed {
                    xid: about.xid()?,
                    transaction_id: about.transaction_id()?,
                    committed_at,
                }
            }
            Kind::Aborted => get::<proto::LedgerAborted>(payload).and(about.xid().map(Self::Aborted))?,
            Kind::HeuristicCommit | Kind::HeuristicAbort => {
                let proto::LedgerHeuristic {
                    who,
                    why,
                    decided_at_ms,
                } = get(payload)?;
                about.by_hand(
                    Operator {
                        who: who.into(),
                        why: why.into(),
                    },
                    decided_at_ms,
                )?
            }
            Kind::Forgotten => {
                get::<proto::LedgerForgotten>(payload).and(about.xid().map(Self::Forgotten))?
            }
            Kind::Floor => {
                let floor: proto::LedgerFloor = get(payload)?;
                let lineage = whole(floor.lineage_high, floor.lineage_low);
                Self::Floor {
                    lineage,
                    floor: Floor {
                        counter: floor.counter,
                        seq: floor.seq,
                    },
                }
            }
            Kind::AccountOpened => opened(&get(payload)?)?,
            Kind::AccountClosed => {
                Self::AccountClosed(name(&get::<proto::LedgerAccountClosed>(payload)?.account)?)
            }
            Kind::Account => account(&get(payload)?)?,
            Kind::Position => {
                let proto::LedgerPosition {
                    lineage_high,
                    lineage_low,
                    lsn,
                } = get(payload)?;
                Self::Position {
                    lineage: whole(lineage_high, lineage_low),
                    lsn,
                }
            }
            Kind::Quarantined => {
                let proto::LedgerQuarantined { lsn, why, bytes } = get(payload)?;
                let About {
                    xid, transaction_id, ..
                } = about;
                let (lsn, why, bytes) = ((lsn != 0).then_some(lsn), why.into(), bytes.into());
                Self::Quarantined(Quarantined {
                    lsn,
                    xid,
                    transaction_id,
                    why,
                    bytes,
                })
            }
        })
    }
}

/// What is still known of a record whose payload did not decode.
pub(crate) enum Salvage {
    /// Its whole effect: only times, names and reasons are lost.
    Effect(Record),
    /// Nothing that may not be lost: a floor or a position that will come again, or quarantined bytes.
    Harmless,
    /// One start, with an unknown counter.
    Start,
    /// This branch holds something here, and nobody can tell what.
    Holds(Xid, TransactionId),
    /// Accounts, the identity of the log, or not even that can be told.
    Nothing,
}

/// A head in our own types.
pub(crate) struct About {
    pub(crate) kind: Kind,
    pub(crate) xid: Option<Xid>,
    pub(crate) transaction_id: Option<TransactionId>,
}

impl About {
    pub(crate) fn of(head: &Head) -> Result<Self, String> {
        let kind =
            Kind::try_from(i32::from(head.kind)).map_err(|_| format!("its kind {} is unknown", head.kind))?;
        let transaction_id = match &head.transaction_id {
            Some(text) => {
                Some(TransactionId::new(text).map_err(|error| format!("its transaction id: {error}"))?)
            }
            None => None,
        };
        Ok(Self {
            kind,
            xid: head.xid.as_ref().map(Xid::from_bytes),
            transaction_id,
        })
    }

    /// What the head alone tells of a record whose payload did not decode.
    pub(crate) fn salvage(&self) -> Salvage {
        let effect = match self.kind {
            Kind::Committed => self.xid().and_then(|xid| {
                Ok(Record::Committed {
                    xid,
                    transaction_id: self.transaction_id()?,
                    committed_at: 0,
                })
            }),
            Kind::HeuristicCommit | Kind::HeuristicAbort => self.by_hand(
                Operator {
                    who: "unknown".into(),
                    why: "the record is damaged".into(),
                },
                0,
            ),
            Kind::Aborted => self.xid().map(Record::Aborted),
            Kind::Forgotten => self.xid().map(Record::Forgotten),
            Kind::Prepared => match (self.xid(), self.transaction_id()) {
                (Ok(xid), Ok(transaction_id)) => return Salvage::Holds(xid, transaction_id),
                (Ok(_) | Err(_), Ok(_) | Err(_)) => return Salvage::Nothing,
            },
            Kind::Incarnation => return Salvage::Start,
            Kind::Floor | Kind::Position | Kind::Quarantined => return Salvage::Harmless,
            Kind::Unspecified | Kind::Lineage | Kind::AccountOpened | Kind::AccountClosed | Kind::Account => {
                return Salvage::Nothing;
            }
        };
        effect.map_or(Salvage::Nothing, Salvage::Effect)
    }

    fn xid(&self) -> Result<Xid, String> {
        self.xid.ok_or_else(|| "its envelope shows no xid".to_owned())
    }

    fn transaction_id(&self) -> Result<TransactionId, String> {
        self.transaction_id
            .clone()
            .ok_or_else(|| "its envelope shows no transaction id".to_owned())
    }

    fn by_hand(&self, by: Operator, at: UnixMillis) -> Result<Record, String> {
        let (xid, transaction_id) = (self.xid()?, self.transaction_id()?);
        Ok(Record::Heuristic(ByHand {
            xid,
            transaction_id,
            commit: self.kind == Kind::HeuristicCommit,
            by,
            at,
        }))
    }
}

fn opened(opened: &proto::LedgerAccountOpened) -> Result<Record, String> {
    let currency = opened.currency.parse().map_err(|error| format!("{error}"))?;
    let account = AccountName::new(&opened.account).map_err(|error| error.to_string())?;
    let spec = OpenSpec {
        account,
        currency,
        opening: opened.opening,
    };
    Ok(Record::AccountOpened {
        spec,
        at: opened.opened_at_ms,
    })
}

fn account(account: &proto::LedgerAccount) -> Result<Record, String> {
    let empty = Account::empty(account.currency.parse().map_err(|error| format!("{error}"))?);
    let proto::LedgerAccount {
        posted,
        closed,
        last_entry,
        ..
    } = *account;
    Ok(Record::Account(
        name(&account.account)?,
        Account {
            posted,
            closed,
            last_entry,
            ..empty
        },
    ))
}

fn name(text: &str) -> Result<AccountName, String> {
    AccountName::any(text).map_err(|error| error.to_string())
}

fn put(message: &impl Message, buffer: &mut Vec<u8>) {
    let put = message.encode(buffer);
    assert!(put.is_ok(), "a vector grows to what is encoded into it");
}

fn get<M: Message + Default>(payload: &[u8]) -> Result<M, String> {
    M::decode(payload).map_err(|error| format!("its payload: {error}"))
}

fn halves(lineage: Lineage) -> (u64, u64) {
    ((lineage.0 >> 64) as u64, lineage.0 as u64)
}

fn whole(high: u64, low: u64) -> Lineage {
    Lineage((u128::from(high) << 64) | u128::from(low))
}

/// The longest beginning of the text that is at most `max` bytes.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
