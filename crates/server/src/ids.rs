//! Ids of answers and calls: they need to differ, within a server and between servers, and nothing more.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Letters and digits of an id.
const LENGTH: usize = 24;
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// An id that no other call gives.
pub fn new() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    /// Keys that the system draws for each process.
    static KEYS: LazyLock<[RandomState; 2]> =
        LazyLock::new(|| [RandomState::new(), RandomState::new()]);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let [high, low] = [0, 1].map(|i| KEYS[i].hash_one(n));
    let mut rest = u128::from(high) << 64 | u128::from(low);
    let digit = |_| {
        let digit = DIGITS[(rest % 36) as usize];
        rest /= 36;
        char::from(digit)
    };
    (0..LENGTH).map(digit).collect()
}
