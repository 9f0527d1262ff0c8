//! Every crash point of section 9: a process dies there while a transfer is under way, comes back without any caller's
//! help, and everything ends within 5 s: S1, S4, S9, S11, S14 and S15 hold, and the same id sent again changes the money
//! at most once.
//!
//! It cannot show what a power cut does: the page cache outlives a killed process, so what was written and not forced is
//! still there. It does not run two crashes at once, nor the heuristic points, which need an operator (`Reached::NotHere`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use covenant_client::Outcome;
use covenant_codec::record;
use covenant_fault::CrashPoint;
use covenant_journal::{Force, HeadRef, Journal, Options, Records};
use covenant_rules::{AbortReason, Incarnation, Lineage, Record, TransactionId, Xid};
use covenant_tests::checks::{Caller, Told};
use covenant_tests::cluster::{OPENING, PATIENCE, Plan, QUIET_TIMEOUT};
use covenant_tests::server::Launch;
use covenant_tests::{Cluster, Transfer, Who, wait_until};

/// How many clusters run at the same time.
const AT_ONCE: usize = 4;

/// How long an answer that was on its way when a process died may take to arrive.
const LAST_ANSWER: Duration = Duration::from_millis(300);

/// The transfers of a load that must reach a checkpoint, at most.
const MAX_LOAD: usize = 2_000;

/// The callers of such a load.
const LOAD_CALLERS: usize = 16;

/// A checkpoint after so many records, for the points inside one.
const CHECKPOINT_RECORDS: u64 = 40;

/// What a transfer does that reaches the point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// Both ledgers vote YES.
    Commit,
    /// Ledger A refuses, ledger B has voted YES or is about to.
    Overdraft,
}

/// What the coordinator says of the id once everything has ended, before anybody sends it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum After {
    Committed,
    Aborted,
    /// The crash was before the decision: there is no record.
    NotFound,
}

/// How a point is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    /// By one transfer, in these processes one after the other.
    Transfer(Path, &'static [Who], After),
    /// At the start after a crash at this point, which left the transfer unfinished.
    Start(CrashPoint, &'static [Who], After),
    /// By many transfers, whichever is under way then.
    Load(&'static [Who]),
    /// By the first transfer after the number of outcomes reached its bound.
    Retention,
    /// Not in this test, and why.
    NotHere(&'static str),
}

const COORDINATOR: &[Who] = &[Who::Coordinator];
const BOTH: &[Who] = &[Who::LedgerA, Who::LedgerB];
const YES_VOTER: &[Who] = &[Who::LedgerB];
const BY_HAND: &str =
    "a branch is decided by hand only by an operator's command, which comes with a later issue";

fn plan(point: CrashPoint) -> Reached {
    use CrashPoint as At;
    use Reached::{Load, NotHere, Retention, Start, Transfer};
    let coordinator = |path, after| Transfer(path, COORDINATOR, after);
    match point {
        At::CExecuteReceived | At::CPrepareSentSome | At::CVotesAll => {
            coordinator(Path::Commit, After::NotFound)
        }
        // A killed process leaves what it wrote in the page cache, so the decision is found.
        At::CCommitAppended | At::CCommitForced | At::CCommitSentSome | At::CAcksAll | At::CEndAppended => {
            coordinator(Path::Commit, After::Committed)
        }
        // The messages wait for nothing: here they leave before the record is handed to the journal.
        At::CAbortSentSome => coordinator(Path::Overdraft, After::NotFound),
        At::CAbortAppended | At::CAbortForced => coordinator(Path::Overdraft, After::Aborted),
        At::CRetainedForced => Retention,
        At::CStartSynced | At::CReplayMid => Start(At::CCommitForced, COORDINATOR, After::Committed),
        At::CCheckpointMid => Load(COORDINATOR),
        At::PPrepareReceived
        | At::PPreparedAppended
        | At::PPreparedForced
        | At::PVoteSent
        | At::PDecisionReceived
        | At::PCommittedAppended
        | At::PCommittedForced
        | At::PAckSent => Transfer(Path::Commit, BOTH, After::Committed),
        At::PAbortedAppended => Transfer(Path::Overdraft, YES_VOTER, After::Aborted),
        At::PStartSynced | At::PReplayMid => Start(At::PVoteSent, BOTH, After::Committed),
        At::PCheckpointMid => Load(YES_VOTER),
        At::CHeuristicForced | At::CForgetForced | At::PHeuristicForced | At::PForgottenForced => {
            NotHere(BY_HAND)
        }
    }
}

/// One crash of one process.
#[derive(Clone, Copy, Debug)]
struct Row {
    point: CrashPoint,
    who: Who,
    plan: Reached,
}

#[test]
fn every_crash_point_is_survived() -> Result<()> {
    let mut rows = VecDeque::new();
    for point in CrashPoint::ALL {
        let plan = plan(*point);
        let who: &[Who] = match plan {
            Reached::Transfer(_, who, _) | Reached::Start(_, who, _) | Reached::Load(who) => who,
            Reached::Retention => COORDINATOR,
            Reached::NotHere(reason) => {
                println!("{point} is not run here: {reason}");
                &[]
            }
        };
        rows.extend(who.iter().map(|who| Row {
            point: *point,
            who: *who,
            plan,
        }));
    }
    covenant_tests::binary::binary()?;
    let rows = Arc::new(Mutex::new(rows));
    let workers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let rows = Arc::clone(&rows);
            std::thread::spawn(move || work(&rows))
        })
        .collect();
    let mut failed = Vec::new();
    for worker in workers {
        failed.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
    }
    ensure!(
        failed.is_empty(),
        "{} rows failed:\n\n{}",
        failed.len(),
        failed.join("\n\n")
    );
    Ok(())
}

fn work(rows: &Mutex<VecDeque<Row>>) -> Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut failed = Vec::new();
    loop {
        let row = rows.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(row) = row else { return Ok(failed) };
        let result = runtime.block_on(run(row));
        if let Err(error) = result {
            failed.push(format!("{} at {:?}: {error:?}", row.point, row.who));
        }
    }
}

