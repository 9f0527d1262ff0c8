//! `covenant.ledger.v1.LedgerService`: shows and opens accounts, and tells nothing that is not durable.
//!
//! A caller that goes away changes nothing: what was appended stays so. Reads run on threads that may block.

use covenant_codec::ids;
use covenant_proto::ledger::v1 as proto;
use covenant_proto::ledger::v1::ledger_service_server::LedgerService as Service;
use covenant_proto::v1::{BranchState, LogFigures};
use prost_types::{Duration, Timestamp};
use tonic::{Request, Response, Status};

use crate::account::{Account, AccountName, Currency, OpenSpec};
use crate::entry::Entry;
use crate::error::Error;
use crate::page;
use crate::read::{Held, Hold};
use crate::status;
use crate::store::Ledger;

/// The gRPC service over one ledger; clones are cheap and share it.
#[derive(Clone)]
pub struct LedgerService {
    ledger: Ledger,
}

impl LedgerService {
    /// The service of this ledger, to be put into a `LedgerServiceServer`.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Ledger) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Status> {
        let reading = self.ledger.read(read).await;
        reading.map_err(|error| status::from_error(&error))
    }
}

#[tonic::async_trait]
impl Service for LedgerService {
    async fn open_account(
        &self,
        request: Request<proto::OpenAccountRequest>,
    ) -> Result<Response<proto::OpenAccountResponse>, Status> {
        let proto::OpenAccountRequest {
            account,
            currency,
            opening_amount,
        } = request.into_inner();
        let account = AccountName::new(&account).map_err(|error| status::from_name(&error))?;
        let currency = currency.parse().map_err(|error| status::from_name(&error))?;
        let spec = OpenSpec {
            account,
            currency,
            opening: opening_amount,
        };
        let opening = self.ledger.open_account(&spec).await;
        let (account, opened) = opening.map_err(|error| status::from_error(&error))?;
        let account = Some(show_account(&spec.account, &account));
        Ok(Response::new(proto::OpenAccountResponse { account, opened }))
    }

    async fn close_account(
        &self,
        request: Request<proto::CloseAccountRequest>,
    ) -> Result<Response<proto::CloseAccountResponse>, Status> {
        let name = existing(&request.into_inner().account)?;
        let closing = self.ledger.close_account(&name).await;
        let account = closing.map_err(|error| status::from_error(&error))?;
        Ok(Response::new(proto::CloseAccountResponse {
            account: Some(show_account(&name, &account)),
        }))
    }

    async fn get_account(
        &self,
        request: Request<proto::GetAccountRequest>,
    ) -> Result<Response<proto::GetAccountResponse>, Status> {
        let name = existing(&request.into_inner().account)?;
        let asked = name.clone();
        let account = self.read(move |ledger| ledger.account(&asked)).await?;
        Ok(Response::new(proto::GetAccountResponse {
            account: Some(show_account(&name, &account)),
        }))
    }

    async fn list_accounts(
        &self,
        request: Request<proto::ListAccountsRequest>,
    ) -> Result<Response<proto::ListAccountsResponse>, Status> {
        let proto::ListAccountsRequest {
            page_size,
            page_token,
            include_system,
        } = request.into_inner();
        let size = page::size(page_size).map_err(|error| status::from_page(&error))?;
        let after =
            page::place(&page_token, page::read_account).map_err(|error| status::from_page(&error))?;
        // One more than asked for tells whether there is a next page.
        let read = move |ledger: &Ledger| ledger.accounts(after.as_ref(), size + 1, include_system);
        let mut found = self.read(read).await?;
        let more = found.len() > size;
        found.truncate(size);
        let last = found.last().filter(|_| more);
        let next_page_token = last.map(|(name, _)| name.to_string()).unwrap_or_default();
        let accounts = found
            .iter()
            .map(|(name, account)| show_account(name, account))
            .collect();
        Ok(Response::new(proto::ListAccountsResponse {
            accounts,
            next_page_token,
        }))
    }

