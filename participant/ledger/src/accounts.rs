//! The books: all accounts of a ledger, and the only code that changes a balance.
//!
//! Double entry: the amounts of every opening and of every branch add up to 0 per currency, so at any moment
//! the posted balances of a currency do, and its pending debits equal its pending credits. A prepared debit is held
//! out of what is available; a prepared credit is checked for overflow together with all others and becomes
//! available only when it is posted; a floor keeps what is available from falling below it. So whatever subset of the
//! prepared branches commits, no customer's account goes below 0 and no balance leaves 64 bits.
//!
//! Pure: no clock, no disk, no identity of branches. Whoever holds must post or release the same movements later.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::account::{Account, AccountName, Currency, OpenSpec};
use crate::operation::{Movement, Movements};
use crate::refusal::Refusal;

/// The most accounts of one ledger, system accounts included.
pub const MAX_ACCOUNTS: usize = 1_000_000;

/// What posting did to one account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Posted {
    /// The account.
    pub account: AccountName,
    /// What was added, in minor units; negative for a debit.
    pub amount: i64,
    /// The balance after it.
    pub balance_after: i64,
}

/// Why an account was not opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenRefusal {
    /// The name is taken, by an account of this currency.
    #[error("the account {0} exists already, in {1}")]
    Exists(AccountName, Currency),
    /// The opening amount is below 0.
    #[error("the opening amount of {0} is {1}; it must be at least 0")]
    Negative(AccountName, i64),
    /// The opening account of the currency would go below `i64::MIN`.
    #[error("opening {0} with {1} takes the opening account of {2} below {min}", min = i64::MIN)]
    Overflow(AccountName, i64, Currency),
    /// The ledger has [`MAX_ACCOUNTS`] accounts.
    #[error(
        "this ledger has {0} accounts; the bound MAX_ACCOUNTS is {MAX_ACCOUNTS}; accounts are never removed: use another ledger"
    )]
    TooMany(usize),
}

/// Why an account was not closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseRefusal {
    /// There is no such account.
    #[error("this ledger has no account {0}")]
    NotFound(AccountName),
    /// Its balance is not 0.
    #[error("the account {0} has a balance of {1}; it must be 0 to be closed")]
    NotEmpty(AccountName, i64),
    /// A prepared branch holds something on it.
    #[error("the account {0} is held by a prepared branch; wait until it ends")]
    Held(AccountName),
}

/// All accounts of a ledger.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Books {
    accounts: BTreeMap<AccountName, Account>,
}

