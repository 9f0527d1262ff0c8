//! A stream of calls that is played by a test: it sends whatever the test wants, and reads when the test wants.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Transaction, to_timestamp};
use covenant_proto::v1::numbered_answer::Answer;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{Branch, ExecuteManyRequest, ExecuteManyResponse, ExecuteRequest, NumberedCall};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// How long the coordinator may take to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// One stream.
pub struct Numbered {
    out: Option<mpsc::Sender<ExecuteManyRequest>>,
    frames: Streaming<ExecuteManyResponse>,
    waiting: Vec<(u64, Answer)>,
}

/// A call of this number.
#[must_use]
pub fn call(number: u64, transaction: &Transaction) -> NumberedCall {
    let execute = Some(request(transaction));
    NumberedCall { number, execute }
}

/// What a caller of the unary door sends for it.
#[must_use]
pub fn request(transaction: &Transaction) -> ExecuteRequest {
    let branches = transaction.branches.iter().map(|branch| Branch {
        participant: branch.participant.clone(),
        operation: branch.operation.clone(),
    });
    ExecuteRequest {
        transaction_id: transaction.id.clone(),
        created: Some(to_timestamp(transaction.created)),
        branches: branches.collect(),
        timeout: transaction.timeout.and_then(|timeout| timeout.try_into().ok()),
        ..ExecuteRequest::default()
    }
}

impl Numbered {
    /// Opens one.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn open(url: &str) -> Result<Self> {
        let mut client = TransactionServiceClient::connect(url.to_owned()).await?;
        let (out, requests) = mpsc::channel(1);
        let answers = client.execute_many(ReceiverStream::new(requests)).await?;
        Ok(Self {
            out: Some(out),
            frames: answers.into_inner(),
            waiting: Vec::new(),
        })
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// If the stream ended, or the coordinator takes nothing.
    pub async fn say(&self, calls: Vec<NumberedCall>, left: Vec<u64>) -> Result<()> {
        let out = self.out.as_ref().context("its side has ended")?;
        let frame = ExecuteManyRequest { calls, left };
        tokio::time::timeout(PATIENCE, out.send(frame))
            .await?
            .context("the stream ended")
    }

    /// Ends the side of the caller.
    pub fn say_no_more(&mut self) {
        self.out = None;
    }

    /// The next answer.
    ///
    /// # Errors
    /// If the stream ends, or nothing comes.
    pub async fn next(&mut self) -> Result<(u64, Answer)> {
        while self.waiting.is_empty() {
            let frame = tokio::time::timeout(PATIENCE, self.frames.message()).await??;
            let answers = frame.context("the stream ended")?.answers;
            ensure!(!answers.is_empty(), "a frame without an answer");
            for answer in answers {
                let said = answer.answer.context("an answer says nothing")?;
                self.waiting.push((answer.number, said));
            }
        }
        Ok(self.waiting.remove(0))
    }

    /// Reads until the coordinator ends the stream, and says how.
    ///
    /// # Errors
    /// If it goes on.
    pub async fn ended(&mut self) -> Result<Status> {
        let ended = async {
            loop {
                match self.frames.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Status::ok("it ended"),
                    Err(status) => return status,
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended)
            .await
            .context("the stream goes on")
    }
}
