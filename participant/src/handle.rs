//! What a program holds of its participant: a cheap handle instead of channels.

use std::sync::Arc;
use std::time::Duration;

use covenant_rules::{Decision, Incarnation, Lineage, Operator, TransactionId, Xid};
use tokio::sync::{mpsc, oneshot, watch};

use crate::Error;

/// Whether a session is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinState {
    /// Away: dialling, or refused.
    Away {
        /// Why the last dial or session ended; `None` before the first.
        reason: Option<Arc<str>>,
    },
    /// Joined to this coordinator.
    Joined {
        /// The coordinator's log.
        lineage: Lineage,
        /// Its start.
        incarnation: Incarnation,
    },
}

impl JoinState {
    /// Whether a session is up.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        matches!(self, Self::Joined { .. })
    }
}

/// A branch in doubt, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InDoubtBranch {
    /// The attempt.
    pub xid: Xid,
    /// The caller's id.
    pub transaction_id: TransactionId,
    /// How long it has been so in this start.
    pub age: Duration,
}

/// The branches in doubt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InDoubtList {
    /// How many there are.
    pub total: usize,
    /// The first of them by xid; at most [`MAX_LISTED_IN_DOUBT`](crate::config::MAX_LISTED_IN_DOUBT).
    pub branches: Vec<InDoubtBranch>,
}

/// What a handle asks of the driver.
pub(crate) enum Command {
    InDoubt(oneshot::Sender<InDoubtList>),
    Resolve {
        xid: Xid,
        what: Decision,
        by: Operator,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Shutdown {
        deadline: Duration,
        reply: oneshot::Sender<Result<(), Error>>,
    },
}

/// A running participant. Cheap to clone; when the last one is dropped the participant leaves.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) joined: watch::Receiver<JoinState>,
}

impl Handle {
    /// Whether a session is up, to look at and to wait on.
    #[must_use]
    pub fn joined(&self) -> watch::Receiver<JoinState> {
        self.joined.clone()
    }

    /// The branches that voted YES and do not know the decision.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn in_doubt(&self) -> Result<InDoubtList, Error> {
        self.ask(Command::InDoubt).await
    }

    /// Decides a prepared branch by hand (P14); completes when the heuristic is durable.
    ///
    /// # Errors
    /// [`Error::Refused`]: nothing changed. [`Error::Stopped`]: it is not known; look again after the next start.
    pub async fn resolve(&self, xid: Xid, what: Decision, by: Operator) -> Result<(), Error> {
        self.ask(|reply| Command::Resolve { xid, what, by, reply })
            .await?
    }

    /// Takes no new work, lets the calls under way complete and their messages leave, and leaves the session. What is
    /// prepared stays prepared, durably.
    ///
    /// # Errors
    /// [`Error::Leaving`]: the deadline passed first, or the session ended before every message was handed to it.
    /// [`Error::Stopped`]: somebody else was faster.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), Error> {
        self.ask(|reply| Command::Shutdown { deadline, reply }).await?
    }

    /// Completes when the participant has stopped, for whatever reason. A server that did not ask for it must exit.
    pub async fn ended(&self) {
        let mut joined = self.joined.clone();
        while joined.changed().await.is_ok() {}
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| Error::Stopped)?;
        answer.await.map_err(|_| Error::Stopped)
    }
}
