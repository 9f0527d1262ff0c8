//! Why a branch cannot be prepared: the NO votes of a ledger, each with a stable code (P2, P4).

use covenant_rules::participant::RESOURCE_EXHAUSTED;
use covenant_rules::{NoReason, TransactionId, Xid};

use crate::account::{AccountName, Currency, NameError};
use crate::operation::{MAX_ASSERTIONS, MAX_LEGS};

/// A NO vote: the code is [`Refusal::code`], the detail its `Display` with the values and bounds that count.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The payload is no `covenant.ledger.v1.Operation`.
    #[error("the operation does not decode as covenant.ledger.v1.Operation: {0}")]
    Undecodable(String),
    /// The payload is longer than the protocol allows.
    #[error("the operation has {bytes} bytes; the bound MAX_OPERATION_BYTES is {bound}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        bound: usize,
    },
    /// Neither legs nor assertions.
    #[error("the operation has no legs and no assertions; give at least one of either")]
    Empty,
    /// More legs than [`MAX_LEGS`].
    #[error("the operation has {0} legs; the bound MAX_LEGS is {MAX_LEGS}")]
    TooManyLegs(usize),
    /// More assertions than [`MAX_ASSERTIONS`].
    #[error("the operation has {0} assertions; the bound MAX_ASSERTIONS is {MAX_ASSERTIONS}")]
    TooManyAssertions(usize),
    /// A leg is neither a debit nor a credit.
    #[error("the leg on {0} has the direction {1}; it must be DEBIT or CREDIT")]
    Direction(AccountName, i32),
    /// An account name or a currency is not allowed; system accounts cannot be named.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The amount of a leg is not above 0.
    #[error("the leg on {account} has the amount {amount}; it must be above 0")]
    AmountNotPositive {
        /// The account of the leg.
        account: AccountName,
        /// Its amount.
        amount: i64,
    },
    /// One branch debits and credits the same account.
    #[error("the branch debits and credits {0}; the two accounts must differ")]
    SameAccount(AccountName),
    /// There is no such account in this ledger.
    #[error("this ledger has no account {0}; open it first")]
    AccountNotFound(AccountName),
    /// The account was closed.
    #[error("the account {0} is closed")]
    AccountClosed(AccountName),
    /// The currency asked for is not the account's.
    #[error("the account {account} is in {held}, not in {asked}")]
    CurrencyMismatch {
        /// The account.
        account: AccountName,
        /// Its currency.
        held: Currency,
        /// The currency of the leg or assertion.
        asked: Currency,
    },
    /// What is available, less what must stay, does not cover the debit.
    #[error(
        "the account {account} has {available} available, of which {must_stay} must stay; the debit is {debit} {currency}"
    )]
    InsufficientFunds {
        /// The account.
        account: AccountName,
        /// Its currency.
        currency: Currency,
        /// Posted less pending debits.
        available: i64,
        /// 0, or the highest floor of a prepared branch.
        must_stay: i64,
        /// What the branch would take.
        debit: i64,
    },
    /// What a branch asks of one account is no 64-bit amount.
    #[error("the branch adds {sum} to {account}; one branch moves at most {max} per account", max = i64::MAX)]
    SumOverflow {
        /// The account, maybe the clearing account of the currency.
        account: AccountName,
        /// The sum of the amounts; negative for debits.
        sum: i128,
    },
    /// A balance would leave the range of 64 bits if this and everything pending committed.
    #[error(
        "with {posted} posted and {pending} pending, {amount} more takes {account} beyond the bound of 64 bits, {bound}"
    )]
    Overflow {
        /// The account, maybe the clearing account of the currency.
        account: AccountName,
        /// Its balance.
        posted: i64,
        /// What is pending on the same side.
        pending: i64,
        /// What the branch would add; negative for a debit.
        amount: i128,
        /// `i64::MAX` or `i64::MIN`.
        bound: i64,
    },
    /// Less is available than asserted, with the debits of the same branch already held.
    #[error("the account {account} has {available} available; asserted was at least {at_least}")]
    AssertionFailed {
        /// The account.
        account: AccountName,
        /// Posted less pending debits, those of this branch included.
        available: i64,
        /// The bound that was asserted.
        at_least: i64,
    },
    /// Another attempt of the transaction has its effect here (P2).
    #[error("the transaction {transaction_id} took effect here as attempt {xid}; it has no second effect")]
    DuplicateTransaction {
        /// The caller's id.
        transaction_id: TransactionId,
        /// The attempt that took effect.
        xid: Xid,
    },
    /// The journal has more waiting than its bound; the same transaction may be tried again.
    #[error("{waiting} bytes wait to be forced, more than MAX_BACKLOG_BYTES, {bound}; try again later")]
    Exhausted {
        /// What waits, in bytes.
        waiting: usize,
        /// The journal's bound, in bytes.
        bound: usize,
    },
}

impl Refusal {
    /// Every code, for documentation and tests.
    pub const CODES: [&'static str; 11] = [
        "INSUFFICIENT_FUNDS",
        "ACCOUNT_NOT_FOUND",
        "CURRENCY_MISMATCH",
        "AMOUNT_NOT_POSITIVE",
        "SAME_ACCOUNT",
        "OVERFLOW",
        "ACCOUNT_CLOSED",
        NoReason::DUPLICATE_TRANSACTION,
        "MALFORMED_OPERATION",
        "ASSERTION_FAILED",
        RESOURCE_EXHAUSTED,
    ];

    /// The stable code that callers see.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Undecodable(_)
            | Self::TooLarge { .. }
            | Self::Empty
            | Self::TooManyLegs(_)
            | Self::TooManyAssertions(_)
            | Self::Direction(..)
            | Self::Name(_) => "MALFORMED_OPERATION",
            Self::AmountNotPositive { .. } => "AMOUNT_NOT_POSITIVE",
            Self::SameAccount(_) => "SAME_ACCOUNT",
            Self::AccountNotFound(_) => "ACCOUNT_NOT_FOUND",
            Self::AccountClosed(_) => "ACCOUNT_CLOSED",
            Self::CurrencyMismatch { .. } => "CURRENCY_MISMATCH",
            Self::InsufficientFunds { .. } => "INSUFFICIENT_FUNDS",
            Self::SumOverflow { .. } | Self::Overflow { .. } => "OVERFLOW",
            Self::AssertionFailed { .. } => "ASSERTION_FAILED",
            Self::DuplicateTransaction { .. } => NoReason::DUPLICATE_TRANSACTION,
            Self::Exhausted { .. } => RESOURCE_EXHAUSTED,
        }
    }
}

impl From<Refusal> for NoReason {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code(), &refusal.to_string())
    }
}
