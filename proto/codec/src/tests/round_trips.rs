//! What goes in comes out.

use covenant_proto::v1;
use covenant_rules::{
    BranchRecord, Fingerprint, Hello, Incarnation, Lineage, Name, NoReason, Outcome, Record, ToCoordinator,
    ToParticipant, TransactionId, Vote, Xid,
};
use proptest::prelude::*;
use prost::Message;

use super::values;
use crate::frame::{self, Welcome};
use crate::{
    FRAME_OVERHEAD_BYTES, MAX_REASON_CODE_BYTES, MAX_REASON_DETAIL_BYTES, MAX_SEEN_POSITIONS,
    PROTOCOL_VERSION, fingerprint, ids, outcome, record, words,
};

fn over_the_wire<M: Message + Default>(message: &M) -> M {
    M::decode(&message.encode_to_vec()[..]).unwrap()
}

fn store(stored: &Record) -> Record {
    let (kind, payload) = record::encode(stored);
    let transaction_id = stored.transaction_id().map(TransactionId::as_str);
    record::decode(kind, stored.xid(), transaction_id, &payload).unwrap()
}

proptest! {
    #[test]
    fn message_to_a_participant_comes_back(message in values::to_participant()) {
        let wire = over_the_wire(&frame::to_participant(&message));
        prop_assert_eq!(frame::from_coordinator(wire).unwrap(), message);
    }

    #[test]
    fn message_to_the_coordinator_comes_back(message in values::to_coordinator()) {
        let wire = over_the_wire(&frame::to_coordinator(&message));
        prop_assert_eq!(frame::from_participant(wire).unwrap(), message);
    }

    #[test]
    fn hello_comes_back_with_the_version_of_both(hello in values::hello()) {
        let wire = over_the_wire(&frame::hello(&hello));
        prop_assert_eq!(frame::from_hello(&wire).unwrap(), (hello, PROTOCOL_VERSION));
    }

    #[test]
    fn welcome_comes_back(
        lineage in values::lineage(),
        incarnation in values::incarnation(),
        max_frame_bytes: u32,
    ) {
        let welcome = Welcome { version: PROTOCOL_VERSION, lineage, incarnation, max_frame_bytes };
        prop_assert_eq!(frame::from_welcome(&over_the_wire(&frame::welcome(&welcome))).unwrap(), welcome);
    }

    #[test]
    fn ids_and_words_come_back(
        xid in values::xid(),
        floor in values::floor(),
        heuristic in proptest::option::of(values::heuristic()),
        decision in values::decision(),
    ) {
        prop_assert_eq!(ids::from_xid(over_the_wire(&ids::xid(xid))), xid);
        prop_assert_eq!(ids::from_floor(over_the_wire(&ids::floor(floor))), floor);
        let wire = words::heuristic(heuristic).into();
        prop_assert_eq!(words::from_heuristic("field", wire).unwrap(), heuristic);
        let wire = words::decision(decision).into();
        prop_assert_eq!(words::from_decision("field", wire).unwrap(), decision);
    }

    #[test]
    fn record_comes_back_with_what_its_envelope_carries(stored in values::record()) {
        prop_assert_eq!(store(&stored), stored);
    }

    #[test]
    fn archived_outcome_comes_back_alone(stored in values::outcome()) {
        let bytes = outcome::encode_outcome(&stored);
        prop_assert_eq!(outcome::decode_outcome(&bytes).unwrap(), stored);
    }

    #[test]
    fn size_of_a_message_to_a_participant_is_bounded_closely(message in values::to_participant()) {
        let wire = v1::JoinResponse {
            messages: vec![frame::to_participant(&message)],
            ..Default::default()
        };
        let (bound, exact) = (frame::to_participant_bytes(&message), wire.encoded_len());
        prop_assert!(exact <= bound && bound <= exact + 80, "{} of {}", exact, bound);
    }

    #[test]
    fn size_of_a_message_to_the_coordinator_is_bounded_closely(message in values::to_coordinator()) {
        let wire = v1::JoinRequest { messages: vec![frame::to_coordinator(&message)], hello: None };
        let (bound, exact) = (frame::to_coordinator_bytes(&message), wire.encoded_len());
        prop_assert!(exact <= bound && bound <= exact + 80, "{} of {}", exact, bound);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

const LARGEST_XID: Xid = Xid {
    lineage: Lineage(u128::MAX),
    incarnation: Incarnation {
        counter: u64::MAX,
        bits: u64::MAX,
    },
    seq: u64::MAX,
};

#[test]
fn largest_messages_stay_within_their_bounds() {
    let prepare = ToParticipant::Prepare {
        xid: LARGEST_XID,
        transaction_id: TransactionId::new(&"t".repeat(128)).unwrap(),
        operation: vec![0; crate::MAX_OPERATION_BYTES].into(),
    };
    let floor = v1::Floor {
        counter: u64::MAX,
        seq: u64::MAX,
    };
    let mut response = v1::JoinResponse {
        floor: Some(floor),
        position: u64::MAX,
        ..Default::default()
    };
    assert!(response.encoded_len() <= FRAME_OVERHEAD_BYTES);
    response.messages = vec![
        frame::to_participant(&prepare),
        frame::to_participant(&ToParticipant::Abort(LARGEST_XID)),
    ];
    let bound = FRAME_OVERHEAD_BYTES
        + frame::to_participant_bytes(&prepare)
        + frame::to_participant_bytes(&ToParticipant::Abort(LARGEST_XID));
    assert!(response.encoded_len() <= bound);

    for code in [String::new(), "C".repeat(64), "C".repeat(1000)] {
        let vote = Vote::No(NoReason::new(&code, &"d".repeat(1000)));
        let vote = ToCoordinator::Vote(LARGEST_XID, vote);
        let request = v1::JoinRequest {
            messages: vec![frame::to_coordinator(&vote)],
            hello: None,
        };
        assert!(request.encoded_len() <= frame::to_coordinator_bytes(&vote));
    }
}

#[test]
fn own_texts_are_cut_at_a_character_and_still_taken() {
    let reason = NoReason::new(&"C".repeat(65), &format!("x{}", "\u{1f4b0}".repeat(200)));
    let cut = words::from_no_reason(&words::no_reason(&reason)).unwrap();
    assert_eq!(&*cut.code, "C".repeat(64));
    assert_eq!(cut.code.len(), MAX_REASON_CODE_BYTES);
    assert_eq!(&*cut.detail, format!("x{}", "\u{1f4b0}".repeat(127)));
    assert!(cut.detail.len() <= MAX_REASON_DETAIL_BYTES);
}

#[test]
fn hello_with_too_many_positions_is_cut_and_still_taken() {
    let positions: Vec<_> = (0..2000).map(|n| (Lineage(n), 1)).collect();
    let hello = Hello {
        name: name("a"),
        lineage: Lineage(1),
        incarnation: Incarnation { counter: 1, bits: 1 },
        connection: 1,
        positions,
    };
    let (taken, _) = frame::from_hello(&frame::hello(&hello)).unwrap();
    assert_eq!(taken.positions, hello.positions[..MAX_SEEN_POSITIONS]);
}

/// What a transfer between two ledgers leaves in the archive.
fn usual_outcome() -> Outcome {
    let branch = |participant: &str, lineage: u128| BranchRecord {
        participant: name(participant),
        lineage: Some(Lineage(lineage)),
        vote: Some(Vote::Yes),
        forgotten: None,
    };
    Outcome {
        xid: Xid {
            incarnation: Incarnation {
                counter: 7,
                bits: u64::MAX,
            },
            seq: 1_000_000,
            ..LARGEST_XID
        },
        transaction_id: TransactionId::new("T100").unwrap(),
        fingerprint: Some(Fingerprint([0xab; 16])),
        created: 1_800_000_000_000,
        decided: 1_800_000_000_003,
        aborted: None,
        branches: vec![branch("ledger-a", u128::MAX), branch("ledger-b", u128::MAX - 1)],
        heuristic: None,
    }
}

#[test]
fn usual_outcome_is_132_bytes_in_the_archive_and_91_in_its_record() {
    let usual = usual_outcome();
    assert_eq!(outcome::encode_outcome(&usual).len(), 132);
    assert_eq!(record::encode(&Record::Commit(usual)).1.len(), 91);
}

#[test]
fn fingerprint_is_of_the_sorted_list_and_nothing_else() {
    let (a, b) = (name("a"), name("b"));
    let print = |list: &[(&Name, &[u8])]| fingerprint(list.iter().copied());
    assert_eq!(print(&[(&a, b"1"), (&b, b"2")]), print(&[(&b, b"2"), (&a, b"1")]));
    assert_ne!(print(&[(&a, b"1"), (&b, b"2")]), print(&[(&a, b"2"), (&b, b"1")]));
    assert_ne!(print(&[(&a, b"b1")]), print(&[(&name("ab"), b"1")]));
    assert_ne!(print(&[(&a, b"")]), print(&[]));
    // A stored fingerprint outlives releases: the function is pinned.
    assert_eq!(
        print(&[(&a, b"1"), (&b, b"2")]),
        Fingerprint([
            0x91, 0x4a, 0x42, 0xc9, 0x15, 0x85, 0x92, 0x60, 0x7e, 0xdb, 0x45, 0x44, 0xd9, 0xb6, 0x2a, 0xb0
        ])
    );
}

/// The story: a code with a line break in it reached a caller's terminal.
#[test]
fn a_no_whose_code_is_none_is_sent_as_one_that_says_so() {
    for code in [
        "",
        "out_of_stock",
        "Out",
        "_X",
        "7UP",
        "A-B",
        "A B",
        "A\nB",
        "É",
        &"A".repeat(65),
    ] {
        assert!(!words::is_reason_code(code), "{code:?}");
        let vote = Vote::No(NoReason::new(code, "none is left"));
        let sent = words::from_vote(&words::vote(&vote)).unwrap();
        let Vote::No(reason) = sent else {
            panic!("{sent:?} is no NO")
        };
        assert_eq!(&*reason.code, words::INVALID_REASON_CODE);
        assert!(reason.detail.contains("none is left"), "{reason:?}");
        assert!(!reason.detail.contains('\n'), "{reason:?}");
    }
    for code in [
        "A",
        "OUT_OF_STOCK",
        "E42_",
        &"A".repeat(64),
        words::INVALID_REASON_CODE,
    ] {
        let vote = Vote::No(NoReason::new(code, "none is left"));
        assert_eq!(words::from_vote(&words::vote(&vote)).unwrap(), vote);
    }
}
