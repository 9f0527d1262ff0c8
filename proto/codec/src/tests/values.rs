//! Strategies for every plain value that is sent or stored, within its bounds.

use std::sync::Arc;

use covenant_rules::{
    AbortReason, BranchRecord, Decision, Fingerprint, Floor, Hello, Heuristic, Incarnation, Lineage, Name,
    NoReason, Operator, Outcome, Quarantined, Record, ToCoordinator, ToParticipant, TransactionId, Vote, Xid,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::{MAX_OPERATION_BYTES, MAX_REASON_CODE_BYTES, MAX_REASON_DETAIL_BYTES};

pub(super) fn lineage() -> impl Strategy<Value = Lineage> {
    any::<u128>().prop_map(Lineage)
}

pub(super) fn incarnation() -> impl Strategy<Value = Incarnation> {
    any::<(u64, u64)>().prop_map(|(counter, bits)| Incarnation { counter, bits })
}

pub(super) fn xid() -> impl Strategy<Value = Xid> {
    (lineage(), incarnation(), any::<u64>()).prop_map(|(lineage, incarnation, seq)| Xid {
        lineage,
        incarnation,
        seq,
    })
}

pub(super) fn floor() -> impl Strategy<Value = Floor> {
    any::<(u64, u64)>().prop_map(|(counter, seq)| Floor { counter, seq })
}

pub(super) fn name() -> impl Strategy<Value = Name> {
    "[!-.0-~]{1,128}".prop_map(|text| Name::new(&text).unwrap())
}

pub(super) fn transaction_id() -> impl Strategy<Value = TransactionId> {
    "[ -~]{1,128}".prop_map(|text| TransactionId::new(&text).unwrap())
}

fn bounded(text: &str, bound: usize) -> &str {
    &text[..text.floor_char_boundary(bound)]
}

pub(super) fn no_reason() -> impl Strategy<Value = NoReason> {
    ("[A-Z][A-Z0-9_]{0,63}", ".{0,200}").prop_map(|(code, detail)| {
        NoReason::new(
            bounded(&code, MAX_REASON_CODE_BYTES),
            bounded(&detail.repeat(3), MAX_REASON_DETAIL_BYTES),
        )
    })
}

pub(super) fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        Just(Vote::Yes),
        Just(Vote::ReadOnly),
        no_reason().prop_map(Vote::No)
    ]
}

fn done_by_hand() -> impl Strategy<Value = Heuristic> {
    prop_oneof![Just(Heuristic::Commit), Just(Heuristic::Abort)]
}

pub(super) fn heuristic() -> impl Strategy<Value = Heuristic> {
    prop_oneof![done_by_hand(), Just(Heuristic::Mixed), Just(Heuristic::Hazard)]
}

pub(super) fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![Just(Decision::Commit), Just(Decision::Abort)]
}

fn operation() -> impl Strategy<Value = Arc<[u8]>> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..300),
        1 => Just(vec![7; MAX_OPERATION_BYTES]),
    ]
    .prop_map(Arc::from)
}

pub(super) fn to_participant() -> impl Strategy<Value = ToParticipant> {
    prop_oneof![
        (xid(), transaction_id(), operation()).prop_map(|(xid, transaction_id, operation)| {
            ToParticipant::Prepare {
                xid,
                transaction_id,
                operation,
            }
        }),
        xid().prop_map(ToParticipant::Commit),
        xid().prop_map(ToParticipant::Abort),
        xid().prop_map(ToParticipant::Pending),
        xid().prop_map(ToParticipant::Unknown),
        xid().prop_map(ToParticipant::ReportRecorded),
        xid().prop_map(ToParticipant::Forget),
    ]
}

pub(super) fn to_coordinator() -> impl Strategy<Value = ToCoordinator> {
    prop_oneof![
        3 => (xid(), vote()).prop_map(|(xid, vote)| ToCoordinator::Vote(xid, vote)),
        1 => xid().prop_map(ToCoordinator::Ack),
        1 => xid().prop_map(ToCoordinator::LostState),
        1 => xid().prop_map(ToCoordinator::Inquire),
        2 => (xid(), done_by_hand()).prop_map(|(xid, what)| ToCoordinator::Report(xid, what)),
        1 => xid().prop_map(ToCoordinator::ForgetAck),
    ]
}

