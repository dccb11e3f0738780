//! Attention of a block: every (row, kv head, span of positions) is a task of its own with its own partial, and the partials
//! of a query are merged in order of position. Spans are cut at absolute positions, so that neither the block, the
//! ring's phase nor the number of threads shows in a result.

use std::ops::Range;

use ouzel_kernels::{self as kernels, Attend};

use super::Cpu;
use crate::LayerId;
use crate::budget::{Budget, SPAN, partials_len, spans};
use crate::config::Config;
use crate::kv::{Staged, visible};
use crate::ops::{Buf, Rows};

/// Partials of the queries under way.
pub struct AttentionScratch {
    partials: Vec<f32>,
}

impl AttentionScratch {
    pub fn new(config: &Config, budget: &Budget) -> AttentionScratch {
        AttentionScratch {
            partials: vec![0.0; partials_len(config, budget.context, budget.blocks.block_rows)],
        }
    }
}

impl Cpu {
    /// `Attended = softmax(Query Key^T) Value`; then the block enters the cache.
    pub(super) fn attend(&mut self, l: LayerId, rows: Rows) {
        let shape = self.config.layer(l);
        self.kv.stage(
            self.isa,
            l,
            rows.n,
            self.buffers[Buf::Key as usize].rows(0..rows.n, shape.kv_width()),
            self.buffers[Buf::Value as usize].rows(0..rows.n, shape.kv_width()),
        );
        let staged = Staged {
            position: rows.position(),
            n: rows.n,
        };
        let mut partials = std::mem::take(&mut self.attention.partials);
        let mut attended = std::mem::take(&mut self.buffers[Buf::Attended as usize]);

        let partial_len = kernels::partial_len(shape.group(), shape.head_dim);
        let seen = visible(
            &shape,
            self.config.sliding_window,
            rows.position() + rows.n - 1,
        );
        let n_spans = spans(seen.len());
        let group_width = shape.group() * shape.head_dim;
        let rows_at_once =
            (partials.len() / (shape.n_kv_heads * n_spans * partial_len)).clamp(1, rows.n);
        for first in (0..rows.n).step_by(rows_at_once) {
            let n = rows_at_once.min(rows.n - first);
            let used = n * shape.n_kv_heads * n_spans * partial_len;
            self.pool
                .for_each_chunk(&mut partials[..used], partial_len, &|task, partial| {
                    let (query, nth) = (task / n_spans, task % n_spans);
                    let (row, head) = (first + query / shape.n_kv_heads, query % shape.n_kv_heads);
                    self.attend_span(l, staged, (row, head), nth, partial);
                });
            let out = attended.rows_mut(first..first + n, shape.query_width());
            self.pool.for_each_chunk(out, group_width, &|query, out| {
                let position = rows.position() + first + query / shape.n_kv_heads;
                let n_used = span_count(&visible(&shape, self.config.sliding_window, position));
                let start = query * n_spans * partial_len;
                let parts = &partials[start..start + n_used * partial_len];
                kernels::merge_partials(self.isa, parts, shape.group(), shape.head_dim, out);
            });
        }
        self.buffers[Buf::Attended as usize] = attended;
        self.attention.partials = partials;
        self.kv.commit(l, staged);
    }

    /// The part of one query group that lies in the `nth` span it sees; nothing where it sees fewer.
    fn attend_span(
        &self,
        l: LayerId,
        staged: Staged,
        (row, head): (usize, usize),
        nth: usize,
        partial: &mut [f32],
    ) {
        let shape = self.config.layer(l);
        let seen = visible(&shape, self.config.sliding_window, staged.position + row);
        let first_span = seen.start / SPAN + nth;
        let visible = seen.start.max(first_span * SPAN)..seen.end.min((first_span + 1) * SPAN);
        if visible.is_empty() {
            return;
        }
        let width = shape.group() * shape.head_dim;
        let queries = self.buffers[Buf::Query as usize].rows(row..row + 1, shape.query_width());
        let segments = self.kv.segments(l, head, staged, visible.clone());
        let op = Attend {
            q: &queries[head * width..(head + 1) * width],
            head_dim: shape.head_dim,
            segments: segments.as_slice(),
            visible,
        };
        kernels::attend(self.isa, &op, partial);
    }
}

/// Spans that a run of positions touches.
fn span_count(seen: &Range<usize>) -> usize {
    (seen.end - 1) / SPAN - seen.start / SPAN + 1
}
