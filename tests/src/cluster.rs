//! A coordinator and two ledgers as processes, with the accounts of the case study: alice has 5,000.00 THB at ledger A,
//! bob nothing at ledger B.

use std::time::Duration;

use anyhow::{Context, Result};
use covenant_client::{Client, Outcome};
use covenant_proto::v1::StateFilter;
use tempfile::TempDir;

use crate::binary::scratch;
use crate::checks::{self, Caller, Told};
use crate::offline;
use crate::process::{Ran, covenant};
use crate::server::{Launch, Server};
use crate::transfer::Transfer;
use crate::wait::wait_until;
use crate::world::{LedgerReader, LedgerView, World, transactions};

/// The ledger with alice.
pub const LEDGER_A: &str = "ledger-a";

/// The ledger with bob.
pub const LEDGER_B: &str = "ledger-b";

/// What alice has at the opening, in minor units; bob has nothing.
pub const OPENING: i64 = 500_000;

/// How long everything may take to end once every process is back ("What it must show").
pub const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a caller of a transfer waits and sends it again.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One of the three processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Who {
    /// The coordinator.
    Coordinator,
    /// The ledger with alice.
    LedgerA,
    /// The ledger with bob.
    LedgerB,
}

/// How a cluster is started.
pub struct Plan {
    /// The coordinator.
    pub coordinator: Launch,
    /// The ledger with alice.
    pub ledger_a: Launch,
    /// The ledger with bob.
    pub ledger_b: Launch,
    directory: TempDir,
}

impl Plan {
    /// The usual cluster.
    ///
    /// # Errors
    /// If no directory can be made or no port is free.
    pub fn new() -> Result<Self> {
        let directory = scratch()?;
        let coordinator = Launch::coordinator(&directory.path().join("c1"))?;
        let ledger = |name: &str| Launch::ledger(name, &directory.path().join(name), &coordinator.url());
        let ledger_a = ledger(LEDGER_A)?.open(&format!("alice={OPENING}:THB"));
        let ledger_b = ledger(LEDGER_B)?.open("bob=0:THB");
        Ok(Self {
            coordinator,
            ledger_a,
            ledger_b,
            directory,
        })
    }

    /// The directory in which everything of the cluster will be.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Changes how one process is started.
    #[must_use]
    pub fn with(mut self, who: Who, change: impl FnOnce(Launch) -> Launch) -> Self {
        let launch = match who {
            Who::Coordinator => &mut self.coordinator,
            Who::LedgerA => &mut self.ledger_a,
            Who::LedgerB => &mut self.ledger_b,
        };
        *launch = change(launch.clone());
        self
    }

    /// Starts the three and waits until they are ready and the ledgers have joined.
    ///
    /// # Errors
    /// If one of them does not become ready.
    pub async fn start(self) -> Result<Cluster> {
        let mut coordinator = self.coordinator.spawn()?;
        let mut ledger_a = self.ledger_a.spawn()?;
        let mut ledger_b = self.ledger_b.spawn()?;
        coordinator.wait_ready().await?;
        ledger_a.wait_ready().await?;
        ledger_b.wait_ready().await?;
        let cluster = Cluster {
            client: Client::new(&self.coordinator.url())?,
            readers: [
                LedgerReader::new(LEDGER_A, &self.ledger_a.url())?,
                LedgerReader::new(LEDGER_B, &self.ledger_b.url())?,
            ],
            coordinator,
            ledger_a,
            ledger_b,
            directory: self.directory,
        };
        cluster.wait_joined().await?;
        Ok(cluster)
    }
}

/// The three processes, running.
pub struct Cluster {
    /// The coordinator.
    pub coordinator: Server,
    /// The ledger with alice.
    pub ledger_a: Server,
    /// The ledger with bob.
    pub ledger_b: Server,
    client: Client,
    readers: [LedgerReader; 2],
    directory: TempDir,
}

impl Cluster {
    /// The usual cluster, started.
    ///
    /// # Errors
    /// As [`Plan::start`].
    pub async fn start() -> Result<Self> {
        Plan::new()?.start().await
    }

    /// One of the processes.
    pub fn server(&mut self, who: Who) -> &mut Server {
        match who {
            Who::Coordinator => &mut self.coordinator,
            Who::LedgerA => &mut self.ledger_a,
            Who::LedgerB => &mut self.ledger_b,
        }
    }

