//! What callers are told and what accounts show: every refusal of a ledger, a read-only branch, transfers side by side on
//! one account, a participant that is away, and a hold that outlives a restart.
//!
//! It looks at single transfers through the command. It cannot show fairness among many.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Outcome, Transaction, Wait, unix_now};
use covenant_ledger::Refusal;
use covenant_proto::ledger::v1::CloseAccountRequest;
use covenant_proto::ledger::v1::ledger_service_client::LedgerServiceClient;
use covenant_tests::cluster::{LEDGER_A, LEDGER_B, OPENING, PATIENCE, Plan};
use covenant_tests::process::covenant;
use covenant_tests::transfer::assert_branch;
use covenant_tests::{Cluster, Transfer, Who, checks, wait_until};
use serde_json::Value;

/// What the account has that cannot take any more.
const RICH: i64 = i64::MAX - 5;

async fn account(cluster: &Cluster, who: Who, name: &str) -> Result<Value> {
    let url = if who == Who::LedgerA {
        cluster.ledger_a.url()
    } else {
        cluster.ledger_b.url()
    };
    let listed = covenant(&["accounts", "--ledger", &url, "-o", "json"])
        .await?
        .exits(0)?
        .json()?;
    let found = listed["accounts"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["account"] == name)
        .cloned();
    found.with_context(|| format!("no {name} in {listed}"))
}

fn balances(account: &Value) -> [i64; 4] {
    ["posted", "pending_debit", "pending_credit", "available"]
        .map(|key| account[key].as_i64().unwrap_or(i64::MIN))
}

