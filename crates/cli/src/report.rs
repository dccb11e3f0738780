//! Measurements in words.

use std::fmt::Write;
use std::time::Duration;

use ouzel::{Budget, Model, Options, ReadMode, Stats};
use ouzel_engine::FREE_BY_AUTO;
use ouzel_storage::free_memory;

use crate::args::{Memory, SessionArgs};
use crate::output::note;

/// How much more than the budget has to be free before a larger budget is worth a word.
const MUCH_MORE: u64 = 2;

/// Bytes as people say them.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && value < 100.0);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A time as people say it.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3600, s / 60 % 60),
    }
}

/// The statistics line of one answer.
pub fn stats(stats: &Stats) -> String {
    let mut line = format!("{} prompt tokens", stats.prompt_tokens);
    if stats.reused_tokens > 0 {
        let _ = write!(line, " ({} held from before)", stats.reused_tokens);
    }
    let _ = write!(line, ", {} new; {}", stats.new_tokens, stats.stop);
    if let Some(speed) = stats.prefill_tokens_per_s() {
        let _ = write!(line, "; prefill {speed:.1} tokens/s");
    }
    if let Some(speed) = stats.decode_tokens_per_s() {
        let _ = write!(line, "; decode {speed:.1} tokens/s");
    }
    let _ = write!(
        line,
        "; waited {:.2} s for the disk",
        stats.disk_wait.as_secs_f64()
    );
    if let Some(rate) = stats.hit_rate() {
        let _ = write!(line, "; {:.0} % hits", 100.0 * rate);
    }
    let _ = write!(line, "; {} read", bytes(stats.bytes_read));
    if let Some(peak) = stats.peak_memory {
        let _ = write!(line, "; peak memory {}", bytes(peak));
    }
    line += uncounted(stats.read_mode);
    line
}

/// What to add wherever memory is stated: something only where the caller chose the page cache.
pub fn uncounted(mode: ReadMode) -> &'static str {
    match mode {
        ReadMode::Buffered => ", page cache not counted",
        ReadMode::Direct | ReadMode::Dropping => "",
    }
}

/// The memory table of a session.
pub fn budget(budget: &Budget) -> String {
    let mut table = String::new();
    for line in &budget.lines {
        let _ = writeln!(table, "  {:<44} {:>12}", line.what, bytes(line.bytes));
    }
    let _ = writeln!(table, "  {:<44} {:>12}", "total", bytes(budget.total_bytes));
    table
}

/// Says on standard error what there is to know before weights are read.
pub fn before_loading(model: &Model, options: &Options, args: &SessionArgs) {
    let notes = [
        memory_note(model, options, args),
        reads_note(model, options),
    ];
    notes.into_iter().flatten().for_each(|line| note(&line));
}

/// What to say before loading about how weights are read: something only where it is not as it should be and nobody asked for it.
fn reads_note(model: &Model, options: &Options) -> Option<String> {
    note_of(model.read_mode(options).ok()?)
}

fn note_of(mode: ReadMode) -> Option<String> {
    (mode == ReadMode::Dropping).then(|| {
        "the model's file system refuses direct reads: reading through the page cache and dropping what was read".to_owned()
    })
}

/// How reads go, as flags, tables and CSV say it.
pub fn reads(mode: ReadMode) -> &'static str {
    match mode {
        ReadMode::Direct => "direct",
        ReadMode::Dropping => "dropping",
        ReadMode::Buffered => "buffered",
    }
}

/// What to say before loading, if anything: that the budget is more than what is free, that much more is free than it takes, or what
/// was chosen where `--memory auto` left the choice to the program.
fn memory_note(model: &Model, options: &Options, args: &SessionArgs) -> Option<String> {
    memory_note_for(model, options, args.memory, free_memory()?)
}

fn memory_note_for(
    model: &Model,
    options: &Options,
    asked: Option<Memory>,
    free: u64,
) -> Option<String> {
    let budget = model.plan_budget(options).ok()?;
    let (total, free_text) = (bytes(budget.total_bytes), bytes(free));
    if budget.total_bytes > free {
        let advice = if budget.smallest_bytes <= free {
            format!("--memory {}MiB would fit", free >> 20)
        } else {
            format!(
                "{} is the least that would do",
                bytes(budget.smallest_bytes)
            )
        };
        return Some(format!(
            "the session takes {total} of memory and {free_text} is free: {advice}"
        ));
    }
    let n_experts = model.config().n_experts * model.config().n_layers();
    if asked == Some(Memory::Auto) {
        return Some(format!(
            "--memory auto takes {total} of the {free_text} that is free, and keeps {} of {n_experts} experts in memory",
            budget.slots
        ));
    }
    let is_limited =
        options.slots.is_none() && options.memory.is_none() && budget.slots < n_experts;
    if !is_limited || free / MUCH_MORE < budget.memory_bytes {
        return None;
    }
    // Half of what is free leaves the other half to everything else.
    let memory = (free / FREE_BY_AUTO) >> 30 << 30;
    let larger = model
        .plan_budget(&Options {
            memory: Some(memory),
            ..options.clone()
        })
        .ok()?;
    Some(format!(
        "the session takes {total} of memory and {free_text} is free: --memory {}GiB would keep {} of {n_experts} experts in memory instead of {}",
        memory >> 30,
        larger.slots,
        budget.slots
    ))
}

#[cfg(test)]
mod tests;
