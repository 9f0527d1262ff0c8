//! Records: each comes back as it was written, and no bytes make reading panic.

use std::sync::Arc;

use covenant_journal::{Envelope, Head, Records};
use covenant_rules::{Floor, Incarnation, Lineage, Name, Operator, TransactionId, Xid};
use proptest::prelude::*;

use super::books::name;
use super::world::transfer;
use crate::account::Account;
use crate::record::{ByHand, Prepared, Quarantined, Record};
use crate::stored::About;
use crate::*;

fn xids() -> impl Strategy<Value = Xid> {
    (any::<u128>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(lineage, counter, bits, seq)| Xid {
        lineage: Lineage(lineage),
        incarnation: Incarnation { counter, bits },
        seq,
    })
}

fn ids() -> impl Strategy<Value = TransactionId> {
    "[ -~]{1,128}".prop_map(|text| TransactionId::new(&text).unwrap())
}

fn prepared() -> impl Strategy<Value = Record> {
    (xids(), ids(), 1..i64::MAX, any::<u64>(), any::<u64>()).prop_map(
        |(xid, transaction_id, amount, position, at)| {
            let operation = transfer("alice", "bob", amount);
            let movements = Arc::new(Movements::of(&operation).unwrap());
            let operation = encode(&operation).into();
            Record::Prepared(Prepared {
                xid,
                transaction_id,
                operation,
                movements,
                position,
                prepared_at: at,
            })
        },
    )
}

fn by_hand() -> impl Strategy<Value = Record> {
    (xids(), ids(), any::<bool>(), ".{0,60}", ".{0,200}", any::<u64>()).prop_map(
        |(xid, transaction_id, commit, who, why, at)| {
            let by = Operator {
                who: who.into(),
                why: why.into(),
            };
            Record::Heuristic(ByHand {
                xid,
                transaction_id,
                commit,
                by,
                at,
            })
        },
    )
}

fn accounts() -> impl Strategy<Value = Record> {
    ("[a-z@:]{1,64}", any::<i64>(), any::<bool>(), any::<Option<u64>>()).prop_map(
        |(text, posted, closed, last)| {
            let account = Account {
                posted,
                closed,
                last_entry: last,
                ..Account::empty("THB".parse().unwrap())
            };
            Record::Account(AccountName::any(&text).unwrap(), account)
        },
    )
}

fn records() -> impl Strategy<Value = Record> {
    let lineage = || any::<u128>().prop_map(Lineage);
    let spec = ("[a-z]{1,64}", 0..i64::MAX).prop_map(|(text, opening)| OpenSpec {
        account: name(&text),
        currency: "THB".parse().unwrap(),
        opening,
    });
    let quarantined = (
        any::<u64>().prop_map(|lsn| (lsn != 0).then_some(lsn)),
        prop::option::of(xids()),
        prop::option::of(ids()),
        ".{0,40}",
        prop::collection::vec(any::<u8>(), 0..300),
    );
    prop_oneof![
        (lineage(), any::<u64>(), proptest::option::of("[a-z]{1,64}")).prop_map(
            |(lineage, made_at, name)| Record::Lineage {
                lineage,
                made_at,
                name: name.map(|name| Name::new(&name).unwrap()),
            }
        ),
        (any::<u64>(), any::<u64>())
            .prop_map(|(counter, bits)| Record::Incarnation(Incarnation { counter, bits })),
        prepared(),
        (xids(), ids(), any::<u64>()).prop_map(|(xid, transaction_id, committed_at)| Record::Committed {
            xid,
            transaction_id,
            committed_at
        }),
        xids().prop_map(Record::Aborted),
        by_hand(),
        xids().prop_map(Record::Forgotten),
        (lineage(), any::<u64>(), any::<u64>()).prop_map(|(lineage, counter, seq)| Record::Floor {
            lineage,
            floor: Floor { counter, seq }
        }),
        (spec, any::<u64>()).prop_map(|(spec, at)| Record::AccountOpened { spec, at }),
        "[a-z]{1,64}".prop_map(|text| Record::AccountClosed(name(&text))),
        accounts(),
        (lineage(), any::<u64>()).prop_map(|(lineage, lsn)| Record::Position { lineage, lsn }),
        quarantined.prop_map(|(lsn, xid, transaction_id, why, bytes)| {
            let (why, bytes) = (why.into(), bytes.into());
            Record::Quarantined(Quarantined {
                lsn,
                xid,
                transaction_id,
                why,
                bytes,
            })
        }),
    ]
}

fn stored(record: &Record) -> Envelope {
    let mut records = Records::new();
    record.push(&mut records);
    let (bytes, _) = records.iter().next().unwrap();
    covenant_journal::decode(bytes).unwrap()
}

