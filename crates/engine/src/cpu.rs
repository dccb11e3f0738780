//! The CPU backend: owns the buffers, the weights, the KV cache and the expert store, and computes with `ouzel-kernels`.
//!
//! Every operation takes its input buffer out of the table and puts it back, which moves a pointer and satisfies the borrow
//! checker without copies. Work is split over output rows or over tokens. After `new` nothing here allocates.

mod attention;
mod buffer;
mod experts;
mod rotary;
mod routes;

use std::sync::Arc;

use ouzel_kernels::{self as kernels, Columns, Isa, Pool, QuantMatrix, QuantRows, QuantSlice};

use self::attention::AttentionScratch;
use self::buffer::Buffer;
use self::experts::ExpertScratch;
use self::rotary::Rotary;
use self::routes::Routes;
use crate::budget::{Budget, DOWN_PLANES, max_width, quantized_rows};
use crate::config::Config;
use crate::kv::KvCache;
use crate::ops::{Buf, HeadRmsNorm, MatMul, Matrix, Norm, Ops, RmsNorm, Rows};
use crate::stop::Stop;
use crate::store::{ExpertStore, Experts};
use crate::weights::Weights;
use crate::{EngineError, ExpertId, LayerId, Precision, Stats, TokenId};

/// The CPU backend.
pub struct Cpu {
    config: Arc<Config>,
    isa: Isa,
    precision: Precision,
    pool: Pool,
    block_rows: usize,
    own_rows: usize,
    weights: Weights,
    buffers: [Buffer; Buf::COUNT],
    quantized: QuantRows,
    rotary: Rotary,
    pub(crate) kv: KvCache,
    attention: AttentionScratch,
    routes: Routes,
    pub(crate) store: ExpertStore,
    /// Asked between the steps of a prompt: whether it shall end.
    stop: Option<Stop>,
    experts: ExpertScratch,
}

/// Every buffer, in the order of its number.
const ALL: [Buf; Buf::COUNT] = [
    Buf::Hidden,
    Buf::ExpertInput,
    Buf::RoutedOut,
    Buf::SharedOut,
    Buf::Normed,
    Buf::Query,
    Buf::Key,
    Buf::Value,
    Buf::Attended,
    Buf::Projected,
    Buf::Gate,
    Buf::Up,
    Buf::RouterLogits,
    Buf::Logits,
];

/// The input of a matrix: as it is, or quantized.
#[derive(Clone, Copy)]
enum Input<'a> {
    F32(&'a [f32]),
    I8(QuantSlice<'a>),
}

impl<'a> Input<'a> {
    /// Row `i`, of `width` elements.
    fn row(self, i: usize, width: usize) -> Input<'a> {
        match self {
            Input::F32(x) => Input::F32(&x[i * width..(i + 1) * width]),
            Input::I8(x) => Input::I8(x.rows(i..i + 1)),
        }
    }
}

impl Cpu {
    /// Allocates everything that `budget` planned.
    pub fn new(
        config: Arc<Config>,
        isa: Isa,
        precision: Precision,
        budget: &Budget,
        weights: Weights,
        store: ExpertStore,
        pool: Pool,
    ) -> Cpu {
        let rows = quantized_rows(&config, budget.blocks.block_rows);
        Cpu {
            isa,
            precision,
            pool,
            block_rows: budget.blocks.block_rows,
            own_rows: budget.own_rows,
            weights,
            buffers: std::array::from_fn(|i| buffer(&config, budget, i)),
            quantized: QuantRows::new(rows, max_width(&config), DOWN_PLANES),
            rotary: Rotary::new(&config, budget.blocks.block_rows),
            kv: KvCache::new(
                &config,
                precision,
                budget.context,
                budget.blocks,
                budget.trail_blocks,
            ),
            attention: AttentionScratch::new(&config, budget),
            routes: Routes::new(&config, budget.chunk),
            store,
            stop: None,
            experts: ExpertScratch::new(&config),
            config,
        }
    }

