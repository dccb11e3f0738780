//! Adds up every byte of a session before any is allocated, and turns what remains of the budget into expert slots.
//!
//! Pure arithmetic over the configuration and the options. A budget that is too small is refused together with the smallest one
//! that would do. The table it makes is the one that `inspect --memory` prints.

use crate::config::Config;
use crate::kv::KvCache;
use crate::{EngineError, Options};

/// The budget where the caller names none.
pub const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// The context where the caller names none, in tokens.
pub const DEFAULT_CONTEXT_TOKENS: usize = 4096;
/// Program text and data, thread stacks and allocator slack, in bytes. Measured on x86-64 Linux with the demo model: peak
/// resident memory less every other line of the table was 11 MiB.
const PROGRAM_BYTES: u64 = 16 << 20;
/// Rows that go through attention and the shared expert together: enough that a matmul reuses each unpacked weight.
const BLOCK_ROWS: usize = 128;
/// The share of the budget that prefill activations may take where the caller names no chunk.
const CHUNK_SHARE: u64 = 50;
/// The longest chunk chosen without being asked.
const MAX_DEFAULT_CHUNK: usize = 512;
/// int8 planes of the activations that enter a down projection: the GeGLU product spans too many magnitudes for one.
pub const DOWN_PLANES: usize = 2;
/// Rows of one expert that are computed together.
pub const EXPERT_ROWS: usize = 64;

/// One line of the memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLine {
    /// What the bytes are for.
    pub what: String,
    /// How many.
    pub bytes: u64,
}

/// How the memory of a session is spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Every line, largest idea first; they add up to `total_bytes`.
    pub lines: Vec<BudgetLine>,
    /// What the session will make resident.
    pub total_bytes: u64,
    /// What the caller allowed.
    pub memory_bytes: u64,
    /// The smallest budget with which the same context and chunk would run.
    pub smallest_bytes: u64,
    /// Retained expert slots of each layer.
    pub slots: Vec<u32>,
    /// Buffers shared by all layers for experts that are not retained.
    pub transit_slots: usize,
    /// Tokens of context.
    pub context: usize,
    /// Prompt tokens that go through a layer together.
    pub chunk: usize,
    /// Rows of a block within the chunk.
    pub block: usize,
    /// Computing threads.
    pub threads: usize,
    /// Rows of logits held at once.
    pub logits_rows: usize,
}

impl Budget {
    /// Retained expert slots of all layers.
    pub fn total_slots(&self) -> u64 {
        self.slots.iter().map(|&n| u64::from(n)).sum()
    }
}

/// What the files of a model weigh.
#[derive(Clone, Copy, Debug)]
pub struct ModelBytes {
    /// Resident weights, as loaded.
    pub resident: u64,
    /// One expert with its padding.
    pub expert_stride: u64,
}

/// Plans the memory of a session.
///
/// # Errors
/// [`EngineError::Option`] for a value out of range, [`EngineError::Budget`] with the smallest budget that would do.
pub fn plan_budget(
    config: &Config,
    model: ModelBytes,
    options: &Options,
) -> Result<Budget, EngineError> {
    let memory_bytes = options.memory.unwrap_or(DEFAULT_MEMORY_BYTES);
    let context = context_tokens(config, options)?;
    let chunk = chunk_tokens(config, options, memory_bytes, context)?;
    let block = chunk.min(BLOCK_ROWS);
    let logits_rows = (options.logits_rows.max(1) as usize).min(block);
    let threads = threads(options)?;
    let transit_slots = config.experts_per_token;

    let mut lines = vec![
        line("resident weights", model.resident),
        line(
            format!("KV cache, {context} tokens"),
            KvCache::bytes(config, options.precision, context),
        ),
        line(
            format!("activations, chunk of {chunk}"),
            chunk as u64 * chunk_row_bytes(config)
                + block_bytes(config, block)
                + KvCache::staging_bytes(config, options.precision, block),
        ),
        line(
            "attention partials",
            4 * partials_len(config, context, block) as u64,
        ),
        line("logits", 4 * logits_rows as u64 * config.vocab_size as u64),
        line("tokenizer and sampler", options.reserved_bytes),
        line("program and stacks", PROGRAM_BYTES),
        line(
            format!("transit slots, {transit_slots}"),
            transit_slots as u64 * model.expert_stride,
        ),
    ];
    let smallest_bytes: u64 = lines.iter().map(|line| line.bytes).sum();
    let slots = slots(config, model, options, memory_bytes, smallest_bytes)?;
    let n_slots: u64 = slots.iter().map(|&n| u64::from(n)).sum();
    lines.push(line(
        format!(
            "retained slots, {n_slots} over {} layers",
            config.n_layers()
        ),
        n_slots * model.expert_stride,
    ));
    Ok(Budget {
        total_bytes: lines.iter().map(|line| line.bytes).sum(),
        lines,
        memory_bytes,
        smallest_bytes,
        slots,
        transit_slots,
        context,
        chunk,
        block,
        threads,
        logits_rows,
    })
}

fn line(what: impl Into<String>, bytes: u64) -> BudgetLine {
    BudgetLine {
        what: what.into(),
        bytes,
    }
}