pub(super) fn hello() -> impl Strategy<Value = Hello> {
    (
        name(),
        lineage(),
        incarnation(),
        any::<u64>(),
        vec((lineage(), any::<u64>()), 0..5),
    )
        .prop_map(|(name, lineage, incarnation, connection, positions)| Hello {
            name,
            lineage,
            incarnation,
            connection,
            positions,
        })
}

pub(super) fn abort_reason() -> impl Strategy<Value = AbortReason> {
    prop_oneof![
        (name(), no_reason()).prop_map(|(name, reason)| AbortReason::VoteNo(name, reason)),
        Just(AbortReason::Deadline),
        Just(AbortReason::Caller),
        Just(AbortReason::Operator),
        name().prop_map(AbortReason::HeuristicAbort),
        name().prop_map(AbortReason::LineageChanged),
        Just(AbortReason::Fence),
    ]
}

fn branch() -> impl Strategy<Value = BranchRecord> {
    let by_hand = prop_oneof![
        Just(Heuristic::Commit),
        Just(Heuristic::Abort),
        Just(Heuristic::Hazard)
    ];
    let all = (
        name(),
        option::of(lineage()),
        option::of(vote()),
        option::of(by_hand),
    );
    all.prop_map(|(participant, lineage, vote, forgotten)| BranchRecord {
        participant,
        lineage,
        vote,
        forgotten,
    })
}

/// An outcome of either decision.
pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
    (
        (
            xid(),
            transaction_id(),
            option::of(any::<[u8; 16]>().prop_map(Fingerprint)),
        ),
        (any::<u64>(), any::<u64>()),
        (
            option::of(abort_reason()),
            vec(branch(), 0..6),
            option::of(heuristic()),
        ),
    )
        .prop_map(
            |((xid, transaction_id, fingerprint), (created, decided), (aborted, branches, heuristic))| {
                Outcome {
                    xid,
                    transaction_id,
                    fingerprint,
                    created,
                    decided,
                    aborted,
                    branches,
                    heuristic,
                }
            },
        )
}

fn operator() -> impl Strategy<Value = Operator> {
    (".{0,64}", ".{0,256}").prop_map(|(who, why)| Operator {
        who: who.into(),
        why: why.into(),
    })
}

fn heuristic_record() -> impl Strategy<Value = Record> {
    let what = prop_oneof![done_by_hand(), Just(Heuristic::Hazard)];
    (
        xid(),
        name(),
        lineage(),
        what,
        any::<Option<bool>>(),
        option::of(outcome()),
    )
        .prop_map(
            |(xid, participant, lineage, what, damage, outcome)| Record::Heuristic {
                xid,
                participant,
                lineage,
                what,
                damage,
                outcome: outcome.map(|outcome| Outcome { xid, ..outcome }),
            },
        )
}

fn quarantined() -> impl Strategy<Value = Record> {
    (
        option::of(xid()),
        option::of(transaction_id()),
        vec(any::<u8>(), 0..100),
    )
        .prop_map(|(xid, transaction_id, bytes)| {
            Record::Quarantined(Quarantined {
                xid,
                transaction_id,
                bytes: bytes.into(),
            })
        })
}

/// Every kind of record.
pub(super) fn record() -> impl Strategy<Value = Record> {
    let early = prop_oneof![
        (lineage(), any::<u64>(), vec(lineage(), 0..4)).prop_map(|(lineage, birth, former)| {
            Record::Lineage {
                lineage,
                birth,
                former,
            }
        }),
        incarnation().prop_map(Record::Incarnation),
        (name(), lineage()).prop_map(|(name, lineage)| Record::Participant { name, lineage }),
        outcome().prop_map(|outcome| match outcome.aborted {
            None => Record::Commit(outcome),
            Some(_) => Record::Abort(outcome),
        }),
        xid().prop_map(Record::End),
        heuristic_record(),
    ];
    let late = prop_oneof![
        (xid(), name(), option::of(operator())).prop_map(|(xid, participant, by)| Record::Forget {
            xid,
            participant,
            by
        }),
        (xid(), name()).prop_map(|(xid, participant)| Record::ForgetDone { xid, participant }),
        (xid(), decision(), vec(lineage(), 0..4), operator()).prop_map(|(xid, decision, voters, by)| {
            Record::Resolved {
                xid,
                decision,
                voters,
                by,
            }
        }),
        any::<u64>().prop_map(Record::Retained),
        (option::of(name()), any::<u64>()).prop_map(|(participant, position)| Record::Suspect {
            participant,
            position
        }),
        operator().prop_map(Record::SuspectCleared),
        quarantined(),
    ];
    prop_oneof![early, late]
}