    /// The rows of a buffer, `[rows.n, width]`, for layer `l` (the width of the heads depends on it).
    pub fn rows(&self, buf: Buf, l: LayerId, rows: Rows) -> &[f32] {
        self.buffers[buf as usize].rows(span(buf, rows), self.width(buf, l))
    }

    /// The experts of a row of the chunk and their weights, by descending score.
    pub fn routes(&self, row: usize) -> (&[u32], &[f32]) {
        self.routes.of_row(row)
    }

    /// Makes room for `n_rows` more tokens at `position`: the KV cache grows, and a long chunk borrows memory for its rows and
    /// to read experts ahead.
    pub fn reserve(&mut self, position: usize, n_rows: usize) {
        let (store, own_rows) = (&mut self.store, self.own_rows);
        store.return_ahead();
        self.kv.reserve(position, n_rows, store);
        if n_rows > own_rows {
            for buffer in chunk_buffers(&mut self.buffers) {
                buffer.grow(n_rows, store);
            }
        }
        if n_rows > self.block_rows {
            store.borrow_ahead();
        }
    }

    /// Gives back what chunks borrowed. What their rows held is lost.
    pub fn return_chunk(&mut self) {
        let store = &mut self.store;
        store.return_ahead();
        for buffer in chunk_buffers(&mut self.buffers) {
            buffer.shrink(store);
        }
    }

    /// Sets what ends the next chunks, or that nothing does.
    pub fn stop_on(&mut self, stop: Option<&Stop>) {
        self.stop = stop.cloned();
    }

    /// Forgets every token.
    pub fn clear(&mut self) {
        self.kv.clear(&mut self.store);
    }

    /// Forgets every expert.
    pub fn clear_experts(&mut self) {
        self.store.clear();
    }

    /// How activations, keys and values are kept.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Retained expert slots of all layers, now.
    pub fn n_slots(&self) -> usize {
        self.store.slots_of_layers().sum()
    }

    /// Copies what became of the experts since the last look.
    pub fn look(&mut self, seen: &mut Experts) {
        self.store.look(seen);
    }

    /// Adds what the expert store counted to `stats`.
    pub fn add_stats(&mut self, stats: &mut Stats) {
        self.store.add_stats(stats);
    }

    fn width(&self, buf: Buf, l: LayerId) -> usize {
        width(&self.config, buf, l)
    }

    /// `y = W x` over `n` rows, the output rows split over the threads.
    fn project(&self, w: &QuantMatrix<'_>, x: Input<'_>, n: usize, y: &mut [f32]) {
        let y = Columns::new(y, n, w.n_out);
        self.pool
            .for_each_column_range(y, &|range, y| self.multiply(&w.rows(range), x, y));
    }

    fn multiply(&self, w: &QuantMatrix<'_>, x: Input<'_>, y: Columns<'_>) {
        match x {
            Input::F32(x) => kernels::matmul(self.isa, w, x, y),
            Input::I8(x) => kernels::matmul_i8(self.isa, w, x, y),
        }
    }

    /// Calls `f(row index, row)` for each row of `buf`, the rows split over the threads.
    fn for_each_row(
        &mut self,
        buf: Buf,
        l: LayerId,
        rows: Rows,
        f: &(impl Fn(&Cpu, usize, &mut [f32]) + Sync),
    ) {
        let width = self.width(buf, l);
        let mut y = std::mem::take(&mut self.buffers[buf as usize]);
        let this = &*self;
        this.pool
            .for_each_chunk(y.rows_mut(span(buf, rows), width), width, &|i, row| {
                f(this, i, row)
            });
        self.buffers[buf as usize] = y;
    }

    fn matrix(&self, l: LayerId, matrix: Matrix) -> QuantMatrix<'_> {
        self.weights.matrix(l, matrix)
    }
}

