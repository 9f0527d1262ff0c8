//! What the machines cost in instructions, counted by valgrind: the same on a busy machine as on an idle one.
//!
//! A difference of two runs is counted, so that the start of the process is not in it. Ratios hold everywhere; the pinned
//! count holds for x86-64 only, because other processors have other instructions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use covenant_tests::os_package;

/// Both sides of one committed transaction of two branches, on x86-64, in the profile of the tests.
///
/// Measured; a change that costs or saves more than [`TOLERANCE`] says so here, in the same commit.
const PINNED: f64 = 79_307.0;

/// How far from the pinned count it may be: compilers and C libraries differ a little.
const TOLERANCE: f64 = 0.10;

/// How much more a branch may cost among 64 than among 2.
const MAX_BRANCH_GROWTH: f64 = 1.15;

/// How much more a transaction may cost while 2,000 others are in doubt: the maps are deeper by two levels (1.4 times), and
/// nothing may walk through those others.
const MAX_IN_DOUBT_GROWTH: f64 = 1.6;

/// The instructions of one run.
fn run(transactions: u64, branches: u64, in_doubt: u64) -> Result<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(Path::new(env!("CARGO_BIN_EXE_machine-steps")))
        .args(["--transactions", &transactions.to_string()])
        .args(["--branches", &branches.to_string()])
        .args(["--in-doubt", &in_doubt.to_string()])
        .output()
        .context("valgrind did not start")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {said}", output.status);
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.with_context(|| format!("valgrind counted nothing: {said}"))?;
    Ok(collected.trim().parse()?)
}

/// The instructions of one transaction, without those of a start.
fn per_transaction(transactions: u64, branches: u64, in_doubt: u64) -> Result<f64> {
    let [few, many] = [transactions, 3 * transactions].map(|count| run(count, branches, in_doubt));
    Ok((many? - few?) / (2 * transactions) as f64)
}

#[test]
fn a_transaction_costs_what_it_did_and_grows_neither_with_branches_nor_with_doubts() -> Result<()> {
    os_package::require("valgrind")?;
    let two = per_transaction(500, 2, 0)?;
    let sixty_four = per_transaction(50, 64, 0)?;
    let in_doubt = per_transaction(500, 2, 2_000)?;
    let of_branches = (sixty_four / 64.0) / (two / 2.0);
    let of_doubts = in_doubt / two;
    println!(
        "{two:.0} instructions with 2 branches; a branch among 64 costs {of_branches:.3} times one among 2; \
         with 2,000 in doubt {of_doubts:.3} times"
    );
    ensure!(
        of_branches <= MAX_BRANCH_GROWTH,
        "a branch among 64 costs {of_branches:.3} times one among 2 ({sixty_four:.0} and {two:.0} instructions); the \
         bound is {MAX_BRANCH_GROWTH}"
    );
    ensure!(
        of_doubts <= MAX_IN_DOUBT_GROWTH,
        "with 2,000 in doubt a transaction costs {of_doubts:.3} times as much ({in_doubt:.0} and {two:.0} \
         instructions); the bound is {MAX_IN_DOUBT_GROWTH}"
    );
    if cfg!(target_arch = "x86_64") {
        ensure!(
            (two / PINNED - 1.0).abs() <= TOLERANCE,
            "a transaction costs {two:.0} instructions; {PINNED:.0} are pinned: find out why, or pin the new count"
        );
    }
    Ok(())
}
