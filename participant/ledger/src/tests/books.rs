//! The books alone: double entry, holds and floors under every interleaving, and every refusal of a balance.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::*;

pub(super) const CUSTOMERS: [(&str, &str); 4] = [("a", "THB"), ("b", "THB"), ("c", "USD"), ("d", "USD")];

pub(super) fn name(text: &str) -> AccountName {
    AccountName::new(text).unwrap()
}

pub(super) fn leg(account: &str, amount: i64, currency: &str) -> Leg {
    let direction = if amount < 0 {
        Direction::Debit
    } else {
        Direction::Credit
    };
    let currency = currency.parse().unwrap();
    Leg {
        account: name(account),
        direction,
        amount: amount.saturating_abs(),
        currency,
    }
}

pub(super) fn at_least(account: &str, at_least: i64, currency: &str) -> Assertion {
    Assertion {
        account: name(account),
        at_least,
        currency: currency.parse().unwrap(),
    }
}

fn books(openings: [i64; 4]) -> Books {
    let mut books = Books::default();
    for ((account, currency), opening) in CUSTOMERS.into_iter().zip(openings) {
        books
            .open(&format!("{account}={opening}:{currency}").parse().unwrap())
            .unwrap();
    }
    books
}

fn amounts() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1..200i64, 1 => (i64::MAX - 300)..=i64::MAX, 1 => Just(i64::MAX / 2)]
}

pub(super) fn operations() -> impl Strategy<Value = Operation> {
    let customer = prop::sample::select(CUSTOMERS.to_vec());
    let leg =
        (customer.clone(), amounts(), any::<bool>()).prop_map(|((account, currency), amount, debit)| {
            leg(account, if debit { -amount } else { amount }, currency)
        });
    let assertion =
        (customer, -50..250i64).prop_map(|((account, currency), n)| at_least(account, n, currency));
    (
        prop::collection::vec(leg, 0..4),
        prop::collection::vec(assertion, 0..2),
    )
        .prop_map(|(legs, assertions)| Operation { legs, assertions })
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(Operation),
    Commit(Index),
    Abort(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => operations().prop_map(Step::Prepare),
        1 => any::<Index>().prop_map(Step::Commit),
        1 => any::<Index>().prop_map(Step::Abort),
    ];
    prop::collection::vec(step, 1..60)
}

