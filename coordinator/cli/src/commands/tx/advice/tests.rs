use super::*;
use covenant_client::{Refusal, RefusalKind, to_timestamp};

const AGAIN: &str = "covenant transfer --again";

fn there() -> EndpointArgs {
    EndpointArgs {
        endpoint: "http://10.0.0.1:7400".to_owned(),
    }
}

fn advice(outcome: &Outcome, created: Option<UnixMillis>, elsewhere: Option<ServerKind>) -> Advice {
    let known = Known {
        id: "T1",
        created,
        endpoint: &there(),
        again: Some(AGAIN),
    };
    Advice::of(outcome, &known, elsewhere)
}

fn remembering(since: UnixMillis) -> View {
    View {
        retained_since: Some(to_timestamp(since)),
        ..View::default()
    }
}

fn unknown(why: Why, known: Option<View>) -> Outcome {
    Outcome::Unknown(Box::new(Unknown { why, known }))
}

fn refused_later() -> Why {
    Why::RefusedLater(Refusal {
        kind: RefusalKind::Unavailable,
        reason: "RECOVERING".into(),
        message: "words".into(),
        metadata: Default::default(),
    })
}

#[test]
fn a_final_outcome_needs_no_advice() {
    for outcome in [
        Outcome::Committed(Box::default()),
        Outcome::Aborted(Box::default()),
    ] {
        assert_eq!(advice(&outcome, Some(1), None), Advice::default());
    }
}

#[test]
fn silence_proposes_to_ask_and_to_send_the_same_again() {
    let get = "covenant tx get --created 1970-01-01T00:00:00.001Z --endpoint http://10.0.0.1:7400 T1";
    for outcome in [
        unknown(refused_later(), None),
        unknown(Why::NotUnderstood, None),
        Outcome::InProgress(Box::default()),
    ] {
        let told = advice(&outcome, Some(1), None);
        assert_eq!(told.next, [get, AGAIN], "{}", outcome.word());
        assert!(!told.lines.is_empty());
    }
}

#[test]
fn a_coordinator_that_says_unknown_is_asked_again_and_not_sent_to() {
    let told = advice(&unknown(Why::Said, Some(remembering(5))), Some(9), None);
    assert_eq!(told.next.len(), 1);
    assert!(told.next[0].starts_with("covenant tx get"), "{told:?}");
}

#[test]
fn what_lies_before_the_coordinators_memory_is_said_and_nobody_is_sent_in_a_circle() {
    for outcome in [
        unknown(Why::Said, Some(remembering(5_000))),
        Outcome::Expired(Box::new(remembering(5_000))),
    ] {
        let told = advice(&outcome, Some(1_000), None);
        let words = told.lines.join("\n");
        for part in [
            outcome.word(),
            "1970-01-01T00:00:01.000Z",
            "1970-01-01T00:00:05.000Z",
            "this call ran nothing",
            "covenant entries",
        ] {
            assert!(words.contains(part), "no {part} in {words}");
        }
        assert_eq!(told.next, Vec::<String>::new());
    }
}

#[test]
fn not_found_says_what_can_still_happen_and_how_to_rule_it_out() {
    let outcome = Outcome::NotFound(Box::new(remembering(1_000)));
    let told = advice(&outcome, Some(2_000), None).lines.join("\n");
    let abort = "covenant tx abort --created 1970-01-01T00:00:02.000Z --endpoint http://10.0.0.1:7400 T1";
    assert!(
        told.contains("not committed as of now") && told.contains(abort),
        "{told}"
    );
    let told = advice(&outcome, None, None).lines.join("\n");
    assert!(
        told.contains("1970-01-01T00:00:01.000Z") && told.contains("--created"),
        "{told}"
    );
}

#[test]
fn nothing_is_proposed_for_an_address_that_is_no_coordinators() {
    let told = advice(
        &unknown(Why::NotUnderstood, None),
        Some(1),
        Some(ServerKind::Ledger),
    );
    let words = told.lines.join("\n");
    assert!(
        words.contains("UNKNOWN") && words.contains("a ledger answers there"),
        "{words}"
    );
    assert!(words.contains("--endpoint http://HOST:PORT T1"), "{words}");
    assert_eq!(told.next, Vec::<String>::new());
}

#[test]
fn a_command_carries_created_a_foreign_endpoint_and_any_id() {
    assert_eq!(
        tx_command("get", "T 100", Some(0), &there()),
        "covenant tx get --created 1970-01-01T00:00:00.000Z --endpoint http://10.0.0.1:7400 'T 100'"
    );
    assert_eq!(
        tx_command("abort", "-T", None, &there()),
        "covenant tx abort --endpoint http://10.0.0.1:7400 -- -T"
    );
}
