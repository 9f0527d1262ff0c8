//! A coordinator that does what a script says.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use covenant_proto::v1;
use covenant_proto::v1::numbered_answer::Answer;
use covenant_proto::v1::transaction_service_server::{TransactionService, TransactionServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use crate::Client;

/// What the coordinator does with the next Execute or AbortTransaction; when the script is over it answers COMMITTED.
#[derive(Clone)]
pub(super) enum Act {
    Answer(v1::Outcome),
    Refuse(Code, &'static str),
    Fail(Code),
    Hang,
}

#[derive(Clone, Default)]
pub(super) struct Script {
    acts: Arc<Mutex<VecDeque<Act>>>,
    /// What GetTransaction answers; `None`: it hangs.
    pub(super) seen: Arc<Mutex<Option<v1::Outcome>>>,
    /// The numbers that were left on its streams.
    pub(super) left: Arc<Mutex<Vec<u64>>>,
    /// So many streams end at their first call, by an error with an ErrorInfo.
    pub(super) streams_to_end: Arc<AtomicUsize>,
    pub(super) requests: Arc<Mutex<Vec<v1::ExecuteRequest>>>,
}

impl Script {
    pub(super) fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        let script = Self::default();
        script.acts.lock().unwrap().extend(acts);
        script
    }

    async fn act(&self, id: &str) -> Result<Option<v1::Transaction>, Status> {
        let act = self
            .acts
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Act::Answer(v1::Outcome::Committed));
        match act {
            Act::Answer(outcome) => Ok(Some(view(id, outcome))),
            Act::Refuse(code, reason) => Err(refused(code, reason)),
            Act::Fail(code) => Err(Status::new(code, "failed by script")),
            Act::Hang => std::future::pending().await,
        }
    }

    pub(super) fn sends(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn refused(code: Code, reason: &str) -> Status {
    let metadata = [("bound", "max_in_progress"), ("value", "20000")];
    let metadata: std::collections::HashMap<String, String> = metadata
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect();
    let details = ErrorDetails::with_error_info(reason, "covenant", metadata);
    Status::with_error_details(code, "refused by script", details)
}

fn view(id: &str, outcome: v1::Outcome) -> v1::Transaction {
    v1::Transaction {
        transaction_id: id.into(),
        outcome: outcome.into(),
        ..v1::Transaction::default()
    }
}

type Frames = ReceiverStream<Result<v1::ExecuteManyResponse, Status>>;

#[tonic::async_trait]
impl TransactionService for Script {
    type ExecuteManyStream = Frames;
    type WatchTransactionsStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::WatchTransactionsResponse, Status>> + Send>>;

    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<v1::ExecuteResponse>, Status> {
        let request = request.into_inner();
        self.requests.lock().unwrap().push(request.clone());
        let transaction = self.act(&request.transaction_id).await?;
        Ok(Response::new(v1::ExecuteResponse { transaction }))
    }

    async fn execute_many(
        &self,
        request: Request<Streaming<v1::ExecuteManyRequest>>,
    ) -> Result<Response<Frames>, Status> {
        let (answers, outgoing) = tokio::sync::mpsc::channel(16);
        let (script, mut calls) = (self.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(frame)) = calls.message().await {
                script.left.lock().unwrap().extend(frame.left);
                let more = |streams: usize| streams.checked_sub(1);
                let to_end = &script.streams_to_end;
                if to_end
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
                    .is_ok()
                {
                    let end = refused(Code::ResourceExhausted, "BOUND_REACHED");
                    let _ = answers.send(Err(end)).await;
                    return;
                }
                for call in frame.calls {
                    let (script, answers) = (script.clone(), answers.clone());
                    tokio::spawn(async move {
                        let request = Request::new(call.execute.unwrap());
                        let answer = match script.execute(request).await {
                            Ok(answer) => answer.into_inner().transaction.map(Answer::Transaction),
                            Err(status) => Some(Answer::Error(v1::CallError {
                                code: status.code().into(),
                                message: status.message().to_owned(),
                                details: status.details().to_vec().into(),
                            })),
                        };
                        let number = call.number;
                        let frame = v1::ExecuteManyResponse {
                            answers: vec![v1::NumberedAnswer { number, answer }],
                        };
                        let _ = answers.send(Ok(frame)).await;
                    });
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }

    async fn get_transaction(
        &self,
        request: Request<v1::GetTransactionRequest>,
    ) -> Result<Response<v1::GetTransactionResponse>, Status> {
        let seen = *self.seen.lock().unwrap();
        let Some(outcome) = seen else {
            return std::future::pending().await;
        };
        let transaction = Some(view(&request.into_inner().transaction_id, outcome));
        Ok(Response::new(v1::GetTransactionResponse { transaction }))
    }

    async fn list_transactions(
        &self,
        _: Request<v1::ListTransactionsRequest>,
    ) -> Result<Response<v1::ListTransactionsResponse>, Status> {
        self.act("listed").await?;
        Ok(Response::new(v1::ListTransactionsResponse::default()))
    }

    async fn watch_transactions(
        &self,
        _: Request<v1::WatchTransactionsRequest>,
    ) -> Result<Response<Self::WatchTransactionsStream>, Status> {
        let change = v1::WatchTransactionsResponse {
            transaction: Some(view("T1", v1::Outcome::InProgress)),
        };
        Ok(Response::new(Box::pin(tokio_stream::iter([
            Ok(change),
            Err(Status::internal("cut")),
        ]))))
    }

    async fn abort_transaction(
        &self,
        request: Request<v1::AbortTransactionRequest>,
    ) -> Result<Response<v1::AbortTransactionResponse>, Status> {
        let transaction = self.act(&request.into_inner().transaction_id).await?;
        Ok(Response::new(v1::AbortTransactionResponse { transaction }))
    }
}

pub(super) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint)
}

pub(super) fn serve(script: &Script, listener: TcpListener) {
    let service = TransactionServiceServer::new(script.clone());
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
}

pub(super) async fn client(script: &Script) -> Client {
    let (listener, endpoint) = listen().await;
    serve(script, listener);
    Client::new(&endpoint).unwrap()
}
