//! The doors: one thin file per service. A handler converts, puts an input into the loop, and waits.

mod convert;
mod many;
mod operator;
mod page;
mod participant;
pub(crate) mod status;
mod transaction;

pub(crate) use operator::OperatorApi;
pub(crate) use participant::ParticipantApi;
pub(crate) use transaction::{Defaults, TransactionApi};
