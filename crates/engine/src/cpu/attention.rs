//! Attention of a block: every (few rows, kv head, span of positions) is a task of its own with its own partials, and the partials
//! of a query are merged in order of position. Spans are cut at absolute positions, so that neither the block, the
//! ring's phase nor the number of threads shows in a result.

use std::ops::Range;

use ouzel_kernels::{self as kernels, Attend, MAX_POSITIONS, Query};

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
        let group_width = shape.group() * shape.head_dim;
        let window = self.config.sliding_window;
        let n_seen = visible(&shape, window, rows.position() + rows.n - 1).len();
        let room = partials.len() / (shape.n_kv_heads * partial_len);
        let mut at_once = rows.n.min(MAX_POSITIONS / shape.group()).max(1);
        if at_once * spans(n_seen + at_once - 1) > room {
            at_once = 1;
        }
        let n_spans = spans(n_seen + at_once - 1);
        let unit = at_once * partial_len;
        let units = (room / (n_spans * at_once)).max(1);
        for first in (0..rows.n).step_by(units * at_once) {
            let rows_left = rows.n - first;
            let used = units.min(rows_left.div_ceil(at_once)) * shape.n_kv_heads * n_spans * unit;
            let partials = &mut partials[..used];
            self.pool.for_each_chunk(partials, unit, &|task, partials| {
                let (query, nth) = (task / n_spans, task % n_spans);
                let row = first + query / shape.n_kv_heads * at_once;
                let queries = row..rows.n.min(row + at_once);
                let used = queries.len() * partial_len;
                let head = query % shape.n_kv_heads;
                self.attend_span(l, staged, (queries, head), nth, &mut partials[..used]);
            });
            let n = rows_left.min(units * at_once);
            let out = attended.rows_mut(first..first + n, shape.query_width());
            self.pool.for_each_chunk(out, group_width, &|query, out| {
                let (row, head) = (query / shape.n_kv_heads, query % shape.n_kv_heads);
                let position = rows.position() + first + row;
                let seen = visible(&shape, window, position);
                let unit_start = visible(&shape, window, position - row % at_once).start;
                let skipped = seen.start / SPAN - unit_start / SPAN;
                let of_unit = (row / at_once * shape.n_kv_heads + head) * n_spans + skipped;
                let start = of_unit * unit + row % at_once * partial_len;
                let end = start + (span_count(&seen) - 1) * unit + partial_len;
                let parts = (&partials[start..end], unit);
                kernels::merge_partials(self.isa, parts, shape.group(), shape.head_dim, out);
            });
        }
        self.buffers[Buf::Attended as usize] = attended;
        self.attention.partials = partials;
        self.kv.commit(l, staged);
    }

    /// The parts of one head's queries that lie in the `nth` span from where the first of them starts to see; nothing for those that
    /// see none of it.
    fn attend_span(
        &self,
        l: LayerId,
        staged: Staged,
        (rows, head): (Range<usize>, usize),
        nth: usize,
        partials: &mut [f32],
    ) {
        let shape = self.config.layer(l);
        let seen_by =
            |row: usize| visible(&shape, self.config.sliding_window, staged.position + row);
        let span = seen_by(rows.start).start / SPAN + nth;
        let seen_in_span = |row: usize| {
            let seen = seen_by(row);
            let start = seen.start.max(span * SPAN);
            start..seen.end.min((span + 1) * SPAN).max(start)
        };
        let width = shape.group() * shape.head_dim;
        let heads = |row: usize| {
            let queries = self.buffers[Buf::Query as usize].rows(row..row + 1, shape.query_width());
            &queries[head * width..(head + 1) * width]
        };
        let mut queries: [Query<'_>; MAX_POSITIONS] = std::array::from_fn(|_| Query {
            heads: &[],
            visible: 0..0,
        });
        for (query, row) in queries.iter_mut().zip(rows.clone()) {
            *query = Query {
                heads: heads(row),
                visible: seen_in_span(row),
            };
        }
        // A later query sees no less of what is behind it and more of what is before it.
        let union = seen_in_span(rows.start).start..seen_in_span(rows.end - 1).end;
        if union.is_empty() {
            return;
        }
        let segments = self.kv.segments(l, head, staged, union);
        let op = Attend {
            queries: &queries[..rows.len()],
            g: shape.group(),
            head_dim: shape.head_dim,
            segments: segments.as_slice(),
        };
        kernels::attend(self.isa, &op, partials);
    }
}

/// Spans that a run of positions touches.
fn span_count(seen: &Range<usize>) -> usize {
    (seen.end - 1) / SPAN - seen.start / SPAN + 1
}
