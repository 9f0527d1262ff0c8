//! Payloads of stored records: `covenant.log.v1.Ledger*` messages, written and read back.
//!
//! Reading never panics: what does not decode says why, and [`About::salvage`] tells what the head of its envelope
//! alone still says. For a record whose effect is its kind and xid that is everything but what people read.

use std::sync::Arc;

use covenant_codec::{MAX_OPERATOR_WHO_BYTES, MAX_OPERATOR_WHY_BYTES};
use covenant_journal::{Envelope, Head};
use covenant_proto::log::v1 as proto;
use covenant_proto::log::v1::LedgerRecordKind as Kind;
use covenant_rules::{Floor, Incarnation, Lineage, Lsn, Name, Operator, TransactionId, UnixMillis, Xid};
use prost::Message;

use crate::account::{Account, AccountName, OpenSpec};
use crate::record::{ByHand, Prepared, Quarantined, Record};
use crate::wire;

impl Record {
    /// Appends the payload to the buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Lineage {
                lineage,
                made_at,
                name,
            } => put(&lineage_message(*lineage, *made_at, name.as_ref()), buffer),
            Self::Incarnation(Incarnation { counter, bits }) => {
                let (counter, bits) = (*counter, *bits);
                put(&proto::LedgerIncarnation { counter, bits }, buffer);
            }
            Self::Prepared(prepared) => put(&prepared_message(prepared), buffer),
            Self::Committed { committed_at, .. } => {
                let committed_at_ms = *committed_at;
                put(&proto::LedgerCommitted { committed_at_ms }, buffer);
            }
            Self::Aborted(_) => put(&proto::LedgerAborted {}, buffer),
            Self::Heuristic(by_hand) => put(&heuristic_message(by_hand), buffer),
            Self::Forgotten(_) => put(&proto::LedgerForgotten {}, buffer),
            Self::Floor { lineage, floor } => put(&floor_message(*lineage, *floor), buffer),
            Self::AccountOpened { spec, at } => put(&opened_message(spec, *at), buffer),
            Self::AccountClosed(account) => {
                let account = account.to_string();
                put(&proto::LedgerAccountClosed { account }, buffer);
            }
            Self::Account(name, account) => put(&account_message(name, account), buffer),
            Self::Position { lineage, lsn } => put(&position_message(*lineage, *lsn), buffer),
            Self::Quarantined(quarantined) => put(&quarantined_message(quarantined), buffer),
        }
    }

    /// Reads a record back.
    pub(crate) fn decode(envelope: &Envelope) -> Result<Self, String> {
        let about = About::of(&envelope.head)?;
        let payload = &*envelope.payload;
        Ok(match about.kind {
            Kind::Unspecified => return Err("its kind is 0".to_owned()),
            Kind::Lineage => lineage(&get(payload)?)?,
            Kind::Incarnation => {
                let proto::LedgerIncarnation { counter, bits } = get(payload)?;
                Self::Incarnation(Incarnation { counter, bits })
            }
            Kind::Prepared => about.prepared(get(payload)?)?,
            Kind::Committed => {
                let committed_at = get::<proto::LedgerCommitted>(payload)?.committed_at_ms;
                about.committed(committed_at)?
            }
            Kind::Aborted => {
                let proto::LedgerAborted {} = get(payload)?;
                Self::Aborted(about.xid()?)
            }
            Kind::HeuristicCommit | Kind::HeuristicAbort => {
                let proto::LedgerHeuristic {
                    who,
                    why,
                    decided_at_ms,
                } = get(payload)?;
                let (who, why) = (who.into(), why.into());
                about.by_hand(Operator { who, why }, decided_at_ms)?
            }
            Kind::Forgotten => {
                let proto::LedgerForgotten {} = get(payload)?;
                Self::Forgotten(about.xid()?)
            }
            Kind::Floor => floor(&get(payload)?),
            Kind::AccountOpened => opened(&get(payload)?)?,
            Kind::AccountClosed => {
                let closed: proto::LedgerAccountClosed = get(payload)?;
                Self::AccountClosed(name(&closed.account)?)
            }
            Kind::Account => account(&get(payload)?)?,
            Kind::Position => {
                let position: proto::LedgerPosition = get(payload)?;
                let lineage = whole(position.lineage_high, position.lineage_low);
                Self::Position {
                    lineage,
                    lsn: position.lsn,
                }
            }
            Kind::Quarantined => about.quarantined(get(payload)?),
        })
    }
}

