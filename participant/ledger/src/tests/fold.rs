//! The fold: a checkpoint at any record, and the records above it, give what all records give.

use std::sync::Arc;

use covenant_journal::Records;
use covenant_rules::{Floor, Incarnation};
use proptest::prelude::*;
use proptest::sample::Index;

use super::books::{CUSTOMERS, operations};
use super::world::{COORDINATOR, by, id, xid};
use crate::record::{ByHand, Prepared, Record};
use crate::state::{Source, State};
use crate::*;

/// What may come next in a log; an index picks among the branches that there are.
#[derive(Clone, Debug)]
enum Next {
    Prepare(Operation),
    Commit(Index),
    Abort(Index),
    ByHand(Index, bool),
    Forget(Index),
    Floor(Index),
    Start,
}

fn nexts() -> impl Strategy<Value = Vec<Next>> {
    let next = prop_oneof![
        8 => operations().prop_map(Next::Prepare),
        4 => any::<Index>().prop_map(Next::Commit),
        2 => any::<Index>().prop_map(Next::Abort),
        2 => (any::<Index>(), any::<bool>()).prop_map(|(at, commit)| Next::ByHand(at, commit)),
        2 => any::<Index>().prop_map(Next::Forget),
        1 => any::<Index>().prop_map(Next::Floor),
        1 => Just(Next::Start),
    ];
    prop::collection::vec(next, 1..60)
}

fn record(next: Next, at: u64) -> Option<Record> {
    // An attempt that never was is drawn as well: its record does not follow and is left out.
    let drawn = |index: Index| xid(1 + index.index(at as usize + 1) as u64);
    let named = |xid: covenant_rules::Xid| id(&format!("T{}", xid.seq));
    Some(match next {
        Next::Prepare(operation) => Record::Prepared(Prepared {
            xid: xid(at),
            transaction_id: id(&format!("T{at}")),
            movements: Arc::new(
                Movements::of(&operation)
                    .ok()
                    .filter(|moves| !moves.is_read_only())?,
            ),
            operation: encode(&operation).into(),
            position: at,
            prepared_at: 1_000 + at,
        }),
        Next::Commit(index) => Record::Committed {
            xid: drawn(index),
            transaction_id: named(drawn(index)),
            committed_at: 2_000 + at,
        },
        Next::Abort(index) => Record::Aborted(drawn(index)),
        Next::ByHand(index, commit) => {
            let (xid, transaction_id) = (drawn(index), named(drawn(index)));
            Record::Heuristic(ByHand {
                xid,
                transaction_id,
                commit,
                by: by(),
                at: 3_000 + at,
            })
        }
        Next::Forget(index) => Record::Forgotten(drawn(index)),
        Next::Floor(index) => {
            let floor = Floor {
                counter: 1,
                seq: drawn(index).seq,
            };
            Record::Floor {
                lineage: COORDINATOR,
                floor,
            }
        }
        Next::Start => Record::Incarnation(Incarnation { counter: at, bits: 7 }),
    })
}

/// A log that follows, beginning with its lineage and the accounts.
fn log(nexts: Vec<Next>) -> Vec<Record> {
    let opened = CUSTOMERS.map(|(account, currency)| Record::AccountOpened {
        spec: format!("{account}=300:{currency}").parse().unwrap(),
        at: 5,
    });
    let mut records = vec![Record::Lineage {
        lineage: covenant_rules::Lineage(3),
        name: None,
        made_at: 4,
    }];
    records.extend(opened);
    let mut state = fold(&records);
    for (at, next) in (1..).zip(nexts) {
        let before = state.clone();
        let Some(record) = record(next, at) else { continue };
        match state.apply(&record, Source::Log) {
            Ok(_) => records.push(record),
            Err(_) => assert_eq!(
                state, before,
                "a record that does not follow changes nothing: {record:?}"
            ),
        }
    }
    records
}

fn fold(records: &[Record]) -> State {
    let mut state = State::new(0);
    for record in records {
        state.apply(record, Source::Log).unwrap();
    }
    state
}

/// The state that a start finds over this one's checkpoint.
fn over_a_checkpoint(state: &State) -> State {
    let mut records = Records::new();
    for record in state.checkpoint() {
        record.push(&mut records);
    }
    let mut found = State::new(state.entries);
    for (bytes, _) in records.iter() {
        let record = Record::decode(&covenant_journal::decode(bytes).unwrap()).unwrap();
        assert_eq!(found.apply(&record, Source::Checkpoint).unwrap(), None);
    }
    found
}

proptest! {
    #[test]
    fn a_checkpoint_anywhere_and_the_records_above_it_give_the_same_fold(nexts in nexts(), cut: Index) {
        let records = log(nexts);
        let (below, above) = records.split_at(cut.index(records.len()));
        let mut state = over_a_checkpoint(&fold(below));
        prop_assert_eq!(&state, &fold(below));
        for record in above {
            state.apply(record, Source::Log).unwrap();
        }
        prop_assert_eq!(state, fold(&records));
    }

    #[test]
    fn every_fold_adds_up_and_holds_what_is_prepared(nexts in nexts()) {
        let state = fold(&log(nexts));
        prop_assert!(state.books.totals().values().all(|total| *total == 0));
        let held = |side: fn(&Account) -> i64| -> i128 {
            state.books.after(None).map(|(_, account)| i128::from(side(account))).sum()
        };
        let prepared = state.prepared().flat_map(|branch| &branch.movements.movements);
        let (mut debits, mut credits) = (0, 0);
        for movement in prepared {
            let side = if movement.amount < 0 { &mut debits } else { &mut credits };
            *side += i128::from(movement.amount.abs());
        }
        prop_assert_eq!((held(|one| one.pending_debit), held(|one| one.pending_credit)), (debits, credits));
    }
}