impl Books {
    /// The account of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Account> {
        self.accounts.get(name)
    }

    /// The accounts after that name, or all, sorted by name.
    pub fn after(&self, name: Option<&str>) -> impl Iterator<Item = (&AccountName, &Account)> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.accounts.range::<str, _>((from, Bound::Unbounded))
    }

    /// How many accounts there are, system accounts included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Whether an account can be opened.
    ///
    /// # Errors
    /// [`OpenRefusal`] says why not, with the bound.
    pub fn check_open(&self, spec: &OpenSpec) -> Result<(), OpenRefusal> {
        let OpenSpec {
            account,
            currency,
            opening,
        } = spec;
        if let Some(known) = self.get(account.as_str()) {
            return Err(OpenRefusal::Exists(account.clone(), known.currency));
        }
        if *opening < 0 {
            return Err(OpenRefusal::Negative(account.clone(), *opening));
        }
        let system_accounts = [AccountName::opening(*currency), AccountName::clearing(*currency)];
        let missing = system_accounts
            .iter()
            .filter(|name| self.get(name.as_str()).is_none())
            .count();
        if self.len() + missing + 1 > MAX_ACCOUNTS {
            return Err(OpenRefusal::TooMany(self.len()));
        }
        let issued = self
            .get(system_accounts[0].as_str())
            .map_or(0, |account| account.posted);
        match issued.checked_sub(*opening) {
            Some(_) => Ok(()),
            None => Err(OpenRefusal::Overflow(account.clone(), *opening, *currency)),
        }
    }

    /// Opens an account, and the system accounts of its currency if it is the first in it.
    ///
    /// # Errors
    /// As [`Books::check_open`]; nothing changed then.
    pub fn open(&mut self, spec: &OpenSpec) -> Result<Vec<Posted>, OpenRefusal> {
        self.check_open(spec)?;
        let OpenSpec {
            account,
            currency,
            opening,
        } = spec;
        let from = AccountName::opening(*currency);
        for name in [account, &from, &AccountName::clearing(*currency)] {
            self.accounts
                .entry(name.clone())
                .or_insert_with(|| Account::empty(*currency));
        }
        if *opening == 0 {
            return Ok(Vec::new());
        }
        let mut sides = [(from, -*opening), (account.clone(), *opening)];
        sides.sort();
        Ok(sides.map(|(account, amount)| self.add(account, amount)).to_vec())
    }

    /// Whether an account can be closed; a closed one can.
    ///
    /// # Errors
    /// [`CloseRefusal`] says why not.
    pub fn check_close(&self, name: &AccountName) -> Result<(), CloseRefusal> {
        let account = self.get(name.as_str()).filter(|_| !name.is_system());
        let account = account.ok_or_else(|| CloseRefusal::NotFound(name.clone()))?;
        if account.is_held() {
            return Err(CloseRefusal::Held(name.clone()));
        }
        if account.posted != 0 {
            return Err(CloseRefusal::NotEmpty(name.clone(), account.posted));
        }
        Ok(())
    }

    /// Closes an account for new branches, for ever.
    ///
    /// # Errors
    /// As [`Books::check_close`]; nothing changed then.
    pub fn close(&mut self, name: &AccountName) -> Result<(), CloseRefusal> {
        self.check_close(name)?;
        self.account_mut(name).closed = true;
        Ok(())
    }

    /// Whether a branch can be prepared, with its own debits counted as held.
    ///
    /// # Errors
    /// The [`Refusal`] that becomes the NO vote: of the customers' accounts first, by name, then of the clearing
    /// accounts, then of the assertions in the order given.
    pub fn check(&self, movements: &Movements) -> Result<(), Refusal> {
        let of = |system: bool| {
            movements
                .movements
                .iter()
                .filter(move |one| one.account.is_system() == system)
        };
        for movement in of(false).chain(of(true)) {
            let account = self.usable(&movement.account, movement.currency)?;
            if movement.amount < 0 {
                check_debit(account, movement)?;
            } else {
                check_credit(account, movement)?;
            }
        }
        for assertion in &movements.assertions {
            let account = self.usable(&assertion.account, assertion.currency)?;
            let debit = debit_of(movements, &assertion.account);
            // Checked above: the debit is covered, so this stays at or above 0.
            let available = account.available() - debit;
            if available < assertion.at_least {
                let (account, at_least) = (assertion.account.clone(), assertion.at_least);
                return Err(Refusal::AssertionFailed {
                    account,
                    available,
                    at_least,
                });
            }
        }
        Ok(())
    }

    /// Checks a branch and holds what it needs to commit: debits, credits, floors.
    ///
    /// # Errors
    /// As [`Books::check`]; nothing is held then.
    pub fn hold(&mut self, movements: &Movements) -> Result<(), Refusal> {
        self.check(movements)?;
        if movements.is_read_only() {
            return Ok(());
        }
        for movement in &movements.movements {
            let account = self.account_mut(&movement.account);
            if movement.amount < 0 {
                account.pending_debit -= movement.amount;
            } else {
                account.pending_credit += movement.amount;
            }
        }
        for assertion in &movements.assertions {
            let floors = &mut self.account_mut(&assertion.account).floors;
            let at = floors.partition_point(|floor| *floor <= assertion.at_least);
            floors.insert(at, assertion.at_least);
        }
        Ok(())
    }

    /// Lets go of what [`Books::hold`] held.
    pub fn release(&mut self, movements: &Movements) {
        if movements.is_read_only() {
            return;
        }
        for movement in &movements.movements {
            let account = self.account_mut(&movement.account);
            let pending = if movement.amount < 0 {
                &mut account.pending_debit
            } else {
                &mut account.pending_credit
            };
            *pending -= movement.amount.abs();
            assert!(
                *pending >= 0,
                "{} has less pending than one branch holds",
                movement.account
            );
        }
        for assertion in &movements.assertions {
            let floors = &mut self.account_mut(&assertion.account).floors;
            let at = floors.binary_search(&assertion.at_least);
            assert!(
                at.is_ok(),
                "{} has lost a floor of a prepared branch",
                assertion.account
            );
            if let Ok(at) = at {
                floors.remove(at);
            }
        }
    }

    /// Turns what [`Books::hold`] held into balances; one line per account, sorted by account.
    pub fn post(&mut self, movements: &Movements) -> Vec<Posted> {
        self.release(movements);
        let sum: i128 = movements
            .movements
            .iter()
            .map(|movement| i128::from(movement.amount))
            .sum();
        assert!(sum == 0, "a branch's amounts add up to {sum}, not to 0");
        let post = |movement: &Movement| self.add(movement.account.clone(), movement.amount);
        movements.movements.iter().map(post).collect()
    }

    /// The sum of the posted balances, per currency: 0 each.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<Currency, i128> {
        let mut totals = BTreeMap::new();
        for account in self.accounts.values() {
            *totals.entry(account.currency).or_default() += i128::from(account.posted);
        }
        totals
    }

    /// Puts back an account as a checkpoint carried it.
    pub(crate) fn put(&mut self, name: AccountName, account: Account) {
        self.accounts.insert(name, account);
    }

    /// Notes the newest entry of an account and gives the one before.
    pub(crate) fn link(&mut self, name: &AccountName, entry: u64) -> Option<u64> {
        self.account_mut(name).last_entry.replace(entry)
    }

    fn usable(&self, name: &AccountName, asked: Currency) -> Result<&Account, Refusal> {
        let account = self
            .get(name.as_str())
            .ok_or_else(|| Refusal::AccountNotFound(name.clone()))?;
        if account.closed {
            return Err(Refusal::AccountClosed(name.clone()));
        }
        if account.currency != asked {
            return Err(Refusal::CurrencyMismatch {
                account: name.clone(),
                held: account.currency,
                asked,
            });
        }
        Ok(account)
    }

    fn add(&mut self, account: AccountName, amount: i64) -> Posted {
        let held = self.account_mut(&account);
        let after = held.posted.checked_add(amount);
        assert!(
            after.is_some(),
            "{account} leaves 64 bits although its holds were checked"
        );
        held.posted = after.unwrap_or(held.posted);
        assert!(
            account.is_system() || held.available() >= 0,
            "{account} would go below 0"
        );
        Posted {
            account,
            amount,
            balance_after: held.posted,
        }
    }

    fn account_mut(&mut self, name: &AccountName) -> &mut Account {
        match self.accounts.get_mut(name.as_str()) {
            Some(account) => account,
            None => panic!("{name} was checked to exist and accounts are never removed"),
        }
    }
}

