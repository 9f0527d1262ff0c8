//! Everything that can reach the loop, and the cheap handle that sends it.
//!
//! Calls and frames have queues of their own, so that callers cannot hold up votes. Both are bounded: a call
//! that finds its queue full is refused at once; a session waits, and so does the participant behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use covenant_fault::metered::Meter;
use covenant_rules::coordinator::{Execute, Refusal, SessionId, View};
use covenant_rules::{AbortReason, Hello, ToCoordinator, TransactionId, UnixMillis};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tonic::Status;

use crate::answers::Ticket;
use crate::listing::{ParticipantPage, ParticipantQuery, TransactionPage, TransactionQuery};
use crate::outbox::Outbox;

/// The most calls that wait for the loop.
pub(crate) const MAX_QUEUED_CALLS: usize = 4_096;

/// The most frames of all sessions that wait for the loop.
pub(crate) const MAX_QUEUED_FRAMES: usize = 64;

/// The most changes a watcher may fall behind before its stream ends.
pub(crate) const MAX_WATCH_LAG: usize = 4_096;

/// Why the loop gave no view.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A call of a stream that the door did not let in.
    AtTheDoor(Status),
    /// The machine's reason.
    Machine(Refusal),
    /// SIGTERM: no new work.
    Draining,
    /// The loop ended before it had an answer: what the call ran goes on, or not, at the next start.
    Unanswered,
    /// The queue of calls is full.
    QueueFull,
    /// The log's backlog is over its bound.
    Backlogged,
    /// The archive could not be read.
    Archive(crate::Error),
    /// A page token that this server did not make.
    BadPageToken,
}

/// Where an answer goes; the loop does not care whether anybody still waits.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, Refused>>;

/// What a call about a transaction is answered with.
pub(crate) type Answered = Result<View, Refused>;

/// Who is told of a transaction.
#[derive(Debug)]
pub(crate) enum Caller {
    /// One that made a call of its own.
    Alone(Answer<View>),
    /// One of those that share a stream.
    Numbered(Ticket<Answered>),
}

impl Caller {
    pub(crate) fn answer(self, answer: Answered) {
        match self {
            Self::Alone(waiting) => {
                // A caller that went away changes nothing.
                let _ = waiting.send(answer);
            }
            Self::Numbered(ticket) => ticket.send(answer),
        }
    }

    /// Whether it went away.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Alone(waiting) => waiting.is_closed(),
            Self::Numbered(ticket) => ticket.is_closed(),
        }
    }
}

/// A call of a caller or an operator.
#[derive(Debug)]
pub(crate) enum Call {
    Execute {
        execute: Execute,
        caller: Caller,
    },
    Get {
        transaction_id: TransactionId,
        created: Option<UnixMillis>,
        caller: Caller,
    },
    Abort {
        transaction_id: TransactionId,
        created: Option<UnixMillis>,
        by: AbortReason,
        caller: Caller,
    },
    List {
        query: TransactionQuery,
        answer: Answer<TransactionPage>,
    },
    Participants {
        query: ParticipantQuery,
        answer: Answer<ParticipantPage>,
    },
    Figures {
        answer: Answer<Figures>,
    },
}

/// What the loop did since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) log: covenant_journal::Stats,
    pub(crate) messages_sent: u64,
    pub(crate) messages_received: u64,
}

/// What a session says.
pub(crate) enum FromSession {
    Joined {
        session: SessionId,
        hello: Hello,
        version: u32,
        outbox: Outbox,
        meter: Option<Arc<Meter>>,
    },
    Messages {
        session: SessionId,
        messages: Vec<ToCoordinator>,
    },
    Left {
        session: SessionId,
        error: Option<Status>,
    },
}

/// Where the server is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Replay is not over.
    Recovering,
    /// Replay is over.
    Serving,
    /// The log's tail was lost (section 5): not ready.
    Suspect,
    /// No new work.
    Draining,
}

/// The services' way to the loop.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) calls: mpsc::Sender<Call>,
    pub(crate) frames: mpsc::Sender<FromSession>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) changes: broadcast::Sender<Arc<View>>,
    next_session: Arc<AtomicU64>,
}

/// The loop's end of a [`Handle`].
pub(crate) struct Inputs {
    pub(crate) calls: mpsc::Receiver<Call>,
    pub(crate) frames: mpsc::Receiver<FromSession>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) changes: broadcast::Sender<Arc<View>>,
}

pub(crate) fn channel() -> (Handle, Inputs) {
    let (calls, calls_in) = mpsc::channel(MAX_QUEUED_CALLS);
    let (frames, frames_in) = mpsc::channel(MAX_QUEUED_FRAMES);
    let (phase_out, phase) = watch::channel(Phase::Recovering);
    let (changes, _) = broadcast::channel(MAX_WATCH_LAG);
    let next_session = Arc::new(AtomicU64::new(1));
    let handle = Handle {
        calls,
        frames,
        phase,
        changes: changes.clone(),
        next_session,
    };
    let inputs = Inputs {
        calls: calls_in,
        frames: frames_in,
        phase: phase_out,
        changes,
    };
    (handle, inputs)
}

impl Handle {
    pub(crate) fn new_session(&self) -> SessionId {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a call into the loop and waits for its answer. Dropping the future changes nothing in the loop.
    pub(crate) async fn call<T>(&self, make: impl FnOnce(Answer<T>) -> Call) -> Result<T, Refused> {
        let place = self.place()?;
        let (answer, answered) = oneshot::channel();
        place.send(make(answer));
        // The loop drops an answer only when it ends without having one. The call may have run: that is no refusal.
        answered.await.unwrap_or(Err(Refused::Unanswered))
    }

    /// The same for a call about a transaction.
    pub(crate) async fn ask(&self, make: impl FnOnce(Caller) -> Call) -> Answered {
        self.call(|answer| make(Caller::Alone(answer))).await
    }

    /// Puts one call of a stream into the loop, or refuses it.
    pub(crate) fn execute(&self, execute: Execute, ticket: Ticket<Answered>) {
        match self.place() {
            Ok(place) => place.send(Call::Execute {
                execute,
                caller: Caller::Numbered(ticket),
            }),
            Err(why) => ticket.send(Err(why)),
        }
    }

    /// A place in the queue of calls.
    fn place(&self) -> Result<mpsc::Permit<'_, Call>, Refused> {
        if *self.phase.borrow() == Phase::Recovering {
            return Err(Refused::Machine(Refusal::Recovering));
        }
        self.calls.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => Refused::QueueFull,
            mpsc::error::TrySendError::Closed(()) => Refused::Draining,
        })
    }
}
