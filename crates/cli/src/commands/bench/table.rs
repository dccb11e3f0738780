//! What was measured, as a table for people and as CSV for programs.

use std::fmt::Write;

use super::measure::{About, Row, Speed};
use super::probe::{Probe, Probes};
use crate::args::Precision;
use crate::report::{self, bytes, reads};

/// Probes that differ by more were not taken on the same machine, as far as a comparison goes.
const DRIFT_LIMIT: f64 = 0.1;
/// What stands for a value that is not there.
const NONE: &str = "-";
/// The commit that the program was built from.
const COMMIT: &str = env!("OUZEL_COMMIT");
/// The columns, of which the first twenty keep their order for ever. Counts are those of the decoded tokens unless named otherwise.
const COLUMNS: &str = "model,skew,precision,memory_bytes,slots_per_layer,context_tokens,prefill_tokens_per_s,\
decode_tokens_per_s,hit_rate,misses,bytes_read,expert_stride_bytes,disk_wait_ms,floor_tokens_per_s,share_of_floor,\
peak_memory_bytes,io_mode,isa,threads,commit,\
prefill_floor_tokens_per_s,prefill_share_of_floor,prefill_bytes_read,prefill_disk_wait_ms,decoded_tokens,runs,\
prefill_lowest,prefill_highest,decode_lowest,decode_highest,disk_bytes_per_s,memory_bytes_per_s,int8_macs_per_s,\
f32_macs_per_s,probe_drift";

/// Everything about one call.
pub struct Bench {
    pub model_id: String,
    pub precision: Precision,
    pub n_experts: usize,
    pub runs: usize,
    pub rows: Vec<Row>,
    pub about: About,
    pub probes: Probes,
}

impl Bench {
    /// A header and one line for each frontier.
    pub fn csv(&self) -> String {
        let mut text = format!("{COLUMNS}\n");
        for row in &self.rows {
            let _ = writeln!(text, "{}", self.fields(row).join(","));
        }
        text
    }

    fn fields(&self, row: &Row) -> Vec<String> {
        let about = &self.about;
        let rates = self.probes.rates();
        let whole = |x: f64| format!("{x:.0}");
        let speed = |x: f64| format!("{x:.4}");
        let peak = row.peak_memory.map(|n| n.to_string());
        vec![
            field(&self.model_id),
            skew(&self.model_id).to_owned(),
            self.precision().to_owned(),
            about.budget.memory_bytes.to_string(),
            format!("{:.2}", row.slots_per_layer),
            row.context_tokens.to_string(),
            speed(row.prefill.median),
            speed(row.decode.median),
            speed(row.hit_rate),
            whole(row.misses),
            whole(row.bytes_read),
            about.weights.expert_stride.to_string(),
            format!("{:.1}", row.disk_wait_ms),
            speed(row.decode.floor),
            speed(row.decode.share()),
            peak.unwrap_or_else(|| NONE.to_owned()),
            reads(about.io_mode).to_owned(),
            about.isa.to_owned(),
            about.budget.threads.to_string(),
            COMMIT.to_owned(),
            speed(row.prefill.floor),
            speed(row.prefill.share()),
            whole(row.prefill_bytes_read),
            format!("{:.1}", row.prefill_disk_wait_ms),
            row.decoded_tokens.to_string(),
            self.runs.to_string(),
            speed(row.prefill.lowest),
            speed(row.prefill.highest),
            speed(row.decode.lowest),
            speed(row.decode.highest),
            whole(rates.disk_bytes_per_s),
            whole(rates.memory_bytes_per_s),
            whole(rates.int8_macs_per_s),
            whole(rates.f32_macs_per_s),
            speed(self.probes.drift().1),
        ]
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for (what, value) in self.head() {
            let _ = writeln!(text, "{what:<9} {value}");
        }
        text += "\n";
        text += &aligned(&self.cells());
        if let Some(warning) = self.warning() {
            let _ = writeln!(text, "\n{warning}");
        }
        text
    }

    /// What all rows have in common.
    pub fn head(&self) -> Vec<(&'static str, String)> {
        let about = &self.about;
        let budget = &about.budget;
        vec![
            ("model", format!("{}, {}", self.model_id, self.precision())),
            (
                "session",
                format!(
                    "{} allowed, {} planned, {:.1} of {} experts of a layer in slots, chunks of {}",
                    bytes(budget.memory_bytes),
                    bytes(budget.total_bytes),
                    self.slots(),
                    self.n_experts,
                    budget.chunk
                ),
            ),
            (
                "machine",
                format!(
                    "{} with {} threads, {} reads of {}{}",
                    about.isa,
                    budget.threads,
                    reads(about.io_mode),
                    bytes(about.weights.expert_stride),
                    report::uncounted(about.io_mode)
                ),
            ),
            ("before", self.probes.before.line()),
            ("after", self.probes.after.line()),
            ("commit", COMMIT.to_owned()),
            (
                "runs",
                format!(
                    "{}, each from an empty context and with no expert in a slot; medians",
                    self.runs
                ),
            ),
        ]
    }

