//! What outsiders see and do: accounts, entries, holds; all of it durable when it is told (section 4).

use covenant_rules::{TransactionId, UnixMillis, Xid};

use crate::account::{Account, AccountName, Currency, OpenSpec};
use crate::branch::PreparedBranch;
use crate::entry::Entry;
use crate::error::Error;
use crate::operation::{Assertion, Movement};
use crate::record::Quarantined;
use crate::store::Ledger;

/// What a prepared branch holds on one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// What it will add, in minor units; negative for a debit.
    Amount(i64),
    /// The floor under what is available, in minor units.
    AtLeast(i64),
}

/// One line of what prepared branches hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hold {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// The account, maybe a clearing account.
    pub account: AccountName,
    /// Its currency.
    pub currency: Currency,
    /// What is held.
    pub held: Held,
    /// Since when, on the wall clock.
    pub since: UnixMillis,
}

/// Where a list of holds goes on: behind this line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HoldPlace {
    /// Since when the branch holds.
    pub since: UnixMillis,
    /// The attempt.
    pub xid: Xid,
    /// Which of its lines, from 0.
    pub line: u32,
}

impl Ledger {
    /// Opens an account, if there is none of that name; the account as it is, and whether this call opened it.
    ///
    /// # Errors
    /// [`Error::Open`], also for an account of that name in another currency; [`Error::Backlogged`].
    pub async fn open_account(&self, spec: &OpenSpec) -> Result<(Account, bool), Error> {
        let at = self.inner.now();
        let (opened, lsn) = self.inner.change(|live| {
            let opened = live.open_account(spec, at)?;
            Ok::<_, Error>((opened.is_some(), opened.unwrap_or(live.appended())))
        })?;
        self.inner.wait_durable(lsn).await;
        let name = spec.account.clone();
        Ok((self.read(move |ledger| ledger.account(&name)).await?, opened))
    }

    /// Closes an account whose balance is 0 and on which nothing is held; one that is closed stays so.
    ///
    /// # Errors
    /// [`Error::Close`], [`Error::Backlogged`].
    pub async fn close_account(&self, name: &AccountName) -> Result<Account, Error> {
        let lsn = self.inner.change(|live| live.close_account(name))?;
        self.inner.wait_durable(lsn).await;
        let name = name.clone();
        self.read(move |ledger| ledger.account(&name)).await
    }

    /// Reads on a thread that may block: the folded side may be busy with a checkpoint, and old entries lie on the disk.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let ledger = self.clone();
        let reading = tokio::task::spawn_blocking(move || read(&ledger));
        reading.await.map_err(Error::ReadEnded)?
    }

    /// One account.
    ///
    /// # Errors
    /// [`Error::NoAccount`].
    pub fn account(&self, name: &AccountName) -> Result<Account, Error> {
        let folded = self.inner.folded()?;
        let account = folded.state.books.get(name.as_str()).cloned();
        account.ok_or_else(|| Error::NoAccount(name.clone()))
    }

    /// At most `limit` accounts behind that name, sorted by name.
    ///
    /// # Errors
    /// [`Error::Record`] if the log does not fold.
    pub fn accounts(
        &self,
        after: Option<&AccountName>,
        limit: usize,
        with_system: bool,
    ) -> Result<Vec<(AccountName, Account)>, Error> {
        let folded = self.inner.folded()?;
        let behind = folded.state.books.after(after.map(AccountName::as_str));
        let asked = behind.filter(|(name, _)| with_system || !name.is_system());
        Ok(asked
            .take(limit)
            .map(|(name, account)| (name.clone(), account.clone()))
            .collect())
    }

    /// At most `limit` entries of an account, newest first, from the entry numbered `from` or from the newest on;
    /// and the number of the entry that follows.
    ///
    /// # Errors
    /// [`Error::NoAccount`]; [`Error::NoSuchPlace`] if `from` is no entry of the account; [`Error::Journal`] and
    /// [`Error::Entry`] if the archive is damaged.
    pub fn entries(
        &self,
        account: &AccountName,
        from: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<u64>), Error> {
        self.inner.folded()?.entries(account, from, limit)
    }

    /// At most `limit` lines of what prepared branches hold behind that place, oldest branch first; and the place
    /// of the last one.
    ///
    /// # Errors
    /// [`Error::Record`] if the log does not fold.
    pub fn holds(
        &self,
        after: Option<HoldPlace>,
        limit: usize,
    ) -> Result<(Vec<Hold>, Option<HoldPlace>), Error> {
        let folded = self.inner.folded()?;
        let begun = after.map(|place| (place.since, place.xid));
        let mut branches: Vec<PreparedBranch<'_>> = folded
            .state
            .prepared()
            .filter(|branch| Some((branch.prepared_at, branch.xid)) >= begun)
            .collect();
        // Each branch has at least one line, and the first may be told already.
        if branches.len() > limit + 1 {
            branches.select_nth_unstable_by_key(limit, |branch| (branch.prepared_at, branch.xid));
            branches.truncate(limit + 1);
        }
        branches.sort_unstable_by_key(|branch| (branch.prepared_at, branch.xid));
        let lines = branches
            .iter()
            .flat_map(lines)
            .filter(|(place, _)| Some(*place) > after)
            .take(limit);
        let (places, holds): (Vec<HoldPlace>, Vec<Hold>) = lines.unzip();
        Ok((holds, places.last().copied()))
    }

    /// The stored records that did not decode, as the last start and the checkpoints before it found them.
    ///
    /// # Errors
    /// [`Error::Record`] if the log does not fold.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, Error> {
        Ok(self.inner.folded()?.state.quarantined.clone())
    }
}

fn lines<'a>(branch: &PreparedBranch<'a>) -> impl Iterator<Item = (HoldPlace, Hold)> + use<'a> {
    let PreparedBranch {
        xid,
        transaction_id,
        movements,
        prepared_at: since,
    } = *branch;
    let hold = move |account: &AccountName, currency, held| Hold {
        xid,
        transaction_id: transaction_id.clone(),
        account: account.clone(),
        currency,
        held,
        since,
    };
    let movement = move |one: &Movement| hold(&one.account, one.currency, Held::Amount(one.amount));
    let assertion = move |one: &Assertion| hold(&one.account, one.currency, Held::AtLeast(one.at_least));
    let all = movements
        .movements
        .iter()
        .map(movement)
        .chain(movements.assertions.iter().map(assertion));
    (0..)
        .zip(all)
        .map(move |(line, hold)| (HoldPlace { since, xid, line }, hold))
}
