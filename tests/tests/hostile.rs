//! Participants and callers that mean harm, against the real coordinator: forged messages, floods, names taken, frames that
//! nobody reads. Each attack runs beside transfers between two honest ledgers, which all commit; the coordinator neither
//! panics nor outgrows its bound, and afterwards everything adds up.
//!
//! Nobody is authenticated here, so a rogue may join under a free name and take part: what it may not do is touch the
//! branches of others. What a server keeps of messages that are never finished has no bound of its own but those of calls,
//! connections and messages, multiplied: here it is shown to cost no more than its bytes. How fast the honest transfers are meanwhile is printed, not judged.

#![allow(
    clippy::print_stdout,
    reason = "how fast others are meanwhile is told, not judged"
)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Branch, Client, Error, Outcome, RefusalKind, Transaction, Wait};
use covenant_proto::ledger::v1::ledger_service_client::LedgerServiceClient;
use covenant_proto::ledger::v1::{ListAccountsRequest, ListEntriesRequest, ListHoldsRequest};
use covenant_proto::v1::operator_service_client::OperatorServiceClient;
use covenant_proto::v1::participant_message::Content;
use covenant_proto::v1::transaction_service_client::TransactionServiceClient;
use covenant_proto::v1::{
    Inquiry, ListParticipantsRequest, ListTransactionsRequest, VoteKind, WatchTransactionsRequest, Xid,
};
use covenant_rules::Name;
use covenant_tests::attack::withstands;
use covenant_tests::cluster::{LEDGER_A, PATIENCE, Plan};
use covenant_tests::rogue::{Rogue, every_message, foreign, hello, message, vote};
use covenant_tests::unfinished::Unfinished;
use covenant_tests::{Cluster, Transfer, Who};
use tokio::task::{JoinHandle, JoinSet};
use tonic::Code;

/// The messages of one flooding frame: below the bound of a frame in bytes.
const FLOOD_FRAME: u64 = 10_000;

/// The frames of inquiries whose answers are more than the outbox of a session takes.
const UNREAD_FRAMES: usize = 300;

/// How long the coordinator may take for a frame that it takes at all.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How many calls at a time send a message and never finish it.
const UNFINISHED_CALLS: u32 = 24;

/// What the coordinator takes of unfinished messages, in bytes: its bound, and the windows of three connections.
const MAX_UNFINISHED_BYTES: usize = (64 + 24) * 1024 * 1024;

/// The attempt of an honest transfer that is finished; those after it have the next numbers.
async fn honest_xid(cluster: &Cluster) -> Result<Xid> {
    let sighted = Transfer {
        wait: Wait::Completed,
        ..Transfer::new("sighted", 1)
    };
    let outcome = cluster.execute(&sighted).await?;
    outcome.view().and_then(|view| view.xid).context("it has no xid")
}

fn with_rogue(id: &str, timeout: Duration) -> Transaction {
    let honest = Transfer {
        timeout,
        ..Transfer::new(id, 1)
    };
    let mut transaction = honest.transaction();
    transaction
        .branches
        .push(Branch::new("rogue", b"anything".to_vec()));
    transaction
}

fn execute(client: &Client, transaction: &Transaction) -> JoinHandle<Result<Outcome, Error>> {
    let (client, transaction) = (client.clone(), transaction.clone());
    tokio::spawn(async move { client.execute(&transaction, PATIENCE).await })
}

#[tokio::test]
async fn messages_about_the_branches_of_others_change_nothing() -> Result<()> {
    withstands(Cluster::start().await?, "forged messages", async |cluster| {
        let first = honest_xid(cluster).await?;
        let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
        // Every number from the one that was sighted on is, was, or will be an honest attempt.
        for ahead in 0..200 {
            let near = Xid {
                seq: first.seq + ahead,
                ..first
            };
            let strange = [
                near,
                Xid {
                    counter: near.counter + 1,
                    ..near
                },
                Xid {
                    bits: near.bits ^ 1,
                    ..near
                },
                Xid {
                    lineage_low: near.lineage_low ^ 1,
                    ..near
                },
                Xid {
                    seq: u64::MAX - ahead,
                    ..near
                },
            ];
            for xid in strange {
                let forged = every_message().into_iter().map(|content| message(xid, content));
                rogue.say(forged.collect()).await?;
            }
        }
        rogue.taken(foreign(first)).await
    })
    .await
}

