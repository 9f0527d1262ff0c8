//! Transactions that stay open: two participants vote YES and never acknowledge.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_client::{Branch, Outcome, Transaction, Wait, unix_now};
use covenant_proto::v1::VoteKind;
use covenant_proto::v1::coordinator_message::Content;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, PATIENCE};
use crate::rogue::{Rogue, hello, message, vote};
use crate::wait::wait_until;

/// The two names.
const NAMES: [&str; 2] = ["silent-0", "silent-1"];

/// How many of their transactions are under way at a time while they are made.
const TOGETHER: usize = 128;

/// The two participants; they go away when it is dropped.
pub struct Open {
    _participants: JoinSet<Result<()>>,
}

impl Open {
    /// Joins them and makes so many transactions, each with a branch at both; all of them are decided.
    ///
    /// # Errors
    /// If one did not commit, or is not in doubt.
    pub async fn make(cluster: &Cluster, transactions: usize) -> Result<Self> {
        let mut participants = JoinSet::new();
        for name in NAMES {
            let joined = Rogue::join(&cluster.coordinator.url(), hello(name, 1)).await?;
            participants.spawn(silent(joined));
        }
        let mut running = JoinSet::new();
        for number in 0..transactions {
            if running.len() == TOGETHER {
                running.join_next().await.context("one runs")???;
            }
            let client = cluster.client().clone();
            running.spawn(async move { decide(&client, number).await });
        }
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        let in_doubt = 2 * transactions as u64;
        wait_until("all of them to be in doubt", PATIENCE, async || {
            let page = cluster.client().participants(0, "", PATIENCE).await?;
            let found: u64 = (page.participants.iter())
                .filter(|one| NAMES.contains(&one.name.as_str()))
                .map(|one| one.in_doubt)
                .sum();
            ensure!(found == in_doubt, "{found} of {in_doubt} are in doubt");
            Ok(())
        })
        .await?;
        Ok(Self {
            _participants: participants,
        })
    }
}

async fn decide(client: &covenant_client::Client, number: usize) -> Result<()> {
    let transaction = Transaction {
        id: format!("open-{number}"),
        created: unix_now(),
        branches: NAMES.map(|name| Branch::new(name, vec![1; 8])).to_vec(),
        timeout: Some(Duration::from_secs(30)),
        wait: Wait::Decided,
    };
    let outcome = client.execute(&transaction, PATIENCE).await?;
    ensure!(
        matches!(outcome, Outcome::Committed(_)),
        "{} is {outcome:?}",
        transaction.id
    );
    Ok(())
}

/// YES to every PREPARE, and nothing to anything else.
async fn silent(mut participant: Rogue) -> Result<()> {
    loop {
        if let (xid, Content::Prepare(_)) = participant.next().await? {
            participant.say(vec![message(xid, vote(VoteKind::Yes))]).await?;
        }
    }
}
