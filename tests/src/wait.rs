//! Waiting for a condition, with a deadline that says what it waited for. Nothing here waits for time alone.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

/// How often a condition is looked at, in milliseconds.
pub const POLL_MS: u64 = 5;

/// Looks at a condition until it holds; its error says why it does not hold yet.
///
/// # Errors
/// After `deadline`: what was waited for, and why it did not hold when it was looked at last.
pub async fn wait_until<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let until = Instant::now() + deadline;
    let mut last = anyhow!("it was never looked at");
    loop {
        match tokio::time::timeout_at(until, condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(why)) => last = why,
            Err(_) => return Err(last.context(format!("waited {deadline:?} for {what}"))),
        }
        if Instant::now() >= until {
            return Err(last.context(format!("waited {deadline:?} for {what}")));
        }
        tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;

    #[tokio::test]
    async fn a_condition_that_comes_true_gives_its_value() {
        let mut looks = 0;
        let value = wait_until("three looks", Duration::from_secs(10), async || {
            looks += 1;
            ensure!(looks >= 3, "only {looks}");
            Ok(looks)
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_deadline_says_what_was_waited_for_and_why_it_did_not_hold() {
        let never = wait_until("the moon", Duration::from_millis(20), async || -> Result<()> {
            Err(anyhow!("it is cloudy"))
        });
        let error = format!("{:#}", never.await.unwrap_err());
        assert!(
            error.contains("for the moon") && error.contains("it is cloudy"),
            "{error}"
        );
        let stuck = wait_until("an answer", Duration::from_millis(20), async || -> Result<()> {
            std::future::pending().await
        });
        assert!(stuck.await.unwrap_err().to_string().contains("for an answer"));
    }
}
