//! What is counted, and its Prometheus text.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::engine::Process;
use crate::error::Refusal;
use crate::turn::{End, Experts, Outcome};

pub use crate::turn::Spent;

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Tickets that somebody holds: waiting, being answered, or being read.
    pub live: AtomicUsize,
    /// Connections that are open.
    pub connections: AtomicUsize,
    /// Whether the model is loaded.
    pub is_loaded: AtomicBool,
    /// Whether it is on its way there.
    pub is_loading: AtomicBool,
    /// Requests by the first digit of their status.
    pub requests: [AtomicU64; 6],
    /// Turns that ended by themselves.
    pub finished: AtomicU64,
    /// Turns that nobody wanted any more.
    pub cancelled: AtomicU64,
    /// Turns that went wrong.
    pub failed: AtomicU64,
    now: Mutex<Option<(u64, Spent)>>,
    experts: Mutex<Option<Experts>>,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    new_tokens: AtomicU64,
    reasoning_tokens: AtomicU64,
    prefill_us: AtomicU64,
    decode_us: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_read: AtomicU64,
    peak_memory: AtomicU64,
}

impl Metrics {
    /// Says what the turn that is being answered took until now.
    pub fn set_now(&self, turn: u64, spent: Spent) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some((turn, spent));
    }

    /// What this turn took until now, if it is the one that is being answered, or was the last.
    pub fn spent_by(&self, turn: u64) -> Option<Spent> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.filter(|(of, _)| *of == turn).map(|(_, spent)| spent)
    }

    /// Says how the experts lie; `None` where no model is loaded.
    pub fn set_experts(&self, experts: Option<Experts>) {
        *self.experts.lock().unwrap_or_else(PoisonError::into_inner) = experts;
    }

    /// How the experts lay when that was last said.
    pub fn experts(&self) -> Option<Experts> {
        let experts = self.experts.lock().unwrap_or_else(PoisonError::into_inner);
        experts.clone()
    }

    /// Counts a turn that is over.
    pub fn count(&self, result: &Result<Outcome, Refusal>) {
        let add = |to: &AtomicU64, n: u64| {
            to.fetch_add(n, Ordering::Relaxed);
        };
        let Ok(outcome) = result else {
            return add(&self.failed, 1);
        };
        let is_cancelled = outcome.end == End::Cancelled;
        add(
            if is_cancelled {
                &self.cancelled
            } else {
                &self.finished
            },
            1,
        );
        let (usage, cost) = (&outcome.usage, &outcome.cost);
        add(&self.prompt_tokens, usage.prompt as u64);
        add(&self.cached_tokens, usage.cached as u64);
        add(&self.new_tokens, usage.new as u64);
        add(&self.reasoning_tokens, usage.reasoning as u64);
        add(&self.prefill_us, cost.prefill.as_micros() as u64);
        add(&self.decode_us, cost.decode.as_micros() as u64);
        add(&self.hits, cost.hits);
        add(&self.misses, cost.misses);
        add(&self.bytes_read, cost.bytes_read);
        self.peak_memory
            .fetch_max(cost.peak_memory.unwrap_or(0), Ordering::Relaxed);
    }

    /// Counts a request by its status.
    pub fn count_request(&self, status: u16) {
        if let Some(count) = self.requests.get(usize::from(status / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The text that Prometheus reads.
    pub fn text(
        &self,
        (waiting, is_answering): (usize, bool),
        memory_bytes: u64,
        process: &Process,
    ) -> String {
        let mut page = Page(String::new());
        self.gauges(&mut page, (waiting, is_answering), memory_bytes);
        memory(&mut page, process);
        self.counters(&mut page);
        page.0
    }

    fn gauges(&self, page: &mut Page, (waiting, is_answering): (usize, bool), memory_bytes: u64) {
        page.gauge(
            "queue_waiting",
            "Turns that wait for the model.",
            waiting as f64,
        );
        page.gauge(
            "turns_running",
            "Turns that the model answers: 0 or 1.",
            f64::from(u8::from(is_answering)),
        );
        page.gauge(
            "turns_live",
            "Turns that a client still holds: waiting, being answered, or being read.",
            self.live.load(Ordering::Relaxed) as f64,
        );
        page.gauge(
            "connections",
            "Open connections.",
            self.connections.load(Ordering::Relaxed) as f64,
        );
        let is_loaded = self.is_loaded.load(Ordering::Relaxed);
        page.gauge(
            "model_loaded",
            "Whether the model is in memory.",
            f64::from(u8::from(is_loaded)),
        );
        page.gauge(
            "model_memory_bytes",
            "What the model's budget takes while it is loaded.",
            if is_loaded { memory_bytes as f64 } else { 0.0 },
        );
        page.gauge(
            "peak_memory_bytes",
            "The most that the process with the model ever had resident.",
            self.peak_memory.load(Ordering::Relaxed) as f64,
        );
    }

    fn counters(&self, page: &mut Page) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        page.family(
            "requests_total",
            "Requests by the class of their status.",
            "counter",
        );
        for (class, count) in self.requests.iter().enumerate().skip(2) {
            page.sample(
                "requests_total",
                &format!("{{status=\"{class}xx\"}}"),
                read(count),
            );
        }
        page.family("turns_total", "Turns by their end.", "counter");
        for (end, count) in [
            ("finished", &self.finished),
            ("cancelled", &self.cancelled),
            ("failed", &self.failed),
        ] {
            page.sample("turns_total", &format!("{{end=\"{end}\"}}"), read(count));
        }
        page.family("tokens_total", "Tokens: of prompts, of those the ones that were held from before, written, of those thinking.", "counter");
        for (kind, count) in [
            ("prompt", &self.prompt_tokens),
            ("cached", &self.cached_tokens),
            ("new", &self.new_tokens),
            ("reasoning", &self.reasoning_tokens),
        ] {
            page.sample("tokens_total", &format!("{{kind=\"{kind}\"}}"), read(count));
        }
        page.family("model_seconds_total", "Time with the model.", "counter");
        for (phase, count) in [("prefill", &self.prefill_us), ("decode", &self.decode_us)] {
            page.sample(
                "model_seconds_total",
                &format!("{{phase=\"{phase}\"}}"),
                read(count) / 1e6,
            );
        }
        page.family(
            "experts_total",
            "Chosen experts: found in memory, or read.",
            "counter",
        );
        for (from, count) in [("hit", &self.hits), ("miss", &self.misses)] {
            page.sample(
                "experts_total",
                &format!("{{from=\"{from}\"}}"),
                read(count),
            );
        }
        page.family("read_bytes_total", "Bytes of experts read.", "counter");
        page.sample("read_bytes_total", "", read(&self.bytes_read));
    }
}

/// What the process with the model takes; beside a decode service there is the server's own process.
fn memory(page: &mut Page, process: &Process) {
    if let Some(bytes) = process.resident_bytes {
        page.gauge(
            "process_memory_bytes",
            "What the process with the model has resident now; 0 while there is none.",
            bytes as f64,
        );
    }
    page.gauge(
        "process_budget_bytes",
        "What the process with the model may have resident.",
        process.budget_bytes as f64,
    );
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "# HELP ouzel_{name} {help}\n# TYPE ouzel_{name} {kind}"
        );
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "ouzel_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, help, "gauge");
        self.sample(name, "", value);
    }
}
