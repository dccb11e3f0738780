//! Work that needs more of a stack than a thread usually has.

use std::io;
use std::thread;

use ouzel_tokenizer::grammar::STACK_BYTES;

/// Compiles or checks a grammar on a thread of its own. Only what is used of its stack takes memory, and that is given back.
///
/// # Errors
/// Where there is no thread to be had, or the work panics.
pub fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("grammar".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)?;
        let panicked = |_| io::Error::other("it failed in a way that it should not");
        thread.join().map_err(panicked)
    })
}
