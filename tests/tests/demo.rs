//! `covenant demo` as a newcomer runs it: it ends well, says so in its last line, and leaves nothing behind; with `--keep`
//! it leaves three processes that answer.
//!
//! What each step of the story checks is the demo's own matter; here only its verdict counts.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_tests::binary::binary;
use covenant_tests::process::{covenant, started_with};
use covenant_tests::{Ran, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long the processes that the demo leaves may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the demo with a mark in the environment, which its children have too.
async fn demo(mark: &str, arguments: &[&str]) -> Result<Ran> {
    let mut command = Command::new(binary()?);
    command.arg("demo").args(arguments).env("DEMO_UNDER_TEST", mark);
    Ran::to_end("covenant demo", &mut command).await
}

/// The processes with this mark that run.
fn marked(mark: &str) -> Result<BTreeSet<u32>> {
    started_with(&format!("DEMO_UNDER_TEST={mark}"))
}

/// A mark that no other run has.
fn mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[tokio::test]
async fn the_demo_ends_well_says_so_last_and_leaves_no_process() -> Result<()> {
    let mark = mark("plain");
    let ran = demo(&mark, &[]).await?.exits(0)?;
    let last = ran.stdout.lines().last().unwrap_or_default();
    ensure!(
        last.starts_with("Verdict: every check held"),
        "the last line is {last:?}"
    );
    for step in ["(a)", "(b)", "(c)", "(d)", "(e)", "(f)"] {
        ensure!(ran.stdout.contains(step), "no step {step} in {}", ran.stdout);
    }
    ensure!(
        ran.stdout.contains("blocked by the crash"),
        "no hold was blocked: {}",
        ran.stdout
    );
    let left = marked(&mark)?;
    ensure!(left.is_empty(), "{left:?} run on");
    Ok(())
}

/// Ends what the demo left, also when a check fails.
struct Left(Vec<i32>);

impl Left {
    fn signal(&self, signal: Signal) {
        for id in self.0.iter().filter_map(|id| Pid::from_raw(*id)) {
            // It may have ended.
            let _ = kill_process(id, signal);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

#[tokio::test]
async fn a_demo_that_is_killed_takes_its_processes_with_it() -> Result<()> {
    let mark = mark("killed");
    let scratch = covenant_tests::binary::scratch()?;
    let mut command = Command::new(binary()?);
    command
        .arg("demo")
        .env("DEMO_UNDER_TEST", &mark)
        .env("TMPDIR", scratch.path());
    let mut demo = covenant_tests::Process::spawn("covenant demo", &mut command)?;
    wait_until("all three processes of the demo", STOP_TIMEOUT, async || {
        let running = marked(&mark)?;
        ensure!(running.len() == 4, "{running:?} run");
        Ok(())
    })
    .await?;
    let children = marked(&mark)?.into_iter().filter(|id| *id != demo.id());
    let _left = Left(children.filter_map(|id| id.try_into().ok()).collect());
    demo.kill()?;
    wait_until("its processes to stop", STOP_TIMEOUT, async || {
        let left = marked(&mark)?;
        ensure!(left.is_empty(), "{left:?} run on");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_demo_that_is_kept_leaves_three_processes_that_answer() -> Result<()> {
    let mark = mark("kept");
    let report = demo(&mark, &["--keep", "-o", "json"]).await?.exits(0)?.json()?;
    let left = Left(
        marked(&mark)?
            .into_iter()
            .filter_map(|id| id.try_into().ok())
            .collect(),
    );
    ensure!(report["passed"] == true && report["failed"] == 0, "{report}");
    let processes = report["kept"]["processes"]
        .as_array()
        .context("it keeps processes")?;
    let mut named: Vec<i64> = processes
        .iter()
        .filter_map(|process| process["process_id"].as_i64())
        .collect();
    named.sort_unstable();
    ensure!(
        named == left.0.iter().copied().map(i64::from).collect::<Vec<_>>(),
        "it names {named:?}, left are {:?}",
        left.0
    );
    let url = |name: &str| -> Result<String> {
        let found = processes.iter().find(|process| process["name"] == name);
        Ok(found
            .and_then(|process| process["url"].as_str())
            .context("a URL")?
            .to_owned())
    };
    let transactions = covenant(&[
        "tx",
        "get",
        "T100",
        "--endpoint",
        &url("coordinator")?,
        "-o",
        "json",
    ])
    .await?;
    ensure!(transactions.exits(0)?.json()?["outcome"] == "COMMITTED", "T100");
    let mut posted = Vec::new();
    for name in ["ledger-a", "ledger-b"] {
        let listed = covenant(&["accounts", "--ledger", &url(name)?, "-o", "json"])
            .await?
            .exits(0)?
            .json()?;
        posted.extend(
            listed["accounts"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|account| account["posted"].clone()),
        );
    }
    let sum: i64 = posted.iter().filter_map(Value::as_i64).sum();
    ensure!(
        posted.len() == 2 && sum == 500_000,
        "the accounts have {posted:?}"
    );
    left.signal(Signal::TERM);
    wait_until("the processes to stop", STOP_TIMEOUT, async || {
        let left = marked(&mark)?;
        ensure!(left.is_empty(), "{left:?} run on");
        Ok(())
    })
    .await?;
    let directory = report["kept"]["directory"]
        .as_str()
        .context("it names its directory")?;
    std::fs::remove_dir_all(directory).with_context(|| directory.to_owned())
}
