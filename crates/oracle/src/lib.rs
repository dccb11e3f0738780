//! The whole model in f64, in one readable file.
//!
//! What the engine computes in a hurry is here written down slowly, in the order of the model card and in its names: no blocks,
//! no cache, no threads, every token of a sequence at once, each intermediate result kept in a [`Trace`]. It reads a checkpoint in
//! the MLX layout directly, so it shares neither the installer nor the kernels with what it judges, only the parsers.
//! It is judged itself by the golden tensors of the reference implementation. For tests; never shipped, never made faster.

mod checkpoint;
pub mod golden;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use ouzel_format::{ExpertPart, names};

use checkpoint::{Checkpoint, Matrix};

/// One row a token.
pub type Rows = Vec<Vec<f64>>;

/// Every stage of a forward pass over N tokens, through L layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// `[N][vocab_size]`.
    pub logits: Rows,
    /// `[L + 1][N][hidden_size]`: the scaled embedding, then the output of each layer.
    pub hidden: Vec<Rows>,
    /// `[L][N][n_experts]`.
    pub router_logits: Vec<Rows>,
    /// `[L][N][experts_per_token]`: the chosen experts by descending logit, the lower one of equals first.
    pub topk_ids: Vec<Vec<Vec<u32>>>,
    /// `[L][N][experts_per_token]`: what the chosen experts are multiplied by.
    pub topk_weights: Vec<Rows>,
    /// `[L][N][hidden_size]`: attention before its norm.
    pub attn: Vec<Rows>,
    /// `[L][N][hidden_size]`: the shared expert before its norm.
    pub mlp: Vec<Rows>,
    /// `[L][N][hidden_size]`: the sum of the routed experts before its norm.
    pub moe: Vec<Rows>,
}

/// A model.
#[derive(Debug)]
pub struct Oracle {
    hidden_size: usize,
    eps: f64,
    softcap: f64,
    /// Input and, transposed, output.
    embedding: Matrix,
    norm: Vec<f64>,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    attention: Attention,
    router: Router,
    shared: GatedMlp,
    /// `[n_experts * expert_intermediate, hidden_size]` and back: all experts below each other.
    routed: GatedMlp,
    n_experts: usize,
    input_layernorm: Vec<f64>,
    post_attention_layernorm: Vec<f64>,
    pre_feedforward_layernorm: Vec<f64>,
    pre_feedforward_layernorm_2: Vec<f64>,
    post_feedforward_layernorm: Vec<f64>,
    post_feedforward_layernorm_1: Vec<f64>,
    post_feedforward_layernorm_2: Vec<f64>,
    layer_scalar: f64,
}

#[derive(Debug)]
struct Attention {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    /// Keys that a query sees, its own included; all of them if `None`.
    window: Option<usize>,
    /// `[head_dim / 2]`: radians a position; 0 where nothing rotates.
    frequencies: Vec<f64>,
    q_proj: Matrix,
    k_proj: Matrix,
    /// Absent where values branch off the raw keys.
    v_proj: Option<Matrix>,
    o_proj: Matrix,
    q_norm: Vec<f64>,
    k_norm: Vec<f64>,
}

#[derive(Debug)]
struct Router {
    experts_per_token: usize,
    scale: Vec<f64>,
    proj: Matrix,
    per_expert_scale: Vec<f64>,
}

#[derive(Debug)]
struct GatedMlp {
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

impl Oracle {
    /// Reads a checkpoint: `config.json`, `model.safetensors.index.json` and the shards that it names.
    ///
    /// # Errors
    /// When a file cannot be read, a tensor is missing or has another shape than the configuration says.
    pub fn load(dir: &Path) -> io::Result<Oracle> {
        let checkpoint = Checkpoint::open(dir)?;
        let arch = &checkpoint.config.arch;
        let hidden_size = arch.hidden_size as usize;
        let vocab_size = arch.vocab_size as usize;
        Ok(Oracle {
            hidden_size,
            eps: checkpoint.config.rms_norm_eps,
            softcap: arch.final_logit_softcap,
            embedding: checkpoint.matrix(names::EMBED_TOKENS, vocab_size, hidden_size)?,
            norm: checkpoint.vector(names::FINAL_NORM, hidden_size)?,
            layers: (0..arch.num_layers)
                .map(|l| Layer::load(&checkpoint, l))
                .collect::<io::Result<_>>()?,
        })
    }

