//! Everything that can be seen of a cluster from outside: what the coordinator lists, and what the ledgers show.
//!
//! A picture is taken call by call, not at one instant: judge balances only when the cluster is quiet.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Client, View};
use covenant_proto::ledger::v1::ledger_service_client::LedgerServiceClient;
use covenant_proto::ledger::v1::{
    Account, Entry, Hold, ListAccountsRequest, ListEntriesRequest, ListHoldsRequest,
};
use covenant_proto::v1::StateFilter;
use tonic::transport::{Channel, Endpoint};

/// The items of a page.
const PAGE_SIZE: u32 = 1_000;

/// The most pages of one list that are read.
const MAX_PAGES: usize = 1_000;

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A ledger as it shows itself.
#[derive(Clone, Debug)]
pub struct LedgerView {
    /// The name under which it joined.
    pub name: String,
    /// All its accounts, those of the system too.
    pub accounts: Vec<Account>,
    /// The entries of all its accounts, newest first within an account.
    pub entries: Vec<Entry>,
    /// What prepared branches hold.
    pub holds: Vec<Hold>,
}

/// A cluster as it shows itself.
#[derive(Clone, Debug)]
pub struct World {
    /// Every transaction that the coordinator lists.
    pub transactions: Vec<View>,
    /// Its ledgers.
    pub ledgers: Vec<LedgerView>,
}

impl World {
    /// The balance of an account.
    ///
    /// # Errors
    /// If there is no such account.
    pub fn account(&self, name: &str) -> Result<&Account> {
        let mut accounts = self.ledgers.iter().flat_map(|ledger| &ledger.accounts);
        accounts
            .find(|account| account.account == name)
            .with_context(|| format!("no account {name}"))
    }
}

/// Reads one ledger.
pub struct LedgerReader {
    name: String,
    client: LedgerServiceClient<Channel>,
}

impl LedgerReader {
    /// A reader of the ledger of this name at this address; nothing is sent yet.
    ///
    /// # Errors
    /// If the address is none.
    pub fn new(name: &str, url: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(CALL_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .connect_lazy();
        Ok(Self {
            name: name.to_owned(),
            client: LedgerServiceClient::new(channel),
        })
    }

    /// All of it.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn view(&self) -> Result<LedgerView> {
        let accounts = self.accounts().await?;
        let mut entries = Vec::new();
        for account in &accounts {
            entries.extend(self.entries(&account.account).await?);
        }
        Ok(LedgerView {
            name: self.name.clone(),
            accounts,
            entries,
            holds: self.holds().await?,
        })
    }

    /// Its accounts, those of the system too.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn accounts(&self) -> Result<Vec<Account>> {
        let mut client = self.client.clone();
        pages(async move |page_token| {
            let request = ListAccountsRequest {
                page_size: PAGE_SIZE,
                page_token,
                include_system: true,
            };
            let page = client.list_accounts(request).await?.into_inner();
            Ok((page.accounts, page.next_page_token))
        })
        .await
    }

    /// The entries of an account, newest first.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn entries(&self, account: &str) -> Result<Vec<Entry>> {
        let mut client = self.client.clone();
        pages(async move |page_token| {
            let request = ListEntriesRequest {
                account: account.to_owned(),
                page_size: PAGE_SIZE,
                page_token,
            };
            let page = client.list_entries(request).await?.into_inner();
            Ok((page.entries, page.next_page_token))
        })
        .await
    }

    /// What prepared branches hold, oldest first.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn holds(&self) -> Result<Vec<Hold>> {
        let mut client = self.client.clone();
        pages(async move |page_token| {
            let page = client
                .list_holds(ListHoldsRequest {
                    page_size: PAGE_SIZE,
                    page_token,
                })
                .await?
                .into_inner();
            Ok((page.holds, page.next_page_token))
        })
        .await
    }
}

/// Every transaction that a coordinator lists in this state.
///
/// # Errors
/// If it does not answer.
pub async fn transactions(client: &Client, state: StateFilter) -> Result<Vec<View>> {
    pages(async |page_token: String| {
        let page = client.list(state, PAGE_SIZE, &page_token, CALL_TIMEOUT).await?;
        Ok((page.transactions, page.next_page_token))
    })
    .await
}

async fn pages<T>(mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, String)>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let (items, next) = page(token).await?;
        all.extend(items);
        if next.is_empty() {
            return Ok(all);
        }
        token = next;
    }
    ensure!(false, "a list has more than {MAX_PAGES} pages of {PAGE_SIZE}");
    Ok(all)
}
