//! The servers of a bench: started by it in a directory of their own, or there already; and what they say of themselves.

use std::path::Path;
use std::time::Duration;

use covenant_client::{Client, Link};
use covenant_proto::ledger::v1::OpenAccountRequest;
use covenant_proto::v1::LogFigures;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use serde_json::Value;
use tempfile::TempDir;

use super::child::Child;
use super::load::{CURRENCY, account};
use super::process_figures::ProcessFigures;
use crate::args::read_patience;
use crate::exit::Failure;
use crate::{ledger_client, place};

/// The longest wait for a ready line.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait for every branch to be done when the load has ended.
const QUIET_TIMEOUT: Duration = Duration::from_secs(30);

/// How often is looked whether what is waited for is there.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// What each account of the load starts with, in minor units.
const OPENING: i64 = 1_000_000_000_000;

/// How many accounts are opened at a time.
const OPENINGS_AT_A_TIME: usize = 64;

/// A server: a child of this process, or somebody else's.
pub(super) struct Server {
    pub(super) name: String,
    pub(super) url: String,
    child: Option<Child>,
}

/// The servers, and the directory of those that were started here.
pub(super) struct World {
    // Before the directory: processes are killed first, then it is removed.
    pub(super) coordinator: Server,
    pub(super) ledgers: Vec<Server>,
    pub(super) directory: TempDir,
}

/// What one server did since its start, and what its process used.
#[derive(Clone, Copy, Default)]
pub(super) struct ServerFigures {
    pub(super) log: LogFigures,
    /// Absent for a process that was not started here.
    pub(super) process: Option<ProcessFigures>,
}

/// All servers at one time; the coordinator first.
pub(super) struct Snapshot {
    pub(super) servers: Vec<ServerFigures>,
    /// Messages between coordinator and ledgers, both ways.
    pub(super) messages: u64,
}

/// The money of one ledger, in minor units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Money {
    pub(super) customers: i128,
    /// Customers and system accounts together.
    pub(super) all: i128,
}

impl Server {
    async fn start(name: &str, arguments: &[&str], directory: &Path) -> Result<Self, Failure> {
        let data = directory.join(name).display().to_string();
        let mut all: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
        all.extend([
            "--data-dir".to_owned(),
            data,
            "--listen".to_owned(),
            "127.0.0.1:0".to_owned(),
        ]);
        let mut child = Child::start(name, &all, directory)?;
        let ready: Value = child.line(READY_TIMEOUT).await?;
        let listen = ready["listen"]
            .as_str()
            .ok_or_else(|| Failure::internal("START", format!("{name} said no address: {ready}")))?;
        Ok(Self {
            name: name.to_owned(),
            url: format!("http://{listen}"),
            child: Some(child),
        })
    }

    /// Its process, if it was started here.
    pub(super) fn process_id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    fn link(&self) -> Result<Link, Failure> {
        Ok(Link::new(&self.url)?)
    }

    async fn end(self) {
        if let Some(child) = self.child {
            child.end().await;
        }
    }
}

impl World {
    /// Starts a coordinator and so many ledgers, each a process of its own.
    pub(super) async fn start(ledgers: usize) -> Result<Self, Failure> {
        let directory = place::make("covenant-bench-")?;
        let coordinator = Server::start("coordinator", &["serve"], directory.path()).await?;
        let mut world = Self {
            coordinator,
            ledgers: Vec::new(),
            directory,
        };
        for number in 0..ledgers {
            let name = format!("ledger-{number}");
            let arguments = ["ledger", "--name", &name, "--coordinator", &world.coordinator.url];
            let ledger = Server::start(&name, &arguments, world.directory.path()).await?;
            world.ledgers.push(ledger);
        }
        world.wait_joined().await?;
        Ok(world)
    }

