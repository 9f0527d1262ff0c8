//! One life of a journal, steered by lines on stdin, for the power-cut proof (tests/src/power), which runs it above a recorder.
//!
//! `life DIRECTORY` opens, says of every record that it got back `record LSN BYTES`, and then `opened CHECKPOINT`.
//! `append BYTES` appends a record and answers `durable LSN`; `checkpoint` begins one of all that is durable, once the one before has
//! ended, and answers `checkpoint LSN`. At the end of stdin it closes.
//! What it stores follows from its place: record N is filled with the byte N, item N of the archive too.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::io::BufRead;
use std::path::PathBuf;

use covenant_journal::{Checkpoint, Force, HeadRef, Journal, Opened, Options, Records};

/// Bytes of the one record into which a checkpoint folds the log, and of the one item that it leaves in the archive. So little stays
/// alive that also the segment just before the last one dies, without which sled does not find the end of the log.
const FOLD_BYTES: usize = 200;

const HEAD: HeadRef<'_> = HeadRef {
    kind: 1,
    xid: None,
    transaction_id: None,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("name a directory")?);
    let Opened {
        journal,
        replay,
        archive,
        ..
    } = Journal::open(&directory, Options::new("life"))?;
    let checkpoint = replay.checkpoint_lsn();
    for replayed in replay {
        let replayed = replayed?;
        let bytes = replayed.record.map_err(|damaged| damaged.why)?.payload.len();
        if let Some(lsns) = replayed.lsns {
            println!("record {} {bytes}", lsns.start());
        }
    }
    drop(archive);
    println!("opened {checkpoint}");
    for line in std::io::stdin().lock().lines() {
        match line?.split_once(' ') {
            Some(("append", bytes)) => println!("durable {}", append(&journal, bytes.parse()?).await),
            _ => println!("checkpoint {}", begin_checkpoint(&journal).await?),
        }
    }
    Ok(journal.close()?)
}

async fn append(journal: &Journal, bytes: usize) -> u64 {
    let mut records = Records::new();
    records.push(HEAD, Force::Now, &vec![journal.next_lsn() as u8; bytes]);
    let lsn = journal.append(&records);
    journal.wait_durable(lsn).await;
    lsn
}

async fn begin_checkpoint(journal: &Journal) -> Result<u64, Box<dyn Error>> {
    let mut status = journal.checkpoints();
    let ended = status.wait_for(|status| status.running.is_none()).await?;
    let first = ended.archive_end;
    drop(ended);
    let lsn = journal.durable_lsn();
    let mut records = Records::new();
    records.push(HEAD, Force::Now, &[lsn as u8; FOLD_BYTES]);
    journal.checkpoint(Checkpoint {
        lsn,
        records,
        archive: vec![vec![first as u8; FOLD_BYTES]],
        archive_drop_before: first,
    })?;
    Ok(lsn)
}
