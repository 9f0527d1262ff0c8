//! The payload of a branch as it comes: `covenant.ledger.v1.Operation`, decoded and checked.
//!
//! Whatever is wrong with a payload is a NO vote with the code MALFORMED_OPERATION, never an error. What is wrong
//! with a decoded operation whatever the balances are is found by [`Movements::of`].

use covenant_proto::ledger::v1 as proto;
use prost::Message;

use crate::account::AccountName;
use crate::operation::{Assertion, Direction, Leg, MAX_ASSERTIONS, MAX_LEGS, Movements, Operation};
use crate::refusal::Refusal;

/// What an encoded operation comes to.
///
/// # Errors
/// A [`Refusal`] that holds whatever the balances are.
pub(crate) fn movements(payload: &[u8]) -> Result<Movements, Refusal> {
    Movements::of(&decode(payload)?)
}

/// Reads a payload.
///
/// # Errors
/// A [`Refusal`] with the code MALFORMED_OPERATION.
pub fn decode(payload: &[u8]) -> Result<Operation, Refusal> {
    let operation =
        proto::Operation::decode(payload).map_err(|error| Refusal::Undecodable(error.to_string()))?;
    // Before any of them is looked at: a payload of 32 KiB may claim thousands.
    if operation.legs.len() > MAX_LEGS {
        return Err(Refusal::TooManyLegs(operation.legs.len()));
    }
    if operation.assertions.len() > MAX_ASSERTIONS {
        return Err(Refusal::TooManyAssertions(operation.assertions.len()));
    }
    Ok(Operation {
        legs: operation.legs.iter().map(leg).collect::<Result<_, _>>()?,
        assertions: operation
            .assertions
            .iter()
            .map(assertion)
            .collect::<Result<_, _>>()?,
    })
}

/// Writes a payload; the inverse of [`decode`].
#[must_use]
pub fn encode(operation: &Operation) -> Vec<u8> {
    let leg = |leg: &Leg| proto::Leg {
        account: leg.account.to_string(),
        direction: match leg.direction {
            Direction::Debit => proto::Direction::Debit.into(),
            Direction::Credit => proto::Direction::Credit.into(),
        },
        amount: leg.amount,
        currency: leg.currency.to_string(),
    };
    let assertion = |assertion: &Assertion| proto::Assertion {
        account: assertion.account.to_string(),
        at_least: assertion.at_least,
        currency: assertion.currency.to_string(),
    };
    let legs = operation.legs.iter().map(leg).collect();
    proto::Operation {
        legs,
        assertions: operation.assertions.iter().map(assertion).collect(),
    }
    .encode_to_vec()
}

fn leg(leg: &proto::Leg) -> Result<Leg, Refusal> {
    let account = AccountName::new(&leg.account)?;
    let direction = match proto::Direction::try_from(leg.direction) {
        Ok(proto::Direction::Debit) => Direction::Debit,
        Ok(proto::Direction::Credit) => Direction::Credit,
        Ok(proto::Direction::Unspecified) | Err(_) => return Err(Refusal::Direction(account, leg.direction)),
    };
    Ok(Leg {
        account,
        direction,
        amount: leg.amount,
        currency: leg.currency.parse()?,
    })
}

fn assertion(assertion: &proto::Assertion) -> Result<Assertion, Refusal> {
    Ok(Assertion {
        account: AccountName::new(&assertion.account)?,
        at_least: assertion.at_least,
        currency: assertion.currency.parse()?,
    })
}
