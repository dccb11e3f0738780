//! The runs: each takes a prompt, then a few more tokens one by one.
//!
//! Each starts with an empty context and no expert in a slot or verified, so every prompt is a cold one and runs are alike, but for one thing:
//! the first of them is also the first to touch the memory, which a virtual machine may have to get from its host. The
//! frontiers take turns within a round, so that a machine that slows down slows all of them. Times are the session's own.

use std::ops::ControlFlow;

use ouzel::{Cancel, Config, Model, Options};
use ouzel_engine::floor::{
    DecodeWork, PrefillWork, Rates, WeightBytes, decode_floor, prefill_floor,
};
use ouzel_engine::{Budget, EngineError, ReadMode, Stats, TokenId};
use ouzel_storage::peak_memory;

use super::median;
use crate::progress::Progress;

/// What to run.
pub struct Plan<'a> {
    pub model: &'a Model,
    pub options: Options,
    /// Tokens of the prompts, ascending.
    pub frontiers: Vec<usize>,
    /// Tokens decoded after each prompt.
    pub n_decode: usize,
    /// Rounds over all frontiers.
    pub runs: usize,
    pub seed: u64,
}

/// What one run counted.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub prefill: Stats,
    pub decode: Stats,
    /// Expert slots of all layers at its end: a short context has more than the budget's table says.
    pub n_slots: usize,
}

/// All runs of one frontier.
pub struct Frontier {
    pub context_tokens: usize,
    pub runs: Vec<Run>,
    /// The most that the process ever had resident by the end of these runs.
    pub peak_memory: Option<u64>,
}

/// All runs, and what their session was like.
pub struct Measured {
    pub frontiers: Vec<Frontier>,
    pub about: About,
}

/// What all runs have in common.
pub struct About {
    pub budget: Budget,
    pub io_mode: ReadMode,
    pub isa: &'static str,
    pub weights: WeightBytes,
}

impl Plan<'_> {
    /// Tokens that all runs take.
    fn n_tokens(&self) -> usize {
        let of_round: usize = self.frontiers.iter().map(|n| n + self.n_decode).sum();
        self.runs * of_round
    }

    /// Runs everything.
    pub fn measure(&self, cancel: &Cancel, quiet: bool) -> anyhow::Result<Measured> {
        let progress = Progress::tokens("measuring", quiet);
        progress.set(0, self.n_tokens() as u64);
        let longest = self.frontiers.iter().max().map_or(0, |n| n + self.n_decode);
        let vocab_size = self.model.config().vocab_size;
        let ids = ouzel::token_sequence(vocab_size, self.seed, longest);
        let ids: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
        let mut frontiers: Vec<Frontier> = self.frontiers.iter().map(Frontier::new).collect();
        let mut session = self.model.session(&self.options)?.into_engine();
        for _ in 0..self.runs {
            for frontier in &mut frontiers {
                session.reset_cold();
                let (prompt, rest) = ids.split_at(frontier.context_tokens);
                let run = run(
                    &mut session,
                    prompt,
                    &rest[..self.n_decode],
                    cancel,
                    &progress,
                )?;
                frontier.runs.push(run);
                frontier.peak_memory = peak_memory();
            }
        }
        Ok(Measured {
            frontiers,
            about: About {
                budget: session.budget().clone(),
                io_mode: session.read_mode(),
                isa: session.isa().name(),
                weights: session.model().weight_bytes()?,
            },
        })
    }
}

