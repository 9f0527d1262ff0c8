//! ParticipantService: the participant dials in and keeps one stream.

use std::sync::Arc;
use std::time::Duration;

use covenant_codec::frame;
use covenant_fault::metered::{Meter, MeterInfo};
use covenant_proto::v1::JoinRequest;
use covenant_proto::v1::participant_service_server::ParticipantService;
use covenant_rules::coordinator::{JoinRefusal, SessionId};
use covenant_rules::{Limits, Lineage};
use tonic::{Code, Request, Response, Status, Streaming};

use super::status;
use crate::input::{FromSession, Handle, Phase};
use crate::outbox::{FrameStream, Outbox, max_outbox_bytes};

/// How long a new stream may take to say Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct ParticipantApi {
    handle: Handle,
    max_outbox_bytes: usize,
}

impl ParticipantApi {
    pub(crate) fn new(handle: Handle, limits: &Limits) -> Self {
        Self {
            handle,
            max_outbox_bytes: max_outbox_bytes(limits),
        }
    }
}

#[tonic::async_trait]
impl ParticipantService for ParticipantApi {
    type JoinStream = FrameStream;

    async fn join(&self, request: Request<Streaming<JoinRequest>>) -> Result<Response<FrameStream>, Status> {
        if *self.handle.phase.borrow() == Phase::Recovering {
            return Err(status::join_refusal(JoinRefusal::Recovering));
        }
        let meter = request
            .extensions()
            .get::<MeterInfo>()
            .map(|info| Arc::clone(&info.meter));
        let outbox = Outbox::new(self.max_outbox_bytes);
        let stream = outbox.stream();
        let session = self.handle.new_session();
        let reader = Reader {
            handle: self.handle.clone(),
            session,
            outbox,
            meter,
        };
        // The session outlives this handler.
        tokio::spawn(reader.run(request.into_inner()));
        Ok(Response::new(stream))
    }
}

struct Reader {
    handle: Handle,
    session: SessionId,
    outbox: Outbox,
    meter: Option<Arc<Meter>>,
}

impl Reader {
    async fn run(self, mut stream: Streaming<JoinRequest>) {
        let joined = match tokio::time::timeout(HELLO_TIMEOUT, self.hello(&mut stream)).await {
            Ok(joined) => joined,
            Err(_) => Err(status::refusal(
                Code::DeadlineExceeded,
                "NO_HELLO",
                format!("no Hello came within HELLO_TIMEOUT {HELLO_TIMEOUT:?}; send it first"),
                &[],
            )),
        };
        if let Err(status) = joined {
            return self.outbox.end(status);
        }
        let error = self.frames(&mut stream).await.err();
        let status = error.clone();
        self.outbox
            .end(status.unwrap_or_else(|| Status::ok("the participant ended the session")));
        // The loop is gone only at the end of the process.
        let _ = self
            .handle
            .frames
            .send(FromSession::Left {
                session: self.session,
                error,
            })
            .await;
    }

    async fn hello(&self, stream: &mut Streaming<JoinRequest>) -> Result<(), Status> {
        let first = stream.message().await?;
        let Some(hello) = first.and_then(|first| first.hello) else {
            return Err(status::invalid(
                "hello",
                "the first frame of a session must carry it".to_owned(),
            ));
        };
        let (hello, version) = frame::from_hello(&hello).map_err(|why| bad_frame(&why))?;
        // A participant that counts its starts from 1 and made its lineage by chance says neither.
        if hello.incarnation.counter == 0 {
            let why = "it is 0; the first start of a lineage is 1".to_owned();
            return Err(status::invalid("hello.incarnation.counter", why));
        }
        if hello.lineage == Lineage(0) {
            let why = "it is zero; give the random UUID of the data directory".to_owned();
            return Err(status::invalid("hello.lineage", why));
        }
        let (session, outbox, meter) = (self.session, self.outbox.clone(), self.meter.clone());
        let joined = FromSession::Joined {
            session,
            hello,
            version,
            outbox,
            meter,
        };
        self.handle
            .frames
            .send(joined)
            .await
            .map_err(|_| Status::unavailable("the coordinator is shutting down"))
    }

    async fn frames(&self, stream: &mut Streaming<JoinRequest>) -> Result<(), Status> {
        while let Some(request) = stream.message().await? {
            // Whoever goes on sending on a session that was ended must not keep the loop busy.
            if self.outbox.has_ended() {
                return Ok(());
            }
            if request.hello.is_some() {
                return Err(status::invalid("hello", "a session says it once".to_owned()));
            }
            let messages = request
                .messages
                .into_iter()
                .map(frame::from_participant)
                .collect::<Result<Vec<_>, _>>();
            let messages = messages.map_err(|why| bad_frame(&why))?;
            let input = FromSession::Messages {
                session: self.session,
                messages,
            };
            if self.handle.frames.send(input).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn bad_frame(why: &covenant_codec::Error) -> Status {
    let code = match why {
        covenant_codec::Error::Version { .. } => Code::FailedPrecondition,
        _ => Code::InvalidArgument,
    };
    let reason = if code == Code::FailedPrecondition {
        "PROTOCOL_VERSION"
    } else {
        "INVALID_FRAME"
    };
    status::refusal(code, reason, why.to_string(), &[])
}
