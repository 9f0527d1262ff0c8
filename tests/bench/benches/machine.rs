//! Both machines, without clock, disk and bytes: transactions that are under way together, to their ends.

#![allow(missing_docs, reason = "the macros of criterion make a main")]

use covenant_bench::Machines;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// How many transactions are under way together.
const TOGETHER: usize = 64;

fn machine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("machine");
    group.throughput(Throughput::Elements(TOGETHER as u64));
    for (name, branches, in_doubt) in [
        ("2 branches", 2, 0),
        ("64 branches", 64, 0),
        ("2 branches, 10000 in doubt", 2, 10_000),
    ] {
        let mut machines = Machines::new(branches + 2);
        machines.leave_in_doubt(in_doubt);
        group.bench_function(name, |bencher| {
            bencher.iter(|| machines.run(TOGETHER, branches));
        });
    }
    group.finish();
}

criterion_group!(benches, machine);
criterion_main!(benches);