    /// Runs the tokens `ids`, the first at position 0, through the model.
    ///
    /// # Panics
    /// If an id is outside the vocabulary.
    pub fn forward(&self, ids: &[u32]) -> Trace {
        let mut trace = Trace::default();
        let embed = |&id: &u32| {
            scaled(
                &self.embedding.row(id as usize),
                (self.hidden_size as f64).sqrt(),
            )
        };
        let mut h: Rows = ids.iter().map(embed).collect();
        trace.hidden.push(h.clone());
        for layer in &self.layers {
            h = layer.forward(h, self.eps, &mut trace);
            trace.hidden.push(h.clone());
        }
        let normed: Rows = h
            .iter()
            .map(|h| rms(h, Some(&self.norm), self.eps))
            .collect();
        trace.logits = self.embedding.mul(&normed);
        for z in trace.logits.iter_mut().flatten() {
            *z = self.softcap * (*z / self.softcap).tanh();
        }
        trace
    }
}

impl Layer {
    fn load(checkpoint: &Checkpoint, l: u32) -> io::Result<Layer> {
        let arch = &checkpoint.config.arch;
        let hidden = arch.hidden_size as usize;
        let n_experts = arch.num_experts as usize;
        let norm = |tensor| checkpoint.vector(&names::layer(l, tensor), hidden);
        let shared = [names::GATE_PROJ, names::UP_PROJ, names::DOWN_PROJ]
            .map(|tensor| names::layer(l, tensor));
        let routed =
            [ExpertPart::Gate, ExpertPart::Up, ExpertPart::Down].map(|part| names::expert(l, part));
        Ok(Layer {
            attention: Attention::load(checkpoint, l)?,
            router: Router {
                experts_per_token: arch.top_k_experts as usize,
                scale: norm(names::ROUTER_SCALE)?,
                proj: checkpoint.matrix(&names::layer(l, names::ROUTER_PROJ), n_experts, hidden)?,
                per_expert_scale: checkpoint
                    .vector(&names::layer(l, names::ROUTER_PER_EXPERT_SCALE), n_experts)?,
            },
            shared: GatedMlp::load(
                checkpoint,
                &shared,
                1,
                hidden,
                arch.ffn_intermediate as usize,
            )?,
            routed: GatedMlp::load(
                checkpoint,
                &routed,
                n_experts,
                hidden,
                arch.moe_intermediate as usize,
            )?,
            n_experts,
            input_layernorm: norm(names::INPUT_NORM)?,
            post_attention_layernorm: norm(names::POST_ATTENTION_NORM)?,
            pre_feedforward_layernorm: norm(names::PRE_FEEDFORWARD_NORM)?,
            pre_feedforward_layernorm_2: norm(names::PRE_FEEDFORWARD_NORM_2)?,
            post_feedforward_layernorm: norm(names::POST_FEEDFORWARD_NORM)?,
            post_feedforward_layernorm_1: norm(names::POST_FEEDFORWARD_NORM_1)?,
            post_feedforward_layernorm_2: norm(names::POST_FEEDFORWARD_NORM_2)?,
            layer_scalar: checkpoint.vector(&names::layer(l, names::LAYER_SCALAR), 1)?[0],
        })
    }

    fn forward(&self, mut h: Rows, eps: f64, trace: &mut Trace) -> Rows {
        let norm = |rows: &Rows, weight: &[f64]| -> Rows {
            rows.iter().map(|row| rms(row, Some(weight), eps)).collect()
        };

        let attn = self
            .attention
            .forward(&norm(&h, &self.input_layernorm), eps);
        for (h, a) in h
            .iter_mut()
            .zip(norm(&attn, &self.post_attention_layernorm))
        {
            *h = added(h, &a);
        }

        let mlp: Rows = norm(&h, &self.pre_feedforward_layernorm)
            .iter()
            .map(|y| self.shared.forward(y, 0, 1))
            .collect();
        let d = norm(&mlp, &self.post_feedforward_layernorm_1);

        let z = self.router.logits(&h, eps);
        let ids: Vec<Vec<u32>> = z
            .iter()
            .map(|z| top_k(z, self.router.experts_per_token))
            .collect();
        let g: Rows = z
            .iter()
            .zip(&ids)
            .map(|(z, ids)| self.router.weigh(z, ids))
            .collect();
        let y2 = norm(&h, &self.pre_feedforward_layernorm_2);
        let moe: Rows = (0..h.len())
            .map(|t| self.mix(&y2[t], &ids[t], &g[t]))
            .collect();
        let m = norm(&moe, &self.post_feedforward_layernorm_2);

        for ((h, d), m) in h.iter_mut().zip(&d).zip(&m) {
            let f = rms(&added(d, m), Some(&self.post_feedforward_layernorm), eps);
            // The scalar multiplies the residual too.
            *h = scaled(&added(h, &f), self.layer_scalar);
        }

        trace.attn.push(attn);
        trace.mlp.push(mlp);
        trace.router_logits.push(z);
        trace.topk_ids.push(ids);
        trace.topk_weights.push(g);
        trace.moe.push(moe);
        h
    }

