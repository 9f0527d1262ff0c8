//! One address, and the loop that asks it until it answers.
//!
//! The loop knows three kinds of failure and nothing else: the request never left (no connection), the server refused
//! (Covenant's ErrorInfo: ran nothing), and everything else, after which the request may have been run. Once the third
//! has happened only an answer is definite.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::error::{describe, is_wrong_server, never_left};
use crate::{
    CONNECT_TIMEOUT_MS, Error, KEEP_ALIVE_INTERVAL_MS, KEEP_ALIVE_TIMEOUT_MS, MAX_PATIENCE_MS, RETRY_BASE_MS,
    RETRY_CAP_MS, Refusal, RefusalKind, Why,
};

/// One try that brought no answer, told to whoever watches.
#[derive(Clone, Debug)]
pub struct Retry {
    /// Which try it was, from 1.
    pub attempt: u32,
    /// What it met, in a few words.
    pub why: String,
    /// The pause before the next one.
    pub pause: Duration,
}

type OnRetry = Arc<dyn Fn(&Retry) + Send + Sync>;

/// An address with a connection that is made when it is first needed, and made again when it breaks. Cheap to clone.
#[derive(Clone)]
pub struct Link {
    endpoint: Arc<str>,
    channel: Channel,
    on_retry: Option<OnRetry>,
}

/// How a series of tries ended.
pub(crate) enum Ended<T> {
    Answer(T),
    /// Some try may have been run, and nothing definite came.
    Open(Why),
}

impl Link {
    /// A link to `http://HOST:PORT`; nothing is sent.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if the address is no such URL.
    pub fn new(endpoint: &str) -> Result<Self, Error> {
        let bad = |why: &str| Error::Endpoint {
            endpoint: endpoint.to_owned(),
            why: why.to_owned(),
        };
        let address = Endpoint::from_shared(endpoint.to_owned()).map_err(|error| bad(&error.to_string()))?;
        match address.uri().scheme_str() {
            Some("http") => {}
            Some("https") => return Err(bad("TLS is not spoken here")),
            Some(_) | None => return Err(bad("it does not begin with http://")),
        }
        if address.uri().port().is_none() {
            return Err(bad("it names no port"));
        }
        let channel = address
            .connect_timeout(Duration::from_millis(CONNECT_TIMEOUT_MS))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_millis(KEEP_ALIVE_INTERVAL_MS))
            .keep_alive_timeout(Duration::from_millis(KEEP_ALIVE_TIMEOUT_MS))
            .keep_alive_while_idle(true)
            .connect_lazy();
        Ok(Self {
            endpoint: Arc::from(endpoint),
            channel,
            on_retry: None,
        })
    }

    /// The address as given.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Tells `watch` of every try that brought no answer and is followed by another.
    #[must_use]
    pub fn on_retry(mut self, watch: impl Fn(&Retry) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Arc::new(watch));
        self
    }

    pub(crate) fn wrong_server(&self) -> Error {
        Error::WrongServer {
            endpoint: self.endpoint.to_string(),
        }
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Asks something that changes nothing, again and again until there is an answer or `patience` ends; it returns at
    /// most [`CONNECT_TIMEOUT_MS`] after that.
    ///
    /// # Errors
    /// [`Error::NeverSent`], [`Error::Refused`], [`Error::WrongServer`] or [`Error::Unanswered`].
    pub async fn ask<T, F>(
        &self,
        patience: Duration,
        call: impl Fn(Channel, Instant) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let unanswered = |source| Error::Unanswered {
            endpoint: self.endpoint.to_string(),
            source,
        };
        match self.persist(patience, call).await? {
            Ended::Answer(answer) => Ok(answer),
            Ended::Open(Why::Unanswered { last, .. }) if is_wrong_server(&last) => Err(self.wrong_server()),
            Ended::Open(Why::Unanswered { last, .. }) => Err(unanswered(last)),
            // What was asked changes nothing, so the earlier try that got no answer does not matter.
            Ended::Open(Why::RefusedLater(refusal)) => Err(Error::Refused(refusal)),
            Ended::Open(why @ (Why::Said | Why::NotUnderstood)) => {
                unreachable!("no answer was read, and yet it is {why:?}")
            }
        }
    }

    /// Makes the same call until there is an answer, a refusal that stands, or `patience` ends.
    pub(crate) async fn persist<T, F>(
        &self,
        patience: Duration,
        call: impl Fn(Channel, Instant) -> F,
    ) -> Result<Ended<T>, Error>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let until = Instant::now() + patience.min(Duration::from_millis(MAX_PATIENCE_MS));
        // A try that still connects when patience ends goes on until it is sure whether anything left; one that was
        // sent ends by its own deadline.
        let cut = until + Duration::from_millis(CONNECT_TIMEOUT_MS);
        let mut may_have_run = false;
        for attempt in 1.. {
            let status = match timeout_at(cut, call(self.channel(), until)).await {
                Ok(Ok(answer)) => return Ok(Ended::Answer(answer)),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("the caller's patience ended"),
            };
            let refusal = Refusal::from_status(&status);
            may_have_run |= refusal.is_none() && !never_left(&status);
            let pause = pause(attempt);
            let retry = match &refusal {
                Some(refusal) if may_have_run => refusal.is_transient(),
                Some(refusal) => refusal.kind == RefusalKind::Unavailable,
                None => !is_wrong_server(&status),
            };
            if !retry || Instant::now() + pause >= until {
                return self.ended(attempt, may_have_run, refusal, status);
            }
            if let Some(on_retry) = &self.on_retry {
                let why = refusal.map_or_else(|| describe(&status), |refusal| refusal.to_string());
                on_retry(&Retry { attempt, why, pause });
            }
            sleep(pause).await;
        }
        unreachable!("attempts are not counted to their end");
    }

    fn ended<T>(
        &self,
        attempt: u32,
        may_have_run: bool,
        refusal: Option<Refusal>,
        status: Status,
    ) -> Result<Ended<T>, Error> {
        match refusal {
            Some(refusal) if may_have_run => Ok(Ended::Open(Why::RefusedLater(refusal))),
            Some(refusal) => Err(Error::Refused(refusal)),
            None if may_have_run => Ok(Ended::Open(Why::Unanswered {
                sends: attempt,
                last: Box::new(status),
            })),
            None => Err(Error::NeverSent {
                endpoint: self.endpoint.to_string(),
                tries: attempt,
                source: Box::new(status),
            }),
        }
    }
}