proptest! {
    #[test]
    fn every_record_comes_back(record in records()) {
        prop_assert_eq!(Record::decode(&stored(&record)), Ok(record));
    }

    #[test]
    fn no_payload_panics(
        kind: u8,
        xid in prop::option::of(xids()),
        transaction_id in prop::option::of(".{0,20}"),
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let head = Head {
            kind: kind % 20,
            xid: xid.map(|xid| xid.to_bytes()),
            transaction_id: transaction_id.map(Into::into),
        };
        drop(About::of(&head).map(|about| about.salvage()));
        drop(Record::decode(&Envelope { head, payload }));
    }

    #[test]
    fn a_damaged_record_is_refused_or_is_a_record(record in records(), at: prop::sample::Index, flip in 1..=255_u8) {
        let mut envelope = stored(&record);
        if !envelope.payload.is_empty() {
            let at = at.index(envelope.payload.len());
            envelope.payload[at] ^= flip;
        }
        drop(About::of(&envelope.head).map(|about| about.salvage()));
        if let Ok(taken) = Record::decode(&envelope) {
            prop_assert_eq!(Record::decode(&stored(&taken)), Ok(taken));
        }
    }

    #[test]
    fn an_operation_comes_back_and_a_damaged_one_is_refused_or_is_an_operation(
        legs in prop::collection::vec(("[!-.0-?A-~]{1,64}", any::<bool>(), any::<i64>()), 0..5),
        assertions in prop::collection::vec(("[a-z]{1,64}", any::<i64>()), 0..5),
        currency in "[A-Z]{3}",
        at: prop::sample::Index,
        flip in 1..=255_u8,
    ) {
        let currency: Currency = currency.parse().unwrap();
        let leg = |(text, debit, amount): (String, _, _)| {
            let direction = if debit { Direction::Debit } else { Direction::Credit };
            Leg { account: name(&text), direction, amount, currency }
        };
        let assertion = |(text, at_least): (String, _)| Assertion { account: name(&text), at_least, currency };
        let operation = Operation {
            legs: legs.into_iter().map(leg).collect(),
            assertions: assertions.into_iter().map(assertion).collect(),
        };
        let mut bytes = encode(&operation);
        prop_assert_eq!(decode(&bytes).unwrap(), operation);
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            for payload in [&bytes[..], &bytes[..at]] {
                if let Ok(taken) = decode(payload) {
                    prop_assert_eq!(&decode(&encode(&taken)).unwrap(), &taken);
                    drop(Movements::of(&taken));
                }
            }
        }
    }

    #[test]
    fn no_entry_and_no_operation_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(Entry::decode(&bytes));
        drop(Entry::decode_transaction_id(&bytes));
        drop(decode(&bytes));
    }

    #[test]
    fn every_entry_comes_back(
        cause in prop::option::of((xids(), ids())),
        lines in prop::collection::vec(("[a-z]{1,64}", any::<i64>(), any::<i64>(), any::<Option<u64>>()), 0..4),
        prepared_at: u64,
        committed_at: u64,
    ) {
        let line = |(text, amount, balance_after, previous): (String, _, _, _)| {
            Line { account: name(&text), amount, balance_after, previous }
        };
        let entry = Entry { cause, lines: lines.into_iter().map(line).collect(), prepared_at, committed_at };
        let item = entry.encode();
        let id = entry.cause.as_ref().map(|(_, id)| id.to_string()).unwrap_or_default();
        prop_assert_eq!(Entry::decode_transaction_id(&item), Ok(id));
        prop_assert_eq!(Entry::decode(&item), Ok(entry));
    }
}

#[test]
fn the_largest_entry_fits_an_archive_item() {
    let line = |number: usize| Line {
        account: name(&format!("{number:064}")),
        amount: i64::MIN,
        balance_after: i64::MIN,
        previous: Some(u64::MAX),
    };
    // One line per leg, and one clearing account per leg at the most.
    let lines = (0..2 * MAX_LEGS).map(line).collect();
    let transaction_id = TransactionId::new(&"t".repeat(128)).unwrap();
    let cause = Some((super::world::xid(u64::MAX), transaction_id));
    let entry = Entry {
        cause,
        lines,
        prepared_at: u64::MAX,
        committed_at: u64::MAX,
    };
    assert!(entry.encode().len() <= covenant_journal::limits::MAX_ITEM_BYTES);
}

#[test]
fn an_operators_words_are_cut_to_their_bounds() {
    let by = Operator {
        who: "é".repeat(300).into(),
        why: "w".repeat(50_000).into(),
    };
    let (xid, transaction_id) = (super::world::xid(1), super::world::id("T1"));
    let stored = stored(&Record::Heuristic(ByHand {
        xid,
        transaction_id,
        commit: true,
        by,
        at: 0,
    }));
    let Ok(Record::Heuristic(read)) = Record::decode(&stored) else {
        panic!("it decodes")
    };
    assert_eq!((read.by.who.len(), read.by.why.len()), (256, 1024));
}
