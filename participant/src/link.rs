//! The way to the coordinator: a pause, a dial, a session, and again (section 8).
//!
//! The pauses grow to [`DIAL_CAP_MS`] with jitter; a session that lasted resets them. A reason that repeats is told
//! once: a coordinator that refuses for an hour is one line, not thousands.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use covenant_proto::v1::JoinResponse;
use covenant_rules::participant::Identity;
use covenant_rules::{Backoff, Hello, Incarnation, Lineage, Name, Xid};
use futures_util::stream::Stream;
use tokio::time::Sleep;
use tonic::transport::Endpoint;

use crate::Error;
use crate::config::{DIAL_BASE_MS, DIAL_CAP_MS, STABLE_SESSION_MS};
use crate::session::{self, Session};

const DIAL_BACKOFF: Backoff = Backoff {
    base_ms: DIAL_BASE_MS,
    cap_ms: DIAL_CAP_MS,
};

/// What the link has to say.
pub(crate) enum LinkInput {
    /// The pause is over: dial.
    Dial,
    /// A session is up.
    Joined {
        lineage: Lineage,
        incarnation: Incarnation,
    },
    /// A frame of the session that is up.
    Frame(JoinResponse),
    /// The dial failed or the session ended.
    Lost(Error),
}

type Dialling = Pin<Box<dyn Future<Output = Result<Session, Error>> + Send>>;

enum State {
    Pausing(Pin<Box<Sleep>>),
    Dialling(Dialling),
    Up(Box<Session>),
    /// Nothing is dialled any more.
    Down,
}

/// The link of one participant.
pub(crate) struct Link {
    endpoint: Endpoint,
    name: Name,
    identity: Identity,
    state: State,
    dials: u64,
    /// Dials since the last session that lasted.
    failures: u32,
    /// The reason that was told last; none after a joining.
    told: Option<Arc<str>>,
}

impl Link {
    /// A link that dials at once.
    pub(crate) fn new(endpoint: Endpoint, name: Name, identity: Identity) -> Self {
        let state = State::Pausing(Box::pin(tokio::time::sleep(Duration::ZERO)));
        Self {
            endpoint,
            name,
            identity,
            state,
            dials: 0,
            failures: 0,
            told: None,
        }
    }

    /// What happened on the link. Frames are taken only while `reading`.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, reading: bool) -> Poll<LinkInput> {
        match &mut self.state {
            State::Pausing(pause) => {
                ready!(pause.as_mut().poll(cx));
                Poll::Ready(LinkInput::Dial)
            }
            State::Dialling(dialling) => match ready!(dialling.as_mut().poll(cx)) {
                Ok(session) => {
                    let (lineage, incarnation) = (session.welcome.lineage, session.welcome.incarnation);
                    self.told = None;
                    self.state = State::Up(Box::new(session));
                    Poll::Ready(LinkInput::Joined { lineage, incarnation })
                }
                Err(error) => Poll::Ready(LinkInput::Lost(error)),
            },
            State::Up(session) if reading => {
                if let Some(frame) = session.first.take() {
                    return Poll::Ready(LinkInput::Frame(frame));
                }
                Poll::Ready(match ready!(Pin::new(&mut session.inbound).poll_next(cx)) {
                    Some(Ok(frame)) => LinkInput::Frame(frame),
                    Some(Err(status)) => LinkInput::Lost(Error::Status(status)),
                    None => LinkInput::Lost(Error::Ended),
                })
            }
            State::Up(_) | State::Down => Poll::Pending,
        }
    }

    /// Begins to dial.
    pub(crate) fn dial(&mut self, hello: Hello) {
        assert!(matches!(self.state, State::Pausing(_)), "a dial follows a pause");
        self.dials += 1;
        self.state = State::Dialling(Box::pin(session::dial(self.endpoint.clone(), hello)));
    }

    /// The session that is up.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Up(session) => Some(session),
            State::Pausing(_) | State::Dialling(_) | State::Down => None,
        }
    }

    /// Drops the dial or the session and plans the next dial. Gives the reason if it was not told last.
    pub(crate) fn lost(&mut self, error: &Error) -> Option<Arc<str>> {
        let stable = Duration::from_millis(STABLE_SESSION_MS);
        if self
            .session()
            .is_some_and(|session| session.since.elapsed() >= stable)
        {
            self.failures = 0;
        }
        // The schedule takes the name of what it is about: here a dial, numbered within this start.
        let Identity { lineage, incarnation } = self.identity;
        let about = Xid {
            lineage,
            incarnation,
            seq: self.dials,
        };
        let pause_ms = DIAL_BACKOFF.pause(about, self.name.as_str(), self.failures);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Pausing(Box::pin(tokio::time::sleep(Duration::from_millis(pause_ms))));
        let reason: Arc<str> = Arc::from(error.report());
        if self.told.as_ref() == Some(&reason) {
            return None;
        }
        self.told = Some(Arc::clone(&reason));
        Some(reason)
    }

    /// Drops what there is, for good.
    pub(crate) fn close(&mut self) {
        self.state = State::Down;
    }
}