/// Planes of the quantized input of a matrix.
fn planes(matrix: Matrix) -> usize {
    if matrix == Matrix::SharedDown {
        DOWN_PLANES
    } else {
        1
    }
}

/// Which rows of a buffer hold rows of the chunk.
fn span(buf: Buf, rows: Rows) -> std::ops::Range<usize> {
    let start = if buf.spans_chunk() { rows.start } else { 0 };
    start..start + rows.n
}

fn width(config: &Config, buf: Buf, l: LayerId) -> usize {
    let shape = config.layer(l);
    match buf {
        Buf::Hidden
        | Buf::ExpertInput
        | Buf::RoutedOut
        | Buf::SharedOut
        | Buf::Normed
        | Buf::Projected => config.hidden_size,
        Buf::Query | Buf::Attended => shape.query_width(),
        Buf::Key | Buf::Value => shape.kv_width(),
        Buf::Gate | Buf::Up => config.shared_intermediate,
        Buf::RouterLogits => config.n_experts,
        Buf::Logits => config.vocab_size,
    }
}

fn chunk_buffers(buffers: &mut [Buffer; Buf::COUNT]) -> impl Iterator<Item = &mut Buffer> {
    let spans = buffers.iter_mut().zip(ALL);
    spans.filter_map(|(buffer, buf)| buf.spans_chunk().then_some(buffer))
}

fn buffer(config: &Config, budget: &Budget, index: usize) -> Buffer {
    let buf = ALL[index];
    debug_assert_eq!(buf as usize, index);
    let rows = match buf {
        Buf::Logits => budget.logits_rows,
        _ if buf.spans_chunk() => budget.own_rows,
        _ => budget.blocks.block_rows,
    };
    let width = config
        .layer_ids()
        .map(|l| width(config, buf, l))
        .max()
        .unwrap_or(0);
    let borrowed = if buf.spans_chunk() {
        budget.blocks.chunk_blocks(1, budget.chunk)
    } else {
        0
    };
    Buffer::new(rows * width, borrowed, budget.blocks.chunk_rows)
}

impl Ops for Cpu {
    type Error = EngineError;

    fn block_rows(&self) -> usize {
        self.block_rows
    }

    fn go_on(&mut self) -> Result<(), EngineError> {
        if self.stop.as_ref().is_some_and(Stop::is_asked) {
            self.store.abandon();
            return Err(EngineError::Cancelled);
        }
        Ok(())
    }

    fn embed(&mut self, ids: &[TokenId], rows: Rows) {
        let first = LayerId(0);
        self.for_each_row(Buf::Hidden, first, rows, &|this, i, row| {
            let id = ids[i].index();
            kernels::dequantize_row(
                this.isa,
                &this.weights.embedding(),
                id,
                this.config.embed_scale,
                row,
            );
        });
    }

    fn rms_norm(&mut self, op: RmsNorm) {
        let RmsNorm {
            layer, x, y, rows, ..
        } = op;
        if x == y {
            self.for_each_row(y, layer, rows, &|this, _, row| {
                let weight = Some(this.weights.norm(layer, op.weight));
                kernels::rms_norm_in_place(this.isa, row, weight, this.config.rms_norm_eps);
            });
            return;
        }
        let width = self.width(x, layer);
        let input = std::mem::take(&mut self.buffers[x as usize]);
        let input_rows = input.rows(span(x, rows), width);
        self.for_each_row(y, layer, rows, &|this, i, row| {
            let weight = Some(this.weights.norm(layer, op.weight));
            let x = &input_rows[i * width..(i + 1) * width];
            kernels::rms_norm(this.isa, x, weight, this.config.rms_norm_eps, row);
        });
        self.buffers[x as usize] = input;
    }

