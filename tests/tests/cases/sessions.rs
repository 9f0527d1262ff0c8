//! Cases about sessions: what they repeat, and lines that fall silent.

use std::time::Instant;

use anyhow::{Result, ensure};
use covenant_proto::v1::ParticipantMessage;
use covenant_proto::v1::participant_service_client::ParticipantServiceClient;
use covenant_rules::RepeatedLines;
use covenant_tests::Cluster;
use covenant_tests::cluster::LEDGER_A;
use covenant_tests::rogue::{Rogue, hello};
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
