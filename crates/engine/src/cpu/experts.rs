//! The routed experts of a chunk.
//!
//! One token: the experts at hand compute together, then each as it arrives, every one into a place of its own, and the sum
//! is taken afterwards in ascending order of expert. Many tokens: experts compute in ascending order, each over all its rows,
//! and add to the sums at once, so that a chunk of any length needs no memory per choice. The sums are the same, bit for bit.

use std::ops::Range;

use ouzel_kernels::{self as kernels, Columns, QuantRows};

use super::{Cpu, Input};
use crate::budget::{DOWN_PLANES, EXPERT_ROWS};
use crate::config::Config;
use crate::ops::{Buf, Ops, Rows};
use crate::store::Ready;
use crate::{EngineError, Precision};

/// Scratch of one expert at work.
pub struct ExpertScratch {
    /// `[EXPERT_ROWS, hidden_size]`.
    gathered: Vec<f32>,
    /// `[2 * max(EXPERT_ROWS, k), expert_intermediate]`: the gates, which become the products, and behind them the ups.
    gates_and_ups: Vec<f32>,
    /// `[max(EXPERT_ROWS, k), hidden_size]`: of the rows at work, or of all experts of one token.
    outputs: Vec<f32>,
    /// For each place of one token, where its expert's output is.
    output_of_place: Vec<usize>,
    /// Experts of one token that compute together.
    at_hand: Vec<Ready>,
}

impl ExpertScratch {
    pub fn new(config: &Config) -> ExpertScratch {
        let rows = EXPERT_ROWS.max(config.experts_per_token);
        ExpertScratch {
            gathered: vec![0.0; rows * config.hidden_size],
            gates_and_ups: vec![0.0; 2 * rows * config.expert_intermediate],
            outputs: vec![0.0; rows * config.hidden_size],
            output_of_place: vec![0; config.experts_per_token],
            at_hand: Vec::with_capacity(config.experts_per_token),
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
        let input = std::mem::take(&mut self.buffers[Buf::ExpertInput as usize]);
        let result = self.compute_outputs(input.rows(0..1, self.config.hidden_size));
        self.buffers[Buf::ExpertInput as usize] = input;
        result?;

        self.clear_sum(0);
        let (hidden, outputs) = (self.config.hidden_size, &self.experts.outputs);
        let sum = self.buffers[Buf::RoutedOut as usize].rows_mut(0..1, hidden);
        for place in 0..self.routes.groups().experts.len() {
            let first = self.experts.output_of_place[place] * hidden;
            let output = &outputs[first..first + hidden];
            kernels::add_scaled(self.isa, sum, self.routes.at_place(place).1, output);
        }
        Ok(())
    }

    /// The outputs of all experts of one token whose row is `x`.
    fn compute_outputs(&mut self, x: &[f32]) -> Result<(), EngineError> {
        let mut at_hand = std::mem::take(&mut self.experts.at_hand);
        let mut quantized = std::mem::replace(&mut self.quantized, QuantRows::new(0, 0, 0));
        let mut n_done = 0;
        self.store.take_hits(&mut at_hand);
        let result = loop {
            if !at_hand.is_empty() {
                self.compute_together(x, &at_hand, n_done, &mut quantized);
                n_done += at_hand.len();
                at_hand
                    .drain(..)
                    .for_each(|ready| self.store.release(ready));
            }
            match self.store.next_arrival() {
                Ok(Some(ready)) => at_hand.push(ready),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.quantized = quantized;
        self.experts.at_hand = at_hand;
        result
    }

    /// `down(gelu(gate x) * (up x))` of experts that share one row, to the scratch's outputs from `first` on. Each product of all of them is one
    /// round of the pool: a round's start and its last task cost as much as a tenth of an expert.
    fn compute_together(
        &mut self,
        x: &[f32],
        experts: &[Ready],
        first: usize,
        quantized: &mut QuantRows,
    ) {
        let (hidden, inner) = (self.config.hidden_size, self.config.expert_intermediate);
        let n = experts.len();
        let mut scratch = std::mem::replace(&mut self.experts, ExpertScratch::taken());
        for (i, ready) in experts.iter().enumerate() {
            // One row: the place of an expert is its number.
            scratch.output_of_place[ready.nth] = first + i;
        }
        let parts = self.store.parts();
        let x = self.input(x, hidden, 1, quantized);
        let both = &mut scratch.gates_and_ups[..2 * n * inner];
        self.project_each(inner, both, &|i, columns, y| {
            let expert = &experts[i % n].bytes;
            let w = if i < n {
                parts.gate(expert)
            } else {
                parts.up(expert)
            };
            self.multiply(&w.rows(columns), x, y);
        });
        let (gates, ups) = both.split_at_mut(n * inner);
        self.pool.for_each_chunk(gates, inner, &|i, gate| {
            kernels::geglu(self.isa, gate, &ups[i * inner..(i + 1) * inner]);
        });
        let products = self.input(gates, inner, DOWN_PLANES, quantized);
        let outputs = &mut scratch.outputs[first * hidden..(first + n) * hidden];
        self.project_each(hidden, outputs, &|i, columns, y| {
            let w = parts.down(&experts[i].bytes);
            self.multiply(&w.rows(columns), products.row(i, inner), y);
        });
        self.experts = scratch;
    }

    /// Calls `f(i, columns, part of y)` for the columns of the `i`-th piece of `y`, `width` long, cut over the threads.
    fn project_each(
        &self,
        width: usize,
        y: &mut [f32],
        f: &(impl Fn(usize, Range<usize>, Columns<'_>) + Sync),
    ) {
        let y = Columns::new(y, 1, y.len());
        self.pool.for_each_column_range(y, &|range, mut y| {
            let mut at = range.start;
            while at < range.end {
                let (i, column) = (at / width, at % width);
                let n = (width - column).min(range.end - at);
                let (piece, rest) = y.split_at(n);
                f(i, column..column + n, piece);
                (y, at) = (rest, at + n);
            }
        });
    }

    fn compute_in_turn(&mut self, rows: Rows) -> Result<(), EngineError> {
        (0..rows.n).for_each(|row| self.clear_sum(row));
        while let Some(ready) = self.store.next_in_turn()? {
            let places = self.routes.groups().places(ready.nth);
            for start in places.clone().step_by(EXPERT_ROWS) {
                let places = start..places.end.min(start + EXPERT_ROWS);
                self.compute_places(&ready.bytes, places.clone());
                self.add_outputs(places);
            }
            self.store.release(ready);
            self.go_on()?;
        }
        Ok(())
    }

    /// One expert over the rows at `places`: `down(gelu(gate x) * (up x))`, to the scratch's outputs.
    fn compute_places(&mut self, expert: &[u8], places: Range<usize>) {
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
        let (gate, up) = scratch.gates_and_ups[..2 * n * inner].split_at_mut(n * inner);
        self.project(&parts.gate(expert), x, n, gate);
        self.project(&parts.up(expert), x, n, up);
        self.pool.for_each_chunk(gate, inner, &|i, gate| {
            kernels::geglu(self.isa, gate, &up[i * inner..(i + 1) * inner]);
        });
        let x = self.input(gate, inner, DOWN_PLANES, &mut quantized);
        self.project(
            &parts.down(expert),
            x,
            n,
            &mut scratch.outputs[..n * hidden],
        );

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
                Input::I8(quantized.all())
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
            gates_and_ups: Vec::new(),
            outputs: Vec::new(),
            output_of_place: Vec::new(),
            at_hand: Vec::new(),
        }
    }
}
