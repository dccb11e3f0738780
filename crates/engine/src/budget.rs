//! Adds up every byte of a session before any is allocated, and turns what remains of the budget into expert slots.
//!
//! Pure arithmetic over the configuration and the options. A budget that is too small is refused together with the smallest one
//! that would do. The table it makes is the one that `inspect --memory` prints.

mod context;

use ouzel_kernels::{Pool, QuantRows};

use crate::blocks::BlockShape;
use crate::config::Config;
use crate::kv::KvCache;
use crate::readers::STACK_BYTES;
use crate::store::READ_THREADS;
use crate::{EngineError, Options};

pub use context::largest_context;

/// The budget where the caller names none.
pub const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// One divided by the share of free memory that a session takes where the caller leaves the size to the engine: the other half is
/// for the page cache and for other programs.
pub const FREE_BY_AUTO: u64 = 2;
/// More memory than any machine has, and far from overflow.
const ALL_BYTES: u64 = 1 << 50;
/// The context where the caller names none, in tokens.
pub const DEFAULT_CONTEXT_TOKENS: usize = 4096;
/// What a program's code and data take where the caller does not say, in bytes.
const PROGRAM_BYTES: u64 = 14 << 20;
/// The caller's own stack, what the allocator rounds up, and what the kernel keeps for the process, in bytes. Measured on x86-64 Linux
/// inside a memory cgroup that was not charged with the program's file: less than the other lines were too large by.
const SLACK_BYTES: u64 = 2 << 20;
/// Rows of a prompt that need no block of the arena: a short follow-up takes nothing from the slots.
const OWN_ROWS: usize = 32;
/// Of the blocks that are left for slots at a full context, the share that a default chunk may borrow.
const CHUNK_SHARE: usize = 2;
/// The longest chunk chosen without being asked: beyond it an expert's bytes are long paid for.
const MAX_DEFAULT_CHUNK: usize = 8192;
/// The longest chunk where slots are asked for and it is not: its memory comes on top of theirs.
const CHUNK_BESIDE_SLOTS: usize = 512;
/// Buffers of the residual's width that grow with the chunk.
pub const CHUNK_BUFFERS: usize = 4;
/// Blocks through which kept prefixes are read and written: as many reads in flight as experts have.
const COPY_BLOCKS: usize = 4;
/// One divided by the share of the slots that an answer may borrow to keep what it overwrites in the rings: beyond it the misses of
/// all its tokens cost more than computing a prompt's end again.
const TRAIL_SHARE: usize = 4;
/// Words that the routing of a chunk keeps for each choice.
const ROUTING_WORDS: usize = 3;
/// int8 planes of the activations that enter a down projection: a GeGLU product may have an element that drowns its block.
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
    /// Retained expert slots of all layers at a full context.
    pub slots: usize,
    /// Retained expert slots of all layers while the context is empty.
    pub slots_at_start: usize,
    /// The most retained slots that one layer may have.
    pub max_slots_a_layer: usize,
    /// How the arena is cut.
    pub blocks: BlockShape,
    /// Blocks of the arena: transit set, slots, KV cache, and what a chunk borrows.
    pub arena_blocks: usize,
    /// Blocks shared by all layers for experts that are not retained.
    pub transit_blocks: usize,
    /// Blocks that the caller may borrow at any time.
    pub kept_blocks: usize,
    /// Blocks of the slots that an answer may borrow to keep what it overwrites.
    pub trail_blocks: usize,
    /// Tokens of context.
    pub context: usize,
    /// Prompt tokens that go through a layer together.
    pub chunk: usize,
    /// Rows for which the buffers of the chunk hold memory of their own.
    pub own_rows: usize,
    /// Computing threads.
    pub threads: usize,
    /// Rows of logits held at once.
    pub logits_rows: usize,
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
    let precision = options.precision;
    let blocks = BlockShape::new(config, model.expert_stride, precision);
    let memory_bytes = options.memory.unwrap_or(DEFAULT_MEMORY_BYTES);
    let context = context_tokens(config, options)?;
    let own_rows = OWN_ROWS.min(context).min(blocks.block_rows);
    let logits_rows = (options.logits_rows.max(1) as usize).min(blocks.block_rows);
    let threads = threads(options)?;

    let mut lines = vec![
        line("resident weights", model.resident),
        line(
            "activations",
            (own_rows * chunk_row_bytes(config)) as u64
                + block_bytes(config, blocks.block_rows)
                + KvCache::staging_bytes(config, precision, blocks.block_rows),
        ),
        line(
            "attention partials",
            4 * partials_len(config, context, blocks.block_rows) as u64,
        ),
        line("logits", 4 * logits_rows as u64 * config.vocab_size as u64),
    ];
    lines.extend(program_lines(options, threads));
    let fixed: u64 = lines.iter().map(|line| line.bytes).sum();
    let arena = ArenaPlan {
        config,
        blocks: &blocks,
        options,
        memory: memory_bytes,
        fixed,
        context,
        own_rows,
    }
    .plan()?;
    lines.extend(arena.lines(context, &blocks));
    lines.push(line(
        format!("routing, chunk of {}", arena.chunk),
        routing_bytes(config, arena.chunk),
    ));
    Ok(Budget {
        total_bytes: lines.iter().map(|line| line.bytes).sum(),
        lines,
        memory_bytes,
        smallest_bytes: fixed
            + routing_bytes(config, own_rows)
            + (arena.transit + arena.kv + arena.kept) as u64 * blocks.bytes as u64,
        slots: arena.slots,
        slots_at_start: (arena.slots + arena.spare + arena.kv + arena.kept)
            .min(arena.max_slots_a_layer * config.n_layers()),
        max_slots_a_layer: arena.max_slots_a_layer,
        blocks,
        arena_blocks: arena.blocks(),
        transit_blocks: arena.transit,
        kept_blocks: arena.kept,
        trail_blocks: arena.trail(),
        context,
        chunk: arena.chunk,
        own_rows,
        threads,
        logits_rows,
    })
}

