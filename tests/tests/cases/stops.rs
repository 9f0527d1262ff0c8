//! Cases about stops: what is not finished does not hold one up, and is there afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use covenant_client::{Branch, Transaction};
use covenant_proto::v1::participant_message::Content;
use covenant_proto::v1::{Heuristic, HeuristicReport, StateFilter, VoteKind};
use covenant_tests::cluster::PATIENCE;
use covenant_tests::rogue::{Rogue, hello, message, vote};
use covenant_tests::{Cluster, Transfer, wait_until};

use super::{DRAIN, committing, in_state};

/// What a stop may take beside its drain, in a debug build on a busy machine.
const MARGIN: Duration = Duration::from_secs(4);

async fn is_damaged(cluster: &Cluster, id: &str) -> Result<()> {
    let outcome = cluster.client().get(id, None, PATIENCE).await?;
    ensure!(outcome.word() == "COMMITTED", "it is {outcome:?}");
    let heuristic = outcome.view().context("an outcome has a view")?.heuristic();
    ensure!(heuristic == Heuristic::Abort, "the heuristic is {heuristic:?}");
    Ok(())
}

#[tokio::test]
async fn a_stop_with_a_heuristic_and_a_branch_in_doubt_ends_in_time_and_both_are_there_afterwards()
-> Result<()> {
    let (mut cluster, _, in_doubt) = committing(5).await?;
    let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
    let asked = Transaction {
        branches: vec![Branch::new("rogue", b"x".to_vec())],
        ..Transfer::new("DAMAGED", 1).transaction()
    };
    let client = cluster.client().clone();
    let caller = tokio::spawn(async move { client.execute(&asked, PATIENCE).await });
    let xid = rogue.prepare().await?;
    rogue.say(vec![message(xid, vote(VoteKind::Yes))]).await?;
    caller.await??;
    let report = Content::Report(HeuristicReport {
        what: Heuristic::Abort.into(),
    });
    rogue.say(vec![message(xid, report)]).await?;
    wait_until("the damage", PATIENCE, async || {
        is_damaged(&cluster, "DAMAGED").await
    })
    .await?;
    let owed = in_state(&cluster, StateFilter::Committing).await?;
    ensure!(
        owed.contains("DAMAGED") && owed.is_superset(&in_doubt),
        "{owed:?}"
    );

    let began = Instant::now();
    cluster.coordinator.stop_cleanly().await?;
    let took = began.elapsed();
    ensure!(took < DRAIN + MARGIN, "the stop took {took:?}");
    cluster.coordinator.restart().await?;
    let after = in_state(&cluster, StateFilter::Committing).await?;
    ensure!(after == owed, "before: {owed:?}, after: {after:?}");
    is_damaged(&cluster, "DAMAGED").await
}
