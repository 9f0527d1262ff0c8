//! The processes under test, each with its clock, its disk if it has one, and the record of its lives; and the lines
//! between them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::Client;
use tokio::sync::{Mutex, MutexGuard};

use super::clock::{self, Clock};
use super::disk::Disk;
use super::history::{ACCOUNTS, OPENING, account_name, ledger_name};
use super::lines::Lines;
use super::plan::Who;
use crate::transfer::CURRENCY;
use crate::wait::wait_until;
use crate::{Launch, Server};

/// A checkpoint is taken after so many records, so that many are taken and replayed.
pub const CHECKPOINT_RECORDS: u64 = 500;

/// How long all participants may take to join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one question to a server may take.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// One process.
pub struct Node {
    /// Its name in reports.
    pub name: String,
    /// Its clock.
    pub clock: Clock,
    /// Its disk, if disks are filled.
    pub disk: Option<Disk>,
    launch: Launch,
    log: PathBuf,
    life: Mutex<Life>,
}

/// The process as it is, and what was wrong with it so far.
pub struct Life {
    /// The process.
    pub server: Server,
    /// How often it was started and ended.
    pub lives: usize,
    /// What was wrong.
    pub wrong: Vec<String>,
    /// Whether its disk was full during this life: then it may end by itself.
    pub starved: bool,
    /// How often it ended by itself while its disk was full.
    pub starved_ends: usize,
}

impl Node {
    fn new(name: &str, clock: Clock, disk: Option<Disk>, launch: Launch, directory: &Path) -> Result<Self> {
        let launch = clock.governs(launch);
        let server = launch.spawn()?;
        let life = Life {
            server,
            lives: 1,
            wrong: Vec::new(),
            starved: false,
            starved_ends: 0,
        };
        Ok(Self {
            name: name.to_owned(),
            clock,
            disk,
            launch,
            log: directory.join(format!("{name}.log")),
            life: Mutex::new(life),
        })
    }

    /// Where its data is.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.launch.data_dir()
    }

    /// Its address, without a proxy.
    #[must_use]
    pub fn url(&self) -> String {
        self.launch.url()
    }

    /// The process, for one fault at a time.
    pub async fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().await
    }

    /// Notes how the life that ended was, before the next begins.
    ///
    /// # Errors
    /// If its output cannot be kept.
    pub fn bury(&self, life: &mut Life, was_ended_by_us: bool) -> Result<()> {
        let stderr = life.server.process().stderr();
        let mut log = File::options().create(true).append(true).open(&self.log)?;
        for line in &stderr {
            writeln!(log, "{line}")?;
        }
        let wrong = wrong_end(&self.name, &stderr, was_ended_by_us, life.starved);
        life.wrong.extend(wrong);
        life.starved_ends += usize::from(life.starved && !was_ended_by_us);
        life.starved = false;
        life.lives += 1;
        Ok(())
    }

    /// Starts the next life and waits until it is ready; that it is not is noted.
    ///
    /// # Errors
    /// If no process can be started at all.
    pub async fn begin(&self, life: &mut Life) -> Result<()> {
        life.server.respawn()?;
        if let Err(error) = life.server.wait_ready().await {
            life.wrong.push(format!("{} did not start: {error:#}", self.name));
        }
        Ok(())
    }

    /// Starts it again if it has ended.
    ///
    /// # Errors
    /// As [`Node::begin`].
    pub async fn revive(&self, life: &mut Life) -> Result<()> {
        if life.server.process().has_ended()? {
            self.bury(life, false)?;
            self.begin(life).await?;
        }
        Ok(())
    }
}

/// What is wrong with the end of a life. A full disk ends a server by `abort()` or an exit, and never by a panic.
fn wrong_end(name: &str, stderr: &[String], was_ended_by_us: bool, starved: bool) -> Option<String> {
    let panicked = stderr.iter().find(|line| line.contains("panicked at"));
    if let Some(line) = panicked {
        return Some(format!("{name} panicked: {line}"));
    }
    let tail = || stderr[stderr.len().saturating_sub(5)..].join(" | ");
    (!was_ended_by_us && !starved).then(|| format!("{name} ended by itself; it said last: {}", tail()))
}

/// All of them.
pub struct Nodes {
    /// The coordinator.
    pub coordinator: Node,
    /// The participants.
    pub participants: Vec<Node>,
    /// The lines of participants and callers to the coordinator.
    pub lines: Lines,
    /// A caller that no proxy is before.
    pub client: Client,
}