/// The budget of a caller who leaves the size to the engine: half of the memory that is free, and no more than the model has a use for
/// with these options, of which `memory` is not looked at. It may be too small, which planning it then says.
///
/// # Errors
/// [`EngineError::Option`] for a value out of range.
pub fn auto_memory(
    config: &Config,
    model: ModelBytes,
    options: &Options,
    free_bytes: u64,
) -> Result<u64, EngineError> {
    let everything = Options {
        memory: Some(ALL_BYTES),
        ..options.clone()
    };
    let useful = plan_budget(config, model, &everything)?.total_bytes;
    Ok(useful.min(free_bytes / FREE_BY_AUTO))
}

/// How many blocks of the arena are for what.
struct Arena {
    transit: usize,
    kv: usize,
    /// For what the caller keeps.
    kept: usize,
    /// Retained at a full context.
    slots: usize,
    /// Beyond what slots may use, for the chunk.
    spare: usize,
    max_slots_a_layer: usize,
    chunk: usize,
}

impl Arena {
    fn blocks(&self) -> usize {
        self.transit + self.kv + self.kept + self.slots + self.spare
    }

    /// Slots that an answer may borrow.
    fn trail(&self) -> usize {
        if self.kept == 0 {
            return 0;
        }
        self.slots / TRAIL_SHARE
    }

    fn lines(&self, context: usize, blocks: &BlockShape) -> Vec<BudgetLine> {
        let block = |what: String, n: usize| line(what, n as u64 * blocks.bytes as u64);
        let mut lines = vec![
            block(
                format!("transit set, {} experts", self.transit),
                self.transit,
            ),
            block(
                format!("KV cache, {context} tokens, {} blocks", self.kv),
                self.kv,
            ),
        ];
        if self.kept > 0 {
            lines.push(block(
                format!("kept prefixes, {} blocks", self.kept),
                self.kept,
            ));
        }
        if self.spare > 0 {
            lines.push(block(format!("chunk of {}", self.chunk), self.spare));
        }
        lines.push(block(format!("expert slots, {}", self.slots), self.slots));
        lines
    }
}

/// What the arena is planned from.
struct ArenaPlan<'a> {
    config: &'a Config,
    blocks: &'a BlockShape,
    options: &'a Options,
    memory: u64,
    /// Bytes of the lines that are planned already.
    fixed: u64,
    context: usize,
    own_rows: usize,
}