/// A request that tells the server how long its answer is awaited.
pub fn bounded<T>(message: T, until: Instant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(until.saturating_duration_since(Instant::now()));
    request
}

/// `base * 2^(attempt - 1)`, at most the cap, less up to half of it at random.
fn pause(attempt: u32) -> Duration {
    let full = RETRY_BASE_MS
        .saturating_mul(1 << (attempt - 1).min(16))
        .min(RETRY_CAP_MS);
    // Without randomness callers still retry, only in step.
    let random = getrandom::u64().unwrap_or(0);
    Duration::from_millis(full - random % (full / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_keep_at_least_half() {
        for attempt in 1..60 {
            let full = RETRY_BASE_MS
                .saturating_mul(1 << (attempt - 1).min(16))
                .min(RETRY_CAP_MS);
            let millis = u64::try_from(pause(attempt).as_millis()).unwrap();
            assert!(
                millis <= full && millis >= full / 2,
                "{attempt}: {millis} of {full}"
            );
        }
    }

    #[tokio::test]
    async fn an_address_without_scheme_or_port_is_refused_with_the_way_out() {
        for endpoint in [
            "127.0.0.1:7400",
            "https://localhost:7400",
            "http://localhost",
            "",
            "http://a b:1",
        ] {
            let Err(error) = Link::new(endpoint) else {
                panic!("'{endpoint}' was taken")
            };
            assert!(error.to_string().contains("http://HOST:PORT"), "{error}");
        }
        assert!(Link::new("http://[::1]:7400").is_ok());
    }
}
