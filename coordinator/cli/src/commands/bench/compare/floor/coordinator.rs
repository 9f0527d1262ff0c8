//! The floor's coordinator: one loop, one record forced, one answer.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;

use covenant_codec::MAX_FRAME_BYTES;
use covenant_fault::metered;
use covenant_journal::{Force, Records};
use covenant_proto::v1::coordinator_message::Content;
use covenant_proto::v1::participant_message::Content as FromParticipant;
use covenant_proto::v1::participant_service_server::{ParticipantService, ParticipantServiceServer};
use covenant_proto::v1::transaction_service_server::{TransactionService, TransactionServiceServer};
use covenant_proto::v1::*;
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::super::forced_log::ForcedLog;
use super::{Shapes, failed, push};
use crate::exit::Failure;
use crate::servers;

/// How many inputs of one kind one round of the loop takes, as in the shipped loop.
const MAX_ROUND: usize = 256;

/// The most calls or frames that wait for the loop.
const MAX_QUEUED: usize = 4_096;

/// The lineage of this coordinator, as wide as a real one.
const LINEAGE: Lineage = Lineage {
    high: 0x0123_4567_89ab_cdef,
    low: 0xfedc_ba98_7654_3210,
};

type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

struct Call {
    number: u64,
    request: ExecuteRequest,
    answers: mpsc::UnboundedSender<NumberedAnswer>,
}

enum FromSession {
    Joined {
        name: String,
        outgoing: mpsc::UnboundedSender<Vec<CoordinatorMessage>>,
    },
    Messages(Vec<ParticipantMessage>),
}

struct Running {
    request: ExecuteRequest,
    number: u64,
    answers: mpsc::UnboundedSender<NumberedAnswer>,
    votes: usize,
    acks: usize,
}

/// A ledger's session: what is sent in this round, and the way to its stream.
///
/// No more waits there than callers have transfers under way, which they bound.
struct Session {
    round: Vec<CoordinatorMessage>,
    outgoing: mpsc::UnboundedSender<Vec<CoordinatorMessage>>,
}

struct Floor {
    log: ForcedLog,
    shapes: Shapes,
    sessions: HashMap<String, Session>,
    running: HashMap<u64, Running>,
    records: Records,
    /// COMMIT records of this round, and those not durable yet.
    round: Vec<u64>,
    waiting: VecDeque<(u64, u64)>,
    next: u64,
}

#[derive(Clone)]
struct Doors {
    calls: mpsc::Sender<Call>,
    frames: mpsc::Sender<FromSession>,
}

pub(super) async fn run(listen: SocketAddr, log: ForcedLog, shapes: Shapes) -> Result<(), Failure> {
    let listener = servers::bind(listen).await?;
    let listen = listener.local_addr().unwrap_or(listen);
    let (calls, calls_in) = mpsc::channel(MAX_QUEUED);
    let (frames, frames_in) = mpsc::channel(MAX_QUEUED);
    let doors = Doors { calls, frames };
    let server = Server::builder()
        .max_concurrent_streams(Some(8_192))
        .add_service(TransactionServiceServer::new(doors.clone()))
        .add_service(ParticipantServiceServer::new(doors).max_encoding_message_size(2 * MAX_FRAME_BYTES))
        .serve_with_incoming(metered::incoming(listener));
    let floor = Floor {
        log,
        shapes,
        sessions: HashMap::new(),
        running: HashMap::new(),
        records: Records::new(),
        round: Vec::new(),
        waiting: VecDeque::new(),
        next: 1,
    };
    servers::print_ready(serde_json::json!({ "listen": listen }))?;
    let floor = tokio::spawn(floor.run(calls_in, frames_in));
    tokio::select! {
        ended = server => ended.map_err(|error| failed(&error)),
        ended = floor => ended.map_err(|error| failed(&error))?,
    }
}

impl Floor {
    async fn run(
        mut self,
        mut calls_in: mpsc::Receiver<Call>,
        mut frames_in: mpsc::Receiver<FromSession>,
    ) -> Result<(), Failure> {
        let mut durable = self.log.durable();
        let (mut calls, mut frames) = (Vec::new(), Vec::new());
        loop {
            tokio::select! {
                changed = durable.changed() => {
                    changed.map_err(|error| failed(&error))?;
                    let lsn = *durable.borrow_and_update();
                    self.durable(lsn);
                }
                _ = frames_in.recv_many(&mut frames, MAX_ROUND) => {
                    for input in frames.drain(..) { self.session(input); }
                }
                _ = calls_in.recv_many(&mut calls, MAX_ROUND) => {
                    for call in calls.drain(..) { self.call(call); }
                }
            }
            self.flush();
        }
    }