    /// The sum of the chosen experts of one token.
    fn mix(&self, y2: &[f64], ids: &[u32], g: &[f64]) -> Vec<f64> {
        let mut sum = vec![0.0; y2.len()];
        for (&e, &g) in ids.iter().zip(g) {
            let expert = self.routed.forward(y2, e as usize, self.n_experts);
            sum = added(&sum, &scaled(&expert, g));
        }
        sum
    }
}

impl Attention {
    fn load(checkpoint: &Checkpoint, l: u32) -> io::Result<Attention> {
        let arch = &checkpoint.config.arch;
        let is_full = arch.full_attention_layer_mask[l as usize];
        let (n_kv_heads, head_dim, theta, rotary_factor) = if is_full {
            (
                arch.num_full_kv_heads,
                arch.full_head_dim,
                arch.full_rope_theta,
                arch.partial_rotary_factor,
            )
        } else {
            (arch.num_kv_heads, arch.head_dim, arch.rope_theta, 1.0)
        };
        let (n_heads, n_kv_heads) = (arch.num_heads as usize, n_kv_heads as usize);
        let (hidden, head_dim) = (arch.hidden_size as usize, head_dim as usize);
        // The first pairs rotate; their exponent divides by the whole head all the same.
        let n_rotated = (rotary_factor * head_dim as f64 / 2.0) as usize;
        let frequency = |i| theta.powf(-2.0 * i as f64 / head_dim as f64);
        let matrix = |tensor, n_out, n_in| checkpoint.matrix(&names::layer(l, tensor), n_out, n_in);
        let has_values = !(is_full && arch.attention_k_eq_v);
        Ok(Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            window: (!is_full).then_some(arch.sliding_window as usize),
            frequencies: (0..head_dim / 2)
                .map(|i| if i < n_rotated { frequency(i) } else { 0.0 })
                .collect(),
            q_proj: matrix(names::Q_PROJ, n_heads * head_dim, hidden)?,
            k_proj: matrix(names::K_PROJ, n_kv_heads * head_dim, hidden)?,
            v_proj: has_values
                .then(|| matrix(names::V_PROJ, n_kv_heads * head_dim, hidden))
                .transpose()?,
            o_proj: matrix(names::O_PROJ, hidden, n_heads * head_dim)?,
            q_norm: checkpoint.vector(&names::layer(l, names::Q_NORM), head_dim)?,
            k_norm: checkpoint.vector(&names::layer(l, names::K_NORM), head_dim)?,
        })
    }

    fn forward(&self, x: &Rows, eps: f64) -> Rows {
        let kr = self.k_proj.mul(x);
        let vr = self
            .v_proj
            .as_ref()
            .map_or_else(|| kr.clone(), |v_proj| v_proj.mul(x));
        let norm_and_rotate = |rows: &Rows, weight: &[f64]| -> Vec<Rows> {
            let rotated = |(position, row): (usize, &Vec<f64>)| -> Rows {
                self.heads(row)
                    .map(|head| self.rope(&rms(head, Some(weight), eps), position))
                    .collect()
            };
            rows.iter().enumerate().map(rotated).collect()
        };
        let q = norm_and_rotate(&self.q_proj.mul(x), &self.q_norm);
        let k = norm_and_rotate(&kr, &self.k_norm);
        // Values are normed without a weight and do not rotate.
        let v: Vec<Rows> = vr
            .iter()
            .map(|row| self.heads(row).map(|head| rms(head, None, eps)).collect())
            .collect();
        let attended: Rows = (0..x.len())
            .map(|position| {
                (0..self.n_heads)
                    .flat_map(|head| self.attend(&q[position][head], position, head, &k, &v))
                    .collect()
            })
            .collect();
        self.o_proj.mul(&attended)
    }

