//! Calls of a ledger's own service, page after page.

use std::time::Duration;

use covenant_client::{Error, Link, MAX_RESPONSE_BYTES, bounded};
use covenant_proto::ledger::v1::ledger_service_client::LedgerServiceClient;
use covenant_proto::ledger::v1::{
    Account, Entry, GetFiguresRequest, Hold, ListAccountsRequest, ListEntriesRequest, ListEntriesResponse,
    ListHoldsRequest, OpenAccountRequest,
};
use covenant_proto::v1::LogFigures;
use tonic::transport::Channel;

use crate::args::read_patience;

/// The size of a page when all of them are read.
const PAGE_SIZE: u32 = 1_000;

/// The most pages that are read; what comes after them is left out, and said.
const MAX_PAGES: usize = 1_000;

/// A list, and whether it was cut at its bound.
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) is_cut: bool,
}

/// All accounts, sorted by name.
pub(crate) async fn accounts(link: &Link, include_system: bool) -> Result<Listed<Account>, Error> {
    all(async |page_token| {
        let request = ListAccountsRequest {
            page_size: PAGE_SIZE,
            page_token,
            include_system,
        };
        let call = |channel, until| {
            let request = bounded(request.clone(), until);
            async move { client(channel).list_accounts(request).await }
        };
        let page = link.ask(read_patience(), call).await?.into_inner();
        Ok((page.accounts, page.next_page_token))
    })
    .await
}

/// All that prepared branches hold, oldest first.
pub(crate) async fn holds(link: &Link) -> Result<Listed<Hold>, Error> {
    all(async |page_token| {
        let request = ListHoldsRequest {
            page_size: PAGE_SIZE,
            page_token,
        };
        let call = |channel, until| {
            let request = bounded(request.clone(), until);
            async move { client(channel).list_holds(request).await }
        };
        let page = link.ask(read_patience(), call).await?.into_inner();
        Ok((page.holds, page.next_page_token))
    })
    .await
}

/// All entries of one account, newest first.
pub(crate) async fn entries(link: &Link, account: &str) -> Result<Listed<Entry>, Error> {
    all(async |page_token| {
        let page = entries_page(link, account, PAGE_SIZE, page_token, read_patience()).await?;
        Ok((page.entries, page.next_page_token))
    })
    .await
}

/// One page of the entries of an account, newest first.
pub(crate) async fn entries_page(
    link: &Link,
    account: &str,
    page_size: u32,
    page_token: String,
    patience: Duration,
) -> Result<ListEntriesResponse, Error> {
    let request = ListEntriesRequest {
        account: account.to_owned(),
        page_size,
        page_token,
    };
    let call = |channel, until| {
        let request = bounded(request.clone(), until);
        async move { client(channel).list_entries(request).await }
    };
    Ok(link.ask(patience, call).await?.into_inner())
}

/// Opens an account, unless it is there.
pub(crate) async fn open_account(link: &Link, request: OpenAccountRequest) -> Result<Account, Error> {
    let call = |channel, until| {
        let request = bounded(request.clone(), until);
        async move { client(channel).open_account(request).await }
    };
    // Opening again changes nothing, so it may be asked for again.
    let opened = link.ask(read_patience(), call).await?.into_inner();
    Ok(opened.account.unwrap_or_default())
}

/// What the ledger wrote to its log since its start.
pub(crate) async fn log_figures(link: &Link) -> Result<LogFigures, Error> {
    let call = |channel, until| {
        let request = bounded(GetFiguresRequest {}, until);
        async move { client(channel).get_figures(request).await }
    };
    let figures = link.ask(read_patience(), call).await?.into_inner();
    Ok(figures.log.unwrap_or_default())
}

async fn all<T>(page: impl AsyncFn(String) -> Result<(Vec<T>, String), Error>) -> Result<Listed<T>, Error> {
    let mut items = Vec::new();
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let (found, next) = page(token).await?;
        items.extend(found);
        if next.is_empty() {
            return Ok(Listed { items, is_cut: false });
        }
        token = next;
    }
    Ok(Listed { items, is_cut: true })
}

fn client(channel: Channel) -> LedgerServiceClient<Channel> {
    LedgerServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_page_is_read_and_the_bound_holds() {
        let three = async |token: String| match token.as_str() {
            "" => Ok((vec![1, 2], "p2".to_owned())),
            "p2" => Ok((vec![3], String::new())),
            other => panic!("{other}"),
        };
        let listed = all(three).await.unwrap();
        assert_eq!((listed.items, listed.is_cut), (vec![1, 2, 3], false));
        let endless = all(async |_| Ok((vec![()], "more".to_owned()))).await.unwrap();
        assert_eq!((endless.items.len(), endless.is_cut), (MAX_PAGES, true));
    }
}
