//! Short runs of chaos: every kind of fault over real processes, and the verdict that programs can read. The long runs are
//! `cargo run --release -p covenant-tests --bin chaos -- --seed 7 --duration 60s`, also with `--namespaces`.
//!
//! A run of seconds meets few of the states that minutes meet. That the checker finds what is wrong is shown beside it,
//! on falsified histories (`src/chaos/checker_tests.rs`).

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use covenant_tests::binary::binary;
use covenant_tests::os_package::require_from;
use covenant_tests::process::{bound_to_its_starter, started_with};
use covenant_tests::{Process, Ran, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a short run may take, with the mending and the questions at its end.
const RUN_TIMEOUT: Duration = Duration::from_secs(180);

/// How long processes may take to be gone when who started them was killed.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);

async fn chaos(arguments: &str) -> Result<Ran> {
    // Its building is no part of the run.
    binary()?;
    let mut command = bound_to_its_starter(env!("CARGO_BIN_EXE_chaos"));
    command.args(arguments.split(' '));
    Ran::within(RUN_TIMEOUT, &format!("chaos {arguments}"), &mut command).await
}

/// A run whose every claim holds, and what it says of itself.
async fn holds(arguments: &str) -> Result<Value> {
    let ran = chaos(&format!("{arguments} -o json")).await?.exits(0)?;
    let last = ran.stdout.lines().last().context("it says nothing")?;
    let report: Value = serde_json::from_str(last)?;
    ensure!(report["holds"] == true, "{report}");
    for (kind, tally) in report["injected"]["kinds"].as_object().context("kinds")? {
        ensure!(tally["met"].as_u64() > Some(0), "{kind}: {tally}");
    }
    for check in report["checks"].as_array().context("checks")? {
        ensure!(
            check["looked_at"].as_u64() > Some(0) && check["violated"] == 0,
            "{check}"
        );
    }
    Ok(report)
}

#[tokio::test]
async fn transfers_survive_kills_pauses_cuts_and_clock_steps() -> Result<()> {
    let report = holds("--seed 7 --duration 12s --kill --pause --cut --clock").await?;
    let injected = &report["injected"];
    for kind in ["kill_coordinator", "kill_participant", "pause", "cut", "clock"] {
        ensure!(injected["kinds"][kind].is_object(), "no {kind} in {injected}");
    }
    ensure!(
        report["load"]["left_open_once"].as_u64() > Some(0),
        "no caller met a fault: {report}"
    );
    Ok(())
}

/// Needs root and loop devices, and says so where it has none.
#[tokio::test]
async fn transfers_survive_full_disks() -> Result<()> {
    let report = holds("--seed 3 --duration 8s --disk-full").await?;
    let kinds = &report["injected"]["kinds"];
    ensure!(kinds["disk_full"].is_object(), "no full disk in {kinds}");
    Ok(())
}

/// Needs root and iproute2, and says so where it has none.
#[tokio::test]
async fn transfers_survive_hosts_that_are_cut_from_each_other() -> Result<()> {
    require_from("ip", "iproute2")?;
    let report = holds("--namespaces --seed 7 --duration 12s --kill --cut").await?;
    let injected = &report["injected"];
    for cut in ["unplug", "lose_up", "lose_down"] {
        let met = |cuts: &str| injected[cuts][cut]["met"].as_u64().unwrap_or_default();
        let (all, long) = (met("cuts"), met("long_cuts"));
        ensure!(long > 0 && all > long, "{cut}: {injected}");
    }
    ensure!(injected["packets_lost"].as_u64() > Some(0), "{injected}");
    Ok(())
}

/// One id at the beginning, and a pause long after it: nobody waits for a process that is stopped.
#[tokio::test]
async fn a_run_that_met_nothing_says_so_and_does_not_pass() -> Result<()> {
    let ran = chaos("--seed 6 --duration 1s --rate 1 --callers 1 --participants 2 --pause").await?;
    let ran = ran.exits(3)?;
    let last = ran.stdout.lines().last().unwrap_or_default();
    ensure!(
        last.starts_with("Verdict: NOT MET: pause, overdrafts, other content;"),
        "{last}"
    );
    for row in ["injected: pause ", "check: overdrafts "] {
        let row = ran.stdout.lines().find(|line| line.starts_with(row));
        ensure!(
            row.is_some_and(|row| row.contains("NOT MET")),
            "{row:?} in {}",
            ran.stdout
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_run_that_cannot_be_carried_through_is_no_verdict() -> Result<()> {
    let ran = chaos("--duration 24h --pause").await?.exits(2)?;
    ensure!(ran.stderr.contains("60s or 30m"), "{}", ran.stderr);
    let ran = chaos("--duration 1440m --rate 100000 --pause").await?.exits(70)?;
    let last = ran.stdout.lines().last().unwrap_or_default();
    ensure!(
        last.starts_with("Verdict: not carried through") && last.contains("give a lower --rate"),
        "{last}"
    );
    Ok(())
}

/// The directory in which a server of a run has its own.
fn directory_of(server: u32) -> Result<PathBuf> {
    let line = std::fs::read(format!("/proc/{server}/cmdline"))?;
    let words: Vec<String> = line
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let data =
        (words.iter().skip_while(|word| *word != "--data-dir").nth(1)).context("it has no data directory")?;
    Ok(PathBuf::from(data).parent().context("a parent")?.to_path_buf())
}

/// A server that is stopped answers no signal but this one, and would keep its port and its directory for ever.
#[tokio::test]
async fn servers_go_with_a_run_that_is_killed_also_those_that_are_stopped() -> Result<()> {
    servers_go_with_a_run_that_is_killed(&["--clock"]).await
}

/// The hosts would keep their namespaces, and the run its mounts.
#[tokio::test]
async fn hosts_go_with_a_run_that_is_killed() -> Result<()> {
    require_from("ip", "iproute2")?;
    servers_go_with_a_run_that_is_killed(&["--clock", "--namespaces"]).await
}

async fn servers_go_with_a_run_that_is_killed(how: &[&str]) -> Result<()> {
    binary()?;
    let mark = format!("CHAOS_UNDER_TEST={}{}", std::process::id(), how.len());
    let (name, value) = mark.split_once('=').context("a mark")?;
    let mut command = bound_to_its_starter(env!("CARGO_BIN_EXE_chaos"));
    command
        .args(["--duration", "60s", "--participants", "2"])
        .args(how)
        .env(name, value);
    let mut run = Process::spawn("chaos", &mut command)?;
    wait_until("the load on all servers", RUN_TIMEOUT, async || {
        let says = run.stderr();
        ensure!(says.iter().any(|line| line.contains(" sent, ")), "{says:?}");
        Ok(())
    })
    .await?;
    let mut servers = started_with(&mark)?;
    servers.remove(&run.id());
    ensure!(servers.len() == 3, "{servers:?} run");
    let directory = directory_of(*servers.first().context("a server")?)?;
    let stopped = i32::try_from(*servers.first().context("a server")?)?;
    kill_process(Pid::from_raw(stopped).context("a process id")?, Signal::STOP)?;
    run.kill()?;
    wait_until("its servers to go", GONE_TIMEOUT, async || {
        let left = started_with(&mark)?;
        ensure!(left.is_empty(), "{left:?} run on");
        Ok(())
    })
    .await?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(&*directory.to_string_lossy()), "{mounts}");
    Ok(std::fs::remove_dir_all(directory)?)
}
