//! A session: one context of tokens, from position 0 up to its capacity.
//!
//! It owns everything that computing needs and nothing that talks to people. `prefill` takes many tokens, `decode` takes
//! one; both are the same forward pass. After an error the session stands at position 0, ready for a new start.
//! A prompt may also be taken layer by layer (`prefill`), and what was computed may be kept elsewhere and come back (`kept`).

mod kept;
mod prefill;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use ouzel_kernels::{Isa, Pool};
use ouzel_storage::{PositionedFile, ReadMode};

use crate::budget::Budget;
use crate::cpu::Cpu;
use crate::model::Model;
use crate::ops::{Buf, Ops, Rows};
use crate::store::{ExpertStore, Experts};
use crate::weights::Weights;
use crate::{EngineError, LayerId, Options, Stats, TokenId, forward};

pub use kept::Restore;
pub use prefill::Progress;

/// What one layer made of some tokens.
#[derive(Clone, Copy, Debug)]
pub struct LayerTrace<'a> {
    /// Index of the first of these tokens among those asked for.
    pub first: usize,
    /// The residual stream behind the layer, `[n, hidden_size]`.
    pub hidden: &'a [f32],
    /// The experts that each token chose, by descending score, `[n][experts_per_token]`.
    pub chosen: &'a [&'a [u32]],
}

/// One context of tokens on one model.
pub struct Session {
    model: Arc<Model>,
    budget: Budget,
    isa: Isa,
    read_mode: ReadMode,
    cpu: Cpu,
    position: usize,
    /// The prompt under way.
    prompt: Option<prefill::Prompt>,
    /// Blocks that the caller has borrowed.
    n_lent: usize,
    stats: Stats,
}

impl Session {
    /// Plans the memory, then loads the resident weights and allocates everything else.
    ///
    /// # Errors
    /// [`EngineError::Budget`] and [`EngineError::Option`] before anything is allocated; storage errors afterwards.
    pub fn new(model: Arc<Model>, options: &Options) -> Result<Session, EngineError> {
        Session::with_isa(model, options, Isa::detect())
    }

    /// The same on an instruction set of the caller's choice, which must be among [`Isa::available`].
    pub fn with_isa(
        model: Arc<Model>,
        options: &Options,
        isa: Isa,
    ) -> Result<Session, EngineError> {
        let budget = model.plan_budget(options)?;
        let config = Arc::clone(model.config());
        let pool = Pool::new(budget.threads).map_err(|error| EngineError::System {
            what: "starting the computing threads",
            reason: error.to_string(),
        })?;
        let file = PositionedFile::open(&model.weights_path(), options.io)?;
        let weights = Weights::load(&file, model.weights.clone(), &config)?;
        let store = ExpertStore::new(
            model.dir(),
            model.experts.clone(),
            config.experts_per_token,
            &budget,
            options.io,
        )?;
        let read_mode = store.read_mode();
        let cpu = Cpu::new(
            config,
            isa,
            options.precision,
            &budget,
            weights,
            store,
            pool,
        );
        Ok(Session {
            model,
            budget,
            isa,
            read_mode,
            cpu,
            position: 0,
            prompt: None,
            n_lent: 0,
            stats: Stats::default(),
        })
    }

    /// The model that the session runs.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How the session's memory is spent.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How experts are really read: directly, or through the page cache where the file system refuses or the caller asked for it.
    pub fn read_mode(&self) -> ReadMode {
        self.read_mode
    }

    /// Tokens in the context; the next token gets this position.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Tokens that the context can hold.
    pub fn capacity(&self) -> usize {
        self.budget.context
    }

    /// Retained expert slots of all layers, now: a longer context leaves fewer.
    pub fn n_slots(&self) -> usize {
        self.cpu.n_slots()
    }

    /// What the session did so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Room for what [`Session::look`] sees.
    pub fn unseen(&self) -> Experts {
        self.cpu.store.unseen()
    }

    /// Copies how the experts lie and what became of them since the last look. Allocates nothing; belongs between two tokens.
    ///
    /// # Panics
    /// If `seen` is made for a model of another shape.
    pub fn look(&mut self, seen: &mut Experts) {
        self.cpu.look(seen);
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        self.position = 0;
        self.prompt = None;
        self.cpu.return_chunk();
        self.cpu.clear();
    }

    /// Forgets all tokens and all experts: what follows reads as much as in a new session. For measurements, which need not
    /// load the resident weights anew for that.
    pub fn reset_cold(&mut self) {
        self.reset();
        self.cpu.clear_experts();
    }

    /// Goes back to an earlier position; `false`, and no change, where the sliding layers no longer have the rows for it.
    pub fn rewind(&mut self, position: usize) -> bool {
        self.abandon_prefill();
        let may = self.cpu.kv.can_rewind(self.position, position);
        if may && position == 0 {
            self.reset();
        } else if may && position < self.position {
            self.cpu.kv.rewind(position);
            self.position = position;
        }
        may
    }

    /// Whether [`Session::rewind`] to a position would succeed.
    pub fn can_rewind(&self, position: usize) -> bool {
        self.cpu.kv.can_rewind(self.position, position)
    }

