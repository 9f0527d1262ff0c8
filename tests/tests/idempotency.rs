//! The callers' boundary (section 7), end to end: the same id again, callers that vanish or wait too short, a stop during
//! load, and fences.
//!
//! It cannot show what becomes of an id after its outcome expired: that takes a week, or the machine's own tests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Client, Outcome};
use covenant_proto::v1::{GetTransactionRequest, transaction_service_client::TransactionServiceClient};
use covenant_tests::checks::{Caller, Told};
use covenant_tests::cluster::PATIENCE;
use covenant_tests::{Cluster, Transfer, Who, offline, wait_until};

fn transfer_line(id: &str, amount: i64) -> String {
    format!("transfer --from ledger-a/alice --to ledger-b/bob --amount {amount} --id {id} -o json")
}

#[tokio::test]
async fn the_same_id_again_has_the_same_answer_and_no_second_effect() -> Result<()> {
    let cluster = Cluster::start().await?;
    let first = cluster
        .covenant(&transfer_line("T100", 100_000))
        .await?
        .exits(0)?
        .json()?;
    ensure!(
        first["transaction_id"] == "T100" && first["outcome"] == "COMMITTED",
        "{first}"
    );
    ensure!(
        first["reason"].is_null() && first["heuristic"] == "NONE",
        "{first}"
    );
    let participants: Vec<_> = first["branches"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["participant"])
        .collect();
    ensure!(participants == ["ledger-a", "ledger-b"], "{first}");
    for wait in ["decided", "completed"] {
        let line = format!("{} --wait {wait}", transfer_line("T100", 100_000));
        let again = cluster.covenant(&line).await?.exits(0)?.json()?;
        ensure!(
            again["outcome"] == "COMMITTED" && again["xid"] == first["xid"],
            "{again}"
        );
    }
    let got = cluster.covenant("tx get T100 -o json").await?.exits(0)?.json()?;
    ensure!(
        got["outcome"] == "COMMITTED" && got["branches"][1]["state"] == "COMMITTED",
        "{got}"
    );
    let world = cluster.check(&[]).await?;
    ensure!(
        world.account("bob")?.posted == 100_000,
        "{:?}",
        world.account("bob")
    );
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn the_same_id_with_other_content_is_refused_and_changes_nothing() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster
        .covenant(&transfer_line("T100", 100_000))
        .await?
        .exits(0)?;
    for is_after_a_crash in [false, true] {
        if is_after_a_crash {
            cluster.coordinator.kill()?;
            cluster.coordinator.restart().await?;
            cluster.wait_joined().await?;
        }
        let refused = cluster.covenant(&transfer_line("T100", 5)).await?.exits(1)?;
        let error = &refused.json()?["error"];
        ensure!(
            error["code"] == "OTHER_CONTENT" && error["exit_code"] == 1,
            "{error}"
        );
        ensure!(refused.stderr.contains("use a new id"), "{}", refused.stderr);
        let next = error["next"].as_str().unwrap_or_default();
        ensure!(
            next == format!("covenant tx get --endpoint {} T100", cluster.coordinator.url()),
            "it proposes {next:?}"
        );
        let command: Vec<&str> = next.split(' ').skip(1).collect();
        let got = covenant_tests::process::covenant(&command).await?.exits(0)?;
        ensure!(got.stdout.contains("COMMITTED"), "{}", got.stdout);
    }
    let world = cluster.check(&[]).await?;
    ensure!(
        world.account("bob")?.posted == 100_000,
        "{:?}",
        world.account("bob")
    );
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_caller_that_vanishes_changes_nothing() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    // Ledger B is away, so the call is under way for certain when its caller goes.
    cluster.ledger_b.kill()?;
    let transfer = Transfer::new("T", 100_000);
    let (client, sent) = (cluster.client().clone(), transfer.transaction());
    let caller = tokio::spawn(async move { client.execute(&sent, PATIENCE).await.map(drop) });
    wait_until("the transaction to run", PATIENCE, async || {
        let outcome = cluster.client().get("T", None, PATIENCE).await?;
        ensure!(
            matches!(outcome, Outcome::InProgress(_)),
            "it is {}",
            outcome.word()
        );
        Ok(())
    })
    .await?;
    caller.abort();
    ensure!(
        caller.await.is_err_and(|error| error.is_cancelled()),
        "the caller had an answer"
    );
    cluster.ledger_b.restart().await?;
    let world = cluster.quiet(PATIENCE).await?;
    ensure!(
        world.account("bob")?.posted == 100_000,
        "{:?}",
        world.account("bob")
    );
    cluster
        .check(&[Caller {
            id: "T".into(),
            created: transfer.created,
            told: Told::Committed,
        }])
        .await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn callers_whose_deadline_is_1_ms_learn_the_one_truth_later() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut callers = Vec::new();
    for n in 0..20 {
        let transfer = Transfer::new(format!("T{n}"), 10);
        let outcome = cluster
            .client()
            .execute(&transfer.transaction(), Duration::from_millis(1))
            .await;
        let told = outcome.as_ref().map_or(Told::Nothing, Told::from);
        callers.push(Caller {
            id: transfer.id,
            created: transfer.created,
            told,
        });
    }
    let world = cluster.check(&callers).await?;
    let mut committed = 0;
    for caller in &callers {
        let now = cluster
            .client()
            .get(&caller.id, Some(caller.created), PATIENCE)
            .await?;
        committed += i64::from(matches!(now, Outcome::Committed(_)));
    }
    ensure!(
        world.account("bob")?.posted == 10 * committed,
        "{committed} are COMMITTED, {:?}",
        world.account("bob")
    );
    cluster.stop_and_check_logs().await
}