    /// Waits until every ledger has joined: a ready line does not wait for that for long.
    async fn wait_joined(&self) -> Result<(), Failure> {
        let client = Client::new(&self.coordinator.url)?;
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let listed = client.participants(0, "", read_patience()).await?.participants;
            let joined = listed.iter().filter(|participant| participant.joined).count();
            if joined == self.ledgers.len() {
                return Ok(());
            }
            if tokio::time::Instant::now() >= until {
                let all = self.ledgers.len();
                let why = format!("{joined} of {all} ledgers joined within {READY_TIMEOUT:?}");
                return Err(Failure::internal("START", why));
            }
            tokio::time::sleep(POLL_PAUSE).await;
        }
    }

    /// Takes servers that run already.
    pub(super) fn existing(endpoint: &str, ledgers: &[(String, String)]) -> Result<Self, Failure> {
        let server = |name: &str, url: &str| Server {
            name: name.to_owned(),
            url: url.to_owned(),
            child: None,
        };
        Ok(Self {
            coordinator: server("coordinator", endpoint),
            ledgers: ledgers.iter().map(|(name, url)| server(name, url)).collect(),
            directory: place::make("covenant-bench-")?,
        })
    }

    /// Opens the load's accounts at every ledger, unless they are there.
    pub(super) async fn open_accounts(&self, accounts: u32) -> Result<(), Failure> {
        for ledger in &self.ledgers {
            let link = ledger.link()?;
            let open = |number| {
                let link = &link;
                let request = OpenAccountRequest {
                    account: account(number),
                    currency: CURRENCY.to_owned(),
                    opening_amount: OPENING,
                };
                async move { ledger_client::open_account(link, request).await }
            };
            iter(0..accounts as usize)
                .map(open)
                .buffer_unordered(OPENINGS_AT_A_TIME)
                .try_for_each(|_| async { Ok(()) })
                .await?;
        }
        Ok(())
    }

    /// What all servers did so far.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let figures = Client::new(&self.coordinator.url)?
            .figures(read_patience())
            .await?;
        let process = |server: &Server| server.process_id().and_then(ProcessFigures::of);
        let mut servers = vec![ServerFigures {
            log: figures.log.unwrap_or_default(),
            process: process(&self.coordinator),
        }];
        for ledger in &self.ledgers {
            servers.push(ServerFigures {
                log: ledger_client::log_figures(&ledger.link()?).await?,
                process: process(ledger),
            });
        }
        Ok(Snapshot {
            servers,
            messages: figures.messages_sent + figures.messages_received,
        })
    }

    /// The money of every ledger once nothing is held at any.
    pub(super) async fn money(&self) -> Result<Vec<Money>, Failure> {
        let until = tokio::time::Instant::now() + QUIET_TIMEOUT;
        let mut sums = Vec::new();
        for ledger in &self.ledgers {
            let link = ledger.link()?;
            loop {
                let accounts = ledger_client::accounts(&link, true).await?.items;
                let held = accounts
                    .iter()
                    .any(|account| account.pending_debit != 0 || account.pending_credit != 0);
                if !held {
                    let sum = |with_system: bool| {
                        let taken = accounts
                            .iter()
                            .filter(|account| account.currency == CURRENCY)
                            .filter(|account| with_system || !account.account.starts_with('@'));
                        taken.map(|account| i128::from(account.posted)).sum()
                    };
                    sums.push(Money {
                        customers: sum(false),
                        all: sum(true),
                    });
                    break;
                }
                if tokio::time::Instant::now() >= until {
                    let why = format!("{} still holds money after {QUIET_TIMEOUT:?}", ledger.name);
                    return Err(Failure::internal("NOT_QUIET", why));
                }
                tokio::time::sleep(POLL_PAUSE).await;
            }
        }
        Ok(sums)
    }

    /// Ends the processes that were started here; their logs stay in the directory until that is dropped.
    pub(super) async fn end(self) -> TempDir {
        for ledger in self.ledgers {
            ledger.end().await;
        }
        self.coordinator.end().await;
        self.directory
    }
}