    fn call(&mut self, call: Call) {
        let seq = self.next;
        self.next += 1;
        let branches = call.request.branches.len();
        for branch in &call.request.branches {
            let prepare = Prepare {
                transaction_id: call.request.transaction_id.clone(),
                operation: branch.operation.clone(),
            };
            send(
                &mut self.sessions,
                &branch.participant,
                seq,
                Content::Prepare(prepare),
            );
        }
        let running = Running {
            request: call.request,
            number: call.number,
            answers: call.answers,
            votes: branches,
            acks: branches,
        };
        self.running.insert(seq, running);
    }

    fn session(&mut self, input: FromSession) {
        match input {
            FromSession::Joined { name, outgoing } => {
                let session = Session {
                    round: Vec::new(),
                    outgoing,
                };
                self.sessions.insert(name, session);
            }
            FromSession::Messages(messages) => {
                for message in messages {
                    self.message(&message);
                }
            }
        }
    }

    fn message(&mut self, message: &ParticipantMessage) {
        let seq = message.xid.map_or(0, |xid| xid.seq);
        let Some(running) = self.running.get_mut(&seq) else {
            return;
        };
        let id = &running.request.transaction_id;
        match message.content {
            Some(FromParticipant::Vote(_)) => {
                running.votes -= 1;
                if running.votes == 0 {
                    push(&mut self.records, xid(seq), id, Force::Now, self.shapes.forced);
                    self.round.push(seq);
                }
            }
            Some(FromParticipant::Ack(_)) => {
                running.acks -= 1;
                if running.acks == 0 {
                    push(&mut self.records, xid(seq), "", Force::Lazy, self.shapes.lazy);
                    // It takes a number too; nobody waits for it.
                    self.round.push(0);
                    self.running.remove(&seq);
                }
            }
            _ => {}
        }
    }

    fn durable(&mut self, lsn: u64) {
        while let Some((_, seq)) = self.waiting.pop_front_if(|(waiting, _)| *waiting <= lsn) {
            let Some(running) = self.running.get(&seq) else {
                continue;
            };
            let transaction = decided(seq, &running.request);
            // Callers that went away want no answer.
            let _ = running.answers.send(NumberedAnswer {
                number: running.number,
                answer: Some(numbered_answer::Answer::Transaction(transaction)),
            });
            for branch in &running.request.branches {
                send(
                    &mut self.sessions,
                    &branch.participant,
                    seq,
                    Content::Commit(Commit {}),
                );
            }
        }
    }

    fn flush(&mut self) {
        if !self.records.is_empty() {
            let first = self.log.append(&self.records) + 1 - self.records.len() as u64;
            let numbered = (first..).zip(self.round.drain(..));
            self.waiting.extend(numbered.filter(|(_, seq)| *seq != 0));
            self.records.clear();
        }
        for session in self.sessions.values_mut() {
            if !session.round.is_empty() {
                // A session that is gone takes nothing.
                let _ = session.outgoing.send(std::mem::take(&mut session.round));
            }
        }
    }
}

fn send(sessions: &mut HashMap<String, Session>, participant: &str, seq: u64, content: Content) {
    if let Some(session) = sessions.get_mut(participant) {
        session.round.push(CoordinatorMessage {
            xid: Some(xid(seq)),
            content: Some(content),
        });
    }
}

fn xid(seq: u64) -> Xid {
    Xid {
        lineage_high: LINEAGE.high,
        lineage_low: LINEAGE.low,
        counter: 1,
        bits: LINEAGE.high,
        seq,
    }
}

/// An answer with the fields that a real one has.
fn decided(seq: u64, request: &ExecuteRequest) -> Transaction {
    let branch = |branch: &Branch| BranchStatus {
        participant: branch.participant.clone(),
        state: BranchState::Committing.into(),
        deliveries: 1,
        lineage: Some(LINEAGE),
        ..BranchStatus::default()
    };
    Transaction {
        transaction_id: request.transaction_id.clone(),
        xid: Some(xid(seq)),
        outcome: Outcome::Committed.into(),
        state: TransactionState::Committing.into(),
        branches: request.branches.iter().map(branch).collect(),
        created: request.created,
        decided: request.created,
        retained_since: request.created,
        in_doubt: 2,
        ..Transaction::default()
    }
}