fn run(
    session: &mut ouzel_engine::Session,
    prompt: &[TokenId],
    rest: &[TokenId],
    cancel: &Cancel,
    progress: &Progress,
) -> anyhow::Result<Run> {
    let before = *session.stats();
    let mut seen = 0;
    session.prefill(prompt, &mut |now| {
        progress.add((now.done - seen) as u64);
        seen = now.done;
        if cancel.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let prompted = *session.stats();
    for &id in rest {
        if cancel.is_cancelled() {
            return Err(ouzel::Error::Engine(EngineError::Cancelled).into());
        }
        session.decode(id)?;
        progress.add(1);
    }
    Ok(Run {
        prefill: prompted.since(&before),
        decode: session.stats().since(&prompted),
        n_slots: session.n_slots(),
    })
}

impl Frontier {
    fn new(context_tokens: &usize) -> Frontier {
        Frontier {
            context_tokens: *context_tokens,
            runs: Vec::new(),
            peak_memory: None,
        }
    }
}

/// Tokens a second over a few runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
    /// What the floor allows.
    pub floor: f64,
}

impl Speed {
    fn new(runs: &[Run], of: impl Fn(&Run) -> f64, floor: f64) -> Speed {
        let speeds: Vec<f64> = runs.iter().map(of).collect();
        Speed {
            lowest: speeds.iter().copied().fold(f64::INFINITY, f64::min),
            highest: speeds.iter().copied().fold(0.0, f64::max),
            median: median(speeds),
            floor,
        }
    }

    /// The share of the floor that the median reaches.
    pub fn share(&self) -> f64 {
        self.median / self.floor
    }
}

/// The medians of one frontier. Counts are those of decoding unless they say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub context_tokens: usize,
    pub decoded_tokens: usize,
    pub prefill: Speed,
    pub decode: Speed,
    pub slots_per_layer: f64,
    pub hit_rate: f64,
    pub misses: f64,
    pub bytes_read: f64,
    pub disk_wait_ms: f64,
    pub prefill_bytes_read: f64,
    pub prefill_disk_wait_ms: f64,
    pub peak_memory: Option<u64>,
}

impl Frontier {
    /// The medians, beside what a machine of these rates allows for as many misses and as much context.
    pub fn row(
        &self,
        config: &Config,
        weights: &WeightBytes,
        rates: &Rates,
        options: &Options,
    ) -> Row {
        let median_of = |of: fn(&Run) -> f64| median(self.runs.iter().map(of).collect());
        let n_decode = self.runs[0].decode.decode_tokens as f64;
        let misses = median_of(|run| run.decode.misses as f64);
        let prefill_bytes_read = median_of(|run| run.prefill.bytes_read as f64);
        // Halfway through the decoded tokens.
        let decode = DecodeWork {
            context_tokens: self.context_tokens + (n_decode / 2.0).ceil() as usize,
            misses: misses / n_decode,
        };
        let prefill = PrefillWork {
            n_tokens: self.context_tokens,
            expert_bytes_read: prefill_bytes_read,
        };
        let decode = decode_floor(config, weights, decode, rates, options.precision);
        let prefill = prefill_floor(config, prefill, rates, options.precision);
        let n_prompt = self.context_tokens as f64;
        let prefill_speed = |run: &Run| n_prompt / run.prefill.prefill_time.as_secs_f64();
        let decode_speed = |run: &Run| n_decode / run.decode.decode_time.as_secs_f64();
        Row {
            context_tokens: self.context_tokens,
            decoded_tokens: n_decode as usize,
            prefill: Speed::new(&self.runs, prefill_speed, n_prompt / prefill.as_secs_f64()),
            decode: Speed::new(&self.runs, decode_speed, 1.0 / decode.as_secs_f64()),
            slots_per_layer: median_of(|run| run.n_slots as f64) / config.n_layers() as f64,
            hit_rate: median_of(|run| run.decode.hit_rate().unwrap_or(0.0)),
            misses,
            bytes_read: median_of(|run| run.decode.bytes_read as f64),
            disk_wait_ms: median_of(|run| 1e3 * run.decode.disk_wait.as_secs_f64()),
            prefill_bytes_read,
            prefill_disk_wait_ms: median_of(|run| 1e3 * run.prefill.disk_wait.as_secs_f64()),
            peak_memory: self.peak_memory,
        }
    }
}