async fn run(row: Row) -> Result<()> {
    match row.plan {
        Reached::Transfer(path, _, after) => {
            let armed = format!("{}:T", row.point);
            let mut cluster = Plan::new()?
                .with(row.who, |launch| launch.crash_at(armed))
                .start()
                .await?;
            let warm_up = cluster.commits(&Transfer::new("W", 1_000)).await?;
            let transfer = transfer(path);
            let caller = until_death(&mut cluster, row, &transfer).await?;
            cluster.server(row.who).respawn()?;
            afterwards(cluster, &transfer, vec![warm_up, caller], after).await
        }
        Reached::Start(first, _, after) => at_start(row, first, after).await,
        Reached::Load(_) => under_load(row).await,
        Reached::Retention => at_retention(row).await,
        Reached::NotHere(reason) => bail!("{reason}"),
    }
}

fn transfer(path: Path) -> Transfer {
    let amount = match path {
        Path::Commit => 100_000,
        Path::Overdraft => 2 * OPENING,
    };
    Transfer::new("T", amount)
}

/// Sends the transfer and waits until the process dies at the point; the caller then goes away.
async fn until_death(cluster: &mut Cluster, row: Row, transfer: &Transfer) -> Result<Caller> {
    let client = cluster.client().clone();
    let sent = transfer.transaction();
    let mut execute = Box::pin(async move { client.execute(&sent, PATIENCE).await });
    let point = row.point.name();
    let server = cluster.server(row.who);
    let mut answer = None;
    let died = server.died_at(point);
    tokio::pin!(died);
    loop {
        tokio::select! {
            answered = &mut execute, if answer.is_none() => answer = Some(answered),
            died = &mut died => {
                died?;
                break;
            }
        }
    }
    if answer.is_none() {
        answer = tokio::time::timeout(LAST_ANSWER, execute).await.ok();
    }
    let told = match answer.transpose()? {
        Some(outcome) => Told::from(&outcome),
        None => Told::Nothing,
    };
    Ok(Caller {
        id: transfer.id.clone(),
        created: transfer.created,
        told,
    })
}

