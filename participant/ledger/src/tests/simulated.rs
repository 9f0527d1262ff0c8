//! The ledger without a journal: what it appends gives the same books again, with and without a checkpoint.

use covenant_rules::{Floor, Incarnation, Lineage, Lsn, TransactionId, Xid};

use crate::operation::{Direction, Leg, Operation};
use crate::simulated::{Checkpoint, Prepare, Shown, SimulatedLedger, StoredRecord};
use crate::wire::encode;

const FLOOR_TOMBSTONES: usize = 4;

fn asked(seq: u64) -> covenant_participant::Branch {
    let leg = Leg {
        account: "alice".parse_name(),
        direction: Direction::Debit,
        amount: 10,
        currency: "THB".parse().unwrap(),
    };
    let operation = Operation {
        legs: vec![leg],
        assertions: Vec::new(),
    };
    covenant_participant::Branch {
        xid: xid(seq),
        transaction_id: TransactionId::new(&format!("T{seq}")).unwrap(),
        operation: encode(&operation).into(),
        position: 7,
    }
}

fn xid(seq: u64) -> Xid {
    Xid {
        lineage: Lineage(9),
        incarnation: Incarnation { counter: 1, bits: 2 },
        seq,
    }
}

trait ParseName {
    fn parse_name(&self) -> crate::AccountName;
}

impl ParseName for str {
    fn parse_name(&self) -> crate::AccountName {
        crate::AccountName::new(self).unwrap()
    }
}

fn recover(checkpoint: &Checkpoint, log: &[StoredRecord]) -> SimulatedLedger {
    SimulatedLedger::replay(checkpoint, log, FLOOR_TOMBSTONES).unwrap()
}

#[test]
fn a_simulated_ledger_is_the_fold_of_what_it_appended_whether_checkpointed_or_not() {
    let mut ledger = recover(&Checkpoint::default(), &[]);
    let (recovered, start) = ledger.start(Lineage(1), 5, 0).unwrap();
    assert_eq!((recovered.identity.incarnation.counter, start), (1, 2));
    ledger.open_account(&"alice=100:THB".parse().unwrap(), 0).unwrap();
    assert_eq!(ledger.prepare(asked(1), 0).unwrap(), Prepare::Yes(4));
    assert_eq!(ledger.prepare(asked(2), 0).unwrap(), Prepare::Yes(5));
    assert_eq!(ledger.commit(xid(1), 0).unwrap(), 6);
    let log = ledger.take_appended();
    let whole = recover(&Checkpoint::default(), &log);
    let folded = recover(&Checkpoint::default(), &log[..4]).checkpoint(&Checkpoint::default());
    assert_eq!(folded.lsn, 4 as Lsn);
    let halves = recover(&folded, &log[4..]);
    for again in [&whole, &halves] {
        assert_eq!(again.books(), ledger.books());
        assert_eq!(again.prepared().map(|(xid, _)| xid).collect::<Vec<_>>(), [xid(2)]);
    }
    // P2 finds the effect of the first attempt in the log and in a checkpoint's entries.
    let all = recover(&Checkpoint::default(), &log).checkpoint(&Checkpoint::default());
    for mut again in [whole, recover(&all, &[])] {
        let another = covenant_participant::Branch {
            xid: xid(3),
            ..asked(1)
        };
        assert!(matches!(again.prepare(another, 0).unwrap(), Prepare::No(_)));
    }
}

#[test]
fn tombstones_of_earlier_starts_count_towards_a_floor_record() {
    let mut ledger = recover(&Checkpoint::default(), &[]);
    ledger.start(Lineage(1), 5, 0).unwrap();
    ledger.open_account(&"alice=100:THB".parse().unwrap(), 0).unwrap();
    for seq in 1..=FLOOR_TOMBSTONES as u64 {
        ledger.prepare(asked(seq), 0).unwrap();
        ledger.commit(xid(seq), 0).unwrap();
    }
    let mut again = recover(&Checkpoint::default(), &ledger.take_appended());
    let floor = Floor { counter: 1, seq: 99 };
    again.raise_floor(Lineage(9), floor).unwrap();
    let appended = again.take_appended();
    let shown: Vec<_> = appended.iter().map(StoredRecord::shown).collect();
    assert_eq!(shown, [Shown::Floor(Lineage(9), floor)]);
    assert_eq!(again.branches(), 0);
}
