//! The calls.

use std::sync::Arc;
use std::time::Duration;

use covenant_proto::v1::operator_service_client::OperatorServiceClient;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{
    AbortTransactionRequest, GetFiguresRequest, GetFiguresResponse, GetTransactionRequest,
    ListParticipantsRequest, ListParticipantsResponse, ListTransactionsRequest, StateFilter,
    WatchTransactionsRequest, WatchTransactionsResponse,
};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::calls::Calls;
use crate::error::is_wrong_server;
use crate::link::{Ended, bounded};
use crate::{
    Error, LAST_LOOK_MS, Link, MAX_RESPONSE_BYTES, Outcome, Refusal, RefusalKind, Transaction, UnixMillis,
    View, Why, bounds, to_timestamp,
};

/// A caller of one coordinator. Cheap to clone; clones share the connection, and one stream for what they execute.
#[derive(Clone)]
pub struct Client {
    link: Link,
    calls: Arc<Calls>,
}

/// One page of transactions.
#[derive(Clone, Debug, Default)]
pub struct TransactionPage {
    /// Unfinished ones first, then the others from the latest decision on.
    pub transactions: Vec<View>,
    /// Names the next page; empty: this is the last.
    pub next_page_token: String,
}

/// Transactions as they change. Dropping it ends the watch.
pub struct Watch {
    endpoint: String,
    stream: Streaming<WatchTransactionsResponse>,
}

impl Client {
    /// A client of the coordinator at `http://HOST:PORT`. Nothing is sent, and nothing need listen there yet.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the address is no such URL.
    pub fn new(endpoint: &str) -> Result<Self, Error> {
        Link::new(endpoint).map(Self::with_link)
    }

    /// A client over a link that was set up before.
    #[must_use]
    pub fn with_link(link: Link) -> Self {
        Self {
            link,
            calls: Arc::default(),
        }
    }

    /// Runs the transaction, or attaches to it, or learns what became of it: whichever the id asks for.
    ///
    /// The same request is sent again, after a jittered back-off, while there is no answer or the coordinator is away,
    /// for at most `patience`. If that ends without an answer, the outcome is asked for once more. Dropping the future
    /// aborts nothing.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NeverSent`] and [`Error::Refused`]: no send of this call ran anything.
    pub async fn execute(&self, transaction: &Transaction, patience: Duration) -> Result<Outcome, Error> {
        bounds::check(transaction)?;
        let last_look = Duration::from_millis(LAST_LOOK_MS).min(patience / 8);
        let request = transaction.to_request();
        let call = |channel, until| {
            let service = transactions(channel);
            self.calls.execute(service, request.clone(), until)
        };
        let why = match self
            .link
            .persist(patience.saturating_sub(last_look), call)
            .await?
        {
            Ended::Answer(answer) => return Ok(Outcome::from_answer(answer)),
            Ended::Open(why) => why,
        };
        if matches!(&why, Why::RefusedLater(refusal) if refusal.kind == RefusalKind::AlreadyExists) {
            // What the id has become is the outcome of other content.
            return Ok(Outcome::unknown(why, None));
        }
        let seen = self
            .get(&transaction.id, Some(transaction.created), last_look / 2)
            .await;
        match seen {
            // An id alone says nothing of the content: only the same request, which is answered at once, has its outcome.
            Ok(Outcome::Committed(_) | Outcome::Aborted(_)) => {
                Ok(match self.link.persist(last_look / 2, call).await {
                    Ok(Ended::Answer(answer)) => Outcome::from_answer(answer),
                    Ok(Ended::Open(why)) => Outcome::unknown(why, None),
                    Err(Error::Refused(refusal)) => Outcome::unknown(Why::RefusedLater(refusal), None),
                    Err(_) => Outcome::unknown(why, None),
                })
            }
            Ok(seen @ Outcome::InProgress(_)) => Ok(seen),
            // NOT_FOUND says nothing of a send that may still be under way.
            Ok(Outcome::Unknown(_) | Outcome::NotFound(_) | Outcome::Expired(_)) | Err(_) => {
                Ok(Outcome::unknown(why, None))
            }
        }
    }

    /// Says what is known of an id, without waiting for it to be decided. With `created` more can be said.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NeverSent`], [`Error::Refused`] and [`Error::WrongServer`], after at most
    /// `patience`.
    pub async fn get(
        &self,
        id: &str,
        created: Option<UnixMillis>,
        patience: Duration,
    ) -> Result<Outcome, Error> {
        bounds::check_id(id)?;
        let request = GetTransactionRequest {
            transaction_id: id.to_owned(),
            created: created.map(to_timestamp),
        };
        let call = async |channel, until| {
            let answer = transactions(channel)
                .get_transaction(bounded(request.clone(), until))
                .await?;
            Ok(answer.into_inner().transaction)
        };
        match self.link.persist(patience, call).await? {
            Ended::Open(Why::Unanswered { last, .. }) if is_wrong_server(&last) => {
                Err(self.link.wrong_server())
            }
            ended => Ok(outcome(ended)),
        }
    }

