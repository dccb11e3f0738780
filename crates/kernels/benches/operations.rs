//! How fast the operations are at the model's shapes: `cargo bench -p ouzel-kernels`, or with a part of a name behind `--`.
//!
//! The cases are those of the tests. Beside each product of one row and each attention runs a plain read loop over as many bytes,
//! on the same threads: the ratio of the two rates is the share of the read bandwidth. They run one after the other; on a machine
//! whose speed drifts, `--example speed` takes them in turns. Products of many rows are given in multiply-adds.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use ouzel_kernels::{Isa, Pool, probe};

// Tests use more of them than benches do.
#[allow(dead_code)]
#[path = "../tests/it/data.rs"]
mod data;

#[allow(dead_code)]
#[path = "../tests/it/cases.rs"]
mod cases;

use cases::{Case, Shape, Size};
use data::Random;

/// Threads that share an operation.
const THREADS: usize = 2;
/// Memory over which the operands of a case spread: twice the largest cache that was seen.
const SPREAD_BYTES: u64 = 512 << 20;
/// Bytes of a task of the read loop.
const READ_BYTES: usize = 256 << 10;

/// Reads as many bytes as an operation touches, at another place each time.
struct ReadLoop {
    bytes: Vec<u8>,
    next: usize,
}

impl ReadLoop {
    fn run(&mut self, isa: Isa, pool: &Pool, n: usize) {
        let n = n.min(self.bytes.len());
        if self.next + n > self.bytes.len() {
            self.next = 0;
        }
        let bytes = &self.bytes[self.next..self.next + n];
        self.next += n;
        pool.run(n.div_ceil(READ_BYTES), &|task| {
            let end = n.min((task + 1) * READ_BYTES);
            black_box(probe::read_sum(isa, &bytes[task * READ_BYTES..end]));
        });
    }
}

/// What the speed of an operation is stated in: bytes where memory bounds it, multiply-adds of the other products.
fn throughput(shape: Shape) -> Throughput {
    match shape {
        Shape::ProductQ4 { n_out, n_in, n, .. } if n > 1 => {
            Throughput::Elements((n * n_out * n_in) as u64)
        }
        _ => Throughput::Bytes(shape.bytes()),
    }
}

/// Whether a read loop runs beside it.
fn is_bound_by_memory(shape: Shape) -> bool {
    matches!(shape, Shape::Attend { .. } | Shape::ProductQ4 { n: 1, .. })
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots()
        .configure_from_args();
    let isa = Isa::detect();
    let pool = Pool::new(THREADS).expect("the system starts a thread");
    let mut read_loop = ReadLoop {
        bytes: vec![1; SPREAD_BYTES as usize],
        next: 0,
    };
    for (name, shape) in cases::all() {
        let mut group = criterion.benchmark_group(name);
        // Operands are made when the case is chosen and gone before the next one.
        let mut case: Option<Case> = None;
        let prepare = || Case::new(&mut Random(1), shape, Size::Bytes(SPREAD_BYTES));
        let bytes = shape.bytes();
        group.throughput(throughput(shape));
        if is_bound_by_memory(shape) {
            group.bench_function(BenchmarkId::from_parameter("read loop"), |bencher| {
                bencher.iter(|| read_loop.run(isa, &pool, bytes as usize));
            });
        }
        group.bench_function(BenchmarkId::from_parameter(isa.name()), |bencher| {
            let case = case.get_or_insert_with(prepare);
            bencher.iter(|| {
                black_box(case.run(isa, &pool));
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