#[tokio::test]
async fn the_first_vote_stands_and_one_that_never_comes_aborts_at_the_deadline() -> Result<()> {
    withstands(Cluster::start().await?, "contrary votes", async |cluster| {
        let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
        for (id, first, second, word) in [
            ("yes-no", VoteKind::Yes, VoteKind::No, "COMMITTED"),
            ("no-yes", VoteKind::No, VoteKind::Yes, "ABORTED"),
        ] {
            let caller = execute(cluster.client(), &with_rogue(id, PATIENCE));
            let xid = rogue.prepare().await?;
            let both = vec![message(xid, vote(first)), message(xid, vote(second))];
            rogue.say(both).await?;
            let outcome = caller.await??;
            ensure!(outcome.word() == word, "{id} is {outcome:?}");
            if word == "COMMITTED" {
                rogue.commit(xid).await?;
            }
        }
        let silent = with_rogue("silent", Duration::from_millis(300));
        let outcome = cluster.client().execute(&silent, PATIENCE).await?;
        ensure!(outcome.word() == "ABORTED", "it is {outcome:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn floods_of_forged_messages_hold_up_nobody_for_long() -> Result<()> {
    // A checkpoint would drop from the log what is looked for in it afterwards.
    let plan = Plan::new()?.with(Who::Coordinator, |launch| {
        launch.variable("COVENANT_LOG__CHECKPOINT_RECORDS", 10_000_000)
    });
    withstands(plan.start().await?, "floods", async |cluster| {
        let first = honest_xid(cluster).await?;
        let mut connection = 1;
        let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", connection)).await?;
        let flood = |content: Content, frame: u64| {
            let xids = (0..FLOOD_FRAME).map(move |n| Xid {
                seq: 1_000_000 + frame * FLOOD_FRAME + n,
                ..first
            });
            xids.map(|xid| message(xid, content.clone())).collect::<Vec<_>>()
        };
        for content in every_message() {
            // Reports are the ones that are remembered: up to the bound of those.
            let frames = if matches!(content, Content::Report(_)) {
                10
            } else {
                2
            };
            let flooded = async {
                for frame in 0..frames {
                    rogue.say(flood(content.clone(), frame)).await?;
                }
                rogue.taken(foreign(first)).await
            };
            // The coordinator may cut who floods it; who is cut may come again.
            if let Err(error) = flooded.await {
                println!("cut after {content:?}: {error:#}");
                connection += 1;
                rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", connection)).await?;
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_participant_that_does_not_read_is_cut_and_others_go_on() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "a participant that does not read",
        async |cluster| {
            let first = honest_xid(cluster).await?;
            let mut rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
            // Each of these is answered, and nobody takes the answers.
            let inquiries: Vec<_> = (0..FLOOD_FRAME)
                .map(|n| {
                    message(
                        Xid {
                            seq: first.seq + n % 3,
                            ..first
                        },
                        Content::Inquiry(Inquiry {}),
                    )
                })
                .collect();
            // Behind a session that was cut nothing is taken any more.
            let mut frames = 0;
            while frames < UNREAD_FRAMES {
                match tokio::time::timeout(TAKEN_TIMEOUT, rogue.say(inquiries.clone())).await {
                    Ok(Ok(())) => frames += 1,
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            let status = rogue.ended().await?;
            println!("after {frames} frames that were taken: {status:?}");
            ensure!(status.code() == Code::ResourceExhausted, "{status:?}");
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn a_name_that_is_joined_cannot_be_taken_by_another_lineage() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "a name taken again and again",
        async |cluster| {
            for connection in 1..=200 {
                let taken = Rogue::join(&cluster.coordinator.url(), hello(LEDGER_A, connection)).await;
                let refused = taken
                    .map(drop)
                    .map_or_else(|error| format!("{error:#}"), |()| "it joined".to_owned());
                ensure!(
                    refused.contains("of this name") && refused.contains("is joined"),
                    "{refused}"
                );
            }
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn sessions_without_end_and_without_a_word_hold_up_nobody() -> Result<()> {
    withstands(Cluster::start().await?, "many sessions", async |cluster| {
        let mut sessions = Vec::new();
        for n in 0..300 {
            sessions.push(Rogue::join(&cluster.coordinator.url(), hello(&format!("rogue-{n}"), 1)).await?);
        }
        for rogue in &sessions {
            // Frames that say nothing are frames all the same.
            for _ in 0..20 {
                rogue.say(Vec::new()).await?;
            }
        }
        for _ in 0..50 {
            let again = hello("rogue-0", 2 + sessions.len() as u64);
            sessions.push(Rogue::join(&cluster.coordinator.url(), again).await?);
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_same_id_at_once_from_everywhere_has_one_outcome() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "one id from everywhere",
        async |cluster| {
            let transaction = Transfer::new("everywhere", 5).transaction();
            let clients = (0..4)
                .map(|_| Client::new(&cluster.coordinator.url()))
                .collect::<Result<Vec<_>, _>>()?;
            let mut calls = JoinSet::new();
            for n in 0..4_000 {
                let (client, transaction) = (clients[n % clients.len()].clone(), transaction.clone());
                calls.spawn(async move { client.execute(&transaction, PATIENCE).await });
            }
            let (mut committed, mut refused) = (0, 0);
            while let Some(answer) = calls.join_next().await {
                match answer? {
                    Ok(Outcome::Committed(_)) => committed += 1,
                    Err(Error::Refused(refusal)) => {
                        let exhausted = matches!(refusal.kind, RefusalKind::ResourceExhausted { .. });
                        ensure!(exhausted, "{refusal:?}");
                        refused += 1;
                    }
                    other => anyhow::bail!("{other:?}"),
                }
            }
            println!("one id: {committed} were told COMMITTED, {refused} that there are too many");
            ensure!(committed > 0, "nobody was answered");
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn new_ids_past_every_bound_are_refused_by_its_name_and_others_commit() -> Result<()> {
    let bound = |name: &str| format!("COVENANT_TRANSACTIONS__{name}");
    let plan = Plan::new()?.with(Who::Coordinator, |launch| {
        launch
            .variable(&bound("MAX_IN_PROGRESS_PER_PARTICIPANT"), 300)
            .variable(&bound("MAX_IN_PROGRESS"), 600)
    });
    withstands(plan.start().await?, "new ids past the bound", async |cluster| {
        // It joined, so that it is known, and never votes.
        let _rogue = Rogue::join(&cluster.coordinator.url(), hello("rogue", 1)).await?;
        let client = Client::new(&cluster.coordinator.url())?;
        let mut calls = JoinSet::new();
        for n in 0..3_000 {
            let transaction = Transaction {
                branches: vec![Branch::new("rogue", vec![0; 1_000])],
                ..with_rogue(&format!("new-{n}"), Duration::from_secs(2))
            };
            let client = client.clone();
            calls.spawn(async move { client.execute(&transaction, PATIENCE).await });
        }
        let (mut aborted, mut refused) = (0, 0);
        while let Some(answer) = calls.join_next().await {
            match answer? {
                Ok(Outcome::Aborted(_)) => aborted += 1,
                Err(Error::Refused(refusal)) => {
                    let named = matches!(&refusal.kind, RefusalKind::ResourceExhausted { bound, .. }
                        if bound == "max_in_progress_per_participant");
                    ensure!(named, "{refusal:?}");
                    refused += 1;
                }
                other => anyhow::bail!("{other:?}"),
            }
        }
        ensure!(
            aborted >= 300 && refused > 0,
            "{aborted} ran, {refused} were refused"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn watchers_that_never_read_hold_up_nobody() -> Result<()> {
    withstands(
        Cluster::start().await?,
        "watchers that never read",
        async |cluster| {
            let mut watches = Vec::new();
            for n in 0..100 {
                let mut client = TransactionServiceClient::connect(cluster.coordinator.url()).await?;
                let request = WatchTransactionsRequest {
                    transaction_id: if n % 2 == 0 {
                        String::new()
                    } else {
                        format!("honest-{n}")
                    },
                };
                watches.push(client.watch_transactions(request).await?.into_inner());
            }
            let mut calls = JoinSet::new();
            for n in 0..2_000 {
                let (client, transaction) = (
                    cluster.client().clone(),
                    Transfer::new(format!("seen-{n}"), 1).transaction(),
                );
                calls.spawn(async move { client.execute(&transaction, PATIENCE).await });
            }
            while let Some(answer) = calls.join_next().await {
                let outcome = answer??;
                ensure!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            }
            drop(watches);
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn messages_that_are_never_finished_are_held_up_to_a_bound_and_no_further() -> Result<()> {
    withstands(Cluster::start().await?, "unfinished messages", async |cluster| {
        let url = cluster.coordinator.url();
        let address = url.trim_start_matches("http://");
        let mut unfinished = Vec::new();
        let mut held = 0;
        for (path, claimed) in [
            ("/covenant.v1.TransactionService/Execute", 4_000_000),
            ("/covenant.v1.TransactionService/ExecuteMany", 4_000_000),
            ("/covenant.v1.ParticipantService/Join", 1_000_000),
        ] {
            let mut calls = Unfinished::begin(address, path, UNFINISHED_CALLS, claimed).await?;
            // The server may end all of them.
            held += calls.send_up_to(usize::try_from(claimed)? - 1).await.unwrap_or(0);
            unfinished.push(calls);
        }
        ensure!(held > 0, "nothing was taken at all");
        ensure!(
            held <= MAX_UNFINISHED_BYTES,
            "{held} bytes of unfinished messages are held"
        );
        Ok(())
    })
    .await
}

/// Tokens that no list ever gave, and some that one might have.
fn tokens() -> Vec<String> {
    let short = "r o a a0 a-1 r12 x \u{e9} .. 1.2.3 %00 a99999999999999999999";
    let mut tokens: Vec<String> = short.split(' ').map(str::to_owned).collect();
    tokens.extend(["r", "o", "a"].map(|kind| format!("{kind}{}", "f".repeat(80))));
    tokens.push("9".repeat(257));
    tokens.push("z".repeat(100_000));
    tokens
}

/// A kind and an attempt, or nothing behind it; or the number of an archived outcome.
fn is_a_transactions(token: &str) -> bool {
    ["r", "o", "a0"].contains(&token) || (token.len() == 81 && !token.starts_with('a'))
}

fn is_a_name(token: &str) -> bool {
    Name::new(token).is_ok()
}

/// Taken only if it is right; else refused in words.
fn refuses<T>(what: &str, is_right: bool, answer: Result<T, tonic::Status>) -> Result<()> {
    let Err(status) = answer else {
        ensure!(is_right, "{what} was taken");
        return Ok(());
    };
    ensure!(
        [Code::InvalidArgument, Code::NotFound].contains(&status.code()) && !status.message().is_empty(),
        "{what}: {status:?}"
    );
    Ok(())
}

#[tokio::test]
async fn page_tokens_sizes_and_filters_of_nonsense_are_refused_in_words() -> Result<()> {
    withstands(Cluster::start().await?, "lists of nonsense", async |cluster| {
        let mut callers = TransactionServiceClient::connect(cluster.coordinator.url()).await?;
        let mut operators = OperatorServiceClient::connect(cluster.coordinator.url()).await?;
        let mut ledger = LedgerServiceClient::connect(cluster.ledger_a.url()).await?;
        for page_token in tokens() {
            for (page_size, state) in [(0, 0), (u32::MAX, 5), (1, 99), (7, -1)] {
                let what = format!("token {:.20}, size {page_size}, state {state}", page_token);
                let page_token = page_token.clone();
                let request = ListTransactionsRequest {
                    state,
                    page_size,
                    page_token: page_token.clone(),
                };
                let answer = callers.list_transactions(request).await;
                let is_right = (0..=5).contains(&state) && is_a_transactions(&page_token);
                refuses(&what, is_right, answer)?;
                let request = ListParticipantsRequest {
                    page_size,
                    page_token: page_token.clone(),
                };
                refuses(
                    &what,
                    is_a_name(&page_token),
                    operators.list_participants(request).await,
                )?;
                let request = ListAccountsRequest {
                    page_size,
                    page_token: page_token.clone(),
                    include_system: true,
                };
                refuses(&what, is_a_name(&page_token), ledger.list_accounts(request).await)?;
                let account = if state == 0 {
                    "alice".to_owned()
                } else {
                    page_token.clone()
                };
                let request = ListEntriesRequest {
                    account,
                    page_size,
                    page_token: page_token.clone(),
                };
                refuses(&what, false, ledger.list_entries(request).await)?;
                let request = ListHoldsRequest {
                    page_size,
                    page_token,
                };
                refuses(&what, false, ledger.list_holds(request).await)?;
            }
        }
        Ok(())
    })
    .await
}