impl Nodes {
    /// Starts them in a directory and waits until every participant has joined.
    ///
    /// # Errors
    /// If one does not become ready, or a disk, a clock or a host cannot be had.
    pub async fn start(
        directory: &Path,
        participants: usize,
        with_disks: bool,
        as_hosts: bool,
    ) -> Result<Self> {
        let library = clock::build(directory)?;
        let place = |name: &str| -> Result<(Clock, Option<Disk>, PathBuf)> {
            let clock = Clock::new(&library, &directory.join(format!("{name}.clock")))?;
            let disk = with_disks.then(|| Disk::mount(directory, name)).transpose()?;
            let data = disk
                .as_ref()
                .map_or_else(|| directory.join(name), |disk| disk.path().join("data"));
            Ok((clock, disk, data))
        };
        let (clock, disk, data) = place("coordinator")?;
        let launch =
            Launch::coordinator(&data)?.variable("COVENANT_LOG__CHECKPOINT_RECORDS", CHECKPOINT_RECORDS);
        let (lines, launch) = Lines::start(directory, participants, as_hosts, launch).await?;
        let coordinator = Node::new("coordinator", clock, disk, launch, directory)?;
        let mut nodes = Self {
            client: Client::new(&coordinator.url())?,
            coordinator,
            participants: Vec::new(),
            lines,
        };
        for ledger in 0..participants {
            let name = ledger_name(ledger);
            let (clock, disk, data) = place(&name)?;
            let launch = Launch::ledger(&name, &data, &nodes.lines.of_participant(ledger))?;
            let mut launch = (nodes.lines.place(Who::Participant(ledger), launch))
                .argument("--checkpoint-records")
                .argument(CHECKPOINT_RECORDS.to_string());
            for account in 0..ACCOUNTS {
                launch = launch.open(&format!("{}={OPENING}:{CURRENCY}", account_name(account)));
            }
            nodes
                .participants
                .push(Node::new(&name, clock, disk, launch, directory)?);
        }
        for node in nodes.all() {
            node.life().await.server.wait_ready().await?;
        }
        nodes.wait_joined().await?;
        Ok(nodes)
    }

    /// The coordinator, then the participants.
    pub fn all(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.coordinator).chain(&self.participants)
    }

    /// One of them.
    #[must_use]
    pub fn node(&self, who: Who) -> &Node {
        match who {
            Who::Coordinator => &self.coordinator,
            Who::Participant(number) => &self.participants[number],
        }
    }

    /// Waits until the coordinator has a session with every participant.
    ///
    /// # Errors
    /// If that takes longer than `JOIN_TIMEOUT`.
    pub async fn wait_joined(&self) -> Result<()> {
        wait_until("every participant to join", JOIN_TIMEOUT, async || {
            let page = self.client.participants(0, "", ASK_TIMEOUT).await?;
            let joined = page.participants.iter().filter(|one| one.joined).count();
            ensure!(joined == self.participants.len(), "{joined} have joined");
            Ok(())
        })
        .await
    }

    /// Kills all of them, then starts all of them.
    ///
    /// # Errors
    /// If a process cannot be killed or started.
    pub async fn kill_and_start_all(&self) -> Result<()> {
        for node in self.all() {
            let mut life = node.life().await;
            life.server.kill()?;
            node.bury(&mut life, true)?;
            life.server.respawn()?;
        }
        for node in self.all() {
            let mut life = node.life().await;
            if let Err(error) = life.server.wait_ready().await {
                life.wrong.push(format!("{} did not start: {error:#}", node.name));
            }
        }
        self.wait_joined().await
    }

    /// Stops all of them by SIGTERM, participants first; one that does not end with 0 is noted.
    ///
    /// # Errors
    /// If its output cannot be kept.
    pub async fn stop_all(&self) -> Result<()> {
        for node in self.participants.iter().chain(std::iter::once(&self.coordinator)) {
            let mut life = node.life().await;
            if let Err(error) = life.server.stop_cleanly().await {
                life.wrong.push(format!("{} did not stop: {error:#}", node.name));
            }
            node.bury(&mut life, true).context("at the stop")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_excuses_an_end_and_no_panic() {
        let quiet = ["the journal cannot go on".to_owned()];
        let panics = ["thread 'main' panicked at store.rs:1:1:".to_owned()];
        for (was_ended_by_us, starved) in [(false, false), (false, true), (true, false), (true, true)] {
            let by_itself = wrong_end("ledger-1", &quiet, was_ended_by_us, starved);
            assert_eq!(by_itself.is_none(), was_ended_by_us || starved, "{by_itself:?}");
            let panicked = wrong_end("ledger-1", &panics, was_ended_by_us, starved);
            assert!(
                panicked.is_some_and(|wrong| wrong.contains("panicked")),
                "starved: {starved}"
            );
        }
    }
}
