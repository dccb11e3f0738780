//! Threads that share the tasks of one operation, and the two ways in which operations are cut into tasks.
//!
//! Only outputs are cut, never a sum, so the number of threads cannot show in a result. Tasks are claimed one by one, and the
//! caller claims like everyone else: it never waits for a worker to wake, only for tasks that a worker has begun. So a
//! worker that lost its core to another program costs one task, not the whole barrier. Nothing is allocated after `new`.
//! It lies in this room, although nothing else here knows threads, because lending a borrowed closure to threads that outlive
//! it needs unsafe code.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::Columns;
use crate::fast::{PANEL_OUTPUTS, Scratch};

#[cfg(test)]
mod tests;

/// Output rows that a task should at least have; below that claiming it costs more than it brings.
const MIN_COLUMNS: usize = 64;
/// Tasks a thread: enough that a thread that is held up leaves its share to the others.
const TASKS_PER_THREAD: usize = 4;
/// Looks at the state before an idle worker goes to sleep, some 100 µs: longer than the gaps between the operations of a token, far
/// shorter than a read.
const IDLE_SPINS: u32 = 2_000;
/// Looks at the state before a caller that waits for a worker's last task gives its core away.
const BUSY_SPINS: u32 = 1_000;

/// In the state: a round is open, workers may enter. Below it the number of workers inside, above it the round.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

/// Address space of a worker's stack, in bytes: attention keeps queries, keys and sums there.
const STACK_BYTES: usize = 256 << 10;

type Task<'a> = dyn Fn(usize) + Sync + 'a;

/// A set of threads that wait for work.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// `round << 32 | OPEN | workers inside`.
    state: Padded<AtomicU64>,
    /// The next task to claim.
    next: Padded<AtomicUsize>,
    n_tasks: AtomicUsize,
    /// The tasks of the open round. Written only while no round is open and no worker inside.
    task: UnsafeCell<Option<*const Task<'static>>>,
    /// Whether a round is under way: a second caller, or a task that calls again, works alone.
    is_busy: AtomicBool,
    is_stopped: AtomicBool,
    has_panicked: AtomicBool,
    n_asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// Alone in its cache lines, so that spinning on one value does not slow writes to its neighbours.
#[repr(align(128))]
struct Padded<T>(T);

// SAFETY: `task` is the only field that is not Sync by itself. It is written by the caller that holds `is_busy` while no worker
// is inside, and read by workers that are inside; entering synchronises with the write (`open`, `enter`).
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `task` is only followed inside a round, while the closure it points to is borrowed by the caller.
unsafe impl Send for Shared {}

impl Pool {
    /// The most memory that a thread makes resident for operations, in bytes: its stack, and what it keeps from one product to the next.
    pub const THREAD_BYTES: usize = STACK_BYTES + size_of::<Scratch>();

    /// A pool in which `n_threads` threads work, the caller among them.
    ///
    /// # Errors
    /// What the system says when it cannot start a thread.
    ///
    /// # Panics
    /// If `n_threads` is 0.
    pub fn new(n_threads: usize) -> std::io::Result<Pool> {
        assert!(n_threads > 0, "a pool has at least the caller");
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            next: Padded(AtomicUsize::new(0)),
            n_tasks: AtomicUsize::new(0),
            task: UnsafeCell::new(None),
            is_busy: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            n_asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Pool {
            shared,
            workers: Vec::with_capacity(n_threads - 1),
        };
        for i in 1..n_threads {
            let shared = Arc::clone(&pool.shared);
            pool.workers.push(
                std::thread::Builder::new()
                    .name(format!("ouzel-compute-{i}"))
                    .stack_size(STACK_BYTES)
                    .spawn(move || shared.work_until_stopped())?,
            );
        }
        Ok(pool)
    }

    /// Threads that work, the caller among them.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` for every i in `0..n_tasks`, each once, on whichever threads are free, and returns when all are done.
    ///
    /// # Panics
    /// If a task panics.
    pub fn run(&self, n_tasks: usize, task: &Task<'_>) {
        let is_alone = self.workers.is_empty() || n_tasks <= 1;
        if is_alone || self.shared.is_busy.swap(true, Ordering::Acquire) {
            (0..n_tasks).for_each(task);
            return;
        }
        self.shared.open(n_tasks, task);
        let round = Round(&self.shared);
        self.shared.claim(task);
        drop(round);
        if self.shared.has_panicked.swap(false, Ordering::Relaxed) {
            panic!("a task of the pool panicked; its message was printed");
        }
    }