    /// The rows, header first.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let header = [
            "context",
            "prefill tokens/s",
            "of floor",
            "decode tokens/s",
            "of floor",
            "hits",
            "misses a token",
            "read a token",
            "disk wait a token",
            "peak memory",
        ];
        let mut cells = vec![header.map(str::to_owned).to_vec()];
        for row in &self.rows {
            let n = row.decoded_tokens as f64;
            cells.push(vec![
                row.context_tokens.to_string(),
                self.speed(&row.prefill),
                percent(row.prefill.share()),
                self.speed(&row.decode),
                percent(row.decode.share()),
                percent(row.hit_rate),
                format!("{:.1}", row.misses / n),
                bytes((row.bytes_read / n) as u64),
                format!("{:.1} ms", row.disk_wait_ms / n),
                row.peak_memory.map_or_else(|| NONE.to_owned(), bytes),
            ]);
        }
        cells
    }

    /// A median, and where there are several runs the lowest and the highest.
    fn speed(&self, speed: &Speed) -> String {
        if self.runs == 1 {
            return format!("{:.2}", speed.median);
        }
        format!(
            "{:.2} ({:.2}-{:.2})",
            speed.median, speed.lowest, speed.highest
        )
    }

    /// What a reader must know before comparing the rows with others.
    pub fn warning(&self) -> Option<String> {
        let (what, drift) = self.probes.drift();
        (drift > DRIFT_LIMIT).then(|| {
            format!(
                "The probes before and after differ by {} ({what}): discard these rows and measure again on an idle machine.",
                percent(drift)
            )
        })
    }

    fn precision(&self) -> &'static str {
        match self.precision {
            Precision::Exact => "exact",
            Precision::Fast => "fast",
        }
    }

    /// Retained slots of a layer, on average.
    fn slots(&self) -> f64 {
        self.about.budget.slots as f64 / self.about.weights.layers.len() as f64
    }
}

/// The skew of a synthetic model, which is part of its id: `synth-<preset>-<skew>-seed<S>`.
pub fn skew(model_id: &str) -> &str {
    let of_synthetic = || {
        let (rest, seed) = model_id.strip_prefix("synth-")?.rsplit_once("-seed")?;
        let (_, skew) = rest.rsplit_once('-')?;
        (!seed.is_empty() && seed.bytes().all(|b| b.is_ascii_digit())).then_some(skew)
    };
    of_synthetic().unwrap_or(NONE)
}

/// A field of a CSV line, in quotes where it has to be.
pub fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Columns as wide as their widest cell, to the right.
pub fn aligned(cells: &[Vec<String>]) -> String {
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in cells {
        let padded: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:>width$}", width = width(column)))
            .collect();
        let _ = writeln!(text, "{}", padded.join("  "));
    }
    text
}

impl Probe {
    /// The rates in one line.
    pub fn line(&self) -> String {
        let disk = self.best_disk();
        format!(
            "disk {:.2} GB/s at depth {}, memory {:.1} GB/s, {:.0} G int8 and {:.0} G f32 multiply-adds/s",
            disk.bytes_per_s / 1e9,
            disk.depth,
            self.memory_bytes_per_s / 1e9,
            self.int8_macs_per_s / 1e9,
            self.f32_macs_per_s / 1e9
        )
    }
}

/// A probe for people.
pub fn probe(probe: &Probe) -> String {
    let mut text = String::new();
    for disk in &probe.disk {
        let _ = writeln!(
            text,
            "disk        {:>8.2} GB/s, {} reads of {} at places drawn at random, {} at once",
            disk.bytes_per_s / 1e9,
            probe.io_mode,
            bytes(probe.read_bytes),
            disk.depth
        );
    }
    let _ = writeln!(
        text,
        "memory      {:>8.1} GB/s, {} read by {} threads",
        probe.memory_bytes_per_s / 1e9,
        bytes(probe.buffer_bytes),
        probe.threads
    );
    for (what, rate) in [
        ("int8", probe.int8_macs_per_s),
        ("f32", probe.f32_macs_per_s),
    ] {
        let _ = writeln!(
            text,
            "{what:<11} {:>8.0} G multiply-adds/s, {} on {} threads",
            rate / 1e9,
            probe.isa,
            probe.threads
        );
    }
    text
}