/// Everything ends without a caller; then the same id again.
async fn afterwards(
    cluster: Cluster,
    transfer: &Transfer,
    mut callers: Vec<Caller>,
    after: After,
) -> Result<()> {
    let world = cluster.quiet(QUIET_TIMEOUT).await.context("after the restart")?;
    let before = world.account("bob")?.posted;
    cluster.check(&callers).await?;
    let found = cluster
        .client()
        .get(&transfer.id, Some(transfer.created), PATIENCE)
        .await?;
    let as_planned = match after {
        After::Committed => matches!(found, Outcome::Committed(_)),
        After::Aborted => matches!(found, Outcome::Aborted(_)),
        After::NotFound => matches!(found, Outcome::NotFound(_)),
    };
    ensure!(
        as_planned,
        "after the crash {} is {}, and not {after:?}",
        transfer.id,
        found.word()
    );

    cluster.wait_joined().await?;
    let again = cluster.execute(transfer).await?;
    ensure!(again.is_final(), "sent again, {} is {again:?}", transfer.id);
    ensure!(
        !found.is_final() || found.word() == again.word(),
        "it was {}, now {}",
        found.word(),
        again.word()
    );
    callers.push(Caller {
        id: transfer.id.clone(),
        created: transfer.created,
        told: Told::from(&again),
    });
    let world = cluster.check(&callers).await?;
    let moved = match (after, &again) {
        (After::NotFound, Outcome::Committed(_)) => transfer.amount,
        _ => 0,
    };
    let bob = world.account("bob")?.posted;
    ensure!(
        bob == before + moved,
        "bob has {bob}, had {before}, and {moved} should have moved"
    );
    cluster.stop_and_check_logs().await
}

/// A first crash leaves a transfer unfinished, the next start dies at the point, and the one after that ends it.
async fn at_start(row: Row, first: CrashPoint, after: After) -> Result<()> {
    let armed = format!("{first}:T");
    let mut cluster = Plan::new()?
        .with(row.who, |launch| launch.crash_at(armed))
        .start()
        .await?;
    let warm_up = cluster.commits(&Transfer::new("W", 1_000)).await?;
    let transfer = transfer(Path::Commit);
    let caller = until_death(&mut cluster, Row { point: first, ..row }, &transfer).await?;
    let launch = cluster.server(row.who).launch().clone();
    let server = cluster.server(row.who);
    server.respawn_as(&replaced(&launch, row.point))?;
    server.died_at(row.point.name()).await?;
    ensure!(server.process().stdout().is_empty(), "it said that it was ready");
    server.respawn()?;
    afterwards(cluster, &transfer, vec![warm_up, caller], after).await
}

fn replaced(launch: &Launch, point: CrashPoint) -> Launch {
    launch.plain().crash_at(point.name())
}

/// Transfers until the process dies; each of them is then sent again.
async fn under_load(row: Row) -> Result<()> {
    let small = |launch: Launch| match row.who {
        Who::Coordinator => launch.variable("COVENANT_LOG__CHECKPOINT_RECORDS", CHECKPOINT_RECORDS),
        Who::LedgerA | Who::LedgerB => launch
            .argument("--checkpoint-records")
            .argument(CHECKPOINT_RECORDS.to_string()),
    };
    let plan = Plan::new()?.with(row.who, |launch| small(launch).crash_at(row.point.name()));
    let mut cluster = plan.start().await?;
    let transfers: Vec<Transfer> = (0..MAX_LOAD).map(|n| Transfer::new(format!("L{n}"), 1)).collect();
    let (client, next) = (
        cluster.client().clone(),
        Arc::new(Mutex::new(transfers.into_iter())),
    );
    let callers: Vec<_> = (0..LOAD_CALLERS)
        .map(|_| {
            let (client, next) = (client.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut sent = Vec::new();
                loop {
                    let transfer = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(transfer) = transfer else { return sent };
                    let answer = client
                        .execute(&transfer.transaction(), Duration::from_secs(2))
                        .await;
                    // Once the process is dead nothing is answered, or it is refused.
                    let told = answer.as_ref().map_or(Told::Nothing, Told::from);
                    sent.push((transfer, told));
                    if told == Told::Nothing {
                        return sent;
                    }
                }
            })
        })
        .collect();
    cluster.server(row.who).died_at(row.point.name()).await?;
    let mut sent = Vec::new();
    for caller in callers {
        sent.extend(caller.await?);
    }
    cluster.server(row.who).respawn()?;
    let world = cluster.quiet(QUIET_TIMEOUT).await.context("after the restart")?;
    ensure!(
        world.account("bob")?.posted <= i64::try_from(sent.len())?,
        "more than once"
    );
    let told: Vec<Caller> = (sent.iter())
        .map(|(transfer, told)| Caller {
            id: transfer.id.clone(),
            created: transfer.created,
            told: *told,
        })
        .collect();
    cluster.check(&told).await?;
    cluster.wait_joined().await?;
    for (transfer, _) in &sent {
        cluster.commits(transfer).await?;
    }
    let world = cluster.check(&[]).await?;
    let bob = world.account("bob")?.posted;
    ensure!(
        bob == i64::try_from(sent.len())?,
        "{} transfers of 1 came to {bob}",
        sent.len()
    );
    Ok(())
}

