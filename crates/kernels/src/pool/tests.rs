//! Every task runs once, whatever the number of threads, tasks and panics.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Pool;
use crate::Columns;

fn pool(n_threads: usize) -> Pool {
    Pool::new(n_threads).expect("threads")
}

#[test]
fn every_task_runs_once() {
    for n_threads in [1, 2, 3, 8] {
        let pool = pool(n_threads);
        for n_tasks in [0, 1, 2, 7, 64, 1000] {
            let runs: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
            pool.run(n_tasks, &|i| {
                runs[i].fetch_add(1, Ordering::Relaxed);
            });
            let once = runs.iter().all(|n| n.load(Ordering::Relaxed) == 1);
            assert!(once, "{n_threads} threads, {n_tasks} tasks");
        }
    }
}

#[test]
fn many_short_rounds_see_each_others_writes() {
    let pool = pool(4);
    let mut sums = vec![0_u64; 16];
    for round in 0..20_000 {
        pool.for_each_chunk(&mut sums, 1, &|i, sum| sum[0] += i as u64 + round);
    }
    let rounds: u64 = (0..20_000).sum();
    for (i, &sum) in sums.iter().enumerate() {
        assert_eq!(sum, 20_000 * i as u64 + rounds, "element {i}");
    }
}

#[test]
fn rounds_after_a_sleep_still_run() {
    let pool = pool(3);
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let count = AtomicUsize::new(0);
        pool.run(9, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 9);
    }
}

#[test]
fn chunks_and_columns_are_covered_exactly() {
    for n_threads in [1, 2, 5] {
        let pool = pool(n_threads);
        for (n_rows, n_cols) in [(1, 1), (1, 64), (3, 15), (2, 130), (5, 704), (1, 4096)] {
            let mut y = vec![0.0_f32; n_rows * n_cols];
            pool.for_each_column_range(Columns::new(&mut y, n_rows, n_cols), &|range, mut y| {
                assert_eq!(range.len(), y.n_cols());
                for r in 0..y.n_rows() {
                    for (value, col) in y.row_mut(r).iter_mut().zip(range.clone()) {
                        *value += (r * n_cols + col) as f32 + 1.0;
                    }
                }
            });
            let right = y.iter().enumerate().all(|(i, &v)| v == i as f32 + 1.0);
            assert!(right, "{n_threads} threads, [{n_rows}, {n_cols}]");

            pool.for_each_chunk(&mut y, n_cols, &|r, row| row.fill(r as f32));
            let right = y.iter().enumerate().all(|(i, &v)| v == (i / n_cols) as f32);
            assert!(right, "{n_threads} threads, {n_rows} chunks of {n_cols}");
        }
    }
}

#[test]
fn a_task_may_call_the_pool_again_and_a_second_caller_works_alone() {
    let pool = pool(2);
    let count = AtomicUsize::new(0);
    let count_one = |_: usize| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    pool.run(4, &|_| pool.run(4, &count_one));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.run(10, &count_one);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), 16 + 3000);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = pool(3);
    for bad in [0, 5, 31] {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(32, &|i| {
                assert_ne!(i, bad, "this panic belongs to the test")
            });
        }));
        assert!(result.is_err(), "task {bad}");
        let count = AtomicUsize::new(0);
        pool.run(32, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 32);
    }
}
