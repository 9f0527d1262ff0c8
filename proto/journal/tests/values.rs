//! Properties of the values: records, damage, the index, keys.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::collections::BTreeSet;

use covenant_journal::{Force, HeadRef, IdIndex, Key, Records, decode, limits};
use proptest::collection::vec;
use proptest::prelude::*;

fn encoded(kind: u8, xid: Option<[u8; 40]>, id: Option<&str>, payload: &[u8]) -> Vec<u8> {
    let mut records = Records::new();
    records.push(
        HeadRef {
            kind,
            xid: xid.as_ref(),
            transaction_id: id,
        },
        Force::Now,
        payload,
    );
    records.iter().next().unwrap().0.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_record_comes_back_as_it_was(
        kind: u8,
        xid in proptest::option::of(any::<[u8; 32]>()),
        id in proptest::option::of("[ -~]{0,128}"),
        payload in vec(any::<u8>(), 0..3_000),
    ) {
        let xid = xid.map(|half| { let mut xid = [1; 40]; xid[..32].copy_from_slice(&half); xid });
        let envelope = decode(&encoded(kind, xid, id.as_deref(), &payload)).unwrap();
        prop_assert_eq!(envelope.head.kind, kind);
        prop_assert_eq!(envelope.head.xid, xid);
        prop_assert_eq!(envelope.head.transaction_id.as_deref(), id.as_deref());
        prop_assert_eq!(envelope.payload, payload);
    }

    /// Any one damaged byte is seen, and a head that is shown is the one that was written.
    #[test]
    fn damage_is_seen_and_never_invents_a_head(payload in vec(any::<u8>(), 1..200), at: prop::sample::Index, bit in 0..8_u8) {
        let whole = encoded(9, Some([4; 40]), Some("T100"), &payload);
        let mut bytes = whole.clone();
        bytes[at.index(whole.len())] ^= 1 << bit;
        let damaged = decode(&bytes).unwrap_err();
        prop_assert_eq!(&damaged.bytes, &bytes);
        if let Some(head) = damaged.head {
            prop_assert_eq!(head, decode(&whole).unwrap().head);
        }
    }

    #[test]
    fn any_bytes_decode_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn a_truncated_record_is_damaged(payload in vec(any::<u8>(), 0..100), at: prop::sample::Index) {
        let whole = encoded(9, None, Some("T100"), &payload);
        prop_assert!(decode(&whole[..at.index(whole.len())]).is_err());
    }

    #[test]
    fn keys_order_as_their_bytes(left in vec(0..3_u8, 0..=limits::KEY_BYTES_MAX), right in vec(0..3_u8, 0..=limits::KEY_BYTES_MAX)) {
        prop_assert_eq!(Key::new(&left).unwrap().cmp(&Key::new(&right).unwrap()), left.cmp(&right));
    }

    /// Every inserted and not removed index is a candidate, whatever the base; removed ones are not.
    #[test]
    fn the_index_finds_what_was_put_in(
        base in prop_oneof![Just(0_u64), Just(u64::from(u32::MAX) - 3), Just(1 << 40), any::<u32>().prop_map(u64::from)],
        steps in vec((0..20_u8, 0..50_u64, any::<bool>()), 0..200),
    ) {
        let mut index = IdIndex::new(base);
        let mut model = BTreeSet::new();
        for (id, offset, insert) in steps {
            let entry = (id, base + offset);
            if insert && model.insert(entry) {
                index.insert(&[id], base + offset);
            } else if !insert {
                prop_assert_eq!(index.remove(&[id], base + offset), model.remove(&entry));
            }
            prop_assert_eq!(index.len(), model.len());
        }
        index.raise_base(base + model.iter().map(|(_, index)| index - base).min().unwrap_or(0));
        for id in 0..20 {
            let expected: BTreeSet<u64> = model.iter().filter(|(other, _)| *other == id).map(|(_, index)| *index).collect();
            let found: BTreeSet<u64> = index.candidates(&[id]).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn the_index_keeps_a_million_entries_in_twenty_megabytes() {
    let mut index = IdIndex::new(0);
    for number in 0..1_000_000_u64 {
        index.insert(format!("transfer-{number}").as_bytes(), number);
    }
    assert!(
        index.memory_bytes() < 20_000_000,
        "{} bytes",
        index.memory_bytes()
    );
    for number in (0..1_000_000_u64).step_by(997) {
        assert!(
            index
                .candidates(format!("transfer-{number}").as_bytes())
                .any(|found| found == number)
        );
    }
    let doubtful = (0..100_000).filter(|number| {
        index
            .candidates(format!("other-{number}").as_bytes())
            .next()
            .is_some()
    });
    assert!(
        doubtful.count() < 100,
        "the filter lets too many absent ids through"
    );
}

#[test]
#[should_panic(expected = "exceeds 49152")]
fn a_record_above_its_bound_is_a_mistake_that_shows() {
    encoded(1, None, None, &[0; limits::MAX_RECORD_BYTES]);
}
