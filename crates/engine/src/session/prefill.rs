//! A prompt on its way through the layers.
//!
//! A chunk takes one layer after the other, and a caller who wants to show progress or to be asked in between takes one at a time. A
//! long prompt's chunk may be thousands of rows, so a [`Stop`] is honoured within a layer as well: after some rows of attention, or
//! one expert. What ends within a chunk is lost as a whole, since some layers have moved on. Full layers do not mind; a ring whose
//! rows the chunk has overwritten does, and then nothing is left but an empty context.

use std::ops::ControlFlow;
use std::time::Instant;

use super::{Session, chunk_rows};
use crate::ops::Rows;
use crate::stop::Stop;
use crate::{EngineError, LayerId, TokenId, forward};

/// How far a prefill has come, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Tokens done; a layer of a chunk counts as its share of the chunk's tokens.
    pub done: usize,
    /// Tokens in all.
    pub total: usize,
}

/// A prompt under way.
#[derive(Debug)]
pub(super) struct Prompt {
    ids: Vec<TokenId>,
    /// Tokens whose chunk is done.
    done: usize,
    /// The next layer of the chunk under way.
    layer: usize,
}

impl Session {
    /// Adds `ids` to the context and computes the logits of the last one. `progress` is asked before every layer of every chunk; when
    /// it breaks, the session keeps the chunks that were done.
    ///
    /// # Errors
    /// [`EngineError::ContextFull`] and [`EngineError::UnknownToken`] change nothing; [`EngineError::Cancelled`] leaves whole
    /// chunks, see [`Session::abandon_prefill`]; any other error leaves the session at position 0.
    pub fn prefill(
        &mut self,
        ids: &[TokenId],
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let total = ids.len();
        let mut now = Progress { done: 0, total };
        self.begin_prefill(ids, &Stop::default())?;
        while self.prompt.is_some() {
            if progress(now).is_break() {
                self.abandon_prefill();
                return Err(EngineError::Cancelled);
            }
            now = self.continue_prefill()?;
        }
        // Whoever listens also learns of the end; there is nothing left to cancel.
        let _ = progress(now);
        Ok(())
    }

    /// Begins to add `ids` to the context, which [`Session::continue_prefill`] then does until `stop` asks for the end.
    ///
    /// # Errors
    /// [`EngineError::ContextFull`] and [`EngineError::UnknownToken`] change nothing.
    pub fn begin_prefill(&mut self, ids: &[TokenId], stop: &Stop) -> Result<(), EngineError> {
        self.abandon_prefill();
        self.check(ids)?;
        if !ids.is_empty() {
            self.cpu.stop_on(Some(stop));
            self.prompt = Some(Prompt {
                ids: ids.to_vec(),
                done: 0,
                layer: 0,
            });
        }
        Ok(())
    }

    /// Takes the next layer of the prompt under way. When all tokens are done, the logits of the last one are there; without a
    /// prompt under way nothing happens.
    ///
    /// # Errors
    /// As [`Session::prefill`]. The prompt is no longer under way then.
    pub fn continue_prefill(&mut self) -> Result<Progress, EngineError> {
        let Some(mut prompt) = self.prompt.take() else {
            return Ok(Progress { done: 0, total: 0 });
        };
        let start = Instant::now();
        let result = self.next_layer(&mut prompt);
        self.stats.prefill_time += start.elapsed();
        let progress = self.progress(&prompt);
        let is_done = progress.done == progress.total;
        if result.is_ok() && !is_done {
            self.prompt = Some(prompt);
            return Ok(progress);
        }
        if matches!(result, Err(EngineError::Cancelled)) {
            self.lose(&prompt, true);
        }
        self.settle(result).map(|()| progress)
    }

    /// Gives up the prompt under way, if there is one. Chunks that are done stay; a chunk under way is lost, and with it everything
    /// if it has overwritten what the next query would have to see: [`Session::position`] tells.
    pub fn abandon_prefill(&mut self) {
        if let Some(prompt) = self.prompt.take() {
            self.lose(&prompt, prompt.layer > 0);
            self.cpu.stop_on(None);
            self.cpu.return_chunk();
            self.cpu.add_stats(&mut self.stats);
        }
    }

    fn next_layer(&mut self, prompt: &mut Prompt) -> Result<(), EngineError> {
        let n = self.chunk_len(prompt);
        let ids = &prompt.ids[prompt.done..prompt.done + n];
        let rows = chunk_rows(n, self.position);
        let (cpu, config) = (&mut self.cpu, self.model.config());
        if prompt.layer == 0 {
            cpu.reserve(self.position, n);
            forward::embed(cpu, ids, rows);
        }
        forward::layer(cpu, config, LayerId(prompt.layer as u32), rows)?;
        prompt.layer += 1;
        if prompt.layer < config.n_layers() {
            return Ok(());
        }
        prompt.layer = 0;
        prompt.done += n;
        if prompt.done == prompt.ids.len() {
            let (start, n) = (n - 1, 1);
            self.head(Rows { start, n, ..rows });
        }
        self.advance(n);
        Ok(())
    }

    /// Tokens of the chunk under way.
    fn chunk_len(&self, prompt: &Prompt) -> usize {
        self.budget.chunk.min(prompt.ids.len() - prompt.done)
    }

    fn progress(&self, prompt: &Prompt) -> Progress {
        let share = self.chunk_len(prompt) * prompt.layer / self.model.config().n_layers();
        Progress {
            done: prompt.done + share,
            total: prompt.ids.len(),
        }
    }

    /// Forgets the chunk under way, if one has begun.
    fn lose(&mut self, prompt: &Prompt, has_begun: bool) {
        // What the chunk has overwritten was forgotten when room was made for it.
        if has_begun && prompt.done < prompt.ids.len() && !self.cpu.kv.can_stay(self.position) {
            self.reset();
        }
    }
}
