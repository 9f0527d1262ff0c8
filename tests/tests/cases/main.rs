//! What users of other coordinators suffered from, as tests of the whole kind: `tests/CASES.md` says which test holds
//! which case.
//!
//! Real processes, killed, paused and restarted. It cannot show what a power cut does, nor time that jumps.

mod sessions;
mod stops;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use covenant_client::{Error, Outcome, Refusal, RefusalKind, unix_now};
use covenant_journal::{Force, HeadRef, Journal, Options, Records};
use covenant_proto::log::v1::CoordinatorRecordKind;
use covenant_proto::v1::{BranchState, Heuristic, StateFilter};
use covenant_rules::{Incarnation, Lineage, Xid};
use covenant_tests::binary::repository;
use covenant_tests::checks::{Caller, Told};
use covenant_tests::cluster::{LEDGER_B, PATIENCE, Plan, QUIET_TIMEOUT};
use covenant_tests::world::transactions;
use covenant_tests::{Cluster, Transfer, Who, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The transfers of a small load.
const LOAD: usize = 50;

/// A kind that no version knows.
const UNKNOWN_KIND: u8 = 250;

/// How long a coordinator that was asked to stop waits for what is under way.
const DRAIN: Duration = Duration::from_secs(1);

/// The cases of the list.
const CASES: usize = 76;

/// The descriptors that a server gets in the test of idle connections, and how many connections it is given.
const DESCRIPTORS: usize = 256;
const IDLE_CONNECTIONS: usize = 500;

/// Descriptors that may be unused when no connection can be taken any more.
const SPARE_DESCRIPTORS: usize = 4;

fn signal(cluster: &mut Cluster, who: Who, signal: Signal) -> Result<()> {
    let id = i32::try_from(cluster.server(who).process().id())?;
    let pid = Pid::from_raw(id).context("a process has an id")?;
    Ok(kill_process(pid, signal)?)
}

/// Transfers at the same time; the caller of each, with what it was told.
async fn load(cluster: &Cluster, transfers: Vec<Transfer>) -> Result<Vec<Caller>> {
    let mut callers = JoinSet::new();
    for transfer in transfers {
        let client = cluster.client().clone();
        callers.spawn(async move {
            let outcome = client.execute(&transfer.transaction(), PATIENCE).await?;
            Ok::<_, Error>(Caller {
                id: transfer.id.clone(),
                created: transfer.created,
                told: Told::from(&outcome),
            })
        });
    }
    let mut told = Vec::new();
    while let Some(caller) = callers.join_next().await {
        told.push(caller??);
    }
    Ok(told)
}

/// A cluster whose ledger B dies when it hears the first decision: what was decided then waits for it.
async fn committing(transfers: usize) -> Result<(Cluster, Vec<Caller>, BTreeSet<String>)> {
    let plan = Plan::new()?
        .with(Who::LedgerB, |launch| launch.crash_at("p.decision.received"))
        .with(Who::Coordinator, |launch| {
            launch.variable("COVENANT_SESSIONS__DRAIN_MS", DRAIN.as_millis())
        });
    let mut cluster = plan.start().await?;
    let asked = (0..transfers).map(|n| Transfer {
        timeout: Duration::from_secs(2),
        ..Transfer::new(format!("T{n}"), 1_000)
    });
    let callers = load(&cluster, asked.collect()).await?;
    cluster.ledger_b.died_at("p.decision.received").await?;
    let open = in_state(&cluster, StateFilter::Committing).await?;
    ensure!(!open.is_empty(), "nothing waits for the ledger that died");
    Ok((cluster, callers, open))
}

async fn in_state(cluster: &Cluster, state: StateFilter) -> Result<BTreeSet<String>> {
    let listed = transactions(cluster.client(), state).await?;
    Ok(listed.into_iter().map(|view| view.transaction_id).collect())
}

#[tokio::test]
async fn a_restarted_coordinator_shows_exactly_what_it_owes() -> Result<()> {
    let (mut cluster, callers, open) = committing(LOAD).await?;
    cluster.coordinator.kill()?;
    cluster.coordinator.restart().await?;
    let after = in_state(&cluster, StateFilter::Committing).await?;
    ensure!(after == open, "before: {open:?}, after: {after:?}");
    cluster.ledger_b.restart().await?;
    cluster.check(&callers).await?;
    cluster.stop_and_check_logs().await
}

/// Appends two records that no coordinator can read: a COMMIT of garbage and one of an unknown kind.
fn append_unreadable(data_dir: &Path) -> Result<()> {
    let journal = Journal::open(data_dir, Options::new("coordinator"))?.journal;
    let xid = Xid {
        lineage: Lineage(7),
        incarnation: Incarnation { counter: 1, bits: 9 },
        seq: 1,
    };
    let mut records = Records::new();
    for (kind, id) in [
        (u8::try_from(i32::from(CoordinatorRecordKind::Commit))?, "GARBAGE"),
        (UNKNOWN_KIND, "NEWER"),
    ] {
        let head = HeadRef {
            kind,
            xid: Some(&xid.to_bytes()),
            transaction_id: Some(id),
        };
        records.push(head, Force::Now, b"\xff\xff\xff");
    }
    journal.append(&records);
    Ok(journal.close()?)
}

#[tokio::test]
async fn an_unreadable_record_is_quarantined_and_all_others_finish() -> Result<()> {
    let (mut cluster, callers, open) = committing(20).await?;
    cluster.coordinator.kill()?;
    cluster.coordinator.process().exited(PATIENCE).await?;
    append_unreadable(cluster.coordinator.launch().data_dir())?;
    cluster.coordinator.restart().await?;
    ensure!(in_state(&cluster, StateFilter::Committing).await? == open);
    for id in ["GARBAGE", "NEWER"] {
        let outcome = cluster.client().get(id, Some(unix_now()), PATIENCE).await?;
        ensure!(
            matches!(outcome, Outcome::Unknown(_)),
            "{id} is {}",
            outcome.word()
        );
    }
    let said = cluster.coordinator.process().tail();
    ensure!(
        said.contains("quarantined"),
        "nobody is told of the records: {said}"
    );
    cluster.ledger_b.restart().await?;
    cluster.check(&callers).await?;
    Ok(())
}

#[tokio::test]
async fn whatever_comes_at_the_deadline_there_is_one_decision() -> Result<()> {
    let cluster = Arc::new(Cluster::start().await?);
    let mut callers = Vec::new();
    // The deadlines sweep over the time that a transfer takes, whatever that is here; every third is aborted besides.
    for round in 0..12_u64 {
        let transfers: Vec<Transfer> = (0..25_u64)
            .map(|n| Transfer {
                timeout: Duration::from_millis(1 + n * (1 + round)),
                ..Transfer::new(format!("D{round}-{n}"), 10)
            })
            .collect();
        let mut aborts = JoinSet::new();
        for transfer in transfers.iter().step_by(3).cloned() {
            let client = cluster.client().clone();
            aborts.spawn(async move {
                tokio::time::sleep(transfer.timeout).await;
                client.abort(&transfer.id, Some(transfer.created), PATIENCE).await
            });
        }
        callers.extend(load(&cluster, transfers).await?);
        while let Some(aborted) = aborts.join_next().await {
            let outcome = aborted??;
            ensure!(
                outcome.is_final() || matches!(outcome, Outcome::InProgress(_)),
                "an abort at the deadline is answered {}",
                outcome.word()
            );
        }
    }
    for told in [Told::Committed, Told::Aborted] {
        ensure!(
            callers.iter().any(|caller| caller.told == told),
            "nobody was told {told:?}: the deadlines are not near the decisions"
        );
    }
    cluster.check(&callers).await?;
    Ok(())
}

#[tokio::test]
async fn a_callers_clock_decides_nothing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut callers = Vec::new();
    for (id, created) in [("AHEAD", unix_now() + 50_000), ("BEHIND", unix_now() - 3_000)] {
        let transfer = Transfer {
            created,
            ..Transfer::new(id, 10)
        };
        callers.push(cluster.commits(&transfer).await?);
    }
    let too_far = Transfer {
        created: unix_now() + 120_000,
        ..Transfer::new("FAR", 10)
    };
    match cluster.client().execute(&too_far.transaction(), PATIENCE).await {
        Err(Error::Refused(refusal)) => {
            ensure!(refusal.kind == RefusalKind::InvalidArgument, "{refusal:?}");
        }
        other => bail!("a time too far ahead is answered {other:?}"),
    }
    cluster.check(&callers).await?;
    Ok(())
}

