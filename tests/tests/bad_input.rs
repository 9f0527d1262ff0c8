//! Input from outside that must be refused: frames of nonsense, sessions out of order, bytes that are no HTTP/2. Each gets
//! a message with the field, its value and the bound; the coordinator and the others go on undisturbed.
//!
//! It tries one input of each kind. Random ones are for the codec's own tests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BufMut};
use covenant_client::Outcome;
use covenant_codec::PROTOCOL_VERSION;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{Hello, Incarnation, JoinRequest, Lineage, ParticipantMessage};
use covenant_tests::cluster::PATIENCE;
use covenant_tests::{Cluster, Transfer, Who, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};

/// How long a connection of nonsense may stay open.
const NONSENSE_TIMEOUT: Duration = Duration::from_secs(15);

/// A transfer commits and everything is as it should be.
async fn goes_on(cluster: Cluster) -> Result<()> {
    cluster.commits(&Transfer::new("afterwards", 100)).await?;
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

/// Messages of plain bytes.
#[derive(Clone, Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining()).to_vec()))
    }
}

/// Sends one frame of these bytes on Join and returns how the session ended.
async fn join_with(cluster: &Cluster, frames: Vec<Vec<u8>>) -> Result<Status> {
    let channel = tonic::transport::Endpoint::from_shared(cluster.coordinator.url())?
        .connect()
        .await?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let path = "/covenant.v1.ParticipantService/Join".parse()?;
    // The stream stays open behind the frames: the coordinator must be the one that ends it.
    let frames = tokio_stream::StreamExt::chain(tokio_stream::iter(frames), tokio_stream::pending());
    let ended = async {
        let mut answers = match client.streaming(Request::new(frames), path, Plain).await {
            Ok(answers) => answers.into_inner(),
            Err(status) => return status,
        };
        loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("it ended"),
                Err(status) => return status,
            }
        }
    };
    tokio::time::timeout(NONSENSE_TIMEOUT, ended)
        .await
        .context("the session goes on")
}

fn hello(name: &str) -> JoinRequest {
    let hello = Hello {
        protocol_versions: vec![PROTOCOL_VERSION],
        name: name.into(),
        lineage: Some(Lineage { high: 1, low: 2 }),
        incarnation: Some(Incarnation { counter: 1, bits: 3 }),
        connection: 1,
        positions: Vec::new(),
    };
    JoinRequest {
        hello: Some(hello),
        messages: Vec::new(),
    }
}

fn encoded(request: &JoinRequest) -> Vec<u8> {
    prost::Message::encode_to_vec(request)
}

/// The session that says these frames ends so, and a transfer commits after it.
async fn ends(cluster: &Cluster, what: &str, frames: Vec<Vec<u8>>, code: Code, words: &str) -> Result<()> {
    let status = join_with(cluster, frames).await.context(what.to_owned())?;
    let says = !status.message().is_empty() && status.message().contains(words);
    ensure!(status.code() == code && says, "{what}: {status:?}");
    let after = Transfer::new(format!("after {what}"), 1);
    cluster.commits(&after).await.context(what.to_owned()).map(drop)
}

#[tokio::test]
async fn a_frame_of_garbage_or_out_of_order_ends_its_session_and_no_other() -> Result<()> {
    let cluster = Cluster::start().await?;
    let first = || encoded(&hello("stranger"));
    let empty = encoded(&JoinRequest {
        hello: None,
        messages: vec![ParticipantMessage::default()],
    });
    let garbage = vec![0xff; 100];
    for (what, frames, code, words) in [
        ("garbage", vec![garbage.clone()], Code::Internal, "decode"),
        (
            "garbage after Hello",
            vec![first(), garbage],
            Code::Internal,
            "decode",
        ),
        (
            "no Hello",
            vec![empty.clone()],
            Code::InvalidArgument,
            "the first frame of a session must carry it",
        ),
        (
            "Hello twice",
            vec![first(), first()],
            Code::InvalidArgument,
            "once",
        ),
        (
            "a message of nothing",
            vec![first(), empty],
            Code::InvalidArgument,
            "xid",
        ),
    ] {
        ends(&cluster, what, frames, code, words).await?;
    }
    goes_on(cluster).await
}

