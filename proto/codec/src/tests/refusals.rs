//! What others wrote beyond a bound is refused, and the message names the field and the bound.

use covenant_proto::log::v1 as stored;
use covenant_proto::log::v1::CoordinatorRecordKind as Kind;
use covenant_proto::v1::{self, coordinator_message, participant_message};
use covenant_rules::{Incarnation, Lineage, Xid};
use prost::Message;

use crate::{Error, frame, outcome, record, words};

const XID: Xid = Xid {
    lineage: Lineage(1),
    incarnation: Incarnation { counter: 1, bits: 2 },
    seq: 3,
};

#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T, Error>, expected: &[&str]) {
    let message = result.unwrap_err().to_string();
    for part in expected {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

fn wire_xid() -> Option<v1::Xid> {
    Some(crate::ids::xid(XID))
}

fn prepare(transaction_id: &str, operation_bytes: usize) -> v1::CoordinatorMessage {
    let prepare = v1::Prepare {
        transaction_id: transaction_id.to_owned(),
        operation: vec![0; operation_bytes].into(),
    };
    v1::CoordinatorMessage {
        xid: wire_xid(),
        content: Some(coordinator_message::Content::Prepare(prepare)),
    }
}

fn vote(kind: i32, reason: Option<v1::NoReason>) -> Result<covenant_rules::ToCoordinator, Error> {
    let content = participant_message::Content::Vote(v1::Vote { kind, reason });
    frame::from_participant(v1::ParticipantMessage {
        xid: wire_xid(),
        content: Some(content),
    })
}

#[test]
fn messages_without_their_parts_are_refused() {
    let empty = v1::CoordinatorMessage {
        xid: None,
        ..prepare("T1", 1)
    };
    says(
        frame::from_coordinator(empty),
        &["CoordinatorMessage.xid is missing"],
    );
    let empty = v1::CoordinatorMessage {
        content: None,
        ..prepare("T1", 1)
    };
    says(
        frame::from_coordinator(empty),
        &["CoordinatorMessage.content is missing"],
    );
    let empty = v1::ParticipantMessage {
        xid: wire_xid(),
        content: None,
    };
    says(
        frame::from_participant(empty),
        &["ParticipantMessage.content is missing"],
    );
    says(
        frame::from_participant(v1::ParticipantMessage::default()),
        &["ParticipantMessage.xid is missing"],
    );
}

#[test]
fn prepare_beyond_its_bounds_is_refused() {
    says(
        frame::from_coordinator(prepare("", 1)),
        &["Prepare.transaction_id", "empty"],
    );
    says(
        frame::from_coordinator(prepare(&"t".repeat(129), 1)),
        &["Prepare.transaction_id", "129", "128"],
    );
    says(
        frame::from_coordinator(prepare("T\n1", 1)),
        &["Prepare.transaction_id", "offset 1"],
    );
    says(
        frame::from_coordinator(prepare("T1", 32_769)),
        &[
            "Prepare.operation has 32769 bytes",
            "MAX_OPERATION_BYTES is 32768",
        ],
    );
    assert!(frame::from_coordinator(prepare("T1", 32_768)).is_ok());
}

#[test]
fn votes_that_are_none_are_refused() {
    let reason = |code: usize, detail: usize| {
        Some(v1::NoReason {
            code: "C".repeat(code),
            detail: "d".repeat(detail),
        })
    };
    says(vote(0, None), &["Vote.kind has the value 0"]);
    says(vote(99, None), &["Vote.kind has the value 99"]);
    says(vote(v1::VoteKind::No.into(), None), &["Vote.reason is missing"]);
    says(
        vote(v1::VoteKind::Yes.into(), reason(1, 1)),
        &["Vote.reason is set", "only NO"],
    );
    says(
        vote(v1::VoteKind::No.into(), reason(65, 1)),
        &["NoReason.code has 65 bytes", "64"],
    );
    says(
        vote(v1::VoteKind::No.into(), reason(1, 513)),
        &["NoReason.detail has 513 bytes", "512"],
    );
    assert!(vote(v1::VoteKind::No.into(), reason(64, 512)).is_ok());
    for code in ["", "sold_out", "SOLD OUT", "_SOLD", "1SOLD", "SOLD\u{1b}[2J"] {
        let (code, detail) = (code.to_owned(), String::new());
        let no = vote(
            v1::VoteKind::No.into(),
            Some(v1::NoReason {
                code: code.clone(),
                detail,
            }),
        );
        says(
            no,
            &[
                "NoReason.code is",
                &format!("{code:?}"),
                "begins with a letter",
                "64",
            ],
        );
    }
}

#[test]
fn reports_of_what_no_branch_can_be_are_refused() {
    for what in [
        0,
        99,
        v1::Heuristic::None.into(),
        v1::Heuristic::Mixed.into(),
        v1::Heuristic::Hazard.into(),
    ] {
        let content = participant_message::Content::Report(v1::HeuristicReport { what });
        let message = v1::ParticipantMessage {
            xid: wire_xid(),
            content: Some(content),
        };
        says(
            frame::from_participant(message),
            &["HeuristicReport.what", &what.to_string()],
        );
    }
}

fn hello() -> v1::Hello {
    v1::Hello {
        protocol_versions: vec![1],
        name: "ledger-a".to_owned(),
        lineage: Some(v1::Lineage::default()),
        incarnation: Some(v1::Incarnation::default()),
        connection: 1,
        positions: Vec::new(),
    }
}

#[test]
fn hello_of_another_version_is_refused_before_anything_else_is_read() {
    let other = v1::Hello {
        protocol_versions: vec![2, 3],
        ..v1::Hello::default()
    };
    says(frame::from_hello(&other), &["[2, 3]", "this side speaks 1"]);
    assert!(
        frame::from_hello(&v1::Hello {
            protocol_versions: vec![3, 1],
            ..hello()
        })
        .is_ok()
    );
    let welcome = v1::Welcome {
        protocol_version: 2,
        ..v1::Welcome::default()
    };
    says(
        frame::from_welcome(&welcome),
        &["version 2", "this side speaks 1"],
    );
}

#[test]
fn hello_beyond_its_bounds_is_refused() {
    let many = v1::Hello {
        protocol_versions: vec![1; 17],
        ..hello()
    };
    says(
        frame::from_hello(&many),
        &["Hello.protocol_versions has 17", "16"],
    );
    let seen = v1::SeenPosition {
        lineage: Some(v1::Lineage::default()),
        position: 1,
    };
    says(
        frame::from_hello(&v1::Hello {
            positions: vec![seen; 1025],
            ..hello()
        }),
        &["Hello.positions has 1025", "MAX_SEEN_POSITIONS is 1024"],
    );
    says(
        frame::from_hello(&v1::Hello {
            name: "a/b".to_owned(),
            ..hello()
        }),
        &["Hello.name", "offset 1"],
    );
    says(
        frame::from_hello(&v1::Hello {
            lineage: None,
            ..hello()
        }),
        &["Hello.lineage is missing"],
    );
    says(
        frame::from_hello(&v1::Hello {
            incarnation: None,
            ..hello()
        }),
        &["Hello.incarnation is missing"],
    );
    let bare = v1::SeenPosition {
        lineage: None,
        position: 1,
    };
    says(
        frame::from_hello(&v1::Hello {
            positions: vec![bare],
            ..hello()
        }),
        &["SeenPosition.lineage"],
    );
}

fn decided(kind: Kind, message: &stored::OutcomeRecord) -> Result<covenant_rules::Record, Error> {
    record::decode(kind as u8, Some(XID), Some("T1"), &message.encode_to_vec())
}

#[test]
fn decisions_that_contradict_themselves_are_refused() {
    let reason = stored::StoredReason {
        cause: stored::AbortCause::Deadline.into(),
        ..Default::default()
    };
    let abort = stored::OutcomeRecord {
        reason: Some(reason),
        ..Default::default()
    };
    let commit = stored::OutcomeRecord::default();
    says(
        decided(Kind::Commit, &abort),
        &["OutcomeRecord.reason is set", "COMMIT"],
    );
    says(
        decided(Kind::Abort, &commit),
        &["OutcomeRecord.reason is missing"],
    );
    assert!(decided(Kind::Commit, &commit).is_ok() && decided(Kind::Abort, &abort).is_ok());

    let half = stored::OutcomeRecord {
        fingerprint_high: Some(1),
        ..Default::default()
    };
    says(
        decided(Kind::Commit, &half),
        &["OutcomeRecord.fingerprint is missing"],
    );
    let branch = stored::StoredBranch {
        participant: "a".to_owned(),
        ..Default::default()
    };
    let crowd = stored::OutcomeRecord {
        branches: vec![branch; 129],
        ..Default::default()
    };
    says(
        decided(Kind::Commit, &crowd),
        &["OutcomeRecord.branches has 129", "MAX_BRANCHES is 128"],
    );
}

#[test]
fn records_without_what_their_envelope_owes_are_refused() {
    for kind in [
        Kind::Commit,
        Kind::Abort,
        Kind::End,
        Kind::Heuristic,
        Kind::Forget,
        Kind::ForgetDone,
    ] {
        says(
            record::decode(kind as u8, None, Some("T1"), &[]),
            &["the envelope's xid is missing"],
        );
    }
    says(
        record::decode(Kind::Commit as u8, Some(XID), None, &[]),
        &["the envelope's transaction_id is missing"],
    );
    says(outcome::decode_outcome(&[]), &["OutcomeRecord.xid is missing"]);
}

#[test]
fn numbers_of_no_enumeration_are_refused() {
    says(words::from_heuristic("a.b", 0), &["a.b has the value 0"]);
    says(words::from_decision("a.b", 3), &["a.b has the value 3"]);
    let branch = stored::StoredBranch {
        participant: "a".to_owned(),
        vote: 9,
        ..Default::default()
    };
    let message = stored::OutcomeRecord {
        branches: vec![branch],
        ..Default::default()
    };
    says(
        decided(Kind::Commit, &message),
        &["StoredBranch.vote has the value 9"],
    );
    let message = stored::OutcomeRecord {
        reason: Some(stored::StoredReason::default()),
        ..Default::default()
    };
    says(
        decided(Kind::Abort, &message),
        &["StoredReason.cause has the value 0"],
    );
    let message = stored::OutcomeRecord {
        heuristic: 77,
        ..Default::default()
    };
    says(
        decided(Kind::Commit, &message),
        &["OutcomeRecord.heuristic has the value 77"],
    );
}

#[test]
fn operators_that_say_too_much_are_refused() {
    for (who, why, expected) in [
        (257, 1, "StoredOperator.who has 257 bytes"),
        (1, 1025, "StoredOperator.why has 1025 bytes"),
    ] {
        let by = Some(stored::StoredOperator {
            who: "w".repeat(who),
            why: "y".repeat(why),
        });
        let payload = stored::SuspectClearedRecord { by }.encode_to_vec();
        says(
            record::decode(Kind::SuspectCleared as u8, None, None, &payload),
            &[expected],
        );
    }
    says(
        record::decode(Kind::SuspectCleared as u8, None, None, &[]),
        &["SuspectClearedRecord.by is missing"],
    );
}
