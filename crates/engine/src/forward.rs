//! The forward pass of Gemma 4, in the order of the model card.
//!
//! One [`layer`] over n tokens serves prefill and decode: decode is n = 1. It knows no backend, no clock and no file. Tokens
//! come in chunks; within a layer everything but the routed experts works on blocks of a few rows, so that only four
//! buffers grow with the chunk. The router speaks before the shared expert computes, so that missing experts arrive
//! meanwhile; and while the disk idles, those that the next layer is likely to choose.

use crate::config::Config;
use crate::ops::{Buf, HeadNorm, HeadRmsNorm, MatMul, Matrix, Norm, Ops, RmsNorm, Rows};
use crate::{LayerId, TokenId};

/// Runs the tokens `ids`, which stand at `position`, through every layer. The residual stream stays in [`Buf::Hidden`].
pub fn chunk<O: Ops>(
    ops: &mut O,
    config: &Config,
    ids: &[TokenId],
    position: usize,
) -> Result<(), O::Error> {
    let rows = Rows {
        start: 0,
        n: ids.len(),
        chunk_position: position,
    };
    embed(ops, ids, rows);
    for l in config.layer_ids() {
        layer(ops, config, l, rows)?;
    }
    Ok(())
}

/// Starts the residual stream of the rows of a chunk, whose tokens are `ids`.
pub fn embed<O: Ops>(ops: &mut O, ids: &[TokenId], chunk: Rows) {
    for rows in chunk.blocks(ops.block_rows()) {
        ops.embed(&ids[rows.start..rows.start + rows.n], rows);
    }
}

/// One decoder layer over the rows of a chunk, in place on [`Buf::Hidden`].
pub fn layer<O: Ops>(
    ops: &mut O,
    config: &Config,
    l: LayerId,
    chunk: Rows,
) -> Result<(), O::Error> {
    let block = ops.block_rows();
    for rows in chunk.blocks(block) {
        ops.go_on()?;
        attention(ops, config, l, rows);
        router(ops, l, rows);
        ops.announce_experts(l, rows);
    }
    ops.request_experts(l, chunk)?;
    if let Some(next) = config.layer_behind(l) {
        ops.foresee_experts(next, chunk);
    }
    for rows in chunk.blocks(block) {
        ops.go_on()?;
        shared_expert(ops, l, rows);
    }
    ops.expert_ffn(l, chunk)?;
    for rows in chunk.blocks(block) {
        // h = (h + rms(shared + rms(routed))) * layer_scalar
        norm(
            ops,
            l,
            Norm::PostFeedforward2,
            (Buf::RoutedOut, Buf::RoutedOut),
            rows,
        );
        ops.add(l, Buf::RoutedOut, Buf::SharedOut, rows);
        norm(
            ops,
            l,
            Norm::PostFeedforward,
            (Buf::SharedOut, Buf::SharedOut),
            rows,
        );
        ops.add(l, Buf::SharedOut, Buf::Hidden, rows);
        ops.layer_scale(l, Buf::Hidden, rows);
    }
    Ok(())
}

/// h += rms(Wo attention(rope(norm(Wq x)), rope(norm(Wk x)), norm(Wv x))), x = rms(h)
fn attention<O: Ops>(ops: &mut O, config: &Config, l: LayerId, rows: Rows) {
    norm(ops, l, Norm::Input, (Buf::Hidden, Buf::Normed), rows);
    let project = |ops: &mut O, x, outputs| {
        ops.matmul(MatMul {
            layer: l,
            x,
            outputs,
            rows,
        });
    };
    const QUERY_KEY: &[(Matrix, Buf)] = &[(Matrix::Query, Buf::Query), (Matrix::Key, Buf::Key)];
    const QUERY_KEY_VALUE: &[(Matrix, Buf)] = &[
        (Matrix::Query, Buf::Query),
        (Matrix::Key, Buf::Key),
        (Matrix::Value, Buf::Value),
    ];
    if config.layer(l).has_value_proj {
        project(ops, Buf::Normed, QUERY_KEY_VALUE);
    } else {
        // V branches off the raw K projection, before its norm and its rotation.
        project(ops, Buf::Normed, QUERY_KEY);
        ops.copy(l, Buf::Key, Buf::Value, rows);
    }
    for (weight, x) in [
        (HeadNorm::Query, Buf::Query),
        (HeadNorm::Key, Buf::Key),
        (HeadNorm::Bare, Buf::Value),
    ] {
        ops.head_rms_norm(HeadRmsNorm {
            layer: l,
            weight,
            x,
            rows,
        });
    }
    ops.rope(l, Buf::Query, rows);
    ops.rope(l, Buf::Key, rows);
    ops.attention(l, rows);
    project(ops, Buf::Attended, &[(Matrix::Output, Buf::Projected)]);
    norm(
        ops,
        l,
        Norm::PostAttention,
        (Buf::Projected, Buf::Projected),
        rows,
    );
    ops.add(l, Buf::Projected, Buf::Hidden, rows);
}

/// Chooses the routed experts. The router reads h through a norm of its own; the experts through theirs.
fn router<O: Ops>(ops: &mut O, l: LayerId, rows: Rows) {
    norm(ops, l, Norm::Router, (Buf::Hidden, Buf::Normed), rows);
    ops.matmul(MatMul {
        layer: l,
        x: Buf::Normed,
        outputs: &[(Matrix::Router, Buf::RouterLogits)],
        rows,
    });
    ops.route(l, rows);
    norm(
        ops,
        l,
        Norm::PreFeedforward2,
        (Buf::Hidden, Buf::ExpertInput),
        rows,
    );
}

/// shared = rms(Wdown(gelu(Wgate y) * Wup y)), y = rms(h)
fn shared_expert<O: Ops>(ops: &mut O, l: LayerId, rows: Rows) {
    norm(
        ops,
        l,
        Norm::PreFeedforward,
        (Buf::Hidden, Buf::Normed),
        rows,
    );
    ops.matmul(MatMul {
        layer: l,
        x: Buf::Normed,
        outputs: &[(Matrix::SharedGate, Buf::Gate), (Matrix::SharedUp, Buf::Up)],
        rows,
    });
    ops.geglu(rows);
    ops.matmul(MatMul {
        layer: l,
        x: Buf::Gate,
        outputs: &[(Matrix::SharedDown, Buf::Projected)],
        rows,
    });
    norm(
        ops,
        l,
        Norm::PostFeedforward1,
        (Buf::Projected, Buf::SharedOut),
        rows,
    );
}

fn norm<O: Ops>(ops: &mut O, layer: LayerId, weight: Norm, (x, y): (Buf, Buf), rows: Rows) {
    ops.rms_norm(RmsNorm {
        layer,
        weight,
        x,
        y,
        rows,
    });
}

#[cfg(test)]
mod tests;