    /// Adds `ids` to the context and hands out the logits of each, `[vocab_size]`, with its index in `ids`.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn prefill_all(
        &mut self,
        ids: &[TokenId],
        f: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.abandon_prefill();
        self.check(ids)?;
        let start = Instant::now();
        let mut result = Ok(());
        let mut done = 0;
        for chunk in ids.chunks(self.budget.chunk) {
            result = self.forward(chunk);
            if result.is_err() {
                break;
            }
            self.all_logits(chunk.len(), &mut |row, logits| f(done + row, logits));
            done += chunk.len();
            self.advance(chunk.len());
        }
        self.stats.prefill_time += start.elapsed();
        self.settle(result)
    }

    /// Adds `ids` to the context and hands out what each layer made of them, block by block. A diagnosis: nothing else needs it, and
    /// it computes no logits.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn trace_layers(
        &mut self,
        ids: &[TokenId],
        f: &mut dyn FnMut(LayerId, &LayerTrace<'_>),
    ) -> Result<(), EngineError> {
        self.abandon_prefill();
        self.check(ids)?;
        let mut result = Ok(());
        let mut first = 0;
        // Rows that are handed out together lie together.
        let n_rows = self.budget.chunk.min(self.budget.blocks.block_rows);
        for chunk in ids.chunks(n_rows) {
            result = self.trace_chunk(chunk, first, f);
            if result.is_err() {
                break;
            }
            first += chunk.len();
            self.advance(chunk.len());
        }
        self.settle(result)
    }

    /// Adds one token to the context and returns its logits, `[vocab_size]`.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn decode(&mut self, id: TokenId) -> Result<&[f32], EngineError> {
        self.abandon_prefill();
        self.check(&[id])?;
        let start = Instant::now();
        let result = self.forward(&[id]);
        if result.is_ok() {
            self.head(chunk_rows(1, self.position));
            self.position += 1;
            self.stats.decode_tokens += 1;
        }
        self.stats.decode_time += start.elapsed();
        self.settle(result)?;
        Ok(self.logits())
    }

    /// The logits of the last token, `[vocab_size]`.
    pub fn logits(&self) -> &[f32] {
        self.cpu.rows(Buf::Logits, LayerId(0), chunk_rows(1, 0))
    }

    #[cfg(test)]
    pub(crate) fn cpu_mut(&mut self) -> &mut Cpu {
        &mut self.cpu
    }

    /// Hands out the logits of each row of the chunk just computed.
    fn all_logits(&mut self, n_rows: usize, f: &mut dyn FnMut(usize, &[f32])) {
        let block_rows = self.budget.blocks.block_rows;
        let blocks = chunk_rows(n_rows, self.position).blocks(block_rows);
        for rows in blocks.flat_map(|block| block.blocks(self.budget.logits_rows)) {
            self.cpu.head(rows);
            let vocab_size = self.model.config().vocab_size;
            let first = Rows { start: 0, ..rows };
            let all = self.cpu.rows(Buf::Logits, LayerId(0), first);
            for (i, logits) in all.chunks_exact(vocab_size).enumerate() {
                f(rows.start + i, logits);
            }
        }
    }

    fn forward(&mut self, ids: &[TokenId]) -> Result<(), EngineError> {
        self.cpu.reserve(self.position, ids.len());
        let (cpu, config, position) = (&mut self.cpu, self.model.config(), self.position);
        forward::chunk(cpu, config, ids, position)
    }

    fn trace_chunk(
        &mut self,
        ids: &[TokenId],
        first: usize,
        f: &mut dyn FnMut(LayerId, &LayerTrace<'_>),
    ) -> Result<(), EngineError> {
        self.cpu.reserve(self.position, ids.len());
        let (cpu, config) = (&mut self.cpu, self.model.config());
        let rows = chunk_rows(ids.len(), self.position);
        forward::embed(cpu, ids, rows);
        for l in config.layer_ids() {
            forward::layer(cpu, config, l, rows)?;
            for block in rows.blocks(cpu.block_rows()) {
                let of_block = block.start..block.start + block.n;
                let chosen: Vec<&[u32]> = of_block.map(|row| cpu.routes(row).0).collect();
                let trace = LayerTrace {
                    first: first + block.start,
                    hidden: cpu.rows(Buf::Hidden, l, block),
                    chosen: &chosen,
                };
                f(l, &trace);
            }
        }
        Ok(())
    }

    fn head(&mut self, rows: Rows) {
        self.cpu.head(rows);
    }

    fn advance(&mut self, n: usize) {
        self.position += n;
        self.stats.prefill_tokens += n as u64;
    }

    fn check(&self, ids: &[TokenId]) -> Result<(), EngineError> {
        let vocab_size = self.model.config().vocab_size;
        if let Some(id) = ids.iter().find(|id| id.index() >= vocab_size) {
            return Err(EngineError::UnknownToken {
                id: id.0,
                vocab_size,
            });
        }
        if ids.len() > self.capacity() - self.position {
            return Err(EngineError::ContextFull {
                n_tokens: ids.len(),
                position: self.position,
                capacity: self.capacity(),
            });
        }
        Ok(())
    }

    /// Takes the store's counts over, and after a failure starts again from an empty context: some layers have moved on.
    fn settle(&mut self, result: Result<(), EngineError>) -> Result<(), EngineError> {
        self.cpu.stop_on(None);
        self.cpu.return_chunk();
        self.cpu.add_stats(&mut self.stats);
        if matches!(&result, Err(error) if !matches!(error, EngineError::Cancelled)) {
            self.reset();
        }
        result
    }
}

fn chunk_rows(n: usize, position: usize) -> Rows {
    Rows {
        start: 0,
        n,
        chunk_position: position,
    }
}