/// The coordinator's log already holds an outcome from an hour ago, and may hold one only.
async fn at_retention(row: Row) -> Result<()> {
    let plan = Plan::new()?.with(row.who, |launch| {
        launch
            .variable("COVENANT_RETENTION__MAX_RETAINED_OUTCOMES", 2)
            .crash_at(row.point.name())
    });
    let an_hour_ago = covenant_client::unix_now() - 3_600_000;
    write_old_log(plan.coordinator.data_dir(), an_hour_ago)?;
    let mut cluster = plan.start().await?;
    let transfer = transfer(Path::Commit);
    let warm_up = Transfer::new("W", 1_000);
    let warm_up = cluster.commits(&warm_up).await?;
    let caller = until_death(&mut cluster, row, &transfer).await?;
    cluster.server(row.who).respawn()?;
    let world = cluster.quiet(QUIET_TIMEOUT).await.context("after the restart")?;
    ensure!(
        world.account("bob")?.posted == 1_000,
        "bob has {:?}",
        world.account("bob")
    );
    let old = cluster.client().get("OLD", Some(an_hour_ago), PATIENCE).await?;
    ensure!(
        matches!(old, Outcome::Expired(_)),
        "the outcome below the mark is {}",
        old.word()
    );
    // The mark is durable, so there is room: the id that ran into the bound commits.
    afterwards(cluster, &transfer, vec![warm_up, caller], After::NotFound).await
}

/// A log that was born two hours ago, with one transaction that was aborted an hour ago.
fn write_old_log(data_dir: &std::path::Path, an_hour_ago: u64) -> Result<()> {
    let journal = Journal::open(data_dir, Options::new("coordinator"))?.journal;
    let (lineage, incarnation) = (Lineage(7), Incarnation { counter: 1, bits: 9 });
    let old = covenant_rules::Outcome {
        xid: Xid {
            lineage,
            incarnation,
            seq: 1,
        },
        transaction_id: TransactionId::new("OLD").map_err(|error| anyhow!("{error}"))?,
        fingerprint: None,
        created: an_hour_ago,
        decided: an_hour_ago,
        aborted: Some(AbortReason::Caller),
        branches: Vec::new(),
        heuristic: None,
    };
    let mut records = Records::new();
    for stored in [
        Record::Lineage {
            lineage,
            birth: an_hour_ago - 3_600_000,
            former: Vec::new(),
        },
        Record::Incarnation(incarnation),
        Record::Abort(old),
    ] {
        let (kind, payload) = record::encode(&stored);
        let xid = stored.xid().map(|xid| xid.to_bytes());
        let head = HeadRef {
            kind,
            xid: xid.as_ref(),
            transaction_id: stored.transaction_id().map(TransactionId::as_str),
        };
        records.push(head, Force::Now, &payload);
    }
    journal.append(&records);
    Ok(journal.close()?)
}

#[tokio::test]
async fn a_point_that_is_not_reached_fails_and_says_so() -> Result<()> {
    let mut cluster = Plan::new()?
        .with(Who::Coordinator, |launch| launch.crash_at("c.abort.forced:T"))
        .start()
        .await?;
    cluster.commits(&Transfer::new("T", 1_000)).await?;
    let died = cluster
        .coordinator
        .process()
        .died_at("c.abort.forced", Duration::from_millis(50))
        .await;
    let error = died.map_or_else(|error| format!("{error:#}"), |()| "it died".to_owned());
    ensure!(error.contains("c.abort.forced was not reached"), "{error}");
    wait_until("the coordinator to live on", PATIENCE, async || {
        cluster.client().get("T", None, PATIENCE).await?;
        Ok(())
    })
    .await
}
