//! The three processes of the demo, and how they are looked at.

use std::time::Duration;

use covenant_client::{Client, Link, UnixMillis, from_timestamp, unix_now};
use covenant_proto::ledger::v1::{Account, Entry, Hold};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use super::child::Process;
use super::holds::Outage;
use super::timeline::Timeline;
use crate::exit::Failure;
use crate::{ledger_client, place};

/// What alice has in the beginning, in minor units.
pub(super) const OPENING: i64 = 500_000;

/// When the coordinator dies in step (c): COMMIT is forced and has left for ledger-a, and for nobody else.
const CRASH_AFTER_COMMIT: &str = "c.commit.sent_some:T100";
/// When the coordinator dies in step (d): all votes are in, nothing is decided.
const CRASH_BEFORE_DECISION: &str = "c.votes.all:T200";
/// The transactions of step (e), in which ledger-b dies when its YES has left; each but the first only if the YES to the one
/// before was lost with ledger-b's connection.
pub(super) const AFTER_VOTE: [&str; 3] = ["T300", "T301", "T302"];

/// The longest wait for a ledger to join, in milliseconds.
const JOIN_MS: u64 = 10_000;

/// How long one look at the participants may take, in milliseconds.
const LIST_PATIENCE_MS: u64 = 2_000;

/// One of the two ledgers, with the account that the story is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// ledger-a, where alice is.
    A,
    /// ledger-b, where bob is.
    B,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn ledger(self) -> &'static str {
        match self {
            Self::A => "ledger-a",
            Self::B => "ledger-b",
        }
    }

    pub(super) fn account(self) -> &'static str {
        match self {
            Self::A => "alice",
            Self::B => "bob",
        }
    }
}

/// The processes and their directory.
pub(super) struct World {
    // Before the directory: processes are killed first, then it is removed.
    coordinator: Process,
    ledgers: [Process; 2],
    directory: TempDir,
    keep: bool,
    /// When ledgers could not hear the coordinator.
    pub(super) outages: Vec<Outage>,
}

/// The processes that were left running.
#[derive(Serialize)]
pub(super) struct Kept {
    directory: String,
    processes: Vec<KeptProcess>,
}

#[derive(Serialize)]
struct KeptProcess {
    name: &'static str,
    url: String,
    process_id: Option<u32>,
}

impl World {
    /// A directory and three processes that are not started.
    pub(super) fn new(keep: bool) -> Result<Self, Failure> {
        let directory = place::make("covenant-demo-")?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let arguments =
            ["serve", "--name", "demo", "--data-dir", &path("coordinator")].map(ToOwned::to_owned);
        let coordinator = Process::new("coordinator", arguments.to_vec(), directory.path(), keep);
        let ledgers = Side::BOTH.map(|side| Process::new(side.ledger(), Vec::new(), directory.path(), keep));
        Ok(Self {
            coordinator,
            ledgers,
            directory,
            keep,
            outages: Vec::new(),
        })
    }

    /// Starts all three for the first time.
    pub(super) async fn start(&mut self, timeline: &mut Timeline) -> Result<(), Failure> {
        self.coordinator
            .start(timeline, &["--crash-at", CRASH_AFTER_COMMIT])
            .await?;
        for side in Side::BOTH {
            let data = self.directory.path().join(side.ledger()).display().to_string();
            let open = format!(
                "{}={}:THB",
                side.account(),
                if side == Side::A { OPENING } else { 0 }
            );
            let coordinator = self.coordinator.url();
            let arguments = [
                "ledger",
                "--name",
                side.ledger(),
                "--data-dir",
                &data,
                "--coordinator",
                &coordinator,
                "--open",
                &open,
            ];
            let arguments = arguments.map(ToOwned::to_owned).to_vec();
            let process = Process::new(side.ledger(), arguments, self.directory.path(), self.keep);
            self.ledgers[side as usize] = process;
            let crash = crash_after_vote(AFTER_VOTE[0]);
            let crash: &[&str] = if side == Side::B {
                &["--crash-at", &crash]
            } else {
                &[]
            };
            self.ledgers[side as usize].start(timeline, crash).await?;
        }
        Ok(())
    }

    /// Waits until the coordinator has died; when, and whether by a crash point.
    pub(super) async fn coordinator_died(
        &mut self,
        timeline: &mut Timeline,
    ) -> Result<(UnixMillis, bool), Failure> {
        let aborted = self.coordinator.died(timeline).await?;
        Ok((unix_now(), aborted))
    }

    /// Starts the coordinator on its log and its port, and waits for the ledgers; it is to die again if `dies_again`.
    pub(super) async fn restart_coordinator(
        &mut self,
        timeline: &mut Timeline,
        died: UnixMillis,
        dies_again: bool,
    ) -> Result<Value, Failure> {
        let crash: &[&str] = if dies_again {
            &["--crash-at", CRASH_BEFORE_DECISION]
        } else {
            &[]
        };
        let ready = self.coordinator.start(timeline, crash).await?;
        for side in Side::BOTH {
            self.joined_again(timeline, side, "coordinator", died).await?;
        }
        Ok(ready)
    }

    /// Waits until ledger-b has died; when, and whether by a crash point.
    pub(super) async fn ledger_b_died(
        &mut self,
        timeline: &mut Timeline,
    ) -> Result<(UnixMillis, bool), Failure> {
        let aborted = self.ledgers[Side::B as usize].died(timeline).await?;
        Ok((unix_now(), aborted))
    }

