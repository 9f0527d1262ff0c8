//! Requests of callers that must be refused: ids, sizes, counts, amounts, deadlines. Each refusal has the field, its value
//! and the bound; what is beyond a size is not even sent; the coordinator goes on undisturbed.
//!
//! It tries one request of each kind. Random ones are for the codec's own tests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Branch, Error, Outcome, Refusal, Transaction};
use covenant_codec::{MAX_EXECUTE_BYTES, MAX_OPERATION_BYTES};
use covenant_proto::v1;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_tests::cluster::PATIENCE;
use covenant_tests::process::covenant;
use covenant_tests::{Cluster, Transfer};

/// What the coordinator itself says, without the client, which would not send what is beyond a bound.
async fn refused_by_coordinator(cluster: &Cluster, transaction: &Transaction) -> Result<Refusal> {
    let branch = |branch: &Branch| v1::Branch {
        participant: branch.participant.clone(),
        operation: branch.operation.clone(),
    };
    let request = v1::ExecuteRequest {
        transaction_id: transaction.id.clone(),
        created: Some(covenant_client::to_timestamp(transaction.created)),
        branches: transaction.branches.iter().map(branch).collect(),
        timeout: None,
        wait: v1::Wait::Decided.into(),
    };
    let mut raw = TransactionServiceClient::connect(cluster.coordinator.url()).await?;
    match raw.execute(request).await {
        Err(status) => Refusal::from_status(&status).with_context(|| format!("no refusal: {status:?}")),
        Ok(answer) => anyhow::bail!("it was not refused: {answer:?}"),
    }
}

/// The client refuses it without sending it, with these words.
async fn is_not_sent(cluster: &Cluster, transaction: &Transaction, words: &[&str]) -> Result<()> {
    let told = cluster.client().execute(transaction, PATIENCE).await;
    let Err(error @ Error::OutOfBounds { .. }) = told else {
        anyhow::bail!("it is not out of bounds: {told:?}")
    };
    let said = error.to_string();
    for word in words {
        ensure!(said.contains(word), "the client does not say {word:?}: {said}");
    }
    Ok(())
}

#[test]
fn the_client_has_the_bounds_of_the_codec_and_the_rules() {
    assert_eq!(covenant_client::MAX_ID_BYTES, covenant_rules::MAX_ID_BYTES);
    assert_eq!(covenant_client::MAX_BRANCHES, covenant_codec::MAX_BRANCHES);
    assert_eq!(covenant_client::MAX_OPERATION_BYTES, MAX_OPERATION_BYTES);
    assert_eq!(covenant_client::MAX_EXECUTE_BYTES, MAX_EXECUTE_BYTES);
}

async fn refusal(cluster: &Cluster, transaction: &Transaction) -> Result<Refusal> {
    match cluster.client().execute(transaction, PATIENCE).await {
        Err(Error::Refused(refusal)) => Ok(refusal),
        other => anyhow::bail!("it was not refused: {other:?}"),
    }
}

fn with_branches(id: &str, branches: Vec<Branch>) -> Transaction {
    Transaction {
        branches,
        ..Transfer::new(id, 1).transaction()
    }
}

