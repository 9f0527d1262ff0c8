use super::*;
use covenant_client::to_timestamp;
use serde_json::json;

fn committed() -> View {
    let branch = |participant: &str, state: v1::BranchState| v1::BranchStatus {
        participant: participant.into(),
        state: state.into(),
        heuristic: v1::Heuristic::None.into(),
        deliveries: 1,
        ..v1::BranchStatus::default()
    };
    View {
        transaction_id: "T100".into(),
        outcome: v1::Outcome::Committed.into(),
        heuristic: v1::Heuristic::None.into(),
        state: v1::TransactionState::Committing.into(),
        branches: vec![
            branch("ledger-a", v1::BranchState::Committed),
            branch("ledger-b", v1::BranchState::Prepared),
        ],
        created: Some(to_timestamp(1_796_076_000_123)),
        decided: Some(to_timestamp(1_796_076_000_456)),
        retained_since: Some(to_timestamp(1_796_000_000_000)),
        in_doubt: 1,
        ..View::default()
    }
}

#[test]
fn a_transaction_has_the_documented_json_shape() {
    let shown = serde_json::to_value(TransactionView::of(&committed())).unwrap();
    let branch = |participant: &str, state: &str| {
        json!({
            "participant": participant, "state": state, "reason": null, "reason_detail": null, "heuristic": "NONE",
            "damage": null, "deliveries": 1,
        })
    };
    let expected = json!({
        "transaction_id": "T100", "outcome": "COMMITTED", "reason": null, "reason_detail": null,
        "reason_participant": null, "heuristic": "NONE", "state": "COMMITTING",
        "branches": [branch("ledger-a", "COMMITTED"), branch("ledger-b", "PREPARED")], "in_doubt": 1, "xid": null,
        "created": "2026-11-30T22:00:00.123Z", "decided": "2026-11-30T22:00:00.456Z",
        "retained_since": "2026-11-30T00:53:20.000Z",
    });
    assert_eq!(shown, expected);
}

#[test]
fn an_abort_has_its_reason_in_the_transaction_and_in_the_branch() {
    let mut view = committed();
    view.outcome = v1::Outcome::Aborted.into();
    view.state = v1::TransactionState::Aborted.into();
    let detail = "the account alice has 5 available";
    view.reason = Some(v1::AbortReason {
        code: "INSUFFICIENT_FUNDS".into(),
        participant: "ledger-a".into(),
        detail: detail.into(),
    });
    view.branches[0].state = v1::BranchState::Aborted.into();
    view.branches[0].reason = Some(v1::NoReason {
        code: "INSUFFICIENT_FUNDS".into(),
        detail: detail.into(),
    });
    let shown = serde_json::to_value(TransactionView::of(&view)).unwrap();
    assert_eq!(shown["outcome"], "ABORTED");
    assert_eq!(shown["reason"], "INSUFFICIENT_FUNDS");
    assert_eq!(shown["reason_participant"], "ledger-a");
    assert_eq!(shown["branches"][0]["reason"], "INSUFFICIENT_FUNDS");
    assert_eq!(shown["branches"][0]["reason_detail"], detail);
}

fn aborted(transaction_detail: &str, branch_detail: &str) -> TransactionView {
    let mut view = committed();
    view.outcome = v1::Outcome::Aborted.into();
    view.reason = Some(v1::AbortReason {
        code: "CODE".into(),
        participant: String::new(),
        detail: transaction_detail.into(),
    });
    view.branches[0].reason = Some(v1::NoReason {
        code: "CODE".into(),
        detail: branch_detail.into(),
    });
    TransactionView::of(&view)
}

#[test]
fn a_table_shows_why_it_was_aborted_bounded_unless_wide_and_only_once() {
    let text = |shown: &TransactionView, wide| -> String {
        shown
            .tables(wide)
            .iter()
            .map(|table| table.render(true))
            .collect()
    };
    let both = aborted("alice has 5", "alice has 5");
    for wide in [false, true] {
        assert_eq!(text(&both, wide).matches("alice has 5").count(), 1);
    }
    assert!(text(&aborted("the deadline passed", ""), false).contains("CODE    the deadline passed"));
    let escape = "alice\u{1b}[31m";
    let long = format!("{escape}{}", "x".repeat(500));
    let shown = aborted(&long, &long);
    let short = text(&shown, false);
    assert!(
        short.contains("x...") && !short.contains(&"x".repeat(121)),
        "{short}"
    );
    assert!(
        !short.contains('\u{1b}') && text(&shown, true).contains(&"x".repeat(500)),
        "{short}"
    );
}

#[test]
fn counts_are_aligned_to_the_right() {
    let shown = TransactionView::of(&committed());
    let text = TransactionView::table(&[shown], false).render(true);
    assert!(
        text.contains("IN-DOUBT  DECIDED\n") && text.contains("         1  2026-"),
        "{text}"
    );
}

#[test]
fn every_branch_state_of_the_wire_has_its_word() {
    for (state, word) in [
        (v1::BranchState::Unknown, "UNKNOWN"),
        (v1::BranchState::Preparing, "PREPARING"),
        (v1::BranchState::Prepared, "PREPARED"),
        (v1::BranchState::Committing, "COMMITTING"),
        (v1::BranchState::Committed, "COMMITTED"),
        (v1::BranchState::Aborted, "ABORTED"),
        (v1::BranchState::ReadOnly, "READ_ONLY"),
        (v1::BranchState::Resolving, "RESOLVING"),
        (v1::BranchState::HeuristicCommit, "HEURISTIC_COMMIT"),
        (v1::BranchState::HeuristicAbort, "HEURISTIC_ABORT"),
        (v1::BranchState::Forgotten, "FORGOTTEN"),
    ] {
        assert_eq!(branch_state(state.into()), word);
    }
    assert_eq!(branch_state(99), "UNKNOWN");
}

#[test]
fn accounts_have_the_documented_json_shape() {
    let account = ledger::Account {
        account: "alice".into(),
        currency: "THB".into(),
        posted: 500_000,
        pending_debit: 0,
        pending_credit: 0,
        available: 500_000,
        closed: false,
    };
    let expected = r#"{"account":"alice","currency":"THB","posted":500000,"pending_debit":0,"pending_credit":0,"available":500000,"closed":false}"#;
    assert_eq!(
        serde_json::to_string(&AccountView::of(&account)).unwrap(),
        expected
    );
}

#[test]
fn entries_say_how_long_their_hold_was_held() {
    let entry = ledger::Entry {
        transaction_id: "T100".into(),
        account: "alice".into(),
        currency: "THB".into(),
        amount: -100_000,
        balance_after: 400_000,
        held_for: Some(prost_types::Duration {
            seconds: 1,
            nanos: 250_900_000,
        }),
        ..ledger::Entry::default()
    };
    let shown = serde_json::to_value(EntryView::of(&entry)).unwrap();
    assert_eq!(
        (&shown["amount"], &shown["held_for_ms"]),
        (&json!(-100_000), &json!(1_250))
    );
    let opening = serde_json::to_value(EntryView::of(&ledger::Entry::default())).unwrap();
    assert_eq!(
        (&opening["transaction_id"], &opening["held_for_ms"]),
        (&json!(null), &json!(null))
    );
}
