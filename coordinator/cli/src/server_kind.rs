//! Which kind of server answers at an address that does not have the call that was made.
//!
//! It asks for one item of a list of each kind and reads nothing of the answers. What neither kind answers stays without
//! a name: it may be another gRPC service, or Covenant of another version.

use std::fmt;
use std::time::Duration;

use covenant_client::{Client, Error, Link};

use crate::exit::{Failure, WRONG_SERVER};
use crate::ledger_client;

/// How long each of the two questions may take, in milliseconds.
const PATIENCE_MS: u64 = 500;

/// The kind of server that answers somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ServerKind {
    Coordinator,
    Ledger,
    Other,
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coordinator => "a coordinator answers there",
            Self::Ledger => "a ledger answers there",
            Self::Other => "neither a coordinator nor a ledger of this version answers there",
        })
    }
}

/// Asks who answers at an address.
pub(crate) async fn at(endpoint: &str) -> ServerKind {
    let patience = Duration::from_millis(PATIENCE_MS);
    let Ok(link) = Link::new(endpoint) else {
        return ServerKind::Other;
    };
    let client = Client::with_link(link.clone());
    if is_answer(&client.participants(1, "", patience).await) {
        return ServerKind::Coordinator;
    }
    let page = ledger_client::entries_page(&link, "-", 1, String::new(), patience).await;
    if is_answer(&page) {
        return ServerKind::Ledger;
    }
    ServerKind::Other
}

/// A refusal is Covenant's own, and so an answer of that kind of server.
fn is_answer<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Ok(_) | Err(Error::Refused(_)))
}

/// The failure with who answers there and which address to correct, if it is about a wrong server.
pub(crate) async fn named(mut failure: Failure) -> Failure {
    let endpoint = failure.metadata.get("endpoint").cloned();
    let (WRONG_SERVER, Some(endpoint)) = (failure.code.as_str(), endpoint) else {
        return failure;
    };
    let kind = at(&endpoint).await;
    let way = match kind {
        ServerKind::Ledger => "give the coordinator's with --endpoint http://HOST:PORT",
        ServerKind::Coordinator => "give the ledger's with --ledger http://HOST:PORT",
        ServerKind::Other => "correct --endpoint (a coordinator's) or --ledger (a ledger's)",
    };
    failure.message = format!("{endpoint} is the wrong address for this command: {kind}; {way}");
    failure
}
