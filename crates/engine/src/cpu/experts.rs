//! The routed experts of a chunk.
//!
//! One token: each expert computes as soon as it is at hand, in whatever order they arrive, into a place of its own, and the sum
//! is taken afterwards in ascending order of expert. Many tokens: experts compute in ascending order, each over all its rows,
//! and add to the sums at once, so that a chunk of any length needs no memory per choice. The sums are the same, bit for bit.

use std::ops::Range;

use ouzel_kernels::{self as kernels, QuantRows};

use super::{Cpu, Input};
use crate::budget::{DOWN_PLANES, EXPERT_ROWS};
use crate::config::Config;
use crate::ops::{Buf, Ops, Rows};
use crate::{EngineError, Precision};

/// Scratch of one expert at work.
pub struct ExpertScratch {
    /// `[EXPERT_ROWS, hidden_size]`.
    gathered: Vec<f32>,
    /// `[EXPERT_ROWS, expert_intermediate]`, gate and then product.
    gate: Vec<f32>,
    /// `[EXPERT_ROWS, expert_intermediate]`.
    up: Vec<f32>,
    /// `[max(EXPERT_ROWS, k), hidden_size]`: of the rows at work, or of all experts of one token.
    outputs: Vec<f32>,
}

impl ExpertScratch {
    pub fn new(config: &Config) -> ExpertScratch {
        let rows = EXPERT_ROWS.max(config.experts_per_token);
        ExpertScratch {
            gathered: vec![0.0; rows * config.hidden_size],
            gate: vec![0.0; rows * config.expert_intermediate],
            up: vec![0.0; rows * config.expert_intermediate],
            outputs: vec![0.0; rows * config.hidden_size],
        }
    }
}

impl Cpu {
    /// `RoutedOut = sum of weight * expert(ExpertInput)` over each row's experts, in ascending order of expert.
    pub(super) fn compute_experts(&mut self, rows: Rows) -> Result<(), EngineError> {
        if rows.n == 1 {
            self.compute_as_they_come()
        } else {
            self.compute_in_turn(rows)
        }
    }

    fn compute_as_they_come(&mut self) -> Result<(), EngineError> {
        while let Some(ready) = self.store.next()? {
            // One row: the place of an expert is its number.
            let places = self.routes.groups().places(ready.nth);
            self.compute_places(&ready.bytes, places.clone(), places.start);
            self.store.release(ready);
        }
        let n_experts = self.routes.groups().experts.len();
        self.clear_sum(0);
        self.add_outputs(0..n_experts);
        Ok(())
    }

    fn compute_in_turn(&mut self, rows: Rows) -> Result<(), EngineError> {
        (0..rows.n).for_each(|row| self.clear_sum(row));
        while let Some(ready) = self.store.next_in_turn()? {
            let places = self.routes.groups().places(ready.nth);
            for start in places.clone().step_by(EXPERT_ROWS) {
                let places = start..places.end.min(start + EXPERT_ROWS);
                self.compute_places(&ready.bytes, places.clone(), 0);
                self.add_outputs(places);
            }
            self.store.release(ready);
            self.go_on()?;
        }
        Ok(())
    }

    /// One expert over the rows at `places`: `down(gelu(gate x) * (up x))`, to the scratch's outputs from `first` on.
    fn compute_places(&mut self, expert: &[u8], places: Range<usize>, first: usize) {
        let (hidden, inner) = (self.config.hidden_size, self.config.expert_intermediate);
        let n = places.len();
        let mut scratch = std::mem::replace(&mut self.experts, ExpertScratch::taken());
        let mut quantized = std::mem::replace(&mut self.quantized, QuantRows::new(0, 0, 0));

        let input = &self.buffers[Buf::ExpertInput as usize];
        let gathered = &mut scratch.gathered[..n * hidden];
        self.pool.for_each_chunk(gathered, hidden, &|i, row| {
            let from = self.routes.at_place(places.start + i).0;
            row.copy_from_slice(input.rows(from..from + 1, hidden));
        });
        let parts = self.store.parts();
        let x = self.input(gathered, hidden, 1, &mut quantized);
        self.project(&parts.gate(expert), x, n, &mut scratch.gate[..n * inner]);
        self.project(&parts.up(expert), x, n, &mut scratch.up[..n * inner]);
        let (gate, up) = (&mut scratch.gate[..n * inner], &scratch.up[..n * inner]);
        self.pool.for_each_chunk(gate, inner, &|i, gate| {
            kernels::geglu(self.isa, gate, &up[i * inner..(i + 1) * inner]);
        });
        let x = self.input(gate, inner, DOWN_PLANES, &mut quantized);
        let out = first * hidden..(first + n) * hidden;
        self.project(&parts.down(expert), x, n, &mut scratch.outputs[out]);

        self.experts = scratch;
        self.quantized = quantized;
    }

    /// `x` as the precision wants it: as it is, or quantized into `quantized`.
    fn input<'a>(
        &self,
        x: &'a [f32],
        n_in: usize,
        planes: usize,
        quantized: &'a mut QuantRows,
    ) -> Input<'a> {
        match self.precision {
            Precision::Exact => Input::F32(x),
            Precision::Fast => {
                kernels::quantize_shared(&self.pool, self.isa, x, n_in, planes, quantized);
                Input::I8(quantized)
            }
        }
    }

    fn clear_sum(&mut self, row: usize) {
        let hidden = self.config.hidden_size;
        let sums = &mut self.buffers[Buf::RoutedOut as usize];
        sums.rows_mut(row..row + 1, hidden).fill(0.0);
    }

    /// Adds the scratch's outputs, which are those of `places`, to the sums of their rows.
    fn add_outputs(&mut self, places: Range<usize>) {
        let hidden = self.config.hidden_size;
        let outputs = self.experts.outputs.chunks_exact(hidden);
        for (place, output) in places.zip(outputs) {
            let (row, weight) = self.routes.at_place(place);
            let sums = &mut self.buffers[Buf::RoutedOut as usize];
            let sum = sums.rows_mut(row..row + 1, hidden);
            kernels::add_scaled(self.isa, sum, weight, output);
        }
    }
}

impl ExpertScratch {
    /// What stands in while the scratch is lent out.
    fn taken() -> ExpertScratch {
        ExpertScratch {
            gathered: Vec::new(),
            gate: Vec::new(),
            up: Vec::new(),
            outputs: Vec::new(),
        }
    }
}
