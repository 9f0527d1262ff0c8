//! What a participant is told at its start, and the bounds that are not for telling.

use std::time::Duration;

use covenant_fault::CrashPlan;
use covenant_rules::{Limits, Name};
use tonic::transport::Endpoint;

use crate::Error;

/// The most inputs (frames, completions, commands) that go into one frame out.
pub const MAX_INPUTS_PER_FRAME: usize = 256;

/// The most messages that wait for a coordinator that does not take them, beside one for each branch that is kept (on
/// joining each may have something to say). Past it the session is cut and joined again, which repeats what is due.
pub const MAX_OUTGOING_MESSAGES: usize = 65_536;

/// The frames that may wait between the driver and the socket.
pub const OUTGOING_FRAMES: usize = 4;

/// The operators' requests that may wait for the driver; more of them wait in their callers.
pub const MAX_WAITING_COMMANDS: usize = 64;

/// The most branches in doubt that one listing shows.
pub const MAX_LISTED_IN_DOUBT: usize = 1_000;

/// How long a TCP connection may take.
pub const CONNECT_TIMEOUT_MS: u64 = 1_000;

/// How long connecting and joining may take together, up to Welcome.
pub const DIAL_TIMEOUT_MS: u64 = 5_000;

/// The first pause between two dials.
pub const DIAL_BASE_MS: u64 = 50;

/// The longest pause between two dials.
pub const DIAL_CAP_MS: u64 = 1_000;

/// A session that lasted this long was a success: the next dial starts with the first pause again.
pub const STABLE_SESSION_MS: u64 = 1_000;

/// How often a silent connection is asked for a sign of life (section 8).
pub const KEEP_ALIVE_INTERVAL_MS: u64 = 2_000;

/// How long that sign may take before the session is dead.
pub const KEEP_ALIVE_TIMEOUT_MS: u64 = 3_000;

/// How long a participant that leaves waits for the coordinator to end the session too.
pub const LINGER_MS: u64 = 500;

/// The time for leaving when the last [`Handle`](crate::Handle) is dropped without a shutdown.
pub const DEFAULT_LEAVE_MS: u64 = 5_000;

/// What a participant is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name under which it joins; the same for the life of its data.
    pub name: Name,
    /// The coordinator, as `http://HOST:PORT`.
    pub coordinator: String,
    /// The bounds of its machine.
    pub limits: Limits,
    /// Where to crash on purpose: nowhere, but in tests.
    pub crash: CrashPlan,
}

impl Config {
    /// The defaults for a name and a coordinator.
    #[must_use]
    pub fn new(name: Name, coordinator: &str) -> Self {
        let coordinator = coordinator.to_owned();
        Self {
            name,
            coordinator,
            limits: Limits::DEFAULT,
            crash: CrashPlan::default(),
        }
    }

    /// The coordinator's address with the time-outs of a session.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Error> {
        let refused = |source| Error::Address {
            value: self.coordinator.clone(),
            source,
        };
        if !self.coordinator.starts_with("http://") {
            return Err(refused(None));
        }
        let endpoint =
            Endpoint::from_shared(self.coordinator.clone()).map_err(|source| refused(Some(source)))?;
        Ok(endpoint
            .connect_timeout(Duration::from_millis(CONNECT_TIMEOUT_MS))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_millis(KEEP_ALIVE_INTERVAL_MS))
            .keep_alive_timeout(Duration::from_millis(KEEP_ALIVE_TIMEOUT_MS))
            .keep_alive_while_idle(true))
    }
}
