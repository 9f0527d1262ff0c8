//! Power cuts: whatever of the unsynced survives, every log opens and holds what anybody had been told; and the same proof finds
//! a journal that does not force, and one that stores its entries whole.
//!
//! What it can and cannot show stands in `power/`. These are short runs with fixed seeds; the long one is
//! `cargo run --release -p covenant-tests --bin power-cut`.

use anyhow::{Result, ensure};
use covenant_tests::power::entries::{self, Stored};
use covenant_tests::power::proof::{Extent, Verdict, prove};
use covenant_tests::power::recording::Load;
use covenant_tests::power::shim::Fdatasync;
use covenant_tests::power::starts::{LeftOut, Lives};

fn extent(seed: u64, fdatasync: Fdatasync) -> Extent {
    Extent {
        load: Load {
            seed,
            transfers: 250,
            callers: 8,
            outages: 4,
            fdatasync,
        },
        points: 150,
        starts: 0,
        points_of_a_start: 0,
        jobs: 2,
    }
}

fn shown(verdict: &Verdict) -> String {
    let reports = [&verdict.logs, &verdict.servers, &verdict.again];
    let failures = reports.iter().flat_map(|report| &report.failures);
    let lines: Vec<String> = failures
        .take(10)
        .map(|(number, why)| format!("point {number}: {why}"))
        .collect();
    format!("recording {:?}\n{}", verdict.recording, lines.join("\n"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_anybody_was_told_survives_every_loss_of_power_and_one_more_while_starting() -> Result<()> {
    let extent = Extent {
        starts: 3,
        points_of_a_start: 20,
        ..extent(11, Fdatasync::Works)
    };
    let verdict = prove(&extent, &|_, _, _| {}).await?;
    ensure!(verdict.holds(), "{}", shown(&verdict));
    ensure!(
        verdict.logs.lossy * 2 > extent.points && verdict.again.in_a_start > 0,
        "too little was lost to show anything: {verdict:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fdatasync_the_same_proof_fails() -> Result<()> {
    let verdict = prove(&extent(12, Fdatasync::Lies), &|_, _, _| {}).await?;
    let failed = verdict.logs.failures.len();
    ensure!(failed * 4 > verdict.logs.images, "only {failed} images failed");
    // Not only logs that do not open: what somebody was told is gone.
    let lost = |why: &String| why.contains("S11") || why.contains("S2") || why.contains("S5");
    ensure!(
        verdict.logs.failures.iter().any(|(_, why)| lost(why)),
        "{}",
        shown(&verdict)
    );
    if let Some(recording) = verdict.recording {
        std::fs::remove_dir_all(recording)?;
    }
    Ok(())
}

#[test]
fn entries_stored_unchunked_do_not_survive_and_chunks_do() -> Result<()> {
    let (entries, points) = (150, 60);
    let chunked = entries::cut(13, entries, points, 2, Stored::Chunked)?;
    ensure!(chunked.failures.is_empty(), "{:?}", chunked.failures);
    let whole = entries::cut(13, entries, points, 2, Stored::Whole)?;
    let failed = whole.failures.len();
    ensure!(failed * 2 > whole.images, "only {failed} images failed");
    // Not only the refusal of a file in `blobs/`: where that file is lost, records are.
    let lost = whole.failures.iter().filter(|(_, why)| !why.contains("blobs"));
    ensure!(lost.count() > 0, "{:?}", whole.failures);
    Ok(())
}

#[test]
fn a_start_makes_durable_what_it_goes_on_from_and_without_a_sync_of_it_the_same_proof_fails() -> Result<()> {
    let lives = Lives::record(21, 40, 12)?;
    let cut = |left_out| lives.cut(left_out, 200, 15, 2);
    let whole = cut(LeftOut::Nothing)?;
    ensure!(whole.failures.is_empty(), "{:?}", whole.failures);
    ensure!(
        whole.lossy * 4 > whole.images,
        "too little was lost to show anything: {} of {}",
        whole.lossy,
        whole.images
    );
    // A segment that a start cleared, on the word of a snapshot that was not there for sure; a snapshot of a log that was not.
    let cleared = "a segment before its end is missing";
    for (left_out, found) in [
        (LeftOut::Snapshots, cleared),
        (LeftOut::Directory, cleared),
        (LeftOut::LogAtStart, "start is damaged"),
    ] {
        let report = cut(left_out)?;
        let of_this = report.failures.iter().filter(|(_, why)| why.contains(found));
        let (failed, of_this) = (report.failures.len(), of_this.count());
        ensure!(
            of_this > 0,
            "without {left_out:?} {failed} images failed, and none because {found}: {:?}",
            report.failures
        );
    }
    Ok(())
}