#[tokio::test]
async fn looking_aborts_nothing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let working = async {
        for round in 0..4 {
            let transfers = (0..LOAD).map(|n| Transfer::new(format!("L{round}-{n}"), 10));
            let callers = load(&cluster, transfers.collect()).await?;
            ensure!(
                callers.iter().all(|caller| caller.told == Told::Committed),
                "one was not committed: {callers:?}"
            );
        }
        Ok(())
    };
    tokio::pin!(working);
    let mut looks = 0;
    loop {
        let look = async {
            transactions(cluster.client(), StateFilter::InDoubt).await?;
            transactions(cluster.client(), StateFilter::InProgress).await
        };
        tokio::select! {
            worked = &mut working => {
                ensure!(looks > 0, "nobody looked while they ran");
                return worked;
            }
            looked = look => {
                looked?;
                looks += 1;
            }
        }
    }
}

#[tokio::test]
async fn a_participant_that_lost_its_log_is_a_hazard_and_never_an_ordinary_success() -> Result<()> {
    let plan = Plan::new()?.with(Who::LedgerB, |launch| launch.crash_at("p.vote.sent:T"));
    let mut cluster = plan.start().await?;
    let transfer = Transfer::new("T", 1_000);
    cluster.commits(&transfer).await?;
    cluster.ledger_b.died_at("p.vote.sent").await?;
    let kept = cluster.ledger_b.launch().data_dir().to_path_buf();
    std::fs::rename(&kept, kept.with_extension("lost"))?;
    cluster.ledger_b.restart().await?;
    wait_until("the hazard", PATIENCE, async || {
        let outcome = cluster
            .client()
            .get("T", Some(transfer.created), PATIENCE)
            .await?;
        let view = outcome.view().context("an outcome has a view")?;
        ensure!(
            view.heuristic() == Heuristic::Hazard,
            "it is {:?}",
            view.heuristic()
        );
        let lost = view.branches.iter().find(|branch| branch.participant == LEDGER_B);
        let state = lost.context("ledger B has a branch")?.state();
        ensure!(
            state != BranchState::Committed,
            "the lost branch is shown as {state:?}"
        );
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_slow_participant_commits_once_within_the_callers_deadline() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    signal(&mut cluster, Who::LedgerB, Signal::STOP)?;
    let hasty = Transfer {
        timeout: Duration::from_millis(300),
        ..Transfer::new("HASTY", 10)
    };
    let patient = Transfer::new("PATIENT", 10);
    let client = cluster.client().clone();
    let sent = patient.transaction();
    let waiting = tokio::spawn(async move { client.execute(&sent, PATIENCE).await });
    let hasty_outcome = cluster.execute(&hasty).await?;
    ensure!(
        matches!(hasty_outcome, Outcome::Aborted(_)),
        "{}",
        hasty_outcome.word()
    );
    signal(&mut cluster, Who::LedgerB, Signal::CONT)?;
    let patient_outcome = waiting.await??;
    ensure!(
        matches!(patient_outcome, Outcome::Committed(_)),
        "{}",
        patient_outcome.word()
    );
    let world = cluster.check(&[]).await?;
    ensure!(world.account("bob")?.posted == 10, "{:?}", world.account("bob")?);
    cluster.stop_and_check_logs().await
}

/// The bytes that the files of a directory take on the disk.
fn disk_bytes(directory: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}

#[tokio::test]
async fn starting_again_and_again_takes_no_disk() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let caller = cluster.commits(&Transfer::new("T", 10)).await?;
    let mut seen = Vec::new();
    for _ in 0..30 {
        for who in [Who::Coordinator, Who::LedgerB] {
            let server = cluster.server(who);
            server.kill()?;
            server.process().exited(PATIENCE).await?;
            server.restart().await?;
        }
        seen.push(disk_bytes(cluster.directory())?);
    }
    let (early, late) = (seen[9], seen[29]);
    ensure!(
        late <= early + early / 4,
        "the disk grows with each start: {seen:?}"
    );
    cluster.wait_joined().await?;
    cluster.check(&[caller]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_stop_with_a_branch_in_doubt_ends_in_time_and_the_next_start_goes_on() -> Result<()> {
    let (mut cluster, callers, open) = committing(5).await?;
    cluster.coordinator.stop_cleanly().await?;
    cluster.coordinator.restart().await?;
    ensure!(in_state(&cluster, StateFilter::Committing).await? == open);
    cluster.ledger_a.stop_cleanly().await?;
    cluster.ledger_a.restart().await?;
    cluster.ledger_b.restart().await?;
    let world = cluster.quiet(QUIET_TIMEOUT * 2).await?;
    let committed = callers.iter().filter(|caller| caller.told == Told::Committed);
    ensure!(world.account("bob")?.posted == 1_000 * i64::try_from(committed.count())?);
    cluster.check(&callers).await?;
    Ok(())
}

#[tokio::test]
async fn a_hundred_calls_of_one_id_have_one_effect_and_those_past_the_bound_ran_nothing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let transfer = Transfer::new("T", 1_000);
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (client, sent) = (cluster.client().clone(), transfer.transaction());
        calls.spawn(async move { client.execute(&sent, PATIENCE).await });
    }
    let mut committed = 0;
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok(Outcome::Committed(_)) => committed += 1,
            Err(Error::Refused(Refusal {
                kind: RefusalKind::ResourceExhausted { bound, .. },
                ..
            })) => ensure!(bound == "max_attached_callers", "the bound is {bound}"),
            other => bail!("one was answered {other:?}"),
        }
    }
    ensure!(committed >= 64, "only {committed} were attached");
    let again = cluster.commits(&transfer).await?;
    let world = cluster.check(&[again]).await?;
    ensure!(
        world.account("bob")?.posted == 1_000,
        "{:?}",
        world.account("bob")?
    );
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn idle_connections_beyond_the_descriptors_stop_no_work_and_go_by() -> Result<()> {
    let limit = format!("--nofile={DESCRIPTORS}");
    let plan = Plan::new()?.with(Who::Coordinator, |launch| launch.under(&["prlimit", &limit]));
    let mut cluster = plan.start().await?;
    let mut callers = vec![cluster.commits(&Transfer::new("BEFORE", 10)).await?];
    let address = cluster.coordinator.url().replace("http://", "");
    let descriptors = format!("/proc/{}/fd", cluster.coordinator.process().id());
    let mut idle = Vec::new();
    let mut most = 0;
    for _ in 0..IDLE_CONNECTIONS {
        // Those beyond the listener's queue are not even taken by the operating system.
        let connecting = TcpStream::connect(&address);
        if let Ok(Ok(connection)) = tokio::time::timeout(Duration::from_millis(50), connecting).await {
            idle.push(connection);
        }
        most = most.max(std::fs::read_dir(&descriptors)?.count());
    }
    ensure!(
        most + SPARE_DESCRIPTORS >= DESCRIPTORS,
        "the coordinator never had more than {most} descriptors open"
    );
    callers.push(cluster.commits(&Transfer::new("MEANWHILE", 10)).await?);
    drop(idle);
    let again = cluster
        .covenant("tx get MEANWHILE -o json")
        .await?
        .exits(0)?
        .json()?;
    ensure!(again["outcome"] == "COMMITTED", "{again}");
    ensure!(!cluster.coordinator.process().has_ended()?);
    cluster.check(&callers).await?;
    cluster.stop_and_check_logs().await
}

/// The tests that a line of `tests/CASES.md` names, in backticks.
fn named(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn sources(directory: &Path, into: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into)?;
        } else if name.ends_with(".rs") {
            into.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn every_case_is_listed_once_and_every_test_that_is_named_exists() -> Result<()> {
    let list = std::fs::read_to_string(repository().join("tests/CASES.md"))?;
    let mut all = String::new();
    sources(repository(), &mut all)?;
    let mut cases = BTreeSet::new();
    for line in list.lines() {
        let first = line.split('|').nth(1).unwrap_or_default().trim();
        if let Ok(number) = first.parse::<u32>() {
            ensure!(cases.insert(number), "case {number} is listed twice");
            let waits = line.contains("waits for");
            ensure!(
                waits || named(line).next().is_some(),
                "case {number} has neither a test nor a reason to wait"
            );
        }
        for test in named(line) {
            ensure!(
                all.contains(&format!("fn {test}(")) || all.contains(&format!("    {test},\n")),
                "{test}: there is no such test"
            );
        }
    }
    ensure!(cases.len() == CASES, "{} cases are listed", cases.len());
    Ok(())
}
