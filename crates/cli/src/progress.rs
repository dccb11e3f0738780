//! Progress bars on standard error; where that is no terminal, nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that vanishes when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar over bytes.
    pub fn bytes(what: &'static str, quiet: bool) -> Progress {
        Progress::new(
            what,
            "{msg} [{bar:30}] {bytes}/{total_bytes}, {binary_bytes_per_sec}, {eta} left",
            quiet,
        )
    }

    /// A bar over tokens.
    pub fn tokens(what: &'static str, quiet: bool) -> Progress {
        Progress::new(
            what,
            "{msg} [{bar:30}] {pos}/{len} tokens, {eta} left",
            quiet,
        )
    }

    fn new(what: &'static str, template: &str, quiet: bool) -> Progress {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar =
            ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("=> "));
        bar.set_message(what);
        Progress(bar)
    }

    /// How far it is, and how far it goes.
    pub fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// Takes the bar away, for good.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
