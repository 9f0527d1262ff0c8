//! TransactionService: what callers do.

use std::pin::Pin;
use std::sync::Arc;

use covenant_proto::v1::transaction_service_server::TransactionService;
use covenant_proto::v1::{
    AbortTransactionRequest, AbortTransactionResponse, ExecuteManyRequest, ExecuteRequest, ExecuteResponse,
    GetTransactionRequest, GetTransactionResponse, ListTransactionsRequest, ListTransactionsResponse,
    Transaction, WatchTransactionsRequest, WatchTransactionsResponse,
};
use covenant_rules::{AbortReason, Limits};
use futures_util::StreamExt;
use tokio::sync::{Semaphore, broadcast};
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::{convert, many, page, status};
use crate::input::{Call, Handle, MAX_WATCH_LAG};
use crate::listing::TransactionQuery;

/// What the door needs to know of the configuration.
#[derive(Clone)]
pub(crate) struct Defaults {
    pub(crate) limits: Arc<Limits>,
}

pub(crate) struct TransactionApi {
    handle: Handle,
    defaults: Defaults,
    call_streams: Arc<Semaphore>,
}

impl TransactionApi {
    pub(crate) fn new(handle: Handle, defaults: Defaults) -> Self {
        Self {
            handle,
            defaults,
            call_streams: Arc::new(Semaphore::new(many::MAX_CALL_STREAMS)),
        }
    }

    /// What is known of an id now, without its `created`.
    async fn present(&self, id: &str) -> Result<Transaction, Status> {
        let transaction_id = convert::transaction_id(id)?;
        let call = |caller| Call::Get {
            transaction_id,
            created: None,
            caller,
        };
        let view = self.handle.ask(call).await.map_err(status::refused)?;
        Ok(convert::transaction(&view))
    }
}

type Watch = Pin<Box<dyn Stream<Item = Result<WatchTransactionsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl TransactionService for TransactionApi {
    type ExecuteManyStream = many::Frames;
    type WatchTransactionsStream = Watch;

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        let execute = convert::execute(request.into_inner(), &self.defaults.limits)?;
        let view = self.handle.ask(|caller| Call::Execute { execute, caller }).await;
        let view = view.map_err(status::refused)?;
        Ok(Response::new(ExecuteResponse {
            transaction: Some(convert::transaction(&view)),
        }))
    }

    async fn execute_many(
        &self,
        request: Request<Streaming<ExecuteManyRequest>>,
    ) -> Result<Response<many::Frames>, Status> {
        let place = Arc::clone(&self.call_streams).try_acquire_owned();
        let place = place.map_err(|_| {
            let bound = many::MAX_CALL_STREAMS as u64;
            status::exhausted("MAX_CALL_STREAMS", bound, "too many streams of calls are open")
        })?;
        let (handle, limits) = (self.handle.clone(), Arc::clone(&self.defaults.limits));
        let frames = many::answer(handle, limits, request.into_inner(), place);
        Ok(Response::new(frames))
    }

    async fn get_transaction(
        &self,
        request: Request<GetTransactionRequest>,
    ) -> Result<Response<GetTransactionResponse>, Status> {
        let request = request.into_inner();
        let transaction_id = convert::transaction_id(&request.transaction_id)?;
        let created = convert::created(request.created)?;
        let view = self
            .handle
            .ask(|caller| Call::Get {
                transaction_id,
                created,
                caller,
            })
            .await;
        let view = view.map_err(status::refused)?;
        Ok(Response::new(GetTransactionResponse {
            transaction: Some(convert::transaction(&view)),
        }))
    }

    async fn list_transactions(
        &self,
        request: Request<ListTransactionsRequest>,
    ) -> Result<Response<ListTransactionsResponse>, Status> {
        let request = request.into_inner();
        let query = TransactionQuery {
            filter: convert::filter(request.state)?,
            page_size: page::size(request.page_size),
            cursor: page::decode(&request.page_token).map_err(status::refused)?,
        };
        let page = self
            .handle
            .call(|answer| Call::List { query, answer })
            .await
            .map_err(status::refused)?;
        Ok(Response::new(ListTransactionsResponse {
            transactions: page.views.iter().map(convert::transaction).collect(),
            next_page_token: page.next.map_or_else(String::new, page::encode),
        }))
    }

    async fn watch_transactions(
        &self,
        request: Request<WatchTransactionsRequest>,
    ) -> Result<Response<Watch>, Status> {
        let wanted = request.into_inner().transaction_id;
        // Before its present state is asked for: no change falls between the two.
        let changes = self.handle.changes.subscribe();
        let present = match &*wanted {
            "" => None,
            id => Some(Ok(WatchTransactionsResponse {
                transaction: Some(self.present(id).await?),
            })),
        };
        let stream = futures_util::stream::unfold(Some((changes, wanted)), |state| async {
            let (mut changes, wanted) = state?;
            loop {
                match changes.recv().await {
                    Ok(view) if wanted.is_empty() || view.transaction_id.as_str() == wanted => {
                        let transaction = Some(convert::transaction(&view));
                        return Some((
                            Ok(WatchTransactionsResponse { transaction }),
                            Some((changes, wanted)),
                        ));
                    }
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        return Some((Err(lagged(missed)), None));
                    }
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        Ok(Response::new(Box::pin(
            futures_util::stream::iter(present).chain(stream),
        )))
    }

    async fn abort_transaction(
        &self,
        request: Request<AbortTransactionRequest>,
    ) -> Result<Response<AbortTransactionResponse>, Status> {
        let request = request.into_inner();
        let transaction_id = convert::transaction_id(&request.transaction_id)?;
        let created = convert::created(request.created)?;
        let by = AbortReason::Caller;
        let view = self
            .handle
            .ask(|caller| Call::Abort {
                transaction_id,
                created,
                by,
                caller,
            })
            .await;
        let view = view.map_err(status::refused)?;
        Ok(Response::new(AbortTransactionResponse {
            transaction: Some(convert::transaction(&view)),
        }))
    }
}

/// A watcher that does not keep up is told so, and never shown a gap as if it were the whole.
fn lagged(missed: u64) -> Status {
    status::refusal(
        Code::ResourceExhausted,
        "WATCH_LAGGED",
        format!(
            "{missed} changes were missed; the bound MAX_WATCH_LAG is {MAX_WATCH_LAG}; list, then watch again"
        ),
        &[("missed", missed.to_string())],
    )
}