#[tonic::async_trait]
impl ParticipantService for Doors {
    type JoinStream = Frames<JoinResponse>;

    async fn join(
        &self,
        request: Request<Streaming<JoinRequest>>,
    ) -> Result<Response<Frames<JoinResponse>>, Status> {
        let mut incoming = request.into_inner();
        let frames = self.frames.clone();
        let (outgoing, mut waiting) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let Ok(Some(JoinRequest {
                hello: Some(hello), ..
            })) = incoming.message().await
            else {
                return;
            };
            let name = hello.name;
            // The loop ends with the process.
            let _ = frames.send(FromSession::Joined { name, outgoing }).await;
            while let Ok(Some(frame)) = incoming.message().await {
                let _ = frames.send(FromSession::Messages(frame.messages)).await;
            }
        });
        let mut welcome = Some(Welcome {
            protocol_version: covenant_codec::PROTOCOL_VERSION,
            lineage: Some(LINEAGE),
            incarnation: Some(Incarnation { counter: 1, bits: 1 }),
            max_frame_bytes: MAX_FRAME_BYTES as u32,
        });
        let mut taken = Vec::new();
        // What waits becomes one frame.
        let stream = stream::poll_fn(move |cx| {
            if welcome.is_none() {
                match waiting.poll_recv_many(cx, &mut taken, MAX_ROUND) {
                    Poll::Ready(0) => return Poll::Ready(None),
                    Poll::Ready(_) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Some(Ok(JoinResponse {
                welcome: welcome.take(),
                messages: taken.drain(..).flatten().collect(),
                floor: Some(covenant_proto::v1::Floor { counter: 1, seq: 1 }),
                position: 1,
            })))
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

#[tonic::async_trait]
impl TransactionService for Doors {
    type ExecuteManyStream = Frames<ExecuteManyResponse>;
    type WatchTransactionsStream = Frames<WatchTransactionsResponse>;

    async fn execute_many(
        &self,
        request: Request<Streaming<ExecuteManyRequest>>,
    ) -> Result<Response<Frames<ExecuteManyResponse>>, Status> {
        let mut incoming = request.into_inner();
        let calls = self.calls.clone();
        // No more waits there than callers have transfers under way.
        let (answers, mut waiting) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(frame)) = incoming.message().await {
                for NumberedCall { number, execute } in frame.calls {
                    let call = Call {
                        number,
                        request: execute.unwrap_or_default(),
                        answers: answers.clone(),
                    };
                    // The loop ends with the process.
                    let _ = calls.send(call).await;
                }
            }
        });
        let mut taken = Vec::new();
        // What waits becomes one frame.
        let stream = stream::poll_fn(
            move |cx| match waiting.poll_recv_many(cx, &mut taken, MAX_QUEUED) {
                Poll::Ready(0) => Poll::Ready(None),
                Poll::Ready(_) => Poll::Ready(Some(Ok(ExecuteManyResponse {
                    answers: std::mem::take(&mut taken),
                }))),
                Poll::Pending => Poll::Pending,
            },
        );
        Ok(Response::new(Box::pin(stream)))
    }

    async fn execute(&self, _: Request<ExecuteRequest>) -> Result<Response<ExecuteResponse>, Status> {
        Err(Status::unimplemented(
            "the floor executes what comes over a stream",
        ))
    }

    async fn get_transaction(
        &self,
        _: Request<GetTransactionRequest>,
    ) -> Result<Response<GetTransactionResponse>, Status> {
        Err(Status::unimplemented("the floor only executes"))
    }

    async fn list_transactions(
        &self,
        _: Request<ListTransactionsRequest>,
    ) -> Result<Response<ListTransactionsResponse>, Status> {
        Err(Status::unimplemented("the floor only executes"))
    }

    async fn watch_transactions(
        &self,
        _: Request<WatchTransactionsRequest>,
    ) -> Result<Response<Self::WatchTransactionsStream>, Status> {
        Err(Status::unimplemented("the floor only executes"))
    }

    async fn abort_transaction(
        &self,
        _: Request<AbortTransactionRequest>,
    ) -> Result<Response<AbortTransactionResponse>, Status> {
        Err(Status::unimplemented("the floor only executes"))
    }
}
