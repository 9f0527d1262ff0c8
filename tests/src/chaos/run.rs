//! One run: load and faults, mending, questions, and the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Client, View};
use covenant_proto::v1::StateFilter;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use super::checker::{self, Verdict};
use super::history::{Asked, Ends, LogSize, Said, When};
use super::inject::inject;
use super::load::{self, Counts, Load};
use super::nodes::{ASK_TIMEOUT, Nodes};
use super::plan::{self, Fault, Kind, Scope};
use super::report::{Injections, Met, Report};
use crate::binary::scratch;
use crate::offline;
use crate::wait::wait_until;
use crate::world::{LedgerReader, World, transactions};

/// How long everything may take to end once every fault is mended (L1, L2, L3).
pub const QUIET_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the answer to one id may take when nothing is broken any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many ids are asked for at a time.
const ASKING: usize = 32;

/// The most ids of a run: the lists that are read at its end have a bound.
pub const MAX_ASKED: u64 = 900_000;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the plan and of what callers ask for.
    pub seed: u64,
    /// How long the load lasts.
    pub duration: Duration,
    /// The ledgers; at least 2.
    pub participants: usize,
    /// The kinds of faults.
    pub kinds: Vec<Kind>,
    /// Whether each process is a host of its own, and cuts are made between hosts. The run must have a network of its own
    /// for that ([`super::private::enter`]).
    pub namespaces: bool,
    /// The callers.
    pub callers: usize,
    /// The ids per second of all callers, at most.
    pub rate: u64,
    /// The command that repeats it.
    pub command: String,
}

/// Where a run is, for who watches.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// Runs it to its end. If a claim does not hold, the directory is kept and named in the report.
///
/// # Errors
/// If it could not be carried through; where its directory is stands in the error.
pub async fn run(options: &Options, progress: Progress<'_>) -> Result<Report> {
    ensure!(options.participants >= 2, "a transfer needs 2 participants");
    let most = options.rate.saturating_mul(options.duration.as_secs());
    ensure!(
        most <= MAX_ASKED,
        "--rate times --duration is {most} ids; the bound is {MAX_ASKED}: give a lower --rate"
    );
    let directory = scratch()?;
    // Faults wait on conditions, whose futures stay on one thread.
    let run = LocalSet::new()
        .run_until(carry_through(options, directory.path(), progress))
        .await;
    match run {
        Ok((mut report, history)) => {
            if report.verdict() == Verdict::Violated {
                let kept = directory.keep();
                std::fs::write(kept.join("history.json"), serde_json::to_vec(&history)?)?;
                report.kept = Some(kept);
            }
            Ok(report)
        }
        Err(error) => {
            let kept = directory.keep();
            Err(error.context(format!(
                "the run was not carried through; its directory is {}; again: {}",
                kept.display(),
                options.command
            )))
        }
    }
}

async fn carry_through(
    options: &Options,
    directory: &Path,
    progress: Progress<'_>,
) -> Result<(Report, Vec<Asked>)> {
    let with_disks = options.kinds.contains(&Kind::DiskFull);
    progress("starting");
    let nodes = Nodes::start(directory, options.participants, with_disks, options.namespaces).await?;
    let nodes = Arc::new(nodes);
    let scope = Scope {
        seed: options.seed,
        duration_ms: u64::try_from(options.duration.as_millis())?,
        participants: options.participants,
        caller_lines: nodes.lines.caller_lines(),
        as_hosts: options.namespaces,
        kinds: options.kinds.clone(),
    };
    let faults = plan::plan(&scope);
    let began = Instant::now();
    let counts = Arc::<Counts>::default();
    let callers = callers(options, &nodes, began + options.duration, &counts)?;
    let injecting = inject_all(&nodes, &counts, &faults, began);
    let (met, mut history) = watched(options, began, &counts, progress, injecting, callers).await?;

    progress("mending");
    let mended_ms = mend(&nodes).await?;
    progress(&format!("asking for {} ids", history.len()));
    ask_all(&nodes.client, &mut history, When::Mended).await?;
    quiet(&nodes).await?;
    progress("killing and starting everything once more");
    nodes.kill_and_start_all().await?;
    quiet(&nodes).await?;
    ask_all(&nodes.client, &mut history, When::Restarted).await?;
    progress("looking at what is left");
    let ends = ends(&nodes, directory, history.len()).await?;
    let report = Report {
        seed: options.seed,
        duration_ms: scope.duration_ms,
        participants: options.participants,
        callers: options.callers,
        command: options.command.clone(),
        injected: Injections::count(&options.kinds, &met, &nodes).await?,
        load: super::report::Told::count(&history),
        mended_ms,
        logs: ends.logs.clone(),
        checks: checker::check(&history, options.participants, &ends),
        plan: faults,
        kept: None,
    };
    Ok((report, history))
}

fn callers(
    options: &Options,
    nodes: &Nodes,
    until: Instant,
    counts: &Arc<Counts>,
) -> Result<JoinSet<Vec<Asked>>> {
    let load = Load {
        seed: options.seed,
        callers: options.callers,
        rate: options.rate,
        participants: options.participants,
        until,
    };
    let clients = (nodes.lines.of_callers().iter())
        .map(|url| Client::new(url))
        .collect::<Result<Vec<_>, _>>()?;
    let mut callers = JoinSet::new();
    for caller in 0..options.callers {
        let client = clients[caller % clients.len()].clone();
        callers.spawn(load::call(load, caller, client, Arc::clone(counts)));
    }
    Ok(callers)
}

