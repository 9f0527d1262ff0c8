//! Stores entries in a journal, one for each line on stdin, and says on stdout when it is durable.
//!
//! `store DIRECTORY chunked|whole`, for the power-cut proof (tests/src/power), which runs it above a recorder. `chunked` is the journal as
//! it is; `whole` stores each entry as one value, as the journal would without its chunks, and is otherwise the same.
//! A line is a record's payload bytes, in decimal; entry N is filled with the byte N.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::error::Error;
use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use covenant_journal::{
    Batch, Force, HeadRef, Image, ImageError, Item, Journal, Key, Opened, Options, Records, Scan, Space,
};

const ROLE: &str = "store";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (directory, how) = (arguments.next(), arguments.next());
    let directory = PathBuf::from(directory.ok_or("name a directory")?);
    // The first force marks the directory as begun, in both ways alike.
    let journal = Journal::open(&directory, Options::new(ROLE))?.journal;
    store(&journal, 1).await;
    journal.close()?;
    drop(journal);
    let Opened { journal, .. } = match how.as_ref().and_then(|how| how.to_str()) {
        Some("chunked") => Journal::open(&directory, Options::new(ROLE))?,
        Some("whole") => Journal::open_image(Arc::new(Whole::open(&directory)?), Options::new(ROLE))?,
        _ => return Err("say chunked or whole".into()),
    };
    for line in std::io::stdin().lock().lines() {
        let lsn = store(&journal, line?.trim().parse()?).await;
        println!("{lsn}");
    }
    Ok(journal.close()?)
}

async fn store(journal: &Journal, bytes: usize) -> u64 {
    let head = HeadRef {
        kind: 1,
        xid: None,
        transaction_id: None,
    };
    let mut records = Records::new();
    records.push(head, Force::Now, &vec![journal.next_lsn() as u8; bytes]);
    let lsn = journal.append(&records);
    journal.wait_durable(lsn).await;
    lsn
}

/// The store of the journal, but for the chunks: those of one entry become one value again.
struct Whole {
    db: sled::Db,
    log_file: File,
}

impl Whole {
    fn open(directory: &Path) -> Result<Self, Box<dyn Error>> {
        let log_file = File::open(directory.join("db"))?;
        let config = sled::Config::new().path(directory).flush_every_ms(None);
        Ok(Self {
            db: config.open()?,
            log_file,
        })
    }
}

fn stored_key(space: Space, key: &[u8]) -> Vec<u8> {
    [&[space as u8], key].concat()
}

fn failed(source: sled::Error) -> ImageError {
    ImageError::caused("using sled", source)
}

fn item(found: sled::Result<(sled::IVec, sled::IVec)>) -> Item {
    let (key, value) = found.map_err(failed)?;
    let key = Key::new(&key[1..]).ok_or_else(|| ImageError::new("using sled", "a key is too long"))?;
    Ok((key, value.to_vec()))
}

impl Image for Whole {
    fn apply(&self, batch: &Batch<'_>) -> Result<(), ImageError> {
        let mut stored = sled::Batch::default();
        let mut ahead: Option<(Vec<u8>, Vec<u8>)> = None;
        for change in batch.changes() {
            let key = change.key.as_bytes();
            let (entry, part) = key.split_at(key.len().saturating_sub(2));
            match (change.value, &mut ahead) {
                (Some(value), Some((first, joined)))
                    if change.space == Space::Log && part != [0, 0] && first[1..].starts_with(entry) =>
                {
                    joined.extend_from_slice(value);
                }
                (Some(value), _) => {
                    if let Some((key, value)) = ahead.replace((stored_key(change.space, key), value.to_vec()))
                    {
                        stored.insert(key, value);
                    }
                }
                (None, _) => stored.remove(stored_key(change.space, key)),
            }
        }
        if let Some((key, value)) = ahead {
            stored.insert(key, value);
        }
        self.db.apply_batch(stored).map_err(failed)
    }

    fn flush(&self) -> Result<(), ImageError> {
        self.db.flush().map(drop).map_err(failed)
    }

    fn sync(&self) -> Result<(), ImageError> {
        let synced = self.log_file.sync_data();
        synced.map_err(|source| ImageError::caused("syncing the log file", source))
    }

    fn note_end(&self, _lsn: u64) -> Result<(), ImageError> {
        Ok(())
    }

    fn force_end(&self) -> Result<(), ImageError> {
        Ok(())
    }

    fn noted_end(&self) -> Option<u64> {
        None
    }

    fn get(&self, space: Space, key: &Key) -> Result<Option<Vec<u8>>, ImageError> {
        let found = self.db.get(stored_key(space, key.as_bytes()));
        Ok(found.map_err(failed)?.map(|value| value.to_vec()))
    }

    fn scan(&self, space: Space, from: &Key) -> Scan {
        let range = stored_key(space, from.as_bytes())..vec![space as u8 + 1];
        Box::new(self.db.range(range).map(item))
    }

    fn scan_back(&self, space: Space, to: &Key) -> Scan {
        let range = vec![space as u8]..=stored_key(space, to.as_bytes());
        Box::new(self.db.range(range).rev().map(item))
    }

    fn verify(&self) -> Result<(), ImageError> {
        Ok(())
    }
}
