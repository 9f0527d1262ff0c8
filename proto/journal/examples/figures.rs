//! Prints figures of a journal on disk: forced appends, one writer and batches, and opening a large archive.
//!
//! `cargo run --release -p covenant-journal --example figures -- DIRECTORY`, with a directory that does not
//! exist yet, on the disk to measure; it takes about 20 seconds. Run it again on the same directory to measure
//! only the opening, in a fresh process. It shows proportions: absolute figures drift from machine to machine.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use covenant_journal::{Checkpoint, Force, HeadRef, IdIndex, Journal, Options, Records};

const RUN: Duration = Duration::from_secs(4);
const ITEMS: usize = 1_000_000;
const ITEMS_PER_CHECKPOINT: usize = 50_000;
const LOG_BYTES_PER_CHECKPOINT: u64 = 32 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os()
        .nth(1)
        .ok_or("name a directory that does not exist yet")?;
    let directory = Path::new(&directory);
    if directory.exists() {
        return open_archive(&directory.join("archive"));
    }
    for (records, waits) in [
        (1, "one at a time"),
        (64, "one at a time"),
        (64, "four at a time"),
    ] {
        let at_once = if waits == "one at a time" { 1 } else { 4 };
        appends(
            &directory.join(format!("appends-{records}-{at_once}")),
            records,
            at_once,
        )
        .await?;
    }
    write_archive(&directory.join("archive")).await?;
    open_archive(&directory.join("archive"))
}

fn run_of(records: usize) -> Records {
    let mut run = Records::new();
    for _ in 0..records {
        let head = HeadRef {
            kind: 1,
            xid: Some(&[7; 40]),
            transaction_id: Some("transfer-0000001"),
        };
        run.push(head, Force::Now, &[5; 128]);
    }
    run
}

async fn appends(directory: &Path, records: usize, at_once: usize) -> Result<(), Box<dyn Error>> {
    let journal = Journal::open(directory, Options::new("figures"))?.journal;
    let run = run_of(records);
    let record_bytes = run.encoded_bytes() / records;
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < RUN {
        let sent = Instant::now();
        let mut last = 0;
        for _ in 0..at_once {
            last = journal.append(&run);
        }
        journal.wait_durable(last).await;
        took.push(sent.elapsed());
        if journal.log_bytes() > LOG_BYTES_PER_CHECKPOINT && journal.checkpoints().borrow().running.is_none()
        {
            journal.checkpoint(Checkpoint {
                lsn: last,
                ..Checkpoint::default()
            })?;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| {
        took.get(took.len() * percent / 100)
            .map_or(0, Duration::as_micros)
    };
    let worst = took.last().map_or(0, Duration::as_micros);
    let stats = journal.stats();
    println!(
        "append of {records} x {record_bytes} B, {at_once} before each wait: {:.0} records/s, {:.0} forces/s, \
         p50 {} us, p99 {} us, worst {worst} us, file {} MB",
        stats.records as f64 / seconds,
        stats.forces as f64 / seconds,
        at(50),
        at(99),
        std::fs::metadata(directory.join("db"))?.len() >> 20,
    );
    Ok(())
}

async fn write_archive(directory: &Path) -> Result<(), Box<dyn Error>> {
    let opened = Journal::open(directory, Options::new("figures"))?;
    let began = Instant::now();
    for first in (0..ITEMS).step_by(ITEMS_PER_CHECKPOINT) {
        let lsn = opened.journal.append(&run_of(1));
        opened.journal.wait_durable(lsn).await;
        let archive = (first..first + ITEMS_PER_CHECKPOINT)
            .map(|item| format!("{item:080}").into_bytes())
            .collect();
        let mut status = opened.journal.checkpoints();
        opened.journal.checkpoint(Checkpoint {
            lsn,
            archive,
            ..Checkpoint::default()
        })?;
        status.wait_for(|status| status.running.is_none()).await?;
    }
    let megabytes = std::fs::metadata(directory.join("db"))?.len() >> 20;
    println!(
        "archive of {ITEMS} x 80 B: written in {:.2?}, file {megabytes} MB",
        began.elapsed()
    );
    Ok(())
}

fn open_archive(directory: &Path) -> Result<(), Box<dyn Error>> {
    let before = resident_kib()?;
    let began = Instant::now();
    let opened = Journal::open(directory, Options::new("figures"))?;
    let open = began.elapsed();
    let replayed = opened.replay.count();
    let began = Instant::now();
    let mut index = IdIndex::new(opened.archive.start());
    for item in opened.archive.scan(0) {
        let (number, bytes) = item?;
        index.insert(&bytes, number);
    }
    let scan = began.elapsed();
    let began = Instant::now();
    for number in (0..ITEMS as u64).step_by(100) {
        opened
            .archive
            .get(number * 7919 % ITEMS as u64)?
            .ok_or("an item is missing")?;
    }
    let get = began.elapsed() / (ITEMS as u32 / 100);
    println!(
        "open: {open:.2?} ({} pages dropped in {} attempts), {replayed} records; scan and index: {scan:.2?}; \
         get: {get:.2?}; resident {} MB, before {} MB, index {} MB",
        opened.report.pages_dropped,
        opened.report.drop_attempts,
        resident_kib()? >> 10,
        before >> 10,
        index.memory_bytes() >> 20,
    );
    Ok(())
}

fn resident_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
