//! Accounts: their names, their currencies, their balances.
//!
//! An account has one currency and a balance in its minor units. Beside what is *posted* stands what prepared
//! branches hold: *pending debits*, which are not available any more, and *pending credits*, which are not
//! available yet. Every currency has two system accounts, `@clearing:CUR` and `@opening:CUR`, which take the other
//! side of what branches and openings do not balance themselves; they alone may go below zero.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of an account, in bytes.
pub const MAX_ACCOUNT_NAME_BYTES: usize = 64;

/// Why a name or a currency was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// A name has no characters.
    #[error("an account name is empty; give 1 to {MAX_ACCOUNT_NAME_BYTES} printable ASCII characters")]
    Empty,
    /// A name is longer than [`MAX_ACCOUNT_NAME_BYTES`].
    #[error("an account name has {0} bytes; the bound MAX_ACCOUNT_NAME_BYTES is {MAX_ACCOUNT_NAME_BYTES}")]
    TooLong(usize),
    /// A name holds a byte that is not allowed.
    #[error("the account name {0:?} is not printable ASCII without space and '/'")]
    BadByte(String),
    /// A name begins with '@'.
    #[error("{0:?} names a system account; only names that do not begin with '@' may be used")]
    System(String),
    /// A currency is not three upper-case letters.
    #[error("the currency {0:?} is not three upper-case letters, e.g. THB")]
    Currency(String),
}

/// Cuts what a caller sent to what a message may show.
fn shown(text: &str) -> String {
    text.chars().take(MAX_ACCOUNT_NAME_BYTES).collect()
}

/// Three upper-case ASCII letters, in the manner of ISO 4217.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The three letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("???")
    }
}

impl FromStr for Currency {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(letters) if letters.iter().all(u8::is_ascii_uppercase) => Ok(Self(letters)),
            Ok(_) | Err(_) => Err(NameError::Currency(shown(text))),
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name of an account, unique in its ledger.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName(Arc<str>);

impl AccountName {
    /// A customer's account: 1 to 64 bytes of printable ASCII without space and `/`, not beginning with `@`.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong and the bound.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let name = Self::any(text)?;
        if name.is_system() {
            Err(NameError::System(shown(text)))
        } else {
            Ok(name)
        }
    }

    /// An account of either kind, as stored records name them.
    pub(crate) fn any(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > MAX_ACCOUNT_NAME_BYTES {
            return Err(NameError::TooLong(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') {
            return Err(NameError::BadByte(shown(text)));
        }
        Ok(Self(Arc::from(text)))
    }

    /// `@clearing:CUR`: the other side of what branches do not balance themselves.
    #[must_use]
    pub fn clearing(currency: Currency) -> Self {
        Self(Arc::from(format!("@clearing:{currency}")))
    }

    /// `@opening:CUR`: the other side of what accounts were opened with.
    #[must_use]
    pub fn opening(currency: Currency) -> Self {
        Self(Arc::from(format!("@opening:{currency}")))
    }

    /// Whether it is one of the two system accounts of a currency.
    #[must_use]
    pub fn is_system(&self) -> bool {
        self.0.starts_with('@')
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for AccountName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One account, with what prepared branches hold on it. Amounts are minor units of its currency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    /// Its only currency.
    pub currency: Currency,
    /// The balance: what committed branches left.
    pub posted: i64,
    /// What prepared branches will take if they commit; at least 0.
    pub pending_debit: i64,
    /// What prepared branches will bring if they commit; at least 0.
    pub pending_credit: i64,
    /// Floors of prepared branches, ascending: while one stands, `available` does not fall below it.
    pub(crate) floors: Vec<i64>,
    /// Whether it takes no part in new branches.
    pub closed: bool,
    /// The archive index of its newest entry.
    pub last_entry: Option<u64>,
}

impl Account {
    pub(crate) fn empty(currency: Currency) -> Self {
        Self {
            currency,
            posted: 0,
            pending_debit: 0,
            pending_credit: 0,
            floors: Vec::new(),
            closed: false,
            last_entry: None,
        }
    }

    /// What can be spent however the prepared branches end: posted less pending debits.
    #[must_use]
    pub fn available(&self) -> i64 {
        self.posted - self.pending_debit
    }

    /// Whether a prepared branch holds anything on it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.pending_debit != 0 || self.pending_credit != 0 || !self.floors.is_empty()
    }
}

/// What to open: `NAME=AMOUNT:CURRENCY`, e.g. `alice=500000:THB`; the amount is in minor units, at least 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenSpec {
    /// The new account.
    pub account: AccountName,
    /// Its currency.
    pub currency: Currency,
    /// What it starts with, in minor units.
    pub opening: i64,
}

/// Why an [`OpenSpec`] was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenSpecError {
    /// The text has not the form `NAME=AMOUNT:CURRENCY`.
    #[error("{0:?} is not NAME=AMOUNT:CURRENCY, e.g. alice=500000:THB")]
    Form(String),
    /// The amount is not a whole number from 0 to 9223372036854775807.
    #[error("the amount {0:?} is not a whole number of minor units from 0 to {max}", max = i64::MAX)]
    Amount(String),
    /// The name or the currency is not allowed.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for OpenSpec {
    type Err = OpenSpecError;

    fn from_str(text: &str) -> Result<Self, OpenSpecError> {
        // From the right: names may contain '=' and ':'.
        let parts = text.rsplit_once(':').and_then(|(left, currency)| {
            left.rsplit_once('=')
                .map(|(account, amount)| (account, amount, currency))
        });
        let (account, amount, currency) = parts.ok_or_else(|| OpenSpecError::Form(shown(text)))?;
        let opening = amount.parse::<i64>().ok().filter(|opening| *opening >= 0);
        Ok(Self {
            account: AccountName::new(account)?,
            currency: currency.parse()?,
            opening: opening.ok_or_else(|| OpenSpecError::Amount(shown(amount)))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_system_accounts_are_nobodys() {
        assert!(AccountName::new("alice=1:x").is_ok());
        assert!(AccountName::new(&"a".repeat(64)).is_ok());
        assert_eq!(AccountName::new(&"a".repeat(65)), Err(NameError::TooLong(65)));
        assert_eq!(AccountName::new(""), Err(NameError::Empty));
        for bad in ["a b", "a/b", "a\n", "é"] {
            assert_eq!(AccountName::new(bad), Err(NameError::BadByte(bad.to_owned())));
        }
        assert_eq!(
            AccountName::new("@opening:THB"),
            Err(NameError::System("@opening:THB".to_owned()))
        );
    }

    #[test]
    fn a_currency_is_three_upper_case_letters() {
        assert_eq!("THB".parse::<Currency>().unwrap().to_string(), "THB");
        for bad in ["", "TH", "THBB", "thb", "T1B", "éa"] {
            assert!(bad.parse::<Currency>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_open_spec_is_read_from_the_right() {
        let spec: OpenSpec = "a=b:c=500000:THB".parse().unwrap();
        assert_eq!((spec.account.as_str(), spec.opening), ("a=b:c", 500_000));
        for bad in [
            "alice",
            "alice=5",
            "alice:THB",
            "alice=-1:THB",
            "alice=x:THB",
            "=1:THB",
            "@a=1:THB",
            "a=1:thb",
        ] {
            assert!(bad.parse::<OpenSpec>().is_err(), "{bad}");
        }
    }
}
