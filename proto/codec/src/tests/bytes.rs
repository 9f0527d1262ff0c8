//! No bytes from outside panic, whether random or nearly right, and what is taken from them is written and read again as
//! the same value: nothing is taken that could not have been sent or stored.

use covenant_proto::v1;
use covenant_rules::{Record, TransactionId};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::values;
use crate::{frame, outcome, record};

fn take_participants_frame(bytes: &[u8]) {
    let Ok(request) = v1::JoinRequest::decode(bytes) else {
        return;
    };
    if let Some(Ok((hello, _))) = request.hello.map(|hello| frame::from_hello(&hello)) {
        let again = frame::from_hello(&frame::hello(&hello)).unwrap();
        assert_eq!(again.0, hello);
    }
    for message in request.messages {
        if let Ok(taken) = frame::from_participant(message) {
            assert_eq!(
                frame::from_participant(frame::to_coordinator(&taken)).unwrap(),
                taken
            );
        }
    }
}

fn take_coordinators_frame(bytes: &[u8]) {
    let Ok(response) = v1::JoinResponse::decode(bytes) else {
        return;
    };
    if let Some(Ok(welcome)) = response.welcome.map(|welcome| frame::from_welcome(&welcome)) {
        assert_eq!(frame::from_welcome(&frame::welcome(&welcome)).unwrap(), welcome);
    }
    for message in response.messages {
        if let Ok(taken) = frame::from_coordinator(message) {
            assert_eq!(
                frame::from_coordinator(frame::to_participant(&taken)).unwrap(),
                taken
            );
        }
    }
}

fn take_record(kind: u8, stored: Option<&Record>, id: Option<&str>, bytes: &[u8]) {
    let xid = stored.and_then(Record::xid);
    if let Ok(taken) = record::decode(kind, xid, id, bytes) {
        let (kind, payload) = record::encode(&taken);
        let id = taken.transaction_id().map(TransactionId::as_str);
        assert_eq!(record::decode(kind, taken.xid(), id, &payload).unwrap(), taken);
    }
}

fn take_everything_in(bytes: &[u8]) {
    take_participants_frame(bytes);
    take_coordinators_frame(bytes);
    if let Ok(taken) = outcome::decode_outcome(bytes) {
        assert_eq!(
            outcome::decode_outcome(&outcome::encode_outcome(&taken)).unwrap(),
            taken
        );
        let summary = outcome::summarize_outcome(bytes).unwrap();
        assert_eq!(
            (summary.xid, &*summary.transaction_id),
            (taken.xid, taken.transaction_id.as_str())
        );
    }
    for kind in 0..=20 {
        take_record(kind, None, None, bytes);
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        take_everything_in(&bytes);
    }

    #[test]
    fn damaged_frames_never_panic(
        sent in vec(values::to_coordinator(), 1..4),
        said in vec(values::to_participant(), 1..4),
        hello in values::hello(),
        at: prop::sample::Index,
        flip in 1..=255_u8,
    ) {
        let request = v1::JoinRequest {
            hello: Some(frame::hello(&hello)),
            messages: sent.iter().map(frame::to_coordinator).collect(),
        };
        let response = v1::JoinResponse {
            messages: said.iter().map(frame::to_participant).collect(),
            ..Default::default()
        };
        for mut bytes in [request.encode_to_vec(), response.encode_to_vec()] {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            take_everything_in(&bytes);
            take_everything_in(&bytes[..at]);
        }
    }

    #[test]
    fn damaged_records_never_panic(
        stored in values::record(),
        at: prop::sample::Index,
        flip in 1..=255_u8,
        id in ".{0,140}",
    ) {
        let (kind, mut payload) = record::encode(&stored);
        if !payload.is_empty() {
            let at = at.index(payload.len());
            payload[at] ^= flip;
        }
        take_record(kind, Some(&stored), Some(&id), &payload);
        let own = stored.transaction_id().map(TransactionId::as_str);
        take_record(kind, Some(&stored), own, &payload);
        take_everything_in(&payload);
    }

    #[test]
    fn damaged_outcomes_never_panic(stored in values::outcome(), at: prop::sample::Index, flip in 1..=255_u8) {
        let mut bytes = outcome::encode_outcome(&stored);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        take_everything_in(&bytes);
        take_everything_in(&bytes[..at]);
    }

    #[test]
    fn unknown_kinds_are_refused(kind in 15_u8.., payload in vec(any::<u8>(), 0..50)) {
        let refused = record::decode(kind, None, None, &payload).unwrap_err().to_string();
        prop_assert!(refused.contains(&kind.to_string()), "{}", refused);
    }
}