    /// A caller of the coordinator.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The directory in which everything of this cluster is.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Waits until the coordinator has a session with both ledgers.
    ///
    /// # Errors
    /// If that takes longer than [`PATIENCE`].
    pub async fn wait_joined(&self) -> Result<()> {
        wait_until("both ledgers to join", PATIENCE, async || {
            let page = self.client.participants(0, "", PATIENCE).await?;
            let joined: Vec<&str> = page
                .participants
                .iter()
                .filter(|one| one.joined)
                .map(|one| one.name.as_str())
                .collect();
            anyhow::ensure!(joined == [LEDGER_A, LEDGER_B], "joined are {joined:?}");
            Ok(())
        })
        .await
    }

    /// Sends a transfer, again and again if need be, and says what its caller is told.
    ///
    /// # Errors
    /// A refusal, or that it surely never left.
    pub async fn execute(&self, transfer: &Transfer) -> Result<Outcome> {
        Ok(self.client.execute(&transfer.transaction(), PATIENCE).await?)
    }

    /// Sends a transfer; it must commit.
    ///
    /// # Errors
    /// If it does not.
    pub async fn commits(&self, transfer: &Transfer) -> Result<Caller> {
        let outcome = self.execute(transfer).await?;
        let caller = Caller {
            id: transfer.id.clone(),
            created: transfer.created,
            told: Told::from(&outcome),
        };
        anyhow::ensure!(caller.told == Told::Committed, "{} is {outcome:?}", transfer.id);
        Ok(caller)
    }

    /// Runs the command under test against this coordinator: words apart by one space.
    ///
    /// # Errors
    /// If it does not start or end.
    pub async fn covenant(&self, line: &str) -> Result<Ran> {
        let url = self.coordinator.url();
        let words: Vec<&str> = line.split(' ').chain(["--endpoint", &url]).collect();
        covenant(&words).await
    }

    /// What can be seen of it.
    ///
    /// # Errors
    /// If one of the three does not answer.
    pub async fn world(&self) -> Result<World> {
        Ok(World {
            transactions: transactions(&self.client, StateFilter::Unspecified).await?,
            ledgers: vec![self.ledger(Who::LedgerA).await?, self.ledger(Who::LedgerB).await?],
        })
    }

    /// What can be seen of a ledger.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn ledger(&self, who: Who) -> Result<LedgerView> {
        let reader = if who == Who::LedgerA {
            &self.readers[0]
        } else {
            &self.readers[1]
        };
        reader
            .view()
            .await
            .with_context(|| format!("{who:?} does not show itself"))
    }

    /// Waits until everything has ended, with no caller's help.
    ///
    /// # Errors
    /// What goes on after the deadline.
    pub async fn quiet(&self, deadline: Duration) -> Result<World> {
        wait_until("everything to end", deadline, async || {
            let world = self.world().await?;
            checks::quiet(&world)?;
            // A branch that its participant asks about may be unknown to the coordinator's list.
            let page = self.client.participants(0, "", PATIENCE).await?;
            for participant in &page.participants {
                let open = (participant.in_progress, participant.in_doubt);
                anyhow::ensure!(open == (0, 0), "{} has {open:?} open", participant.name);
            }
            Ok(world)
        })
        .await
    }

    /// The invariants that can be judged from outside, at a quiet point.
    ///
    /// # Errors
    /// The first that does not hold.
    pub async fn check(&self, callers: &[Caller]) -> Result<World> {
        let world = self.quiet(QUIET_TIMEOUT).await?;
        checks::s1_agreement(&world)?;
        checks::s15_one_commit(&world)?;
        checks::s14_conservation(&world, OPENING.into())?;
        checks::s11_caller_truth(&self.client, callers).await?;
        Ok(world)
    }

    /// Stops the three by SIGTERM; each must exit with 0. Then the invariants that can be judged from the logs.
    ///
    /// # Errors
    /// The first that does not hold.
    pub async fn stop_and_check_logs(mut self) -> Result<()> {
        for who in [Who::LedgerA, Who::LedgerB, Who::Coordinator] {
            self.server(who)
                .stop_cleanly()
                .await
                .with_context(|| format!("{who:?}"))?;
        }
        let ledgers = [
            offline::ledger(self.ledger_a.launch().data_dir())?,
            offline::ledger(self.ledger_b.launch().data_dir())?,
        ];
        let coordinator = offline::coordinator(self.coordinator.launch().data_dir())?;
        checks::s1_agreement_in_logs(&coordinator, &ledgers)
    }
}
