//! One call of the resource, repeated until it is answered (RC4), as the event of its completion.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use covenant_codec::MAX_REASON_CODE_BYTES;
use covenant_codec::words::is_reason_code;
use covenant_rules::participant::{Branch, Event};
use covenant_rules::{Backoff, Decision, Operator, Vote, Xid};

use crate::{Error, Resource};

/// What the machine asks of the resource about one branch.
pub(crate) enum Call {
    Prepare(Branch),
    Commit(Xid),
    Abort(Xid),
    Resolve { xid: Xid, what: Decision, by: Operator },
    Forget(Xid),
}

/// A call under way.
pub(crate) type Running = Pin<Box<dyn Future<Output = Event> + Send>>;

/// Makes the call, again and again while its result is not known.
pub(crate) fn run<R: Resource>(resource: Arc<R>, call: Call, backoff: Backoff) -> Running {
    Box::pin(async move {
        let mut failures: u32 = 0;
        loop {
            match once(&*resource, &call).await {
                Ok(event) => return event,
                Err(error) => {
                    // One line per doubling: a resource that is down has thousands of calls waiting.
                    if (failures + 1).is_power_of_two() {
                        let (xid, cause) = (call.xid(), error.report());
                        tracing::warn!(call = call.name(), %xid, failures, cause, "the resource did not answer; calling again");
                    }
                    let pause_ms = backoff.pause(call.xid(), call.name(), failures);
                    failures = failures.saturating_add(1).min(u32::MAX - 1);
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
            }
        }
    })
}

async fn once<R: Resource>(resource: &R, call: &Call) -> Result<Event, Error> {
    Ok(match call {
        Call::Prepare(branch) => {
            let vote = resource.prepare(branch.clone()).await?;
            complain_of_code(branch.xid, &vote);
            Event::Prepared(branch.xid, vote)
        }
        Call::Commit(xid) => {
            resource.commit(*xid).await?;
            Event::Committed(*xid)
        }
        Call::Abort(xid) => {
            resource.abort(*xid).await?;
            Event::Aborted(*xid)
        }
        Call::Resolve { xid, what, by } => {
            resource.resolve(*xid, *what, by.clone()).await?;
            Event::Resolved(*xid)
        }
        Call::Forget(xid) => {
            resource.forget(*xid).await?;
            Event::Forgotten(*xid)
        }
    })
}

/// RC14: what is sent in the place of such a code is the codec's.
fn complain_of_code(xid: Xid, vote: &Vote) {
    if let Vote::No(reason) = vote
        && !is_reason_code(&reason.code)
    {
        let shown = &reason.code[..reason.code.floor_char_boundary(MAX_REASON_CODE_BYTES)];
        tracing::error!(
            %xid,
            code = ?shown,
            "RC14: the code of a NO is A to Z, 0 to 9 and '_', begins with a letter and has at most 64 bytes; \
             INVALID_REASON_CODE is sent"
        );
    }
}

impl Call {
    fn xid(&self) -> Xid {
        match self {
            Self::Prepare(branch) => branch.xid,
            Self::Commit(xid) | Self::Abort(xid) | Self::Forget(xid) | Self::Resolve { xid, .. } => *xid,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Prepare(_) => "prepare",
            Self::Commit(_) => "commit",
            Self::Abort(_) => "abort",
            Self::Resolve { .. } => "resolve",
            Self::Forget(_) => "forget",
        }
    }
}
