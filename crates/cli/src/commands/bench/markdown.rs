//! `--report`: what was measured, as Markdown to paste.

use std::fmt::Write;

use super::system;
use super::table::Bench;
use crate::report::bytes;

/// The whole report.
pub fn report(bench: &Bench) -> String {
    let mut text = format!("### {} on {}\n\n", bench.model_id, system::processor());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = system::memory().map_or_else(|| "unknown".to_owned(), bytes);
    let mut facts = vec![
        (
            "computer",
            format!(
                "{}, {processors} processors, {memory} of memory",
                system::processor()
            ),
        ),
        ("system", system::system()),
    ];
    facts.extend(bench.head());
    text += "| | |\n|---|---|\n";
    for (what, value) in facts {
        let _ = writeln!(text, "| {what} | {value} |");
    }
    text += "\n";
    text += &table(&bench.cells());
    if let Some(warning) = bench.warning() {
        let _ = writeln!(text, "\n**{warning}**");
    }
    text += "\nMemory of a session:\n\n| for | bytes |\n|---|---:|\n";
    let budget = &bench.about.budget;
    for line in &budget.lines {
        let _ = writeln!(text, "| {} | {} |", line.what, line.bytes);
    }
    let _ = writeln!(text, "| total | {} |", budget.total_bytes);
    text
}

/// The first of `cells` is the header.
fn table(cells: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (i, row) in cells.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if i == 0 {
            let _ = writeln!(text, "|{}", "---:|".repeat(row.len()));
        }
    }
    text
}