#[tokio::test]
async fn a_hello_out_of_bounds_is_refused_with_its_field() -> Result<()> {
    let cluster = Cluster::start().await?;
    let invalid = Code::InvalidArgument;
    type Change = fn(&mut Hello);
    let cases: [(&str, Change, Code, &str); 5] = [
        ("an empty name", |hello| hello.name.clear(), invalid, "128"),
        (
            "a name with a slash",
            |hello| hello.name = "a/b".into(),
            invalid,
            "name",
        ),
        ("no lineage", |hello| hello.lineage = None, invalid, "lineage"),
        (
            "no version",
            |hello| hello.protocol_versions.clear(),
            Code::FailedPrecondition,
            "protocol versions",
        ),
        (
            "an unknown version",
            |hello| hello.protocol_versions = vec![99],
            Code::FailedPrecondition,
            "99",
        ),
    ];
    for (what, change, code, words) in cases {
        let mut request = hello("stranger");
        request.hello.iter_mut().for_each(change);
        ends(&cluster, what, vec![encoded(&request)], code, words).await?;
    }
    goes_on(cluster).await
}

#[tokio::test]
async fn a_frame_above_its_bound_is_refused() -> Result<()> {
    let cluster = Cluster::start().await?;
    let status = join_with(&cluster, vec![vec![0; covenant_codec::MAX_FRAME_BYTES + 1]]).await?;
    ensure!(
        [Code::OutOfRange, Code::ResourceExhausted].contains(&status.code()),
        "{status:?}"
    );
    ensure!(
        status
            .message()
            .contains(&covenant_codec::MAX_FRAME_BYTES.to_string()),
        "{status:?}"
    );
    goes_on(cluster).await
}

#[tokio::test]
async fn bytes_that_are_no_http_2_disturb_nobody() -> Result<()> {
    let cluster = Cluster::start().await?;
    let servers = [cluster.coordinator.url(), cluster.ledger_a.url()];
    for url in &servers {
        let address = url.trim_start_matches("http://");
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &[0xff; 4096],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff",
        ] {
            let mut socket = TcpStream::connect(address).await?;
            // A server may hang up before it has read all of it.
            let _ = socket.write_all(bytes).await;
            let mut answer = Vec::new();
            let ended = tokio::time::timeout(NONSENSE_TIMEOUT, socket.read_to_end(&mut answer)).await;
            ensure!(ended.is_ok(), "{url} keeps a connection that said {bytes:?}");
        }
    }
    goes_on(cluster).await
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_server_from_stopping() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let mut silent = Vec::new();
    for url in [
        cluster.coordinator.url(),
        cluster.ledger_a.url(),
        cluster.ledger_b.url(),
    ] {
        silent.push(TcpStream::connect(url.trim_start_matches("http://")).await?);
        let mut greeted = TcpStream::connect(url.trim_start_matches("http://")).await?;
        greeted
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await?;
        silent.push(greeted);
    }
    cluster.commits(&Transfer::new("T", 1)).await?;
    for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
        cluster.server(who).stop_cleanly().await?;
    }
    Ok(())
}

#[tokio::test]
async fn votes_of_a_stranger_change_nothing() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster.ledger_b.kill()?;
    let (client, sent) = (cluster.client().clone(), Transfer::new("T", 100).transaction());
    let caller = tokio::spawn(async move { client.execute(&sent, PATIENCE).await });
    let xid = wait_until("the transaction to run", PATIENCE, async || {
        let outcome = cluster.client().get("T", None, PATIENCE).await?;
        outcome
            .view()
            .and_then(|view| view.xid)
            .context("it has no xid yet")
    })
    .await?;
    let vote = covenant_proto::v1::Vote {
        kind: covenant_proto::v1::VoteKind::Yes.into(),
        reason: None,
    };
    let content = Some(covenant_proto::v1::participant_message::Content::Vote(vote));
    let forged = JoinRequest {
        hello: None,
        messages: vec![ParticipantMessage {
            xid: Some(xid),
            content,
        }],
    };
    let mut stranger = ParticipantServiceClient::connect(cluster.coordinator.url()).await?;
    let frames = tokio_stream::StreamExt::chain(
        tokio_stream::iter([hello("stranger"), forged]),
        tokio_stream::pending(),
    );
    let mut session = stranger.join(frames).await?.into_inner();
    let welcome = session.message().await?.context("a Welcome")?;
    ensure!(welcome.welcome.is_some(), "{welcome:?}");
    wait_until("the alarm", PATIENCE, async || {
        let log = cluster.coordinator.process().stderr().join("\n");
        ensure!(log.contains("alarm"), "no alarm in {log}");
        Ok(())
    })
    .await?;
    let outcome = cluster.client().get("T", None, PATIENCE).await?;
    ensure!(matches!(outcome, Outcome::InProgress(_)), "it is {outcome:?}");
    cluster.ledger_b.restart().await?;
    let outcome = caller.await??;
    ensure!(outcome.word() == "COMMITTED", "{outcome:?}");
    drop(session);
    goes_on(cluster).await
}
