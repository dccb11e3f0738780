//! The routed experts of a chunk: each computes all its rows as soon as it is at hand, in whatever order they arrive, into
//! places of their own; the sums are taken afterwards, per row in ascending order of expert. So arrival cannot show.

use ouzel_kernels::{self as kernels, QuantRows};

use super::{Cpu, Input};
use crate::budget::{DOWN_PLANES, EXPERT_ROWS};
use crate::config::Config;
use crate::ops::{Buf, Rows};
use crate::{EngineError, LayerId, Precision};

/// Scratch of one expert at work, and the outputs of all pairs of a row and an expert.
pub struct ExpertScratch {
    /// `[EXPERT_ROWS, hidden_size]`.
    gathered: Vec<f32>,
    /// `[EXPERT_ROWS, expert_intermediate]`, gate and then product.
    gate: Vec<f32>,
    /// `[EXPERT_ROWS, expert_intermediate]`.
    up: Vec<f32>,
    /// `[chunk * k, hidden_size]`, by place.
    outputs: Vec<f32>,
}

impl ExpertScratch {
    pub fn new(config: &Config, chunk: usize) -> ExpertScratch {
        let rows = EXPERT_ROWS.min(chunk);
        ExpertScratch {
            gathered: vec![0.0; rows * config.hidden_size],
            gate: vec![0.0; rows * config.expert_intermediate],
            up: vec![0.0; rows * config.expert_intermediate],
            outputs: vec![0.0; chunk * config.experts_per_token * config.hidden_size],
        }
    }
}

impl Cpu {
    /// `RoutedOut = sum of weight * expert(ExpertInput)`, experts as they arrive, sums in ascending order of expert.
    pub(super) fn compute_experts(&mut self, l: LayerId, rows: Rows) -> Result<(), EngineError> {
        while let Some(ready) = self.store.next()? {
            let places = self.routes.groups().places(ready.nth);
            for start in places.clone().step_by(EXPERT_ROWS) {
                self.compute_places(&ready.bytes, start..places.end.min(start + EXPERT_ROWS));
            }
            self.store.release(ready);
        }
        self.combine(l, rows);
        Ok(())
    }

    /// One expert over the rows at `places`: `down(gelu(gate x) * (up x))`.
    fn compute_places(&mut self, expert: &[u8], places: std::ops::Range<usize>) {
        let (hidden, inner) = (self.config.hidden_size, self.config.expert_intermediate);
        let n = places.len();
        let mut scratch = std::mem::replace(&mut self.experts, ExpertScratch::taken());
        let mut quantized = std::mem::replace(&mut self.quantized, QuantRows::new(0, 0, 0));

        let input = &self.buffers[Buf::ExpertInput as usize];
        for (place, row) in places
            .clone()
            .zip(scratch.gathered.chunks_exact_mut(hidden))
        {
            let from = self.routes.at_place(place).0 * hidden;
            row.copy_from_slice(&input[from..from + hidden]);
        }
        let parts = self.store.parts();
        let x = self.input(&scratch.gathered[..n * hidden], hidden, 1, &mut quantized);
        self.project(&parts.gate(expert), x, n, &mut scratch.gate[..n * inner]);
        self.project(&parts.up(expert), x, n, &mut scratch.up[..n * inner]);
        let (gate, up) = (&mut scratch.gate[..n * inner], &scratch.up[..n * inner]);
        kernels::geglu(self.isa, gate, up);
        let x = self.input(gate, inner, DOWN_PLANES, &mut quantized);
        let out = places.start * hidden..places.end * hidden;
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
                kernels::quantize(self.isa, x, n_in, planes, quantized);
                Input::I8(quantized)
            }
        }
    }

    fn combine(&mut self, l: LayerId, rows: Rows) {
        let (hidden, k) = (self.config.hidden_size, self.config.experts_per_token);
        let mut sums = std::mem::take(&mut self.buffers[Buf::RoutedOut as usize]);
        let this = &*self;
        debug_assert_eq!(this.width(Buf::RoutedOut, l), hidden);
        this.pool
            .for_each_chunk(&mut sums[..rows.n * hidden], hidden, &|row, sum| {
                sum.fill(0.0);
                for &place in this.routes.groups().places_of_row(row, k) {
                    let place = place as usize;
                    let weight = this.routes.at_place(place).1;
                    let output = &this.experts.outputs[place * hidden..(place + 1) * hidden];
                    kernels::add_scaled(this.isa, sum, weight, output);
                }
            });
        self.buffers[Buf::RoutedOut as usize] = sums;
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
