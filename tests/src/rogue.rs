//! A participant that is played by a test and says whatever the test wants.

use std::time::Duration;

use anyhow::{Context, Result};
use covenant_codec::PROTOCOL_VERSION;
use covenant_proto::v1::participant_message::Content;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{
    Ack, CoordinatorMessage, ForgetAck, Hello, Heuristic, HeuristicReport, Incarnation, Inquiry, JoinRequest,
    JoinResponse, Lineage, LostState, NoReason, ParticipantMessage, Vote, VoteKind, Xid, coordinator_message,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// How long the coordinator may take to say what is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// The frames that wait between the test and the socket.
const QUEUED_FRAMES: usize = 4;

/// A session.
pub struct Rogue {
    out: mpsc::Sender<JoinRequest>,
    frames: Streaming<JoinResponse>,
    waiting: Vec<CoordinatorMessage>,
}

/// The Hello of a participant of this name, of a lineage of its own.
#[must_use]
pub fn hello(name: &str, connection: u64) -> Hello {
    Hello {
        protocol_versions: vec![PROTOCOL_VERSION],
        name: name.into(),
        lineage: Some(Lineage { high: 1, low: 2 }),
        incarnation: Some(Incarnation { counter: 1, bits: 3 }),
        connection,
        positions: Vec::new(),
    }
}

/// A message about an attempt.
#[must_use]
pub fn message(xid: Xid, content: Content) -> ParticipantMessage {
    ParticipantMessage {
        xid: Some(xid),
        content: Some(content),
    }
}

/// A vote; NO with a reason.
#[must_use]
pub fn vote(kind: VoteKind) -> Content {
    let no = || NoReason {
        code: "NOT_TODAY".to_owned(),
        detail: "closed".to_owned(),
    };
    Content::Vote(Vote {
        kind: kind.into(),
        reason: (kind == VoteKind::No).then(no),
    })
}

/// One message of each kind.
#[must_use]
pub fn every_message() -> [Content; 8] {
    let report = |what: Heuristic| Content::Report(HeuristicReport { what: what.into() });
    [
        vote(VoteKind::Yes),
        vote(VoteKind::No),
        vote(VoteKind::ReadOnly),
        Content::Ack(Ack {}),
        Content::LostState(LostState {}),
        Content::Inquiry(Inquiry {}),
        report(Heuristic::Abort),
        Content::ForgetAck(ForgetAck {}),
    ]
}

/// An attempt of another coordinator: an inquiry for it is answered by UNKNOWN (Q2).
#[must_use]
pub fn foreign(xid: Xid) -> Xid {
    Xid {
        lineage_high: !xid.lineage_high,
        ..xid
    }
}

impl Rogue {
    /// Joins.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn join(url: &str, hello: Hello) -> Result<Self> {
        Self::join_over(ParticipantServiceClient::connect(url.to_owned()).await?, hello).await
    }

    /// Joins over a connection that is there.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn join_over(mut client: ParticipantServiceClient<Channel>, hello: Hello) -> Result<Self> {
        let (out, requests) = mpsc::channel(QUEUED_FRAMES);
        let first = JoinRequest {
            hello: Some(hello),
            messages: Vec::new(),
        };
        out.send(first).await?;
        let mut frames = client.join(ReceiverStream::new(requests)).await?.into_inner();
        let welcome = frames.message().await?.context("it ended before Welcome")?;
        Ok(Self {
            out,
            frames,
            waiting: welcome.messages,
        })
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// If the session ended.
    pub async fn say(&self, messages: Vec<ParticipantMessage>) -> Result<()> {
        let frame = JoinRequest {
            hello: None,
            messages,
        };
        self.out.send(frame).await.context("the session ended")
    }

    /// The next message.
    ///
    /// # Errors
    /// If the session ends, or nothing comes.
    pub async fn next(&mut self) -> Result<(Xid, coordinator_message::Content)> {
        while self.waiting.is_empty() {
            let frame = tokio::time::timeout(PATIENCE, self.frames.message()).await??;
            self.waiting = frame.context("the session ended")?.messages;
        }
        let message = self.waiting.remove(0);
        Ok((
            message.xid.context("a message has an xid")?,
            message.content.context("a message has content")?,
        ))
    }

    /// Waits until everything that was said is taken: asks for this attempt, and reads until it is answered.
    ///
    /// # Errors
    /// As [`Rogue::next`].
    pub async fn taken(&mut self, unknown: Xid) -> Result<()> {
        self.say(vec![message(unknown, Content::Inquiry(Inquiry {}))])
            .await?;
        while self.next().await?.0 != unknown {}
        Ok(())
    }

    /// The attempt of the next PREPARE, other messages aside.
    ///
    /// # Errors
    /// As [`Rogue::next`].
    pub async fn prepare(&mut self) -> Result<Xid> {
        loop {
            if let (xid, coordinator_message::Content::Prepare(_)) = self.next().await? {
                return Ok(xid);
            }
        }
    }

    /// Waits for COMMIT of this attempt and acknowledges it.
    ///
    /// # Errors
    /// As [`Rogue::next`].
    pub async fn commit(&mut self, wanted: Xid) -> Result<()> {
        loop {
            if let (xid, coordinator_message::Content::Commit(_)) = self.next().await?
                && xid == wanted
            {
                return self.say(vec![message(xid, Content::Ack(Ack {}))]).await;
            }
        }
    }

    /// Reads until the coordinator ends the session, and says how.
    ///
    /// # Errors
    /// If it goes on.
    pub async fn ended(&mut self) -> Result<tonic::Status> {
        let ended = async {
            loop {
                match self.frames.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return tonic::Status::ok("it ended"),
                    Err(status) => return status,
                }
            }
        };
        tokio::time::timeout(PATIENCE, ended)
            .await
            .context("the session goes on")
    }
}