    async fn list_entries(
        &self,
        request: Request<proto::ListEntriesRequest>,
    ) -> Result<Response<proto::ListEntriesResponse>, Status> {
        let proto::ListEntriesRequest {
            account,
            page_size,
            page_token,
        } = request.into_inner();
        let name = existing(&account)?;
        let size = page::size(page_size).map_err(|error| status::from_page(&error))?;
        let from = page::place(&page_token, page::read_entry).map_err(|error| status::from_page(&error))?;
        let read = move |ledger: &Ledger| {
            let currency = ledger.account(&name)?.currency;
            let (entries, next) = ledger.entries(&name, from, size)?;
            let entries = entries
                .iter()
                .filter_map(|entry| show_entry(&name, currency, entry))
                .collect();
            let next_page_token = next.map(|next| next.to_string()).unwrap_or_default();
            Ok(proto::ListEntriesResponse {
                entries,
                next_page_token,
            })
        };
        self.read(read).await.map(Response::new)
    }

    async fn list_holds(
        &self,
        request: Request<proto::ListHoldsRequest>,
    ) -> Result<Response<proto::ListHoldsResponse>, Status> {
        let proto::ListHoldsRequest {
            page_size,
            page_token,
        } = request.into_inner();
        let size = page::size(page_size).map_err(|error| status::from_page(&error))?;
        let after = page::place(&page_token, page::read_hold).map_err(|error| status::from_page(&error))?;
        let (holds, last) = self.read(move |ledger| ledger.holds(after, size)).await?;
        let next_page_token = match last {
            // A full page may be the last one: then the next is empty.
            Some(last) if holds.len() == size => page::write_hold(&last),
            Some(_) | None => String::new(),
        };
        Ok(Response::new(proto::ListHoldsResponse {
            holds: holds.iter().map(show_hold).collect(),
            next_page_token,
        }))
    }

    async fn get_figures(
        &self,
        _request: Request<proto::GetFiguresRequest>,
    ) -> Result<Response<proto::GetFiguresResponse>, Status> {
        let stats = self.ledger.log_stats();
        let log = LogFigures {
            forces: stats.forces,
            records: stats.records,
            bytes: stats.bytes,
        };
        Ok(Response::new(proto::GetFiguresResponse { log: Some(log) }))
    }
}

/// The name of an account to show or to close: of either kind.
fn existing(text: &str) -> Result<AccountName, Status> {
    AccountName::any(text).map_err(|error| status::from_name(&error))
}

fn show_account(name: &AccountName, account: &Account) -> proto::Account {
    proto::Account {
        account: name.to_string(),
        currency: account.currency.to_string(),
        posted: account.posted,
        pending_debit: account.pending_debit,
        pending_credit: account.pending_credit,
        available: account.available(),
        closed: account.closed,
    }
}

fn show_entry(name: &AccountName, currency: Currency, entry: &Entry) -> Option<proto::Entry> {
    let line = entry.line(name.as_str())?;
    let (xid, transaction_id) = match &entry.cause {
        Some((xid, transaction_id)) => (Some(ids::xid(*xid)), transaction_id.to_string()),
        None => (None, String::new()),
    };
    Some(proto::Entry {
        transaction_id,
        xid,
        account: name.to_string(),
        currency: currency.to_string(),
        amount: line.amount,
        balance_after: line.balance_after,
        posted_at: (entry.committed_at != 0).then(|| timestamp(entry.committed_at)),
        held_for: entry.held_for_ms().map(duration),
    })
}

fn show_hold(hold: &Hold) -> proto::Hold {
    let (direction, amount, at_least) = match hold.held {
        Held::Amount(amount) if amount < 0 => (proto::Direction::Debit, -amount, None),
        Held::Amount(amount) => (proto::Direction::Credit, amount, None),
        Held::AtLeast(at_least) => (proto::Direction::Unspecified, 0, Some(at_least)),
    };
    proto::Hold {
        xid: Some(ids::xid(hold.xid)),
        transaction_id: hold.transaction_id.to_string(),
        account: hold.account.to_string(),
        currency: hold.currency.to_string(),
        direction: direction.into(),
        amount,
        at_least,
        since: Some(timestamp(hold.since)),
        state: BranchState::Prepared.into(),
    }
}

fn timestamp(unix_ms: u64) -> Timestamp {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    Timestamp {
        seconds,
        nanos: nanos(unix_ms),
    }
}

fn duration(ms: u64) -> Duration {
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX);
    Duration {
        seconds,
        nanos: nanos(ms),
    }
}

fn nanos(ms: u64) -> i32 {
    i32::try_from(ms % 1000 * 1_000_000).unwrap_or_default()
}