    fn heads<'a>(&self, row: &'a [f64]) -> impl Iterator<Item = &'a [f64]> {
        row.chunks_exact(self.head_dim)
    }

    /// `softmax(q k^T) v` of one query head; the scale is 1, neighbouring query heads share a kv head.
    fn attend(&self, q: &[f64], position: usize, head: usize, k: &[Rows], v: &[Rows]) -> Vec<f64> {
        let kv_head = head / (self.n_heads / self.n_kv_heads);
        let first = self
            .window
            .map_or(0, |window| (position + 1).saturating_sub(window));
        let scores: Vec<f64> = (first..=position).map(|j| dot(q, &k[j][kv_head])).collect();
        let mut sum = vec![0.0; self.head_dim];
        for (j, p) in (first..).zip(softmax(&scores)) {
            sum = added(&sum, &scaled(&v[j][kv_head], p));
        }
        sum
    }

    /// Rotates the pairs `(i, i + head_dim / 2)`.
    fn rope(&self, x: &[f64], position: usize) -> Vec<f64> {
        let half = self.head_dim / 2;
        let mut y = vec![0.0; self.head_dim];
        for (i, frequency) in self.frequencies.iter().enumerate() {
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            y[i] = x[i] * cos - x[i + half] * sin;
            y[i + half] = x[i + half] * cos + x[i] * sin;
        }
        y
    }
}

impl Router {
    /// The router reads the residual stream itself.
    fn logits(&self, h: &Rows, eps: f64) -> Rows {
        let r: Rows = h
            .iter()
            .map(|h| {
                scaled(
                    &rms(h, Some(&self.scale), eps),
                    1.0 / (h.len() as f64).sqrt(),
                )
            })
            .collect();
        self.proj.mul(&r)
    }

    fn weigh(&self, z: &[f64], ids: &[u32]) -> Vec<f64> {
        let chosen: Vec<f64> = ids.iter().map(|&e| z[e as usize]).collect();
        let scales = ids.iter().map(|&e| self.per_expert_scale[e as usize]);
        softmax(&chosen)
            .iter()
            .zip(scales)
            .map(|(g, scale)| g * scale)
            .collect()
    }
}

impl GatedMlp {
    fn load(
        checkpoint: &Checkpoint,
        [gate, up, down]: &[String; 3],
        n: usize,
        hidden: usize,
        intermediate: usize,
    ) -> io::Result<GatedMlp> {
        Ok(GatedMlp {
            gate: checkpoint.matrix(gate, n * intermediate, hidden)?,
            up: checkpoint.matrix(up, n * intermediate, hidden)?,
            down: checkpoint.matrix(down, n * hidden, intermediate)?,
        })
    }

    /// `down(gelu(gate x) * (up x))` of one token by the expert `e` of `n`.
    fn forward(&self, x: &[f64], e: usize, n: usize) -> Vec<f64> {
        let gate = self.gate.mul_part(x, e, n);
        let up = self.up.mul_part(x, e, n);
        let product: Vec<f64> = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| gelu(*gate) * up)
            .collect();
        self.down.mul_part(&product, e, n)
    }
}

/// `x / sqrt(mean(x^2) + eps) * weight`.
fn rms(x: &[f64], weight: Option<&[f64]>, eps: f64) -> Vec<f64> {
    let mean = dot(x, x) / x.len() as f64;
    let normed = scaled(x, 1.0 / (mean + eps).sqrt());
    match weight {
        Some(weight) => normed.iter().zip(weight).map(|(x, w)| x * w).collect(),
        None => normed,
    }
}

/// GELU by its tanh formula.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    scaled(&exps, 1.0 / sum)
}

/// The indices of the `k` highest, in descending order, the lower one of equals first.
fn top_k(x: &[f64], k: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..x.len() as u32).collect();
    ids.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize]).then(a.cmp(&b)));
    ids.truncate(k);
    ids
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn added(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn scaled(x: &[f64], factor: f64) -> Vec<f64> {
    x.iter().map(|x| x * factor).collect()
}
