//! The seam between the forward pass and what computes it.
//!
//! Some fifteen operations of the size that the model card speaks in. The forward pass names buffers and weights; the
//! backend owns them, so that no pointer and no borrow shows in `forward.rs`, and a backend may keep its buffers where
//! it likes. Each operation works on rows, one row a token, and a row of its result depends on that row of its inputs
//! alone.

use crate::{LayerId, TokenId};

/// A buffer of activations, `[rows, width]` in f32, owned by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buf {
    /// The residual stream, a row for every token of the chunk.
    Hidden,
    /// What the routed experts read, a row for every token of the chunk.
    ExpertInput,
    /// The sum of the routed experts, a row for every token of the chunk.
    RoutedOut,
    /// The shared expert's output, a row for every token of the chunk.
    SharedOut,
    /// A normed copy of the residual stream; one block.
    Normed,
    /// Query heads; one block.
    Query,
    /// Key heads; one block.
    Key,
    /// Value heads; one block.
    Value,
    /// Attention's output, before its projection; one block.
    Attended,
    /// A projection back to the residual stream's width; one block.
    Projected,
    /// The shared expert's gate, then its product; one block.
    Gate,
    /// The shared expert's up projection; one block.
    Up,
    /// Router scores; one block.
    RouterLogits,
    /// Scores of the vocabulary; a few rows.
    Logits,
}

impl Buf {
    /// Number of buffers.
    pub const COUNT: usize = Buf::Logits as usize + 1;

    /// Whether the buffer holds a row for every token of the chunk; the others hold one block of them.
    pub fn spans_chunk(self) -> bool {
        matches!(
            self,
            Buf::Hidden | Buf::ExpertInput | Buf::RoutedOut | Buf::SharedOut
        )
    }
}

/// A quantized matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// `q_proj`.
    Query,
    /// `k_proj`.
    Key,
    /// `v_proj`, where the layer has one.
    Value,
    /// `o_proj`.
    Output,
    /// The shared expert's gate projection.
    SharedGate,
    /// The shared expert's up projection.
    SharedUp,
    /// The shared expert's down projection.
    SharedDown,
    /// The router; always computed in f32.
    Router,
}

/// The weight of a root-mean-square norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// `input_layernorm`.
    Input,
    /// `post_attention_layernorm`.
    PostAttention,
    /// `pre_feedforward_layernorm`: the shared expert's input.
    PreFeedforward,
    /// `pre_feedforward_layernorm_2`: the routed experts' input.
    PreFeedforward2,
    /// `post_feedforward_layernorm`: the sum of both.
    PostFeedforward,
    /// `post_feedforward_layernorm_1`: the shared expert's output.
    PostFeedforward1,
    /// `post_feedforward_layernorm_2`: the routed experts' output.
    PostFeedforward2,
    /// `router.scale / sqrt(hidden_size)`: the router's own norm.
    Router,
}

/// The weight of a norm over each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorm {
    /// `q_norm`.
    Query,
    /// `k_norm`.
    Key,
    /// No weight: V is normed bare.
    Bare,
}

/// Some rows of the chunk under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first row, counted from the start of the chunk.
    pub start: usize,
    /// How many.
    pub n: usize,
    /// Absolute position of the chunk's first token.
    pub chunk_position: usize,
}

impl Rows {
    /// Absolute position of the first row.
    pub fn position(&self) -> usize {
        self.chunk_position + self.start
    }

    /// Cuts these rows into blocks of at most `n` rows.
    pub fn blocks(self, n: usize) -> impl Iterator<Item = Rows> {
        (0..self.n).step_by(n).map(move |offset| Rows {
            start: self.start + offset,
            n: n.min(self.n - offset),
            chunk_position: self.chunk_position,
        })
    }
}

/// `y = rms(x) * weight`, row by row; `x` and `y` may be the same buffer.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    /// Whose weight.
    pub layer: LayerId,
    /// Which weight, `[hidden_size]`.
    pub weight: Norm,
    /// Input, `[n, hidden_size]`.
    pub x: Buf,
    /// Output, `[n, hidden_size]`.
    pub y: Buf,
    /// The rows.
    pub rows: Rows,
}

/// `y = W x` for several matrices that read the same input.
#[derive(Clone, Copy, Debug)]
pub struct MatMul<'a> {
    /// Whose weights.
    pub layer: LayerId,
    /// Input, `[n, n_in]`.
    pub x: Buf,
    /// Each matrix `[n_out, n_in]` and its output `[n, n_out]`.
    pub outputs: &'a [(Matrix, Buf)],
    /// The rows.
    pub rows: Rows,
}

/// A norm over each head of a buffer, in place.
#[derive(Clone, Copy, Debug)]
pub struct HeadRmsNorm {
    /// Whose weight, and whose head dimension.
    pub layer: LayerId,
    /// Which weight, `[head_dim]`.
    pub weight: HeadNorm,
    /// `[n, heads, head_dim]`.
    pub x: Buf,
    /// The rows.
    pub rows: Rows,
}

/// What a backend must be able to do.
pub trait Ops {
    /// What can fail: reading experts.
    type Error;

    /// Rows of the buffers that hold one block.
    fn block_rows(&self) -> usize;

    /// Asked between the steps of a long chunk: an error where somebody wants it to end.
    fn go_on(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// `Hidden = embed_scale * E[id]`, one id a row.
    fn embed(&mut self, ids: &[TokenId], rows: Rows);

    /// See [`RmsNorm`].
    fn rms_norm(&mut self, op: RmsNorm);

    /// See [`MatMul`].
    fn matmul(&mut self, op: MatMul<'_>);

    /// See [`HeadRmsNorm`].
    fn head_rms_norm(&mut self, op: HeadRmsNorm);

    /// `y = x`.
    fn copy(&mut self, layer: LayerId, x: Buf, y: Buf, rows: Rows);

    /// Turns each head of `x` by its position.
    fn rope(&mut self, layer: LayerId, x: Buf, rows: Rows);

    /// `Attended = softmax(Query Key^T) Value` over the KV cache and the block itself; then the block's keys and values
    /// enter the cache.
    fn attention(&mut self, layer: LayerId, rows: Rows);

    /// `y += x`.
    fn add(&mut self, layer: LayerId, x: Buf, y: Buf, rows: Rows);

    /// `Gate = gelu(Gate) * Up`.
    fn geglu(&mut self, rows: Rows);

    /// Chooses each row's experts and their weights from `RouterLogits`.
    fn route(&mut self, layer: LayerId, rows: Rows);

    /// Starts to read experts that these rows chose, as far as there is room to read ahead of [`Ops::request_experts`].
    fn announce_experts(&mut self, layer: LayerId, rows: Rows);

    /// Plans where the chosen experts of all rows come from, and starts to read those that are missing.
    fn request_experts(&mut self, layer: LayerId, rows: Rows) -> Result<(), Self::Error>;

    /// Reads experts of `layer`, the next one, ahead of their request: those that its router would choose for a single row if this
    /// layer's experts added nothing to `Hidden`. A guess that changes no result; a backend may do without it.
    fn foresee_experts(&mut self, layer: LayerId, rows: Rows);

    /// `RoutedOut = sum of weight * expert(ExpertInput)` over each row's experts, in ascending expert order.
    fn expert_ffn(&mut self, layer: LayerId, rows: Rows) -> Result<(), Self::Error>;

    /// `x *= layer_scalar`.
    fn layer_scale(&mut self, layer: LayerId, x: Buf, rows: Rows);

    /// `Logits = softcap(E rms(Hidden))` for the rows.
    fn head(&mut self, rows: Rows);
}