#[tokio::test]
async fn an_overdraft_is_aborted_with_its_reason_and_holds_nothing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let line = format!(
        "transfer --from ledger-a/alice --to ledger-b/bob --amount {} --id T -o json",
        OPENING + 1
    );
    let aborted = cluster.covenant(&line).await?.exits(1)?.json()?;
    ensure!(
        aborted["outcome"] == "ABORTED" && aborted["reason"] == "INSUFFICIENT_FUNDS",
        "{aborted}"
    );
    ensure!(aborted["reason_participant"] == LEDGER_A, "{aborted}");
    let detail = aborted["reason_detail"].as_str().unwrap_or_default();
    ensure!(
        detail.contains("500000") && detail.contains("500001"),
        "the reason names no values: {detail}"
    );
    cluster.check(&[]).await?;
    ensure!(
        balances(&account(&cluster, Who::LedgerA, "alice").await?) == [OPENING, 0, 0, OPENING],
        "alice"
    );
    ensure!(
        balances(&account(&cluster, Who::LedgerB, "bob").await?) == [0, 0, 0, 0],
        "bob"
    );
    for line in ["tx get T", "tx get T -o wide"] {
        let shown = cluster.covenant(line).await?.exits(0)?.stdout;
        ensure!(shown.contains(detail), "`{line}` does not show why: {shown}");
    }
    let got = cluster.covenant("tx get T -o json").await?.exits(0)?.json()?;
    ensure!(
        got["outcome"] == "ABORTED" && got["reason"] == "INSUFFICIENT_FUNDS",
        "{got}"
    );
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn every_refusal_of_a_ledger_reaches_the_caller_by_its_code() -> Result<()> {
    let plan = Plan::new()?.with(Who::LedgerA, |launch| {
        launch
            .open("shut=0:THB")
            .open("dollars=100:USD")
            .open(&format!("rich={RICH}:XAU"))
            .open("heir=6:XAU")
    });
    let cluster = plan.start().await?;
    let mut ledger = LedgerServiceClient::connect(cluster.ledger_a.url()).await?;
    ledger
        .close_account(CloseAccountRequest {
            account: "shut".into(),
        })
        .await?;
    let mut seen = BTreeSet::new();
    for (from, to, amount, code) in [
        ("ledger-a/alice", "ledger-b/bob", "500001", "INSUFFICIENT_FUNDS"),
        ("ledger-a/alice", "ledger-b/nobody", "5", "ACCOUNT_NOT_FOUND"),
        ("ledger-a/dollars", "ledger-b/bob", "5", "CURRENCY_MISMATCH"),
        ("ledger-a/alice", "ledger-a/alice", "5", "SAME_ACCOUNT"),
        ("ledger-a/heir", "ledger-a/rich", "6", "OVERFLOW"),
        ("ledger-a/alice", "ledger-a/shut", "5", "ACCOUNT_CLOSED"),
        (
            "ledger-a/alice",
            "ledger-b/@clearing:THB",
            "5",
            "MALFORMED_OPERATION",
        ),
    ] {
        let currency = if code == "OVERFLOW" { "XAU" } else { "THB" };
        let line =
            format!("transfer --from {from} --to {to} --amount {amount} --currency {currency} -o json");
        let answer = cluster.covenant(&line).await?.exits(1)?.json()?;
        ensure!(
            answer["outcome"] == "ABORTED" && answer["reason"] == code,
            "`{line}`: {answer}"
        );
        ensure!(
            answer["reason_detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty()),
            "`{line}`: {answer}"
        );
        seen.insert(code);
    }
    // The command takes no such amount.
    for amount in [0, -5] {
        let told = cluster
            .execute(&Transfer::new(format!("N{amount}"), amount))
            .await?;
        let Outcome::Aborted(view) = told else {
            anyhow::bail!("{told:?}")
        };
        let code = view.reason.clone().unwrap_or_default().code;
        ensure!(code == "AMOUNT_NOT_POSITIVE", "{view:?}");
    }
    seen.insert("AMOUNT_NOT_POSITIVE");
    let world = cluster.quiet(PATIENCE).await?;
    checks::s14_conservation(&world, i128::from(OPENING) + i128::from(RICH) + 106)?;
    checks::s1_agreement(&world)?;
    let elsewhere = [
        (
            "ASSERTION_FAILED",
            "a_branch_that_only_looks_is_read_only_and_commits_or_refuses",
        ),
        (
            "DUPLICATE_TRANSACTION",
            "an_effect_that_a_coordinator_without_memory_asks_for_again_is_refused",
        ),
        // A ledger with 64 MiB waiting for its disk: the journal's own tests.
        ("RESOURCE_EXHAUSTED", "not here"),
    ];
    seen.extend(elsewhere.map(|(code, _)| code));
    ensure!(
        seen == BTreeSet::from(Refusal::CODES),
        "there is a code without a case here: {seen:?}"
    );
    cluster.stop_and_check_logs().await
}

fn looking(id: &str, at_least: i64) -> Transaction {
    Transaction {
        id: id.into(),
        created: unix_now(),
        branches: vec![
            assert_branch(LEDGER_A, "alice", at_least),
            assert_branch(LEDGER_B, "bob", 0),
        ],
        timeout: Some(PATIENCE),
        wait: Wait::Completed,
    }
}

#[tokio::test]
async fn a_branch_that_only_looks_is_read_only_and_commits_or_refuses() -> Result<()> {
    let cluster = Cluster::start().await?;
    let outcome = cluster
        .client()
        .execute(&looking("enough", OPENING), PATIENCE)
        .await?;
    ensure!(outcome.word() == "COMMITTED", "{outcome:?}");
    let got = cluster
        .covenant("tx get enough -o json")
        .await?
        .exits(0)?
        .json()?;
    let states: Vec<_> = got["branches"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|branch| &branch["state"])
        .collect();
    ensure!(states == ["READ_ONLY", "READ_ONLY"], "{got}");
    let outcome = cluster
        .client()
        .execute(&looking("too much", OPENING + 1), PATIENCE)
        .await?;
    let Outcome::Aborted(view) = outcome else {
        anyhow::bail!("{outcome:?}")
    };
    ensure!(
        view.reason
            .as_ref()
            .is_some_and(|reason| reason.code == "ASSERTION_FAILED"),
        "{view:?}"
    );
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn transfers_on_one_account_are_in_flight_together_as_long_as_they_fit() -> Result<()> {
    let plan = Plan::new()?.with(Who::LedgerA, |launch| launch.open("dora=0:THB"));
    let mut cluster = plan.start().await?;
    // Ledger B is away: what goes there stays prepared at ledger A.
    cluster.ledger_b.kill()?;
    let mut callers = Vec::new();
    for id in ["T1", "T2"] {
        let (client, sent) = (cluster.client().clone(), Transfer::new(id, 200_000).transaction());
        callers.push(tokio::spawn(async move { client.execute(&sent, PATIENCE).await }));
    }
    wait_until("both holds", PATIENCE, async || {
        let held = balances(&account(&cluster, Who::LedgerA, "alice").await?);
        ensure!(held == [OPENING, 400_000, 0, 100_000], "alice has {held:?}");
        Ok(())
    })
    .await?;
    let within = "transfer --from ledger-a/alice --to ledger-a/dora -o json --wait completed --amount";
    cluster.covenant(&format!("{within} 100001")).await?.exits(1)?;
    cluster.covenant(&format!("{within} 60000")).await?.exits(0)?;
    let held = balances(&account(&cluster, Who::LedgerA, "alice").await?);
    ensure!(held == [440_000, 400_000, 0, 40_000], "alice has {held:?}");
    cluster.ledger_b.restart().await?;
    for caller in callers {
        let outcome = caller.await??;
        ensure!(outcome.word() == "COMMITTED", "{outcome:?}");
    }
    let world = cluster.check(&[]).await?;
    ensure!(
        world.account("bob")?.posted == 400_000 && world.account("alice")?.posted == 40_000,
        "{world:?}"
    );
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_transaction_with_a_participant_that_is_away_aborts_at_its_deadline() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    cluster.ledger_b.kill()?;
    let began = std::time::Instant::now();
    let line = "transfer --from ledger-a/alice --to ledger-b/bob --amount 5 --timeout 1500ms --id T";
    let aborted = cluster.covenant(line).await?.exits(1)?;
    ensure!(
        aborted
            .stdout
            .contains("DEADLINE_EXCEEDED  not all votes were in"),
        "it does not say why: {}",
        aborted.stdout
    );
    let aborted = cluster.covenant("tx get T -o json").await?.exits(0)?.json()?;
    ensure!(
        aborted["outcome"] == "ABORTED" && aborted["reason"] == "DEADLINE_EXCEEDED",
        "{aborted}"
    );
    ensure!(
        began.elapsed() >= Duration::from_millis(1_500),
        "before its deadline, after {:?}",
        began.elapsed()
    );
    wait_until("ledger A to hold nothing", PATIENCE, async || {
        let held = balances(&account(&cluster, Who::LedgerA, "alice").await?);
        ensure!(held == [OPENING, 0, 0, OPENING], "alice has {held:?}");
        Ok(())
    })
    .await?;
    cluster.ledger_b.restart().await?;
    cluster.wait_joined().await?;
    cluster.commits(&Transfer::new("after", 5)).await?;
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_participant_that_never_joined_is_named_and_nothing_is_run() -> Result<()> {
    let cluster = Cluster::start().await?;
    let line = "transfer --from ledger-a/alice --to ledger-x/bob --amount 5 --id T -o json";
    let error = cluster.covenant(line).await?.exits(6)?.json()?["error"].clone();
    ensure!(
        error["code"] == "PARTICIPANT_UNKNOWN" && error["metadata"]["participant"] == "ledger-x",
        "{error}"
    );
    ensure!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains("correct the name")),
        "{error}"
    );
    cluster.covenant("tx get T").await?.exits(3)?;
    cluster.check(&[]).await?;
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn a_hold_in_doubt_outlives_a_restart_of_its_ledger_and_is_seen_in_accounts() -> Result<()> {
    let plan = Plan::new()?.with(Who::Coordinator, |launch| launch.crash_at("c.votes.all:T"));
    let mut cluster = plan.start().await?;
    let transfer =
        "transfer --from ledger-a/alice --to ledger-b/bob --amount 100000 --id T --timeout 1s -o json";
    let unknown = cluster.covenant(transfer).await?.exits(7)?;
    let shown = unknown.json()?;
    ensure!(shown["outcome"] == "UNKNOWN", "{shown}");
    ensure!(
        shown["next"]
            .as_str()
            .is_some_and(|next| next.starts_with("covenant tx get")),
        "{shown}"
    );
    cluster.coordinator.died_at("c.votes.all").await?;
    for who in [Who::LedgerA, Who::LedgerB] {
        cluster.server(who).kill()?;
        cluster.server(who).restart().await?;
        let ready = cluster.server(who).ready().clone();
        ensure!(
            ready["joined"] == false && ready["in_doubt"] == 1,
            "{who:?} says {ready}"
        );
    }
    let alice = balances(&account(&cluster, Who::LedgerA, "alice").await?);
    ensure!(alice == [OPENING, 100_000, 0, 400_000], "alice has {alice:?}");
    let bob = balances(&account(&cluster, Who::LedgerB, "bob").await?);
    ensure!(bob == [0, 0, 100_000, 0], "bob has {bob:?}");
    cluster.coordinator.restart().await?;
    cluster.check(&[]).await?;
    let alice = balances(&account(&cluster, Who::LedgerA, "alice").await?);
    ensure!(alice == [OPENING, 0, 0, OPENING], "alice has {alice:?}");
    cluster.stop_and_check_logs().await
}

#[tokio::test]
async fn an_effect_that_a_coordinator_without_memory_asks_for_again_is_refused() -> Result<()> {
    let mut cluster = Cluster::start().await?;
    let line = "transfer --from ledger-a/alice --to ledger-b/bob --amount 5 --id T -o json --wait completed";
    cluster.covenant(line).await?.exits(0)?;
    cluster.coordinator.stop_cleanly().await?;
    // Its log is gone: an empty directory in its place is another lineage.
    std::fs::rename(
        cluster.coordinator.launch().data_dir(),
        cluster.directory().join("gone"),
    )?;
    cluster.coordinator.restart().await?;
    cluster.wait_joined().await?;
    let answer = cluster.covenant(line).await?.exits(7)?.json()?;
    ensure!(
        answer["outcome"] == "UNKNOWN" && answer["reason"] == "DUPLICATE_TRANSACTION",
        "{answer}"
    );
    let bob = balances(&account(&cluster, Who::LedgerB, "bob").await?);
    ensure!(bob == [5, 0, 0, 5], "bob has {bob:?}");
    Ok(())
}

#[tokio::test]
async fn a_transfer_to_nobody_surely_never_left() -> Result<()> {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let endpoint = format!("http://{nobody}");
    let arguments = [
        "transfer",
        "--from",
        "ledger-a/alice",
        "--to",
        "ledger-b/bob",
        "--amount",
        "5",
        "--timeout",
        "1s",
        "--endpoint",
        &endpoint,
        "-o",
        "json",
    ];
    let ran = covenant(&arguments).await?.exits(4)?;
    ensure!(
        ran.json()?["error"]["code"] == "NEVER_SENT" && ran.stderr.contains("nothing was sent"),
        "{}",
        ran.stderr
    );
    let next = ran.json()?["error"]["next"].clone();
    let next = next.as_str().unwrap_or_default();
    ensure!(next.starts_with("covenant transfer "), "{next}");
    ensure!(
        next.contains(&format!("--timeout 1s --endpoint {endpoint}")),
        "{next}"
    );
    ensure!(ran.stderr.contains(&format!("next: {next}")), "{}", ran.stderr);
    Ok(())
}

#[tokio::test]
async fn a_question_to_another_kind_of_server_is_a_usage_error_that_says_who_answers_there() -> Result<()> {
    let cluster = Cluster::start().await?;
    let (coordinator, ledger) = (cluster.coordinator.url(), cluster.ledger_a.url());
    for (line, option, url, words) in [
        ("tx get T", "--endpoint", &ledger, "a ledger answers there"),
        ("tx list", "--endpoint", &ledger, "a ledger answers there"),
        ("tx watch", "--endpoint", &ledger, "a ledger answers there"),
        (
            "participant list",
            "--endpoint",
            &ledger,
            "a ledger answers there",
        ),
        (
            "accounts",
            "--ledger",
            &coordinator,
            "a coordinator answers there",
        ),
        (
            "entries --account alice",
            "--ledger",
            &coordinator,
            "a coordinator answers there",
        ),
    ] {
        let arguments: Vec<&str> = line.split(' ').chain([option, url]).collect();
        let ran = covenant(&arguments).await?.exits(2)?;
        for word in [url.as_str(), words, option_for(words)] {
            ensure!(
                ran.stderr.contains(word),
                "`{line}` does not say {word:?}: {}",
                ran.stderr
            );
        }
    }
    cluster.stop_and_check_logs().await
}

/// The option that leads out, when this kind of server answers.
fn option_for(words: &str) -> &'static str {
    if words.contains("a ledger") {
        "--endpoint http://HOST:PORT"
    } else {
        "--ledger http://HOST:PORT"
    }
}

#[tokio::test]
async fn a_transfer_to_another_kind_of_server_stays_unknown_and_is_not_sent_there_again() -> Result<()> {
    let cluster = Cluster::start().await?;
    let ledger = cluster.ledger_a.url();
    let transfer = "transfer --from ledger-a/alice --to ledger-b/bob --amount 5 --id T -o json";
    for line in [transfer, "tx abort T -o json"] {
        let arguments: Vec<&str> = line.split(' ').chain(["--endpoint", &ledger]).collect();
        let ran = covenant(&arguments).await?.exits(7)?;
        let shown = ran.json()?;
        ensure!(
            shown["outcome"] == "UNKNOWN" && shown["next"].is_null(),
            "{shown}"
        );
        ensure!(
            ran.stderr.contains("a ledger answers there") && !ran.stderr.contains("next:"),
            "{}",
            ran.stderr
        );
        ensure!(
            ran.stderr.contains("--endpoint http://HOST:PORT T"),
            "{}",
            ran.stderr
        );
    }
    cluster.covenant("tx get T").await?.exits(3)?;
    cluster.stop_and_check_logs().await
}
