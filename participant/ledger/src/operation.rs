//! What a branch asks of a ledger: legs and assertions, and what they come to.
//!
//! A leg takes an amount from an account or gives it one. An assertion says that an account has at least so much
//! available. [`Movements`] is the whole effect of an operation on this ledger, one signed amount per account, with
//! the clearing account of each currency taking the other side, so that the amounts of a currency add up to 0. It
//! follows from the operation alone, never from balances: replay computes the same again.

use std::collections::BTreeMap;

use crate::account::{AccountName, Currency};
use crate::refusal::Refusal;

/// The most legs of one operation.
pub const MAX_LEGS: usize = 64;
/// The most assertions of one operation.
pub const MAX_ASSERTIONS: usize = 64;

/// Which way a leg goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the account.
    Debit,
    /// To the account.
    Credit,
}

/// One movement that an operation asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leg {
    /// A customer's account.
    pub account: AccountName,
    /// From it or to it.
    pub direction: Direction,
    /// Minor units, above 0.
    pub amount: i64,
    /// The account's currency.
    pub currency: Currency,
}

/// A condition: the account has at least this much available.
///
/// Alone it is looked at once and promises nothing (P5). With legs it is checked with the debits of the same branch
/// held and its credits not yet there, and it *holds*: while the branch is prepared, no other branch may take the
/// account below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assertion {
    /// A customer's account.
    pub account: AccountName,
    /// Minor units.
    pub at_least: i64,
    /// The account's currency.
    pub currency: Currency,
}

/// The payload of a branch, decoded: at most [`MAX_LEGS`] legs and [`MAX_ASSERTIONS`] assertions, not both empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Operation {
    /// What moves.
    pub legs: Vec<Leg>,
    /// Under which conditions.
    pub assertions: Vec<Assertion>,
}

/// What becomes of one account if a branch commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Movement {
    /// The account, maybe a clearing account.
    pub account: AccountName,
    /// Its currency.
    pub currency: Currency,
    /// Minor units added to it; negative for a debit, never 0, never `i64::MIN`.
    pub amount: i64,
}

/// The whole effect of an operation, and the floors that stand while it is prepared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Movements {
    /// One per account, sorted by account; of each currency they add up to 0.
    pub movements: Vec<Movement>,
    /// The assertions, in the order given.
    pub assertions: Vec<Assertion>,
}

impl Movements {
    /// What the operation comes to.
    ///
    /// # Errors
    /// A [`Refusal`] if the operation cannot be done whatever the balances are: MALFORMED_OPERATION,
    /// AMOUNT_NOT_POSITIVE, SAME_ACCOUNT, OVERFLOW.
    pub fn of(operation: &Operation) -> Result<Self, Refusal> {
        let Operation { legs, assertions } = operation;
        if legs.is_empty() && assertions.is_empty() {
            return Err(Refusal::Empty);
        }
        if legs.len() > MAX_LEGS {
            return Err(Refusal::TooManyLegs(legs.len()));
        }
        if assertions.len() > MAX_ASSERTIONS {
            return Err(Refusal::TooManyAssertions(assertions.len()));
        }
        // At most 64 amounts of at most 2^63: i128 cannot overflow.
        let mut sums: BTreeMap<AccountName, (Currency, i128)> = BTreeMap::new();
        for leg in legs {
            add_leg(&mut sums, leg)?;
        }
        let mut movements = Vec::with_capacity(sums.len() + 1);
        let mut clearing: BTreeMap<Currency, i128> = BTreeMap::new();
        for (account, (currency, sum)) in sums {
            movements.push(movement(account, currency, sum)?);
            *clearing.entry(currency).or_default() -= sum;
        }
        for (currency, sum) in clearing {
            if sum != 0 {
                movements.push(movement(AccountName::clearing(currency), currency, sum)?);
            }
        }
        movements.sort_by(|one, other| one.account.cmp(&other.account));
        Ok(Self {
            movements,
            assertions: assertions.clone(),
        })
    }

    /// Whether it only looks (P5).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.movements.is_empty()
    }
}

/// One movement, whose negative is an amount too.
fn movement(account: AccountName, currency: Currency, sum: i128) -> Result<Movement, Refusal> {
    match i64::try_from(sum) {
        Ok(amount) if amount != i64::MIN => Ok(Movement {
            account,
            currency,
            amount,
        }),
        Ok(_) | Err(_) => Err(Refusal::SumOverflow { account, sum }),
    }
}

fn add_leg(sums: &mut BTreeMap<AccountName, (Currency, i128)>, leg: &Leg) -> Result<(), Refusal> {
    if leg.amount <= 0 {
        return Err(Refusal::AmountNotPositive {
            account: leg.account.clone(),
            amount: leg.amount,
        });
    }
    let amount = match leg.direction {
        Direction::Debit => -i128::from(leg.amount),
        Direction::Credit => i128::from(leg.amount),
    };
    let (currency, sum) = sums.entry(leg.account.clone()).or_insert((leg.currency, 0));
    if *currency != leg.currency {
        let (held, asked) = (*currency, leg.currency);
        return Err(Refusal::CurrencyMismatch {
            account: leg.account.clone(),
            held,
            asked,
        });
    }
    if *sum != 0 && (*sum > 0) != (amount > 0) {
        return Err(Refusal::SameAccount(leg.account.clone()));
    }
    *sum += amount;
    Ok(())
}