    /// Starts ledger-b on its journal and its port; it is to die again after its YES to `dies_after`, if that is given.
    pub(super) async fn restart_ledger_b(
        &mut self,
        timeline: &mut Timeline,
        died: UnixMillis,
        dies_after: Option<&str>,
    ) -> Result<Value, Failure> {
        let crash = dies_after.map(crash_after_vote);
        let crash: Vec<&str> = crash
            .iter()
            .flat_map(|point| ["--crash-at", point.as_str()])
            .collect();
        let ready = self.ledgers[Side::B as usize].start(timeline, &crash).await?;
        self.joined_again(timeline, Side::B, Side::B.ledger(), died)
            .await?;
        Ok(ready)
    }

    /// Waits until a ledger has joined since a death, and notes how long it heard nothing.
    async fn joined_again(
        &mut self,
        timeline: &mut Timeline,
        side: Side,
        process: &'static str,
        died: UnixMillis,
    ) -> Result<(), Failure> {
        let client = self.client()?;
        let ledger = side.ledger();
        let probe = async || {
            let listed = client
                .participants(0, "", Duration::from_millis(LIST_PATIENCE_MS))
                .await?;
            let found = listed
                .participants
                .iter()
                .find(|participant| participant.name == ledger);
            let since = found
                .filter(|participant| participant.joined)
                .and_then(|own| own.joined_since);
            Ok(since
                .and_then(|since| from_timestamp(&since))
                .filter(|since| *since >= died))
        };
        let to = timeline
            .until(&format!("{ledger} to join again"), JOIN_MS, probe)
            .await?;
        self.outages.push(Outage {
            ledger,
            process,
            from: died,
            to,
        });
        Ok(())
    }

    /// A caller of the coordinator.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.coordinator.url())?)
    }

    /// The account of the story at one ledger.
    pub(super) async fn account(&self, side: Side) -> Result<Account, Failure> {
        let accounts = self.accounts(side, false).await?;
        let found = accounts
            .into_iter()
            .find(|account| account.account == side.account());
        found.ok_or_else(|| {
            Failure::internal(
                "ACCOUNT",
                format!("{} has no account {}", side.ledger(), side.account()),
            )
        })
    }

    /// All accounts of one ledger.
    pub(super) async fn accounts(&self, side: Side, with_system: bool) -> Result<Vec<Account>, Failure> {
        Ok(ledger_client::accounts(&self.link(side)?, with_system)
            .await?
            .items)
    }

    /// What prepared branches hold at one ledger.
    pub(super) async fn holds(&self, side: Side) -> Result<Vec<Hold>, Failure> {
        Ok(ledger_client::holds(&self.link(side)?).await?.items)
    }

    /// The entries of the story's account at one ledger.
    pub(super) async fn entries(&self, side: Side) -> Result<Vec<Entry>, Failure> {
        Ok(ledger_client::entries(&self.link(side)?, side.account())
            .await?
            .items)
    }

    fn link(&self, side: Side) -> Result<Link, Failure> {
        Ok(Link::new(&self.ledgers[side as usize].url())?)
    }

    /// The end of every log.
    pub(super) fn log_tails(&self) -> String {
        std::iter::once(&self.coordinator)
            .chain(&self.ledgers)
            .map(Process::log_tail)
            .collect()
    }

    /// Leaves the processes running and the directory in place.
    pub(super) fn keep(mut self) -> Kept {
        let directory = self.directory.keep().display().to_string();
        let leave = |process: &mut Process| KeptProcess {
            name: process.name,
            url: process.url(),
            process_id: process.leave(),
        };
        let [a, b] = &mut self.ledgers;
        Kept {
            directory,
            processes: [&mut self.coordinator, a, b].map(leave).into(),
        }
    }
}

fn crash_after_vote(id: &str) -> String {
    format!("p.vote.sent:{id}")
}

impl Kept {
    /// How to talk to the processes, and how to end them.
    pub(super) fn explanation(&self) -> String {
        let mut text = "\nThe three processes run on. Talk to them:\n".to_owned();
        let url = |name: &str| {
            self.processes
                .iter()
                .find(|process| process.name == name)
                .map_or("", |process| &process.url)
        };
        let (endpoint, a, b) = (url("coordinator"), url("ledger-a"), url("ledger-b"));
        for command in [
            format!("export COVENANT_ENDPOINT={endpoint}"),
            "covenant tx list".to_owned(),
            "covenant participant list".to_owned(),
            format!("covenant accounts --ledger {a}"),
            format!("covenant entries --ledger {b} --account bob"),
            "covenant transfer --from ledger-b/bob --to ledger-a/alice --amount 100000".to_owned(),
        ] {
            text.push_str(&format!("  {command}\n"));
        }
        let ids: Vec<String> = self
            .processes
            .iter()
            .filter_map(|process| process.process_id)
            .map(|id| id.to_string())
            .collect();
        text.push_str(&format!(
            "End them and remove their data:\n  kill {} && sleep 1 && rm -r {}\n  unset COVENANT_ENDPOINT\n",
            ids.join(" "),
            crate::parse::quoted(&self.directory)
        ));
        text
    }
}
