//! The journal on a disk: batches of one and of many records, each forced before the next.

#![allow(missing_docs, reason = "the macros of criterion make a main")]

use covenant_journal::{Force, HeadRef, Journal, Options, Records};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// The bytes of a record's payload.
const PAYLOAD_BYTES: usize = 100;

fn batch(records: usize) -> Records {
    let mut batch = Records::new();
    for _ in 0..records {
        let head = HeadRef {
            kind: 1,
            xid: Some(&[7; 40]),
            transaction_id: Some("transfer-0000001"),
        };
        batch.push(head, Force::Now, &[5; PAYLOAD_BYTES]);
    }
    batch
}

fn journal(criterion: &mut Criterion) {
    // Not the system's directory: that may be a tmpfs, which a journal refuses.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let opened = Journal::open(&directory.path().join("log"), Options::new("bench")).expect("a new log");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let mut group = criterion.benchmark_group("journal");
    for records in [1, 64, 512] {
        let records_of = batch(records);
        group.throughput(Throughput::Elements(records as u64));
        group.bench_function(format!("{records} records forced"), |bencher| {
            bencher.iter(|| {
                let lsn = opened.journal.append(&records_of);
                runtime.block_on(opened.journal.wait_durable(lsn));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, journal);
criterion_main!(benches);