fn debit_of(movements: &Movements, account: &AccountName) -> i64 {
    match movements
        .movements
        .binary_search_by(|movement| movement.account.cmp(account))
    {
        Ok(at) => (-movements.movements[at].amount).max(0),
        Err(_) => 0,
    }
}

fn check_debit(account: &Account, movement: &Movement) -> Result<(), Refusal> {
    let name = &movement.account;
    let pending = i128::from(account.pending_debit) - i128::from(movement.amount);
    let left = i128::from(account.posted) - pending;
    if !name.is_system() {
        let must_stay = account.floors.last().map_or(0, |floor| (*floor).max(0));
        if left < i128::from(must_stay) {
            return Err(Refusal::InsufficientFunds {
                account: name.clone(),
                currency: account.currency,
                available: account.available(),
                must_stay,
                debit: -movement.amount,
            });
        }
    }
    if left < i128::from(i64::MIN) || pending > i128::from(i64::MAX) {
        return Err(Refusal::Overflow {
            account: name.clone(),
            posted: account.posted,
            pending: account.pending_debit,
            amount: i128::from(movement.amount),
            bound: i64::MIN,
        });
    }
    Ok(())
}

fn check_credit(account: &Account, movement: &Movement) -> Result<(), Refusal> {
    let pending = i128::from(account.pending_credit) + i128::from(movement.amount);
    let full = i128::from(account.posted) + pending;
    if full > i128::from(i64::MAX) || pending > i128::from(i64::MAX) {
        return Err(Refusal::Overflow {
            account: movement.account.clone(),
            posted: account.posted,
            pending: account.pending_credit,
            amount: i128::from(movement.amount),
            bound: i64::MAX,
        });
    }
    Ok(())
}