/// Waits for the callers and the faults, and says how far it is.
async fn watched(
    options: &Options,
    began: Instant,
    counts: &Counts,
    progress: Progress<'_>,
    mut injecting: JoinSet<Result<Met>>,
    mut callers: JoinSet<Vec<Asked>>,
) -> Result<(Vec<Met>, Vec<Asked>)> {
    let (mut injected, mut history) = (Vec::new(), Vec::new());
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            Some(fault) = injecting.join_next() => injected.push(fault??),
            Some(asked) = callers.join_next() => history.extend(asked?),
            _ = second.tick() => {
                let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
                progress(&format!(
                    "{} of {} s: {} faults over; {} sent, {} committed, {} aborted, {} calls without an answer",
                    began.elapsed().as_secs(),
                    options.duration.as_secs(),
                    injected.len(),
                    load(&counts.asked),
                    load(&counts.committed),
                    load(&counts.aborted),
                    load(&counts.open),
                ));
            }
            else => return Ok((injected, history)),
        }
        if injecting.is_empty() && callers.is_empty() {
            return Ok((injected, history));
        }
    }
}

fn inject_all(
    nodes: &Arc<Nodes>,
    counts: &Arc<Counts>,
    faults: &[Fault],
    began: Instant,
) -> JoinSet<Result<Met>> {
    let mut injecting = JoinSet::new();
    for fault in faults {
        let (nodes, counts, fault) = (Arc::clone(nodes), Arc::clone(counts), *fault);
        injecting.spawn_local(async move {
            tokio::time::sleep_until(began + Duration::from_millis(fault.at_ms)).await;
            let met = inject(&nodes, &counts, fault)
                .await
                .with_context(|| format!("injecting {fault:?}"))?;
            Ok(Met { fault, met })
        });
    }
    injecting
}

/// Makes sure that every process runs and waits until everything has ended: the milliseconds that took.
async fn mend(nodes: &Nodes) -> Result<u64> {
    let began = Instant::now();
    for node in nodes.all() {
        let mut life = node.life().await;
        node.revive(&mut life).await?;
    }
    nodes.wait_joined().await?;
    quiet(nodes).await?;
    Ok(u64::try_from(began.elapsed().as_millis())?)
}

/// What the coordinator has not finished.
async fn open(client: &Client) -> Result<Vec<View>> {
    let mut open = Vec::new();
    for state in [
        StateFilter::InProgress,
        StateFilter::Committing,
        StateFilter::InDoubt,
    ] {
        open.extend(transactions(client, state).await?);
    }
    Ok(open)
}

/// Waits until nothing is in progress, in doubt or held.
async fn quiet(nodes: &Nodes) -> Result<()> {
    wait_until("everything to end", QUIET_TIMEOUT, async || {
        let open = open(&nodes.client).await?;
        ensure!(
            open.is_empty(),
            "{} transactions are open, the first {:?}",
            open.len(),
            open[0]
        );
        for node in &nodes.participants {
            let holds = LedgerReader::new(&node.name, &node.url())?.holds().await?;
            ensure!(holds.is_empty(), "{} holds {holds:?}", node.name);
        }
        let page = nodes.client.participants(0, "", ASK_TIMEOUT).await?;
        for one in &page.participants {
            let open = (one.in_progress, one.in_doubt);
            ensure!(open == (0, 0), "{} has {open:?} open", one.name);
        }
        Ok(())
    })
    .await
}

/// Asks for every id; one that was never run is sent once more.
async fn ask_all(client: &Client, history: &mut Vec<Asked>, when: When) -> Result<()> {
    let mut waiting = std::mem::take(history).into_iter();
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < ASKING {
            let Some(asked) = waiting.next() else { break };
            asking.spawn(ask_again(client.clone(), asked, when));
        }
        match asking.join_next().await {
            Some(asked) => history.push(asked?),
            None => return Ok(()),
        }
    }
}

async fn ask_again(client: Client, mut asked: Asked, when: When) -> Asked {
    let said = Said::of(&client.get(&asked.id, Some(asked.created), PATIENCE).await);
    let is_final = said.is_final();
    asked.answered(when, said);
    if !is_final {
        let said = Said::of(&client.execute(&asked.transaction(), PATIENCE).await);
        asked.answered(when, said);
    }
    asked
}

/// What is left, and then the stop.
async fn ends(nodes: &Nodes, directory: &Path, ids: usize) -> Result<Ends> {
    let mut world = World {
        transactions: open(&nodes.client).await?,
        ledgers: Vec::new(),
    };
    for node in &nodes.participants {
        world
            .ledgers
            .push(LedgerReader::new(&node.name, &node.url())?.view().await?);
    }
    nodes.stop_all().await?;
    let (mut processes, mut lives, mut logs) = (Vec::new(), 0, Vec::new());
    for node in nodes.all() {
        let life = node.life().await;
        processes.extend(life.wrong.iter().cloned());
        lives += life.lives;
        let entries = world.ledgers.iter().find(|ledger| ledger.name == node.name);
        let role = entries.map_or("coordinator", |_| "ledger");
        logs.push(LogSize {
            process: node.name.clone(),
            bytes: bytes_in(node.data_dir())?,
            kept: entries.map_or(ids, |ledger| ledger.entries.len()) as u64,
            replayed: offline::records_to_replay(node.data_dir(), role)?,
            starts: life.lives as u64,
        });
    }
    Ok(Ends {
        world,
        processes,
        leaked: running_in(directory)?,
        logs,
        lives,
    })
}

fn bytes_in(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_in(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

/// The processes that were started on a directory.
fn running_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path: PathBuf = entry?.path();
        // A process that ends meanwhile is none that is left.
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&*directory.to_string_lossy()) {
            found.push(format!("{}: {line}", path.display()));
        }
    }
    Ok(found)
}
