//! No bytes from outside panic, whether random or nearly right.

use covenant_proto::v1;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::values;
use crate::{frame, outcome, record};

fn take_everything_in(bytes: &[u8]) {
    if let Ok(request) = v1::JoinRequest::decode(bytes) {
        if let Some(hello) = request.hello {
            let _ = frame::from_hello(&hello);
        }
        for message in request.messages {
            let _ = frame::from_participant(message);
        }
    }
    if let Ok(response) = v1::JoinResponse::decode(bytes) {
        if let Some(welcome) = response.welcome {
            let _ = frame::from_welcome(&welcome);
        }
        for message in response.messages {
            let _ = frame::from_coordinator(message);
        }
    }
    let _ = outcome::decode_outcome(bytes);
    for kind in 0..=20 {
        let _ = record::decode(kind, None, None, bytes);
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
        hello in values::hello(),
        at: prop::sample::Index,
        flip in 1..=255_u8,
    ) {
        let request = v1::JoinRequest {
            hello: Some(frame::hello(&hello)),
            messages: sent.iter().map(frame::to_coordinator).collect(),
        };
        let mut bytes = request.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        take_everything_in(&bytes);
        take_everything_in(&bytes[..at]);
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
        let _ = record::decode(kind, stored.xid(), Some(&id), &payload);
        take_everything_in(&payload);
    }

    #[test]
    fn unknown_kinds_are_refused(kind in 15_u8.., payload in vec(any::<u8>(), 0..50)) {
        let refused = record::decode(kind, None, None, &payload).unwrap_err().to_string();
        prop_assert!(refused.contains(&kind.to_string()), "{}", refused);
    }
}