/// Callers that send transfers of 1, one after the other, until they are not answered any more.
struct Load {
    told: Arc<Mutex<Vec<Caller>>>,
    committed: Arc<AtomicUsize>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(client: &Client, callers: usize) -> Self {
        let (told, committed) = (Arc::default(), Arc::default());
        let callers = (0..callers).map(|caller| {
            let (client, told, committed) = (client.clone(), Arc::clone(&told), Arc::clone(&committed));
            tokio::spawn(send_until_silence(client, caller, told, committed))
        });
        Self {
            callers: callers.collect(),
            told,
            committed,
        }
    }

    async fn reach(&self, transfers: usize) -> Result<()> {
        wait_until("the load", PATIENCE, async || {
            let committed = self.committed.load(Ordering::Relaxed);
            ensure!(committed >= transfers, "only {committed} committed");
            Ok(())
        })
        .await
    }

    async fn end(self) -> Result<Vec<Caller>> {
        for caller in self.callers {
            caller.await?;
        }
        Ok(std::mem::take(
            &mut self.told.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

async fn send_until_silence(
    client: Client,
    caller: usize,
    told: Arc<Mutex<Vec<Caller>>>,
    committed: Arc<AtomicUsize>,
) {
    for n in 0..10_000 {
        let transfer = Transfer::new(format!("L{caller}-{n}"), 1);
        let outcome = client
            .execute(&transfer.transaction(), Duration::from_millis(500))
            .await;
        let answer = outcome.as_ref().map_or(Told::Nothing, Told::from);
        let known = Caller {
            id: transfer.id,
            created: transfer.created,
            told: answer,
        };
        told.lock().unwrap_or_else(PoisonError::into_inner).push(known);
        if answer == Told::Nothing {
            return;
        }
        committed.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_stop_during_load_exits_0_within_the_drain_with_everything_decided_finished() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let load = Load::start(cluster.client(), 16);
    load.reach(50).await?;
    cluster.coordinator.stop_cleanly().await?;
    let callers = load.end().await?;
    let log = offline::coordinator(cluster.coordinator.launch().data_dir())?;
    let unfinished = log.values().filter(|fate| fate.committed != fate.ended).count();
    ensure!(
        unfinished == 0,
        "{unfinished} transactions were decided and not finished"
    );
    cluster.coordinator.restart().await?;
    cluster.wait_joined().await?;
    cluster.check(&callers).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_stop_of_a_ledger_during_load_exits_0_and_loses_nothing() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let load = Load::start(cluster.client(), 16);
    load.reach(50).await?;
    cluster.server(Who::LedgerA).stop_cleanly().await?;
    let callers = load.end().await?;
    cluster.ledger_a.restart().await?;
    cluster.quiet(PATIENCE).await.context("after the restart")?;
    cluster.check(&callers).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn an_abort_with_created_fences_an_id_that_never_ran() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let without = cluster.covenant("tx abort F -o json").await?.exits(3)?.json()?;
    ensure!(without["outcome"] == "NOT_FOUND", "{without}");
    let ahead = cluster
        .covenant("tx abort F --created 2100-01-01T00:00:00.000Z")
        .await?
        .exits(2)?;
    ensure!(
        ahead.stderr.contains("CREATED_AHEAD") && ahead.stderr.contains("60000"),
        "{}",
        ahead.stderr
    );
    let created = format!("--created {:.3}", jiff::Timestamp::now());
    let fenced = cluster
        .covenant(&format!("tx abort F {created} -o json"))
        .await?
        .exits(0)?
        .json()?;
    ensure!(
        fenced["outcome"] == "ABORTED" && fenced["reason"] == "FENCED_BEFORE_EXECUTE",
        "{fenced}"
    );
    let late = format!("{} {created}", transfer_line("F", 100));
    for is_after_a_crash in [false, true] {
        if is_after_a_crash {
            cluster.coordinator.kill()?;
            cluster.coordinator.restart().await?;
            cluster.wait_joined().await?;
        }
        let late = cluster.covenant(&late).await?.exits(1)?.json()?;
        ensure!(
            late["outcome"] == "ABORTED" && late["reason"] == "FENCED_BEFORE_EXECUTE",
            "{late}"
        );
    }
    let world = cluster.check(&[]).await?;
    ensure!(world.account("bob")?.posted == 0, "{:?}", world.account("bob"));
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn an_id_that_is_not_known_is_not_committed_and_never_aborted_by_presumption() -> Result<()> {
    let cluster = Cluster::start().await?;
    let unknown = cluster
        .covenant("tx get nobody -o json")
        .await?
        .exits(3)?
        .json()?;
    ensure!(
        unknown["outcome"] == "NOT_FOUND" && unknown["retained_since"].is_string(),
        "{unknown}"
    );
    let created = "--created 1970-01-01T00:00:01Z";
    for line in [
        format!("tx get nobody {created}"),
        format!("{} {created}", transfer_line("nobody", 5)),
    ] {
        let ran = cluster.covenant(&line).await?.exits(7)?;
        for words in [
            "nobody is UNKNOWN: it was first sent 1970-01-01T00:00:01.000Z",
            "this call ran nothing",
            "covenant entries",
        ] {
            ensure!(
                ran.stderr.contains(words),
                "`{line}` does not say {words:?}: {}",
                ran.stderr
            );
        }
        ensure!(!ran.stderr.contains("next:"), "`{line}`: {}", ran.stderr);
    }
    let mut raw = TransactionServiceClient::connect(cluster.coordinator.url()).await?;
    let before_birth = GetTransactionRequest {
        transaction_id: "nobody".into(),
        created: Some(covenant_client::to_timestamp(1_000)),
    };
    let answer = raw
        .get_transaction(before_birth)
        .await?
        .into_inner()
        .transaction
        .context("an answer")?;
    ensure!(
        answer.outcome() == covenant_proto::v1::Outcome::Unknown,
        "R4: it is {:?}",
        answer.outcome()
    );
    Ok(())
}
