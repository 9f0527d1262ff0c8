//! The lines to the coordinator: through proxies of one machine, or between hosts.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::hosts::Hosts;
use super::plan::{Cut, Line, Who};
use super::proxy::Proxy;
use crate::Launch;

/// The lines that callers share.
pub const CALLER_LINES: usize = 2;

/// All lines.
pub enum Lines {
    /// All processes on one host, a proxy in each line.
    Proxied {
        /// Those of the participants.
        participants: Vec<Proxy>,
        /// Those of the callers.
        callers: Vec<Proxy>,
    },
    /// Each process on a host of its own.
    Hosts(Hosts),
}

/// What went through, for the report.
#[derive(Clone, Copy, Default, Debug)]
pub struct Passed {
    /// The connections that were made through proxies.
    pub connections: u64,
    /// The bytes that went through them.
    pub bytes: u64,
    /// The packets that cuts between hosts lost.
    pub packets_lost: u64,
}

impl Lines {
    /// Makes the hosts, or a proxy in each line; the coordinator as it must be started for that.
    ///
    /// # Errors
    /// If there can be no hosts, or no port is free for a proxy.
    pub async fn start(
        directory: &Path,
        participants: usize,
        as_hosts: bool,
        coordinator: Launch,
    ) -> Result<(Self, Launch)> {
        if as_hosts {
            let lines = Self::Hosts(Hosts::join(directory, participants)?);
            let coordinator = lines.place(Who::Coordinator, coordinator);
            return Ok((lines, coordinator));
        }
        let proxies = async |count| -> Result<Vec<Proxy>> {
            let mut proxies = Vec::new();
            for _ in 0..count {
                proxies.push(Proxy::start(coordinator.address()).await?);
            }
            Ok(proxies)
        };
        let lines = Self::Proxied {
            callers: proxies(CALLER_LINES).await?,
            participants: proxies(participants).await?,
        };
        Ok((lines, coordinator))
    }

    /// A server where it shall run.
    #[must_use]
    pub fn place(&self, who: Who, launch: Launch) -> Launch {
        match self {
            Self::Proxied { .. } => launch,
            Self::Hosts(hosts) => launch.elsewhere(hosts.address(who), hosts.inside(who)),
        }
    }

    /// Where a participant finds the coordinator.
    #[must_use]
    pub fn of_participant(&self, number: usize) -> String {
        match self {
            Self::Proxied { participants, .. } => participants[number].url(),
            Self::Hosts(hosts) => format!("http://{}", hosts.address(Who::Coordinator)),
        }
    }

    /// Where the callers find the coordinator: each of them at one of these.
    #[must_use]
    pub fn of_callers(&self) -> Vec<String> {
        match self {
            Self::Proxied { callers, .. } => callers.iter().map(Proxy::url).collect(),
            Self::Hosts(hosts) => vec![format!("http://{}", hosts.address(Who::Coordinator)); CALLER_LINES],
        }
    }

    /// How many of the callers' lines can be cut one by one.
    #[must_use]
    pub fn caller_lines(&self) -> usize {
        match self {
            Self::Proxied { callers, .. } => callers.len(),
            Self::Hosts(_) => 1,
        }
    }

    /// Begins a cut.
    ///
    /// # Errors
    /// If it cannot be made here.
    pub fn cut(&self, line: Line, cut: Cut) -> Result<()> {
        match self {
            Self::Proxied { .. } => {
                ensure!(!Cut::OF_HOSTS.contains(&cut), "{cut:?} is a cut between hosts");
                self.proxy(line)?.cut(cut);
            }
            Self::Hosts(hosts) => hosts.cut(line, cut)?,
        }
        Ok(())
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn mend(&self, line: Line, cut: Cut) -> Result<()> {
        match self {
            Self::Proxied { .. } => self.proxy(line)?.mend(cut),
            Self::Hosts(hosts) => hosts.mend(line, cut)?,
        }
        Ok(())
    }

    /// How often such a cut of this line met something so far.
    ///
    /// # Errors
    /// If nobody counts that.
    pub fn met(&self, line: Line, cut: Cut) -> Result<u64> {
        match self {
            Self::Proxied { .. } => Ok(self.proxy(line)?.met()),
            Self::Hosts(hosts) => hosts.met(line, cut),
        }
    }

    /// What went through them so far.
    ///
    /// # Errors
    /// If nobody counts that.
    pub fn passed(&self) -> Result<Passed> {
        let mut passed = Passed::default();
        match self {
            Self::Proxied {
                participants,
                callers,
            } => {
                for (connections, bytes) in participants.iter().chain(callers).map(Proxy::passed) {
                    passed.connections += connections;
                    passed.bytes += bytes;
                }
            }
            Self::Hosts(hosts) => passed.packets_lost = hosts.lost()?,
        }
        Ok(passed)
    }

    fn proxy(&self, line: Line) -> Result<&Proxy> {
        match (self, line) {
            (Self::Proxied { participants, .. }, Line::Participant(number)) => Ok(&participants[number]),
            (Self::Proxied { callers, .. }, Line::Callers(number)) => Ok(&callers[number]),
            (_, line) => bail!("there is no proxy in {line:?}"),
        }
    }
}