/// What must be true of books at any moment, with exactly these branches prepared.
fn check(books: &Books, prepared: &[Movements]) {
    for (currency, total) in books.totals() {
        assert_eq!(total, 0, "{currency} does not add up");
    }
    let mut debits: BTreeMap<&AccountName, i64> = BTreeMap::new();
    let mut credits: BTreeMap<&AccountName, i64> = BTreeMap::new();
    for movement in prepared.iter().flat_map(|branch| &branch.movements) {
        let side = if movement.amount < 0 {
            &mut debits
        } else {
            &mut credits
        };
        *side.entry(&movement.account).or_default() += movement.amount.abs();
    }
    for (name, account) in books.after(None) {
        assert_eq!(
            account.pending_debit,
            debits.get(name).copied().unwrap_or(0),
            "{name}"
        );
        assert_eq!(
            account.pending_credit,
            credits.get(name).copied().unwrap_or(0),
            "{name}"
        );
        assert!(name.is_system() || account.available() >= 0, "{name} is below 0");
    }
    for assertion in prepared.iter().flat_map(|branch| &branch.assertions) {
        let available = books.get(assertion.account.as_str()).unwrap().available();
        assert!(
            available >= assertion.at_least,
            "the floor of {} does not hold",
            assertion.account
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_interleaving_keeps_double_entry_holds_and_floors(
        openings in prop::array::uniform4(prop_oneof![3 => 0..500i64, 1 => Just(i64::MAX / 2)]),
        steps in steps(),
        ends in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut books = books(openings);
        let mut prepared: Vec<Movements> = Vec::new();
        for step in steps {
            match step {
                Step::Prepare(operation) => {
                    let before = books.clone();
                    match Movements::of(&operation).and_then(|moves| books.hold(&moves).map(|()| moves)) {
                        Ok(moves) if moves.is_read_only() => prop_assert_eq!(&books, &before),
                        Ok(moves) => prepared.push(moves),
                        Err(_) => prop_assert_eq!(&books, &before),
                    }
                }
                Step::Commit(at) if !prepared.is_empty() => {
                    let moves = prepared.swap_remove(at.index(prepared.len()));
                    let posted = books.post(&moves);
                    prop_assert_eq!(posted.len(), moves.movements.len());
                    for line in posted {
                        prop_assert_eq!(books.get(line.account.as_str()).unwrap().posted, line.balance_after);
                    }
                }
                Step::Abort(at) if !prepared.is_empty() => {
                    books.release(&prepared.swap_remove(at.index(prepared.len())));
                }
                Step::Commit(_) | Step::Abort(_) => {}
            }
            check(&books, &prepared);
        }
        // Whatever subset commits, in whatever order: nothing panics and nothing is left.
        for (moves, commit) in prepared.drain(..).zip(ends) {
            if commit { drop(books.post(&moves)) } else { books.release(&moves) }
        }
        check(&books, &[]);
    }
}

/// The refusal of one operation on a: 100 THB, b: 0 THB, c: 5 USD, z: closed, with 40 of a held for b.
fn refused(operation: &Operation) -> Refusal {
    let mut books = books([100, 0, 5, 0]);
    books.open(&"z=0:THB".parse().unwrap()).unwrap();
    books.close(&name("z")).unwrap();
    let legs = vec![leg("a", -40, "THB"), leg("b", 40, "THB")];
    books
        .hold(
            &Movements::of(&Operation {
                legs,
                assertions: Vec::new(),
            })
            .unwrap(),
        )
        .unwrap();
    let tried = Movements::of(operation).and_then(|moves| books.hold(&moves));
    tried.expect_err("this operation cannot be done")
}

fn of_legs(legs: &[Leg]) -> Operation {
    Operation {
        legs: legs.to_vec(),
        assertions: Vec::new(),
    }
}

/// Checks the code of a refusal and that its detail says this.
fn says(operation: &Operation, code: &str, said: &str) {
    let refusal = refused(operation);
    assert_eq!(refusal.code(), code, "{refusal}");
    assert!(Refusal::CODES.contains(&code));
    let detail = refusal.to_string();
    assert!(detail.contains(said), "{detail:?} does not say {said:?}");
    assert!(detail.len() <= 512, "{detail}");
}

#[test]
fn every_refusal_of_legs_has_its_code_and_says_values_and_bounds() {
    let legs = |legs: &[Leg], code, said| says(&of_legs(legs), code, said);
    let a = |amount| leg("a", amount, "THB");
    legs(
        &[a(-61)],
        "INSUFFICIENT_FUNDS",
        "a has 60 available, of which 0 must stay; the debit is 61",
    );
    legs(&[leg("b", -1, "THB")], "INSUFFICIENT_FUNDS", "b has 0 available");
    legs(
        &[leg("nobody", 1, "THB")],
        "ACCOUNT_NOT_FOUND",
        "no account nobody",
    );
    legs(
        &[leg("a", 1, "EUR")],
        "CURRENCY_MISMATCH",
        "a is in THB, not in EUR",
    );
    legs(
        &[a(1), leg("a", 1, "USD")],
        "CURRENCY_MISMATCH",
        "a is in THB, not in USD",
    );
    legs(&[a(0)], "AMOUNT_NOT_POSITIVE", "amount 0");
    legs(&[Leg { amount: -7, ..a(1) }], "AMOUNT_NOT_POSITIVE", "amount -7");
    legs(&[a(-1), a(1)], "SAME_ACCOUNT", "debits and credits a");
    legs(
        &[leg("b", i64::MAX, "THB")],
        "OVERFLOW",
        "0 posted and 40 pending",
    );
    legs(&[a(i64::MAX), a(1)], "OVERFLOW", "adds 9223372036854775808 to a");
    legs(&[leg("z", 1, "THB")], "ACCOUNT_CLOSED", "z is closed");
    legs(&[], "MALFORMED_OPERATION", "no legs and no assertions");
    legs(
        &vec![a(1); 65],
        "MALFORMED_OPERATION",
        "65 legs; the bound MAX_LEGS is 64",
    );
}

#[test]
fn every_refusal_of_an_assertion_has_its_code_and_says_values_and_bounds() {
    let one = |assertion, code, said| {
        let operation = Operation {
            legs: Vec::new(),
            assertions: vec![assertion],
        };
        says(&operation, code, said);
    };
    one(
        at_least("a", 61, "THB"),
        "ASSERTION_FAILED",
        "a has 60 available; asserted was at least 61",
    );
    one(at_least("nobody", 0, "THB"), "ACCOUNT_NOT_FOUND", "nobody");
    one(
        at_least("c", 0, "THB"),
        "CURRENCY_MISMATCH",
        "c is in USD, not in THB",
    );
    one(at_least("z", 0, "THB"), "ACCOUNT_CLOSED", "z is closed");
}

#[test]
fn transfers_on_one_account_are_in_flight_together_as_long_as_they_fit() {
    let mut books = books([100, 0, 0, 0]);
    let transfer =
        |amount: i64| Movements::of(&of_legs(&[leg("a", -amount, "THB"), leg("b", amount, "THB")])).unwrap();
    let (first, second) = (transfer(60), transfer(40));
    books.hold(&first).unwrap();
    books.hold(&second).unwrap();
    assert_eq!(books.hold(&transfer(1)).unwrap_err().code(), "INSUFFICIENT_FUNDS");
    // A prepared credit is not available.
    assert_eq!(
        books
            .hold(&Movements::of(&of_legs(&[leg("b", -1, "THB")])).unwrap())
            .unwrap_err()
            .code(),
        "INSUFFICIENT_FUNDS"
    );
    books.release(&second);
    books.post(&first);
    books.hold(&transfer(40)).unwrap();
    assert_eq!(books.get("b").unwrap().available(), 60);
}

#[test]
fn what_legs_do_not_balance_goes_against_clearing() {
    let mut books = books([100, 0, 5, 0]);
    let moves = Movements::of(&of_legs(&[
        leg("a", -30, "THB"),
        leg("b", 10, "THB"),
        leg("c", 7, "USD"),
    ]))
    .unwrap();
    books.hold(&moves).unwrap();
    assert_eq!(books.get("@clearing:THB").unwrap().pending_credit, 20);
    assert_eq!(books.get("@clearing:USD").unwrap().pending_debit, 7);
    books.post(&moves);
    assert_eq!(books.get("@clearing:THB").unwrap().posted, 20);
    assert_eq!(books.get("@clearing:USD").unwrap().posted, -7);
    assert_eq!(books.get("@opening:THB").unwrap().posted, -100);
    check(&books, &[]);
}

#[test]
fn an_assertion_with_legs_counts_its_own_debits_and_holds_a_floor() {
    let mut books = books([100, 0, 0, 0]);
    let with = |amount: i64, floor| {
        let legs = vec![leg("a", -amount, "THB"), leg("b", amount, "THB")];
        Movements::of(&Operation {
            legs,
            assertions: vec![at_least("a", floor, "THB")],
        })
        .unwrap()
    };
    assert_eq!(books.hold(&with(30, 71)).unwrap_err().code(), "ASSERTION_FAILED");
    let floor = with(30, 60);
    books.hold(&floor).unwrap();
    let debit = Movements::of(&of_legs(&[leg("a", -11, "THB")])).unwrap();
    let refusal = books.hold(&debit).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "the account a has 70 available, of which 60 must stay; the debit is 11 THB"
    );
    books.post(&floor);
    books.hold(&debit).unwrap();
}

#[test]
fn an_assertion_alone_holds_nothing() {
    let mut books = books([100, 0, 0, 0]);
    let look = Movements::of(&Operation {
        legs: Vec::new(),
        assertions: vec![at_least("a", 100, "THB")],
    })
    .unwrap();
    let before = books.clone();
    books.hold(&look).unwrap();
    assert!(look.is_read_only());
    assert_eq!(books, before);
}

#[test]
fn an_account_opens_once_and_closes_only_empty_and_free() {
    let mut books = books([100, 0, 0, 0]);
    let open = |books: &mut Books, spec: &str| books.open(&spec.parse().unwrap());
    assert!(matches!(
        open(&mut books, "a=1:USD"),
        Err(OpenRefusal::Exists(..))
    ));
    let negative = OpenSpec {
        account: name("n"),
        currency: "THB".parse().unwrap(),
        opening: -1,
    };
    assert!(matches!(books.open(&negative), Err(OpenRefusal::Negative(..))));
    open(&mut books, &format!("rich={}:THB", i64::MAX - 99)).unwrap();
    assert!(matches!(
        open(&mut books, "more=1000:THB"),
        Err(OpenRefusal::Overflow(..))
    ));
    assert!(matches!(books.close(&name("a")), Err(CloseRefusal::NotEmpty(..))));
    assert!(matches!(
        books.close(&name("nobody")),
        Err(CloseRefusal::NotFound(_))
    ));
    let system = AccountName::clearing("THB".parse().unwrap());
    assert!(matches!(books.close(&system), Err(CloseRefusal::NotFound(_))));
    let credit = Movements::of(&of_legs(&[leg("b", 1, "THB")])).unwrap();
    books.hold(&credit).unwrap();
    assert!(matches!(books.close(&name("b")), Err(CloseRefusal::Held(_))));
    books.release(&credit);
    books.close(&name("b")).unwrap();
    books.close(&name("b")).unwrap();
}

#[test]
fn an_opening_cannot_outgrow_its_opening_account() {
    let mut books = Books::default();
    books
        .open(&format!("a={}:THB", i64::MAX).parse().unwrap())
        .unwrap();
    // -(2^63 - 1) - 1 is still a number, one more is not.
    books.open(&"b=1:THB".parse().unwrap()).unwrap();
    assert!(matches!(
        books.open(&"c=1:THB".parse().unwrap()),
        Err(OpenRefusal::Overflow(..))
    ));
    check(&books, &[]);
}