impl ArenaPlan<'_> {
    /// Divides what the fixed lines leave: transit set and KV cache first, the rest to the slots, from which a chunk borrows.
    fn plan(&self) -> Result<Arena, EngineError> {
        let config = self.config;
        let chunk = match self.options.chunk {
            Some(asked) => Some(in_range("--chunk", asked, 1, config.max_position)?),
            None => None,
        };
        match self.options.slots {
            Some(asked) => self.with_slots(in_range("--slots", asked, 0, config.n_experts)?, chunk),
            None => self.with_rest(chunk),
        }
    }

    /// Slots that were asked for are kept at every context, so what a chunk borrows comes on top.
    fn with_slots(&self, each: usize, chunk: Option<usize>) -> Result<Arena, EngineError> {
        let chunk = chunk.unwrap_or(CHUNK_BESIDE_SLOTS).min(self.context);
        let arena = Arena {
            transit: self.transit(),
            kv: self.kv(),
            kept: self.kept(),
            slots: each * self.config.n_layers(),
            spare: self.chunk_blocks(chunk),
            max_slots_a_layer: each,
            chunk,
        };
        // They outweigh a budget that was not asked for.
        if self.options.memory.is_some() && self.available(chunk) < arena.blocks() {
            let advice =
                "give a larger --memory, or fewer --slots, or less --max-context or --chunk";
            return Err(self.too_small(arena.blocks(), chunk, advice));
        }
        Ok(arena)
    }

    fn with_rest(&self, chunk: Option<usize>) -> Result<Arena, EngineError> {
        let all = self.config.n_layers() * self.config.n_experts;
        let needed = self.transit() + self.kv() + self.kept();
        let rest = |chunk| self.available(chunk).checked_sub(needed);
        let chunk = chunk.unwrap_or_else(|| {
            let to_borrow = rest(self.own_rows).unwrap_or(0).min(all) / CHUNK_SHARE;
            let rows = to_borrow / CHUNK_BUFFERS * self.blocks.chunk_rows;
            rows.clamp(self.own_rows, MAX_DEFAULT_CHUNK)
        });
        let chunk = chunk.min(self.context);
        let borrowed = self.chunk_blocks(chunk);
        match rest(chunk) {
            Some(rest) if rest >= borrowed => Ok(Arena {
                transit: self.transit(),
                kv: self.kv(),
                kept: self.kept(),
                slots: rest.min(all),
                spare: (rest - rest.min(all)).min(borrowed),
                max_slots_a_layer: self.config.n_experts,
                chunk,
            }),
            _ => {
                let advice = "give a larger --memory, or less --max-context or --chunk";
                Err(self.too_small(needed + borrowed, chunk, advice))
            }
        }
    }

    fn transit(&self) -> usize {
        self.config.experts_per_token
    }

    fn kv(&self) -> usize {
        self.blocks
            .kv_blocks(self.config, self.options.precision, self.context)
    }

    /// Blocks for what the caller keeps, and for its reads and writes.
    fn kept(&self) -> usize {
        let blocks = |bytes: u64| bytes.div_ceil(self.blocks.bytes as u64) as usize + COPY_BLOCKS;
        self.options.kept_bytes.map_or(0, blocks)
    }

    /// Blocks that a chunk borrows.
    fn chunk_blocks(&self, chunk: usize) -> usize {
        if chunk <= self.own_rows {
            return 0;
        }
        self.blocks.chunk_blocks(CHUNK_BUFFERS, chunk)
    }

    /// Blocks that the budget leaves room for.
    fn available(&self, chunk: usize) -> usize {
        let fixed = self.fixed + routing_bytes(self.config, chunk);
        (self.memory.saturating_sub(fixed) / self.blocks.bytes as u64) as usize
    }

    fn too_small(&self, n_blocks: usize, chunk: usize, advice: &str) -> EngineError {
        EngineError::Budget {
            needed: self.fixed
                + routing_bytes(self.config, chunk)
                + (n_blocks * self.blocks.bytes) as u64,
            budget: self.memory,
            advice: advice.to_owned(),
        }
    }
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

/// Bytes of one row of the buffers that grow with the chunk.
fn chunk_row_bytes(config: &Config) -> usize {
    4 * CHUNK_BUFFERS * config.hidden_size
}

/// Bytes of the choices of a chunk and of their grouping by expert.
fn routing_bytes(config: &Config, chunk: usize) -> u64 {
    (4 * ROUTING_WORDS * chunk * config.experts_per_token) as u64
}

/// Bytes of the buffers that hold one block, and of those that one expert computes in.
fn block_bytes(config: &Config, block: usize) -> u64 {
    let rows = EXPERT_ROWS.max(config.experts_per_token);
    let expert = 4 * rows * (2 * config.hidden_size + 2 * config.expert_intermediate);
    let quantized = QuantRows::bytes(
        quantized_rows(config, block),
        max_width(config),
        DOWN_PLANES,
    );
    (4 * block * block_width(config) + expert + quantized) as u64
}

/// What the program takes whatever the model is.
fn program_lines(options: &Options, threads: usize) -> impl Iterator<Item = BudgetLine> {
    let stacks = threads * Pool::THREAD_BYTES + READ_THREADS * STACK_BYTES;
    let program = options.program_bytes.unwrap_or(PROGRAM_BYTES) + SLACK_BYTES;
    let other = options.other_bytes;
    [
        line("tokenizer and sampler", options.reserved_bytes),
        line("threads", stacks as u64),
        line("program", program),
    ]
    .into_iter()
    .chain((other > 0).then(|| line("other uses of the program", other)))
}

/// Rows that are quantized together: of a block, of an expert, or the products of all experts of one token.
pub fn quantized_rows(config: &Config, block: usize) -> usize {
    block.max(EXPERT_ROWS).max(config.experts_per_token)
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