    fn matmul(&mut self, op: MatMul<'_>) {
        let x = std::mem::take(&mut self.buffers[op.x as usize]);
        let x_rows = x.rows(span(op.x, op.rows), self.width(op.x, op.layer));
        let mut quantized_planes = 0;
        for &(matrix, out) in op.outputs {
            let exact = self.precision == Precision::Exact || matrix == Matrix::Router;
            if !exact && quantized_planes != planes(matrix) {
                quantized_planes = planes(matrix);
                let n_in = self.width(op.x, op.layer);
                kernels::quantize_shared(
                    &self.pool,
                    self.isa,
                    x_rows,
                    n_in,
                    quantized_planes,
                    &mut self.quantized,
                );
            }
            let input = if exact {
                Input::F32(x_rows)
            } else {
                Input::I8(self.quantized.all())
            };
            let mut y = std::mem::take(&mut self.buffers[out as usize]);
            self.project(
                &self.matrix(op.layer, matrix),
                input,
                op.rows.n,
                y.rows_mut(span(out, op.rows), self.width(out, op.layer)),
            );
            self.buffers[out as usize] = y;
        }
        self.buffers[op.x as usize] = x;
    }

    fn head_rms_norm(&mut self, op: HeadRmsNorm) {
        let head_dim = self.config.layer(op.layer).head_dim;
        self.for_each_row(op.x, op.layer, op.rows, &|this, _, row| {
            let weight = this.weights.head_norm(op.layer, op.weight);
            for head in row.chunks_exact_mut(head_dim) {
                kernels::rms_norm_in_place(this.isa, head, weight, this.config.rms_norm_eps);
            }
        });
    }

    fn copy(&mut self, l: LayerId, x: Buf, y: Buf, rows: Rows) {
        self.zip(l, (x, y), rows, |y, x| y.copy_from_slice(x));
    }

    fn rope(&mut self, l: LayerId, x: Buf, rows: Rows) {
        let shape = self.config.layer(l);
        self.rotary.prepare(shape.kind, rows);
        self.for_each_row(x, l, rows, &|this, i, row| {
            let (cos, sin) = this.rotary.angles(shape.kind, i);
            for head in row.chunks_exact_mut(shape.head_dim) {
                kernels::rope(this.isa, head, cos, sin);
            }
        });
    }

    fn attention(&mut self, l: LayerId, rows: Rows) {
        self.attend(l, rows);
    }

    fn add(&mut self, l: LayerId, x: Buf, y: Buf, rows: Rows) {
        let isa = self.isa;
        self.zip(l, (x, y), rows, |y, x| kernels::add_scaled(isa, y, 1.0, x));
    }

    fn geglu(&mut self, rows: Rows) {
        let first = LayerId(0);
        let width = self.width(Buf::Gate, first);
        let up = std::mem::take(&mut self.buffers[Buf::Up as usize]);
        let up_rows = up.rows(span(Buf::Up, rows), width);
        self.for_each_row(Buf::Gate, first, rows, &|this, i, row| {
            kernels::geglu(this.isa, row, &up_rows[i * width..(i + 1) * width]);
        });
        self.buffers[Buf::Up as usize] = up;
    }

    fn route(&mut self, l: LayerId, rows: Rows) {
        let n_experts = self.config.n_experts;
        let scores = self.buffers[Buf::RouterLogits as usize].rows(0..rows.n, n_experts);
        let scale = self.weights.per_expert_scale(l);
        for i in 0..rows.n {
            self.routes.choose(
                rows.start + i,
                &scores[i * n_experts..(i + 1) * n_experts],
                scale,
            );
        }
    }

    fn announce_experts(&mut self, l: LayerId, rows: Rows) {
        for row in rows.start..rows.start + rows.n {
            for &expert in self.routes.of_row(row).0 {
                self.store.announce(l, ExpertId(expert));
            }
        }
    }

    fn request_experts(&mut self, l: LayerId, rows: Rows) -> Result<(), EngineError> {
        self.routes.group(rows.n);
        self.store.request(l, &self.routes.groups().experts)
    }