fn context_tokens(config: &Config, options: &Options) -> Result<usize, EngineError> {
    let Some(asked) = options.max_context else {
        return Ok(DEFAULT_CONTEXT_TOKENS.min(config.max_position));
    };
    in_range("--max-context", asked, 1, config.max_position)
}

fn chunk_tokens(
    config: &Config,
    options: &Options,
    memory: u64,
    context: usize,
) -> Result<usize, EngineError> {
    if let Some(asked) = options.chunk {
        return Ok(in_range("--chunk", asked, 1, config.max_position)?.min(context));
    }
    let affordable = memory / CHUNK_SHARE / chunk_row_bytes(config);
    Ok((affordable as usize)
        .clamp(16, MAX_DEFAULT_CHUNK)
        .min(context))
}

fn threads(options: &Options) -> Result<usize, EngineError> {
    match options.threads {
        Some(asked) => in_range("--threads", asked, 1, 1024),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

fn in_range(
    option: &'static str,
    value: u32,
    low: usize,
    high: usize,
) -> Result<usize, EngineError> {
    if (low..=high).contains(&(value as usize)) {
        return Ok(value as usize);
    }
    Err(EngineError::Option {
        option,
        value: u64::from(value),
        allowed: format!("give {low} to {high}"),
    })
}

fn slots(
    config: &Config,
    model: ModelBytes,
    options: &Options,
    memory: u64,
    fixed: u64,
) -> Result<Vec<u32>, EngineError> {
    let n_layers = config.n_layers();
    if fixed > memory {
        return Err(EngineError::Budget {
            needed: fixed,
            budget: memory,
            advice: "give a larger --memory, or less --max-context or --chunk".to_owned(),
        });
    }
    if let Some(asked) = options.slots {
        let each = in_range("--slots", asked, 0, config.n_experts)? as u64;
        let needed = fixed + each * n_layers as u64 * model.expert_stride;
        // Slots that were asked for outweigh a budget that was not.
        if options.memory.is_some() && needed > memory {
            return Err(EngineError::Budget {
                needed,
                budget: memory,
                advice: format!("give a larger --memory or fewer --slots than {asked}"),
            });
        }
        return Ok(vec![asked; n_layers]);
    }
    let total =
        ((memory - fixed) / model.expert_stride).min((n_layers * config.n_experts) as u64) as usize;
    Ok((0..n_layers)
        .map(|l| (total / n_layers + usize::from(l < total % n_layers)) as u32)
        .collect())
}

/// Bytes of one row of everything that grows with the chunk: four buffers of the residual stream's width, each chosen expert's
/// output, and the routing.
fn chunk_row_bytes(config: &Config) -> u64 {
    let k = config.experts_per_token as u64;
    let hidden = config.hidden_size as u64;
    4 * (4 + k) * hidden + 5 * 4 * k
}

/// Bytes of the buffers that hold one block, and of those that one expert computes in.
fn block_bytes(config: &Config, block: usize) -> u64 {
    let expert = 4 * EXPERT_ROWS * (config.hidden_size + 2 * config.expert_intermediate);
    let quantized =
        ouzel_kernels::QuantRows::bytes(block.max(EXPERT_ROWS), max_width(config), DOWN_PLANES);
    (4 * block * block_width(config) + expert + quantized) as u64
}

/// Floats of a row of all block buffers together.
fn block_width(config: &Config) -> usize {
    let query = config
        .layers
        .iter()
        .map(|s| s.query_width())
        .max()
        .unwrap_or(0);
    let kv = config
        .layers
        .iter()
        .map(|s| s.kv_width())
        .max()
        .unwrap_or(0);
    let angles = config.layers.iter().map(|s| s.head_dim).max().unwrap_or(0);
    2 * config.hidden_size
        + 2 * query
        + 2 * kv
        + 2 * config.shared_intermediate
        + config.n_experts
        + 2 * angles
}

/// The widest input of a matrix.
pub fn max_width(config: &Config) -> usize {
    let query = config
        .layers
        .iter()
        .map(|s| s.query_width())
        .max()
        .unwrap_or(0);
    [
        config.hidden_size,
        config.shared_intermediate,
        config.expert_intermediate,
        query,
    ]
    .into_iter()
    .max()
    .unwrap_or(0)
}

/// Positions whose keys one attention partial covers; partials of a query are merged in order of position.
pub const SPAN: usize = 2048;

/// Floats that attention needs for its partials: enough for one query over the whole context, or for a block over one span.
pub fn partials_len(config: &Config, context: usize, block: usize) -> usize {
    config
        .layer_ids()
        .map(|l| {
            let shape = config.layer(l);
            let partial = ouzel_kernels::partial_len(shape.group(), shape.head_dim);
            let spans = spans(config.kv_rows(l, context));
            shape.n_kv_heads * partial * spans.max(block.min(16))
        })
        .max()
        .unwrap_or(0)
}

/// Spans that `rows` consecutive positions may touch, wherever they start.
pub fn spans(rows: usize) -> usize {
    rows.div_ceil(SPAN) + 1
}

#[cfg(test)]
mod tests;