/// A transfer commits and everything is as it should be.
async fn goes_on(cluster: Cluster) -> Result<()> {
    cluster.commits(&Transfer::new("afterwards", 100)).await?;
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn bad_ids_are_refused_by_the_coordinator_with_their_bound() -> Result<()> {
    let cluster = Cluster::start().await?;
    let long = "x".repeat(129);
    for (id, words) in [
        ("", "1 to 128"),
        (&long, "128"),
        ("a\nb", "printable"),
        ("a\u{7f}", "printable"),
        ("caf\u{e9}", "printable"),
    ] {
        let refusal = refused_by_coordinator(&cluster, &Transfer::new(id, 1).transaction()).await?;
        ensure!(
            refusal.kind == covenant_client::RefusalKind::InvalidArgument,
            "{refusal:?}"
        );
        ensure!(
            refusal
                .metadata
                .get("field")
                .is_some_and(|field| field == "transaction_id"),
            "{refusal:?}"
        );
        ensure!(refusal.message.contains(words), "{id:?}: {}", refusal.message);
        let got = cluster.client().get(id, None, PATIENCE).await;
        ensure!(
            matches!(got, Err(Error::Refused(_) | Error::OutOfBounds { .. })),
            "{id:?}: {got:?}"
        );
    }
    let longest = Transfer::new("x".repeat(128), 1);
    cluster.commits(&longest).await?;
    cluster.commits(&Transfer::new("~ with spaces !", 1)).await?;
    goes_on(cluster).await
}

#[tokio::test]
async fn bad_ids_are_usage_errors_of_the_command() -> Result<()> {
    let cluster = Cluster::start().await?;
    let long = "x".repeat(129);
    let url = cluster.coordinator.url();
    for id in ["", &long, "a\tb", "caf\u{e9}"] {
        for command in [
            vec!["tx", "get", id],
            vec!["tx", "abort", id],
            vec![
                "transfer",
                "--from",
                "ledger-a/alice",
                "--to",
                "ledger-b/bob",
                "--amount",
                "1",
                "--id",
                id,
            ],
        ] {
            let arguments: Vec<&str> = command.into_iter().chain(["--endpoint", &url]).collect();
            let ran = covenant(&arguments).await?.exits(2)?;
            ensure!(
                ran.stderr.contains("128") || ran.stderr.contains("printable"),
                "{id:?}: {}",
                ran.stderr
            );
        }
    }
    goes_on(cluster).await
}

#[tokio::test]
async fn an_operation_beyond_its_bound_is_a_usage_error_of_the_command() -> Result<()> {
    let cluster = Cluster::start().await?;
    let account = "a".repeat(MAX_OPERATION_BYTES);
    let line = format!("transfer --from ledger-a/{account} --to ledger-b/bob --amount 1 --id T -o json");
    let error = cluster.covenant(&line).await?.exits(2)?.json()?["error"].clone();
    ensure!(
        error["code"] == "OUT_OF_BOUNDS" && error["metadata"]["bound"] == "MAX_OPERATION_BYTES",
        "{error}"
    );
    cluster.covenant("tx get T").await?.exits(3)?;
    goes_on(cluster).await
}

#[tokio::test]
async fn an_amount_that_is_no_whole_number_above_0_is_a_usage_error_with_the_way_out() -> Result<()> {
    for amount in ["0", "-5", "1.50", "ten", "9223372036854775808"] {
        let line = format!("transfer --from ledger-a/alice --to ledger-b/bob --amount {amount}");
        let arguments: Vec<&str> = line.split(' ').collect();
        let ran = covenant(&arguments).await?.exits(2)?;
        for word in [amount, "minor units", "1 to 9223372036854775807"] {
            ensure!(ran.stderr.contains(word), "{amount}: {}", ran.stderr);
        }
    }
    Ok(())
}

#[tokio::test]
async fn too_large_too_many_and_twice_are_refused_with_the_bound() -> Result<()> {
    let cluster = Cluster::start().await?;
    let branch = |name: String, bytes: usize| Branch::new(name, vec![0; bytes]);
    let many = |count: usize, bytes: usize| {
        (0..count)
            .map(|n| branch(format!("p{n}"), bytes))
            .collect::<Vec<_>>()
    };
    let operation = MAX_OPERATION_BYTES.to_string();
    let execute = MAX_EXECUTE_BYTES.to_string();
    // The last column is what the client says before anything is sent, if it says anything.
    for (what, branches, words, client) in [
        (
            "no branch",
            vec![],
            vec!["branches", "1 to 128"],
            vec!["0 branches", "1 to 128"],
        ),
        (
            "129 branches",
            many(129, 1),
            vec!["129", "max_branches is 128"],
            vec!["129 branches", "MAX_BRANCHES"],
        ),
        (
            "an operation",
            vec![branch("ledger-a".into(), MAX_OPERATION_BYTES + 1)],
            vec!["MAX_OPERATION_BYTES", &operation],
            vec!["ledger-a", "32769", "MAX_OPERATION_BYTES", &operation],
        ),
        (
            "all together",
            many(33, MAX_OPERATION_BYTES),
            vec!["MAX_EXECUTE_BYTES", &execute],
            vec!["1081344", "MAX_EXECUTE_BYTES", &execute],
        ),
        (
            "far too much",
            many(128, MAX_OPERATION_BYTES),
            vec!["MAX_EXECUTE_BYTES", &execute],
            vec!["MAX_EXECUTE_BYTES", &execute],
        ),
        (
            "twice",
            vec![branch("ledger-a".into(), 1), branch("ledger-a".into(), 2)],
            vec!["ledger-a", "twice"],
            vec![],
        ),
        (
            "a bad name",
            vec![branch("a/b".into(), 1)],
            vec!["participant", "no '/'"],
            vec![],
        ),
    ] {
        let transaction = with_branches("T", branches);
        if !client.is_empty() {
            is_not_sent(&cluster, &transaction, &client).await.context(what)?;
        }
        let refusal = refused_by_coordinator(&cluster, &transaction)
            .await
            .context(what)?;
        ensure!(
            refusal.kind == covenant_client::RefusalKind::InvalidArgument,
            "{what}: {refusal:?}"
        );
        for word in words {
            ensure!(
                refusal.message.contains(word),
                "{what} does not say {word:?}: {}",
                refusal.message
            );
        }
    }
    // More than the coordinator reads of a request.
    is_not_sent(
        &cluster,
        &with_branches("T", many(129, 64 << 10)),
        &["MAX_BRANCHES"],
    )
    .await?;
    is_not_sent(
        &cluster,
        &with_branches("T", many(1, 8 << 20)),
        &["8388608", &operation],
    )
    .await?;
    let known = cluster.client().get("T", None, PATIENCE).await?;
    ensure!(matches!(known, Outcome::NotFound(_)), "it was run: {known:?}");
    goes_on(cluster).await
}

#[tokio::test]
async fn a_deadline_and_a_time_out_of_bounds_are_refused() -> Result<()> {
    let cluster = Cluster::start().await?;
    let ahead = Transfer {
        created: covenant_client::unix_now() + 120_000,
        ..Transfer::new("T", 1)
    };
    let told = refusal(&cluster, &ahead.transaction()).await?;
    ensure!(
        told.reason == "CREATED_AHEAD" && told.message.contains("60000"),
        "{told:?}"
    );
    let late = Transfer {
        timeout: Duration::from_secs(61),
        ..Transfer::new("T", 1)
    };
    let told = refusal(&cluster, &late.transaction()).await?;
    ensure!(
        told.message.contains("61000") && told.message.contains("max_deadline_ms 60000"),
        "{told:?}"
    );
    goes_on(cluster).await
}