    fn foresee_experts(&mut self, l: LayerId, rows: Rows) {
        if rows.n == 1 && self.store.may_foresee(l) {
            self.guess(l, rows);
            self.store.foresee(l, self.routes.guessed());
        }
    }

    fn expert_ffn(&mut self, _: LayerId, rows: Rows) -> Result<(), EngineError> {
        self.compute_experts(rows)
    }

    fn layer_scale(&mut self, l: LayerId, x: Buf, rows: Rows) {
        let factor = self.weights.layer_scalar(l);
        self.for_each_row(x, l, rows, &|this, _, row| {
            kernels::scale(this.isa, row, factor);
        });
    }

    fn head(&mut self, rows: Rows) {
        let width = self.config.hidden_size;
        let first = LayerId(0);
        let hidden = std::mem::take(&mut self.buffers[Buf::Hidden as usize]);
        let hidden_rows = hidden.rows(span(Buf::Hidden, rows), width);
        self.for_each_row(Buf::Normed, first, rows, &|this, i, row| {
            let weight = Some(this.weights.final_norm());
            let x = &hidden_rows[i * width..(i + 1) * width];
            kernels::rms_norm(this.isa, x, weight, this.config.rms_norm_eps, row);
        });
        self.buffers[Buf::Hidden as usize] = hidden;

        let normed = std::mem::take(&mut self.buffers[Buf::Normed as usize]);
        let x = normed.rows(0..rows.n, width);
        let input = match self.precision {
            Precision::Exact => Input::F32(x),
            Precision::Fast => {
                kernels::quantize(self.isa, x, width, 1, &mut self.quantized);
                Input::I8(self.quantized.all())
            }
        };
        let mut logits = std::mem::take(&mut self.buffers[Buf::Logits as usize]);
        self.project(
            &self.weights.embedding(),
            input,
            rows.n,
            logits.rows_mut(0..rows.n, self.config.vocab_size),
        );
        self.buffers[Buf::Logits as usize] = logits;
        self.buffers[Buf::Normed as usize] = normed;
        self.for_each_row(Buf::Logits, first, rows, &|this, _, row| {
            kernels::softcap(this.isa, row, this.config.softcap);
        });
    }
}

impl Cpu {
    /// Asks the router of layer `l` before its time, in int8 whatever the precision: a guess needs no more.
    fn guess(&mut self, l: LayerId, rows: Rows) {
        self.rms_norm(RmsNorm {
            layer: l,
            weight: Norm::Router,
            x: Buf::Hidden,
            y: Buf::Normed,
            rows,
        });
        let (width, n_experts) = (self.config.hidden_size, self.config.n_experts);
        let mut scores = std::mem::take(&mut self.buffers[Buf::RouterLogits as usize]);
        let x = self.buffers[Buf::Normed as usize].rows(0..1, width);
        kernels::quantize(self.isa, x, width, 1, &mut self.quantized);
        let x = Input::I8(self.quantized.all());
        let y = scores.rows_mut(0..1, n_experts);
        self.project(&self.matrix(l, Matrix::Router), x, 1, y);
        self.routes.guess(y);
        self.buffers[Buf::RouterLogits as usize] = scores;
    }

    /// Calls `f(y, x)` on each row of two buffers that have one width in layer `l`.
    fn zip(
        &mut self,
        l: LayerId,
        (x, y): (Buf, Buf),
        rows: Rows,
        f: impl Fn(&mut [f32], &[f32]) + Sync,
    ) {
        let width = self.width(x, l);
        debug_assert_eq!(width, self.width(y, l));
        let input = std::mem::take(&mut self.buffers[x as usize]);
        let x_rows = input.rows(span(x, rows), width);
        self.for_each_row(y, l, rows, &|_, i, row| {
            f(row, &x_rows[i * width..(i + 1) * width]);
        });
        self.buffers[x as usize] = input;
    }
}
