//! The gRPC service: its answers, its pages, its refusals.

use covenant_journal::MemoryImage;
use covenant_participant::Resource;
use covenant_proto::ledger::v1 as proto;
use covenant_proto::ledger::v1::ledger_service_server::LedgerService as _;
use covenant_rules::Vote;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::books::at_least;
use super::world::*;
use crate::*;

async fn service() -> (LedgerService, Ledger) {
    let ledger = ledger(&MemoryImage::new()).await;
    (LedgerService::new(ledger.clone()), ledger)
}

fn reason(status: &Status) -> (Code, String) {
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.domain, "covenant");
    (status.code(), info.reason)
}

async fn opened(
    service: &LedgerService,
    account: &str,
    currency: &str,
    opening_amount: i64,
) -> Result<bool, Status> {
    let (account, currency) = (account.to_owned(), currency.to_owned());
    let request = proto::OpenAccountRequest {
        account,
        currency,
        opening_amount,
    };
    service
        .open_account(Request::new(request))
        .await
        .map(|response| response.into_inner().opened)
}

async fn accounts(
    service: &LedgerService,
    page_size: u32,
    page_token: &str,
    include_system: bool,
) -> proto::ListAccountsResponse {
    let page_token = page_token.to_owned();
    let request = proto::ListAccountsRequest {
        page_size,
        page_token,
        include_system,
    };
    service
        .list_accounts(Request::new(request))
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_opened_shown_and_closed() {
    let (service, _) = service().await;
    assert!(opened(&service, "dave", "USD", 0).await.unwrap());
    assert!(!opened(&service, "dave", "USD", 7).await.unwrap());
    let get = |account: &str| {
        service.get_account(Request::new(proto::GetAccountRequest {
            account: account.to_owned(),
        }))
    };
    let account = get("alice").await.unwrap().into_inner().account.unwrap();
    assert_eq!(
        (account.posted, account.available, account.currency.as_str()),
        (500, 500, "THB")
    );
    let system = get("@opening:THB").await.unwrap().into_inner().account.unwrap();
    assert_eq!(system.posted, -600);
    assert_eq!(
        reason(&get("nobody").await.unwrap_err()),
        (Code::NotFound, "ACCOUNT_NOT_FOUND".to_owned())
    );
    let close = |account: &str| {
        service.close_account(Request::new(proto::CloseAccountRequest {
            account: account.to_owned(),
        }))
    };
    assert!(close("dave").await.unwrap().into_inner().account.unwrap().closed);
    assert_eq!(
        reason(&close("alice").await.unwrap_err()),
        (Code::FailedPrecondition, "ACCOUNT_NOT_EMPTY".to_owned())
    );
    assert_eq!(
        reason(&close("nobody").await.unwrap_err()),
        (Code::NotFound, "ACCOUNT_NOT_FOUND".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_openings_have_a_code_and_a_reason() {
    let (service, _) = service().await;
    let cases = [
        ("", "THB", 0, Code::InvalidArgument, "INVALID_ACCOUNT_NAME"),
        ("a/b", "THB", 0, Code::InvalidArgument, "INVALID_ACCOUNT_NAME"),
        ("@me", "THB", 0, Code::InvalidArgument, "INVALID_ACCOUNT_NAME"),
        ("eve", "baht", 0, Code::InvalidArgument, "INVALID_CURRENCY"),
        ("eve", "THB", -1, Code::InvalidArgument, "AMOUNT_NEGATIVE"),
        ("eve", "THB", i64::MAX, Code::FailedPrecondition, "OVERFLOW"),
        ("alice", "USD", 0, Code::AlreadyExists, "ACCOUNT_EXISTS"),
    ];
    for (account, currency, amount, code, expected) in cases {
        let status = opened(&service, account, currency, amount).await.unwrap_err();
        assert_eq!(
            reason(&status),
            (code, expected.to_owned()),
            "{account} {currency} {amount}"
        );
        assert!(!status.message().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_listed_page_by_page() {
    let (service, _) = service().await;
    let mut names = Vec::new();
    let mut token = String::new();
    loop {
        let page = accounts(&service, 2, &token, true).await;
        names.extend(page.accounts.into_iter().map(|account| account.account));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, ["@clearing:THB", "@opening:THB", "alice", "bob", "carol"]);
    let customers = accounts(&service, 3, "", false).await;
    assert_eq!(
        (customers.accounts.len(), customers.next_page_token.as_str()),
        (3, "")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_listed_newest_first_page_by_page() {
    let (service, ledger) = service().await;
    for seq in 1..=3 {
        run(&ledger, seq, &format!("T{seq}"), &single("alice", -10)).await;
    }
    let list = |account: &str, page_size, page_token: &str| {
        let (account, page_token) = (account.to_owned(), page_token.to_owned());
        service.list_entries(Request::new(proto::ListEntriesRequest {
            account,
            page_size,
            page_token,
        }))
    };
    let first = list("alice", 3, "").await.unwrap().into_inner();
    let shown: Vec<_> = first
        .entries
        .iter()
        .map(|entry| (entry.transaction_id.as_str(), entry.amount, entry.balance_after))
        .collect();
    assert_eq!(shown, [("T3", -10, 470), ("T2", -10, 480), ("T1", -10, 490)]);
    assert!(first.entries[0].held_for.is_some() && first.entries[0].xid.is_some());
    let second = list("alice", 3, &first.next_page_token)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (second.entries.len(), second.entries[0].transaction_id.as_str()),
        (1, "")
    );
    assert_eq!(
        (second.entries[0].amount, second.entries[0].held_for),
        (500, None)
    );
    assert_eq!(second.next_page_token, "");
    for (account, size, token, code, expected) in [
        ("nobody", 0, "", Code::NotFound, "ACCOUNT_NOT_FOUND"),
        ("alice", 1001, "", Code::InvalidArgument, "INVALID_PAGE_SIZE"),
        ("alice", 0, "x", Code::InvalidArgument, "INVALID_PAGE_TOKEN"),
        ("alice", 0, "1", Code::InvalidArgument, "INVALID_PAGE_TOKEN"),
        (
            "alice",
            0,
            &"9".repeat(257),
            Code::InvalidArgument,
            "INVALID_PAGE_TOKEN",
        ),
    ] {
        let status = list(account, size, token).await.unwrap_err();
        assert_eq!(
            reason(&status),
            (code, expected.to_owned()),
            "{account} {size} {token}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_are_listed_oldest_first_page_by_page() {
    let (service, ledger) = service().await;
    let floor = Operation {
        assertions: vec![at_least("carol", 20, "THB")],
        ..single("alice", -10)
    };
    assert_eq!(vote(&ledger, 1, "T1", &floor).await, Vote::Yes);
    assert_eq!(
        vote(&ledger, 2, "T2", &transfer("alice", "bob", 5)).await,
        Vote::Yes
    );
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListHoldsRequest {
            page_size: 2,
            page_token,
        };
        let page = service
            .list_holds(Request::new(request))
            .await
            .unwrap()
            .into_inner();
        found.extend(page.holds.into_iter().map(|hold| {
            (
                hold.transaction_id,
                hold.account,
                hold.direction,
                hold.amount,
                hold.at_least,
            )
        }));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let (debit, credit) = (proto::Direction::Debit.into(), proto::Direction::Credit.into());
    let expected = [
        ("T1", "@clearing:THB", credit, 10, None),
        ("T1", "alice", debit, 10, None),
        ("T1", "carol", 0, 0, Some(20)),
        ("T2", "alice", debit, 5, None),
        ("T2", "bob", credit, 5, None),
    ];
    let expected = expected.map(|(id, account, direction, amount, at_least)| {
        (id.to_owned(), account.to_owned(), direction, amount, at_least)
    });
    assert_eq!(found, expected);
    ledger.abort(xid(1)).await.unwrap();
}

/// A status for a full ledger names the bound and its value, as a program reads them.
#[test]
fn a_bound_that_is_reached_is_named_with_its_value() {
    let full = Error::Open(OpenRefusal::TooMany(MAX_ACCOUNTS));
    let status = crate::status::from_error(&full);
    assert_eq!(
        reason(&status),
        (Code::ResourceExhausted, "MAX_ACCOUNTS".to_owned())
    );
    let metadata = status.get_details_error_info().unwrap().metadata;
    assert_eq!(metadata["bound"], "MAX_ACCOUNTS");
    assert_eq!(metadata["value"], MAX_ACCOUNTS.to_string());
    assert!(status.message().contains(&MAX_ACCOUNTS.to_string()), "{status:?}");
}
