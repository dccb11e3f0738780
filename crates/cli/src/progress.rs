//! Progress: a bar on standard error, plain lines where that is no terminal, JSON on standard output for programs.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ouzel_install::{Event, Phase};
use serde_json::json;

use crate::args::ProgressMode;
use crate::output::{note, write_json};
use crate::report::{bytes, duration};

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

    /// Where it begins: what was done before says nothing about the rate.
    fn begin(&self, done: u64, total: u64) {
        self.set(done, total);
        self.0.reset_eta();
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }

    /// Takes the bar away, for good.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }

    /// Says something above the bar.
    fn suspend(&self, say: impl FnOnce()) {
        self.0.suspend(say);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// So often a plain line is written.
const PLAIN_EVERY: Duration = Duration::from_secs(10);
/// So often a JSON line is.
const JSON_EVERY: Duration = Duration::from_millis(200);
/// Shorter waits than this are nobody's business.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// Shows the events of an installation or a verification.
pub struct Reporter {
    shape: Shape,
    phase: Phase,
    done: u64,
    total: u64,
    /// Where the phase began, and when.
    from: u64,
    began: Instant,
    told: Instant,
}

enum Shape {
    Bar(Option<Progress>),
    Plain,
    Json,
    Hidden,
}

impl Reporter {
    /// As the user wants it.
    pub fn new(mode: ProgressMode, quiet: bool) -> Reporter {
        let shape = match mode {
            ProgressMode::Json => Shape::Json,
            ProgressMode::None => Shape::Hidden,
            _ if quiet => Shape::Hidden,
            ProgressMode::Bar => Shape::Bar(None),
            ProgressMode::Auto if io::stderr().is_terminal() => Shape::Bar(None),
            ProgressMode::Auto | ProgressMode::Plain => Shape::Plain,
        };
        let now = Instant::now();
        Reporter {
            shape,
            phase: Phase::Fetching,
            done: 0,
            total: 0,
            from: 0,
            began: now,
            told: now,
        }
    }

    /// Whether standard output belongs to a program that reads JSON.
    pub fn is_json(&self) -> bool {
        matches!(self.shape, Shape::Json)
    }

    /// Tells a program something else.
    pub fn tell(&self, value: &serde_json::Value) {
        tell(value);
    }

    /// Shows one event.
    pub fn show(&mut self, event: Event) {
        match event {
            Event::Missing { file, consequence } => self.missing(file, consequence),
            Event::Discards { bytes: n } => self.discards(n),
            Event::Begins {
                phase,
                total_bytes,
                done_bytes,
            } => self.begin(phase, total_bytes, done_bytes),
            Event::Advances { bytes } => self.advance(bytes),
            Event::Retries { file, reason, wait } => self.retries(&file, &reason, wait),
        }
    }

    fn missing(&self, file: &str, consequence: &str) {
        match self.shape {
            Shape::Json => tell(&json!({
                "event": "missing", "file": file, "consequence": consequence,
            })),
            _ => self.say(&format!("the checkpoint has no {file}: {consequence}")),
        }
    }

    fn discards(&self, n: u64) {
        match self.shape {
            Shape::Json => tell(&json!({ "event": "discards", "bytes": n })),
            _ => self.say(&format!(
                "what an unfinished installation of another checkpoint or revision left there, {}, is removed",
                bytes(n)
            )),
        }
    }

    fn begin(&mut self, phase: Phase, total: u64, done: u64) {
        let now = Instant::now();
        (self.phase, self.done, self.total, self.from) = (phase, done, total, done);
        (self.began, self.told) = (now, now);
        match &mut self.shape {
            Shape::Bar(bar) => {
                let new = Progress::bytes(word(phase), false);
                new.begin(done, total);
                *bar = Some(new);
            }
            // What is quick is not worth a line; what takes long gets one in time.
            Shape::Plain | Shape::Hidden => {}
            Shape::Json => tell(&json!({
                "event": "begins", "phase": word(phase), "total_bytes": total, "done_bytes": done,
            })),
        }
    }

    fn advance(&mut self, more: u64) {
        self.done += more;
        let every = match &self.shape {
            Shape::Bar(bar) => {
                bar.iter().for_each(|bar| bar.add(more));
                return;
            }
            Shape::Hidden => return,
            Shape::Plain => PLAIN_EVERY,
            Shape::Json => JSON_EVERY,
        };
        let now = Instant::now();
        if now - self.told < every && (self.done < self.total || !self.is_json()) {
            return;
        }
        self.told = now;
        let seconds = (now - self.began).as_secs_f64();
        let rate = (self.done - self.from) as f64 / seconds.max(1e-3);
        let left = self.total.saturating_sub(self.done) as f64 / rate.max(1.0);
        if self.is_json() {
            tell(&json!({
                "event": "advances", "phase": word(self.phase), "done_bytes": self.done,
                "total_bytes": self.total, "bytes_per_s": rate as u64, "seconds_left": left as u64,
            }));
        } else {
            let percent = 100 * self.done / self.total.max(1);
            note(&format!(
                "{} {percent} %, {} of {}, {}/s, {} left",
                word(self.phase),
                bytes(self.done),
                bytes(self.total),
                bytes(rate as u64),
                duration(Duration::from_secs_f64(left))
            ));
        }
    }

    fn retries(&self, file: &str, reason: &str, wait: Duration) {
        if self.is_json() {
            tell(&json!({
                "event": "retries", "file": file, "reason": reason, "wait_ms": wait.as_millis() as u64,
            }));
        } else if wait >= LONG_WAIT {
            let wait = duration(wait);
            self.say(&format!("{file}: {reason}; next try in {wait}"));
        }
    }

    fn say(&self, text: &str) {
        match &self.shape {
            Shape::Bar(Some(bar)) => bar.suspend(|| note(text)),
            _ => note(text),
        }
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Checking => "checking",
        Phase::Fetching => "installing",
        Phase::Verifying => "verifying",
    }
}

/// A program that went away is noticed at the end, when the result cannot be written either.
fn tell(value: &serde_json::Value) {
    let _ = write_json(value);
}
