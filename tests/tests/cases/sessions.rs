//! Cases about sessions: what they repeat, and lines that fall silent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use covenant_client::Branch;
use covenant_participant::config::{DIAL_CAP_MS, KEEP_ALIVE_INTERVAL_MS, KEEP_ALIVE_TIMEOUT_MS};
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_proto::v1::{BranchState, ParticipantMessage, VoteKind};
use covenant_rules::RepeatedLines;
use covenant_tests::chaos::plan::Cut;
use covenant_tests::chaos::proxy::Proxy;
use covenant_tests::cluster::{LEDGER_A, LEDGER_B, PATIENCE, Plan, QUIET_TIMEOUT};
use covenant_tests::rogue::{Rogue, hello, message, vote};
use covenant_tests::{Cluster, Launch, Transfer, Who, wait_until};
use tokio::task::JoinSet;

/// The participants that repeat themselves, and how often each does each thing.
const PARTICIPANTS: u64 = 20;
const REPEATED: u64 = 50;

#[tokio::test]
async fn what_thousands_of_sessions_repeat_has_few_lines() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let before = cluster.coordinator.process().stderr().len();
    let began = Instant::now();
    let mut repeating = JoinSet::new();
    for participant in 0..PARTICIPANTS {
        let client = ParticipantServiceClient::connect(cluster.coordinator.url()).await?;
        repeating.spawn(async move {
            let join = async |name: &str, connection| {
                Rogue::join_over(client.clone(), hello(name, connection)).await
            };
            let (replaced, failing) = (
                format!("replaced-{participant}"),
                format!("failing-{participant}"),
            );
            let mut last = None;
            for connection in 1..=REPEATED {
                let taken = join(LEDGER_A, connection).await;
                ensure!(taken.is_err(), "another lineage took the name");
                last = Some(join(&replaced, connection).await?);
                let mut rogue = join(&failing, connection).await?;
                rogue.say(vec![ParticipantMessage::default()]).await?;
                rogue.ended().await?;
            }
            drop(last);
            Ok(())
        });
    }
    while let Some(repeated) = repeating.join_next().await {
        repeated??;
    }
    let said = cluster.coordinator.process().stderr().split_off(before);
    let kinds = [
        "a session was refused",
        "joined",
        "replaced by a newer session",
        "a session ended by an error",
    ];
    for kind in kinds {
        let lines = said.iter().filter(|line| line.contains(kind)).count();
        ensure!(lines > 0, "nobody is told: {kind}");
    }
    // A period may have begun before.
    let periods = 2 + began.elapsed().as_millis() as u64 / RepeatedLines::<()>::PERIOD_MS;
    let most = kinds.len() as u64 * RepeatedLines::<()>::MAX * periods;
    ensure!(
        said.len() as u64 <= most,
        "{} lines, more than {most}; the last is {:?}",
        said.len(),
        said.last()
    );
    cluster.stop_and_check_logs().await
}

/// How long a silent line may go unnoticed, on either side of it.
const KEEP_ALIVE: Duration = Duration::from_millis(KEEP_ALIVE_INTERVAL_MS + KEEP_ALIVE_TIMEOUT_MS);

/// How long a dial may be put off, and what a busy machine and a debug build take beside.
const BACK_OFF: Duration = Duration::from_millis(DIAL_CAP_MS + 2_000);

#[tokio::test]
async fn a_commit_passes_a_line_that_fell_silent_within_keep_alive_and_back_off() -> Result<()> {
    let plan = Plan::new()?;
    let line = Proxy::start(plan.coordinator.address()).await?;
    let directory = plan.directory().join(LEDGER_B);
    let behind = Launch::ledger(LEDGER_B, &directory, &line.url())?.open("bob=0:THB");
    let cluster = plan.with(Who::LedgerB, |_| behind).start().await?;
    let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
    let mut asked = Transfer::new("T", 10).transaction();
    asked.branches.push(Branch::new("rogue", b"x".to_vec()));
    let client = cluster.client().clone();
    let caller = tokio::spawn(async move { client.execute(&asked, PATIENCE).await });
    let xid = rogue.prepare().await?;
    wait_until("the vote of ledger B", PATIENCE, async || {
        let outcome = cluster.client().get("T", None, PATIENCE).await?;
        let view = outcome.view().context("an outcome has a view")?;
        let branch = view.branches.iter().find(|branch| branch.participant == LEDGER_B);
        let state = branch.context("ledger B has a branch")?.state();
        ensure!(state == BranchState::Prepared, "it is {state:?}");
        Ok(())
    })
    .await?;

    line.cut(Cut::HoldBoth);
    rogue.say(vec![message(xid, vote(VoteKind::Yes))]).await?;
    rogue.commit(xid).await?;
    let outcome = caller.await??;
    ensure!(outcome.word() == "COMMITTED", "it is {outcome:?}");
    wait_until(
        "the silent line to be noticed",
        KEEP_ALIVE + BACK_OFF,
        async || {
            let page = cluster.client().participants(0, "", PATIENCE).await?;
            let ledger = page.participants.iter().find(|one| one.name == LEDGER_B);
            ensure!(!ledger.context("it is known")?.joined, "it is taken for joined");
            Ok(())
        },
    )
    .await?;
    let holds = cluster.ledger(Who::LedgerB).await?.holds;
    ensure!(!holds.is_empty(), "COMMIT came through a silent line");

    line.mend(Cut::HoldBoth);
    wait_until("COMMIT", KEEP_ALIVE + BACK_OFF, async || {
        let ledger = cluster.ledger(Who::LedgerB).await?;
        ensure!(ledger.holds.is_empty(), "it holds {:?}", ledger.holds);
        Ok(())
    })
    .await?;
    let world = cluster.quiet(QUIET_TIMEOUT).await?;
    ensure!(world.account("bob")?.posted == 10, "{:?}", world.account("bob")?);
    cluster.stop_and_check_logs().await
}