    /// Aborts a transaction that is not decided, and says what it came to: COMMITTED if it was decided before.
    ///
    /// With `created`, an id that never ran is fenced against a send that is still under way.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::NeverSent`] and [`Error::Refused`]: no send of this call aborted anything.
    pub async fn abort(
        &self,
        id: &str,
        created: Option<UnixMillis>,
        patience: Duration,
    ) -> Result<Outcome, Error> {
        bounds::check_id(id)?;
        let request = AbortTransactionRequest {
            transaction_id: id.to_owned(),
            created: created.map(to_timestamp),
        };
        let call = async |channel, until| {
            let answer = transactions(channel)
                .abort_transaction(bounded(request.clone(), until))
                .await?;
            Ok(answer.into_inner().transaction)
        };
        Ok(outcome(self.link.persist(patience, call).await?))
    }

    /// Lists what is known, one page of at most `page_size` (0: 100, at most 1000).
    ///
    /// # Errors
    /// [`Error::NeverSent`], [`Error::Refused`], [`Error::WrongServer`] and [`Error::Unanswered`], after at most
    /// `patience`.
    pub async fn list(
        &self,
        state: StateFilter,
        page_size: u32,
        page_token: &str,
        patience: Duration,
    ) -> Result<TransactionPage, Error> {
        let request = ListTransactionsRequest {
            state: state.into(),
            page_size,
            page_token: page_token.to_owned(),
        };
        let call = async |channel, until| {
            transactions(channel)
                .list_transactions(bounded(request.clone(), until))
                .await
        };
        let page = self.link.ask(patience, call).await?.into_inner();
        Ok(TransactionPage {
            transactions: page.transactions,
            next_page_token: page.next_page_token,
        })
    }

    /// Watches one transaction, its present state first, or all of them from now on.
    ///
    /// # Errors
    /// [`Error::NeverSent`], [`Error::Refused`], [`Error::WrongServer`] and [`Error::Unanswered`], after at most
    /// `patience`.
    pub async fn watch(&self, id: Option<&str>, patience: Duration) -> Result<Watch, Error> {
        id.map_or(Ok(()), bounds::check_id)?;
        let request = WatchTransactionsRequest {
            transaction_id: id.unwrap_or_default().to_owned(),
        };
        // No deadline goes with it: a watch lasts as long as it is read.
        let call = async |channel, _: Instant| {
            transactions(channel)
                .watch_transactions(Request::new(request.clone()))
                .await
        };
        let stream = self.link.ask(patience, call).await?.into_inner();
        Ok(Watch {
            endpoint: self.link.endpoint().to_owned(),
            stream,
        })
    }

    /// Lists every participant that ever joined, one page of at most `page_size` (0: 100, at most 1000).
    ///
    /// # Errors
    /// [`Error::NeverSent`], [`Error::Refused`], [`Error::WrongServer`] and [`Error::Unanswered`], after at most
    /// `patience`.
    pub async fn participants(
        &self,
        page_size: u32,
        page_token: &str,
        patience: Duration,
    ) -> Result<ListParticipantsResponse, Error> {
        let request = ListParticipantsRequest {
            page_size,
            page_token: page_token.to_owned(),
        };
        let call = |channel, until| {
            let request = bounded(request.clone(), until);
            let operators = OperatorServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
            async move {
                let mut operators = operators;
                operators.list_participants(request).await
            }
        };
        Ok(self.link.ask(patience, call).await?.into_inner())
    }

    /// Asks what the coordinator did since its start.
    ///
    /// # Errors
    /// [`Error::NeverSent`], [`Error::Refused`], [`Error::WrongServer`] and [`Error::Unanswered`], after at most
    /// `patience`.
    pub async fn figures(&self, patience: Duration) -> Result<GetFiguresResponse, Error> {
        let call = |channel, until| {
            let request = bounded(GetFiguresRequest {}, until);
            async move { OperatorServiceClient::new(channel).get_figures(request).await }
        };
        Ok(self.link.ask(patience, call).await?.into_inner())
    }
}

impl Watch {
    /// The next change; `None` when the coordinator ended the watch.
    ///
    /// # Errors
    /// [`Error::Refused`] if the watch was cut because it was not read fast enough, else [`Error::Unanswered`].
    pub async fn next(&mut self) -> Result<Option<View>, Error> {
        match self.stream.message().await {
            Ok(Some(change)) => Ok(Some(change.transaction.unwrap_or_default())),
            Ok(None) => Ok(None),
            Err(status) => Err(self.failed(status)),
        }
    }

    fn failed(&self, status: Status) -> Error {
        match Refusal::from_status(&status) {
            Some(refusal) => Error::Refused(refusal),
            None => Error::Unanswered {
                endpoint: self.endpoint.clone(),
                source: Box::new(status),
            },
        }
    }
}

fn transactions(channel: Channel) -> TransactionServiceClient<Channel> {
    TransactionServiceClient::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES)
}

fn outcome(ended: Ended<Option<View>>) -> Outcome {
    match ended {
        Ended::Answer(answer) => Outcome::from_answer(answer),
        Ended::Open(why) => Outcome::unknown(why, None),
    }
}
