//! The codec: a frame of a session, a record of the log, a fingerprint.

#![allow(missing_docs, reason = "the macros of criterion make a main")]

use std::hint::black_box;
use std::sync::Arc;

use covenant_bench::OPERATION_BYTES;
use covenant_codec::{fingerprint, frame, record};
use covenant_proto::v1;
use covenant_rules::{Incarnation, Lineage, Name, Record, ToParticipant, TransactionId, Xid};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prost::Message;

/// How many messages a frame has.
const MESSAGES: u64 = 64;

fn xid(seq: u64) -> Xid {
    Xid {
        lineage: Lineage(1),
        incarnation: Incarnation { counter: 1, bits: 7 },
        seq,
    }
}

fn prepare(seq: u64) -> ToParticipant {
    ToParticipant::Prepare {
        xid: xid(seq),
        transaction_id: TransactionId::new(&format!("transfer-{seq:07}")).expect("an id"),
        operation: Arc::from([5; OPERATION_BYTES]),
    }
}

fn codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("codec");
    let prepares: Vec<_> = (0..MESSAGES).map(prepare).collect();
    let encoded: Vec<Vec<u8>> = prepares
        .iter()
        .map(|message| frame::to_participant(message).encode_to_vec())
        .collect();
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("PREPARE to bytes", |bencher| {
        bencher.iter(|| {
            for message in &prepares {
                black_box(frame::to_participant(message).encode_to_vec());
            }
        });
    });
    group.bench_function("PREPARE from bytes", |bencher| {
        bencher.iter(|| {
            for bytes in &encoded {
                let message = v1::CoordinatorMessage::decode(&bytes[..]).expect("own bytes");
                black_box(frame::from_coordinator(message).expect("own bytes"));
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    let end = Record::End(xid(7));
    group.bench_function("END to bytes", |bencher| {
        bencher.iter(|| record::encode(black_box(&end)));
    });
    let names = ["ledger-0", "ledger-1"].map(|name| Name::new(name).expect("a name"));
    let operation = [5; OPERATION_BYTES];
    group.bench_function("fingerprint of 2 branches", |bencher| {
        bencher.iter(|| fingerprint(names.iter().map(|name| (name, &operation[..]))));
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