    /// Calls `f(i, chunk)` for every chunk of `chunk_len` elements.
    ///
    /// # Panics
    /// If `chunk_len` is 0 or does not divide the length, or if `f` panics.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        chunk_len: usize,
        f: &(impl Fn(usize, &mut [T]) + Sync),
    ) {
        let n = data.len() / chunk_len;
        assert_eq!(n * chunk_len, data.len(), "not whole chunks of {chunk_len}");
        let n_tasks = n.min(self.n_threads() * TASKS_PER_THREAD);
        let start = Start(data.as_mut_ptr());
        self.run(n_tasks, &|task| {
            for i in part(n, n_tasks, task) {
                // SAFETY: chunk i lies in `data`, which is borrowed exclusively until `run` returns; the parts of the tasks are
                // disjoint and each task runs once, so no other reference covers this chunk.
                let chunk = unsafe {
                    std::slice::from_raw_parts_mut(start.get().add(i * chunk_len), chunk_len)
                };
                f(i, chunk);
            }
        });
    }

    /// Calls `f(range, columns)` for disjoint column ranges that cover `y`, in whole panels of the fast products.
    ///
    /// # Panics
    /// If `f` panics.
    pub fn for_each_column_range(
        &self,
        y: Columns<'_>,
        f: &(impl Fn(Range<usize>, Columns<'_>) + Sync),
    ) {
        let n = y.n_cols();
        let n_panels = n.div_ceil(PANEL_OUTPUTS);
        let n_tasks = (n / MIN_COLUMNS).clamp(1, self.n_threads() * TASKS_PER_THREAD);
        self.run(n_tasks, &|task| {
            let panels = part(n_panels, n_tasks, task);
            let range = panels.start * PANEL_OUTPUTS..(panels.end * PANEL_OUTPUTS).min(n);
            // SAFETY: the ranges of the tasks are disjoint and each task runs once; `y` itself is not used meanwhile.
            let columns = unsafe { y.part(range.clone()) };
            f(range, columns);
        });
    }
}

/// The task-th of `n_tasks` nearly equal parts of `0..n`.
fn part(n: usize, n_tasks: usize, task: usize) -> Range<usize> {
    n * task / n_tasks..n * (task + 1) / n_tasks
}

/// A pointer that tasks on other threads may start from.
struct Start<T>(*mut T);
// SAFETY: every use is an unsafe block that says why its elements are its own; T may move between threads.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// An open round; dropping it, by returning or by a panic, ends it.
struct Round<'a>(&'a Shared);

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let shared = self.0;
        // A panic of the caller's own task leaves tasks unclaimed: nobody may start them now.
        shared
            .next
            .0
            .fetch_max(shared.n_tasks.load(Ordering::Relaxed), Ordering::Relaxed);
        shared.state.0.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        // Acquire: what the workers wrote happens before the caller reads it.
        while shared.state.0.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins < BUSY_SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        shared.is_busy.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Opens a round. The caller holds `is_busy`, so no round is open and no worker inside.
    fn open(&self, n_tasks: usize, task: &Task<'_>) {
        // SAFETY: only the lifetime changes. The pointer is followed by workers inside the round alone, and `Round::drop` returns
        // to the owner of the borrow only when the round is closed and nobody is inside.
        let task: *const Task<'static> =
            unsafe { std::mem::transmute::<&Task<'_>, *const Task<'static>>(task) };
        // SAFETY: no worker is inside, so nobody reads; `is_busy` keeps other callers out.
        unsafe { *self.task.get() = Some(task) };
        self.n_tasks.store(n_tasks, Ordering::Relaxed);
        self.next.0.store(0, Ordering::Relaxed);
        let round = (self.state.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        // SeqCst against a worker that falls asleep: it counts itself, then looks at the state once more.
        self.state.0.store(round << 32 | OPEN, Ordering::SeqCst);
        if self.n_asleep.load(Ordering::SeqCst) > 0 {
            let _guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    /// Claims tasks until none is left.
    fn claim(&self, task: &Task<'_>) {
        let n_tasks = self.n_tasks.load(Ordering::Relaxed);
        loop {
            let i = self.next.0.fetch_add(1, Ordering::Relaxed);
            if i >= n_tasks {
                return;
            }
            task(i);
        }
    }

    fn work_until_stopped(&self) {
        let mut last_round = 0;
        let mut spins = 0;
        while !self.is_stopped.load(Ordering::Relaxed) {
            if let Some(round) = self.enter(last_round) {
                self.work();
                // Release: what this worker wrote happens before the caller sees it gone.
                self.state.0.fetch_sub(1, Ordering::Release);
                last_round = round;
                spins = 0;
            } else if spins < IDLE_SPINS {
                spins += 1;
                std::hint::spin_loop();
            } else {
                self.fall_asleep(last_round);
                spins = 0;
            }
        }
    }

    /// Enters the open round unless it is `last_round`; returns its number.
    fn enter(&self, last_round: u64) -> Option<u64> {
        let mut state = self.state.0.load(Ordering::Acquire);
        loop {
            let round = state >> 32;
            if state & OPEN == 0 || round == last_round {
                return None;
            }
            // Acquire: the round's task and counts were written before it was opened.
            match self.state.0.compare_exchange_weak(
                state,
                state + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(round),
                Err(now) => state = now,
            }
        }
    }

    fn work(&self) {
        // SAFETY: this worker is inside an open round: the caller wrote the pointer before it opened the round, and waits in
        // `Round::drop` until this worker has left, so the closure is alive and nobody writes the cell.
        let task = unsafe { (*self.task.get()).map(|task| &*task) };
        let task = task.expect("an open round has a task");
        if catch_unwind(AssertUnwindSafe(|| self.claim(task))).is_err() {
            self.has_panicked.store(true, Ordering::Relaxed);
        }
    }

    fn fall_asleep(&self, last_round: u64) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.n_asleep.fetch_add(1, Ordering::SeqCst);
        let state = self.state.0.load(Ordering::SeqCst);
        let is_open = state & OPEN != 0 && state >> 32 != last_round;
        if !is_open && !self.is_stopped.load(Ordering::SeqCst) {
            drop(self.wake.wait(guard));
        }
        self.n_asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let _guard = self
                .shared
                .sleep
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.shared.is_stopped.store(true, Ordering::SeqCst);
            self.shared.wake.notify_all();
        }
        for worker in self.workers.drain(..) {
            // Panics of tasks are caught; a worker that died anyway has printed its message.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.n_threads())
    }
}