fn lineage_message(lineage: Lineage, made_at_ms: UnixMillis, name: Option<&Name>) -> proto::LedgerLineage {
    let (lineage_high, lineage_low) = halves(lineage);
    proto::LedgerLineage {
        lineage_high,
        lineage_low,
        made_at_ms,
        name: name.map(Name::to_string).unwrap_or_default(),
    }
}

fn prepared_message(prepared: &Prepared) -> proto::LedgerPrepared {
    let operation = prepared.operation.to_vec();
    let (position, prepared_at_ms) = (prepared.position, prepared.prepared_at);
    proto::LedgerPrepared {
        operation,
        position,
        prepared_at_ms,
    }
}

fn heuristic_message(by_hand: &ByHand) -> proto::LedgerHeuristic {
    let who = cut(&by_hand.by.who, MAX_OPERATOR_WHO_BYTES).to_owned();
    let why = cut(&by_hand.by.why, MAX_OPERATOR_WHY_BYTES).to_owned();
    proto::LedgerHeuristic {
        who,
        why,
        decided_at_ms: by_hand.at,
    }
}

fn floor_message(lineage: Lineage, floor: Floor) -> proto::LedgerFloor {
    let (lineage_high, lineage_low) = halves(lineage);
    let Floor { counter, seq } = floor;
    proto::LedgerFloor {
        lineage_high,
        lineage_low,
        counter,
        seq,
    }
}

fn opened_message(spec: &OpenSpec, opened_at_ms: UnixMillis) -> proto::LedgerAccountOpened {
    let (account, currency) = (spec.account.to_string(), spec.currency.to_string());
    proto::LedgerAccountOpened {
        account,
        currency,
        opening: spec.opening,
        opened_at_ms,
    }
}

fn account_message(name: &AccountName, account: &Account) -> proto::LedgerAccount {
    let Account {
        posted,
        closed,
        last_entry,
        ..
    } = *account;
    let (account, currency) = (name.to_string(), account.currency.to_string());
    proto::LedgerAccount {
        account,
        currency,
        posted,
        closed,
        last_entry,
    }
}

fn position_message(lineage: Lineage, lsn: Lsn) -> proto::LedgerPosition {
    let (lineage_high, lineage_low) = halves(lineage);
    proto::LedgerPosition {
        lineage_high,
        lineage_low,
        lsn,
    }
}

fn quarantined_message(quarantined: &Quarantined) -> proto::LedgerQuarantined {
    let (why, bytes) = (quarantined.why.to_string(), quarantined.bytes.to_vec());
    proto::LedgerQuarantined {
        lsn: quarantined.lsn.unwrap_or(0),
        why,
        bytes,
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
            Kind::Committed => self.committed(0),
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

    fn prepared(&self, prepared: proto::LedgerPrepared) -> Result<Record, String> {
        let movements = wire::movements(&prepared.operation).map_err(|refusal| refusal.to_string())?;
        Ok(Record::Prepared(Prepared {
            xid: self.xid()?,
            transaction_id: self.transaction_id()?,
            operation: prepared.operation.into(),
            movements: Arc::new(movements),
            position: prepared.position,
            prepared_at: prepared.prepared_at_ms,
        }))
    }

    fn committed(&self, committed_at: UnixMillis) -> Result<Record, String> {
        let (xid, transaction_id) = (self.xid()?, self.transaction_id()?);
        Ok(Record::Committed {
            xid,
            transaction_id,
            committed_at,
        })
    }

    fn quarantined(self, quarantined: proto::LedgerQuarantined) -> Record {
        let Self {
            xid, transaction_id, ..
        } = self;
        let lsn = (quarantined.lsn != 0).then_some(quarantined.lsn);
        let (why, bytes) = (quarantined.why.into(), quarantined.bytes.into());
        Record::Quarantined(Quarantined {
            lsn,
            xid,
            transaction_id,
            why,
            bytes,
        })
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

fn lineage(stored: &proto::LedgerLineage) -> Result<Record, String> {
    let name = match &*stored.name {
        "" => None,
        text => Some(Name::new(text).map_err(|error| format!("its name: {error}"))?),
    };
    Ok(Record::Lineage {
        lineage: whole(stored.lineage_high, stored.lineage_low),
        made_at: stored.made_at_ms,
        name,
    })
}

fn floor(floor: &proto::LedgerFloor) -> Record {
    let lineage = whole(floor.lineage_high, floor.lineage_low);
    let proto::LedgerFloor { counter, seq, .. } = *floor;
    Record::Floor {
        lineage,
        floor: Floor { counter, seq },
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
