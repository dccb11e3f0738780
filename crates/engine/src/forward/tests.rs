//! The forward pass against the golden tensors, stage by stage, and against itself: a row's bits must not depend on anything
//! but the row.

use std::ops::ControlFlow;
use std::sync::Arc;

use ouzel_oracle::golden::Golden;

use super::chunk;
use crate::cpu::Cpu;
use crate::ops::{Buf, HeadRmsNorm, MatMul, Matrix, Ops, RmsNorm, Rows};
use crate::testing::{Installed, install, root};
use crate::{EngineError, Isa, LayerId, Options, Precision, Session, TokenId};

/// The golden tensors come from f32 arithmetic in another order; its own noise is up to 3e-4 (testdata/README.md).
const LOGITS_TOLERANCE: f32 = 2e-3;
/// Hidden states are of the same magnitude as logits.
const HIDDEN_TOLERANCE: f32 = 2e-3;
/// The weights of the chosen experts are a softmax times a scale, at most a few units.
const ROUTE_TOLERANCE: f32 = 1e-3;

/// A backend that keeps what passes through it, by layer.
struct Recorder<'a> {
    cpu: &'a mut Cpu,
    hidden: Vec<Vec<f32>>,
    router_logits: Vec<Vec<f32>>,
    topk_ids: Vec<Vec<u32>>,
    topk_weights: Vec<Vec<f32>>,
    attn: Vec<Vec<f32>>,
    mlp: Vec<Vec<f32>>,
    moe: Vec<Vec<f32>>,
}

impl<'a> Recorder<'a> {
    fn new(cpu: &'a mut Cpu) -> Recorder<'a> {
        Recorder {
            cpu,
            hidden: Vec::new(),
            router_logits: Vec::new(),
            topk_ids: Vec::new(),
            topk_weights: Vec::new(),
            attn: Vec::new(),
            mlp: Vec::new(),
            moe: Vec::new(),
        }
    }

    /// Appends the rows of `buf` to the last entry of `stage`, or starts a new entry with the chunk's first row.
    fn keep(cpu: &Cpu, stage: &mut Vec<Vec<f32>>, buf: Buf, layer: LayerId, rows: Rows) {
        if rows.start == 0 {
            stage.push(Vec::new());
        }
        let values = cpu.rows(buf, layer, rows);
        stage
            .last_mut()
            .expect("just pushed")
            .extend_from_slice(values);
    }
}

impl Ops for Recorder<'_> {
    type Error = EngineError;

    fn block_rows(&self) -> usize {
        self.cpu.block_rows()
    }
    fn embed(&mut self, ids: &[TokenId], rows: Rows) {
        self.cpu.embed(ids, rows);
        Self::keep(self.cpu, &mut self.hidden, Buf::Hidden, LayerId(0), rows);
    }
    fn rms_norm(&mut self, op: RmsNorm) {
        self.cpu.rms_norm(op);
    }
    fn matmul(&mut self, op: MatMul<'_>) {
        self.cpu.matmul(op);
        for &(matrix, out) in op.outputs {
            let stage = match matrix {
                Matrix::Router => &mut self.router_logits,
                Matrix::Output => &mut self.attn,
                Matrix::SharedDown => &mut self.mlp,
                _ => continue,
            };
            Self::keep(self.cpu, stage, out, op.layer, op.rows);
        }
    }
    fn head_rms_norm(&mut self, op: HeadRmsNorm) {
        self.cpu.head_rms_norm(op);
    }
    fn copy(&mut self, layer: LayerId, x: Buf, y: Buf, rows: Rows) {
        self.cpu.copy(layer, x, y, rows);
    }
    fn rope(&mut self, layer: LayerId, x: Buf, rows: Rows) {
        self.cpu.rope(layer, x, rows);
    }
    fn attention(&mut self, layer: LayerId, rows: Rows) {
        self.cpu.attention(layer, rows);
    }
    fn add(&mut self, layer: LayerId, x: Buf, y: Buf, rows: Rows) {
        self.cpu.add(layer, x, y, rows);
    }
    fn geglu(&mut self, rows: Rows) {
        self.cpu.geglu(rows);
    }
    fn route(&mut self, layer: LayerId, rows: Rows) {
        self.cpu.route(layer, rows);
    }
    fn announce_experts(&mut self, layer: LayerId, rows: Rows) {
        self.cpu.announce_experts(layer, rows);
    }
    fn request_experts(&mut self, layer: LayerId, rows: Rows) -> Result<(), EngineError> {
        let (mut ids, mut weights) = (Vec::new(), Vec::new());
        for row in 0..rows.n {
            let (row_ids, row_weights) = self.cpu.routes(row);
            ids.extend_from_slice(row_ids);
            weights.extend_from_slice(row_weights);
        }
        self.topk_ids.push(ids);
        self.topk_weights.push(weights);
        self.cpu.request_experts(layer, rows)
    }
    fn foresee_experts(&mut self, layer: LayerId, rows: Rows) {
        self.cpu.foresee_experts(layer, rows);
    }
    fn expert_ffn(&mut self, layer: LayerId, rows: Rows) -> Result<(), EngineError> {
        self.cpu.expert_ffn(layer, rows)?;
        Self::keep(self.cpu, &mut self.moe, Buf::RoutedOut, layer, rows);
        Ok(())
    }
    fn layer_scale(&mut self, layer: LayerId, x: Buf, rows: Rows) {
        self.cpu.layer_scale(layer, x, rows);
        // The first entry is the embedding, so layer l is entry l + 1.
        Self::keep(self.cpu, &mut self.hidden, x, layer, rows);
    }
    fn head(&mut self, rows: Rows) {
        self.cpu.head(rows);
    }
}

fn options(precision: Precision) -> Options {
    Options {
        precision,
        threads: Some(1),
        logits_rows: 16,
        ..Options::default()
    }
}

fn session(installed: &Installed, options: &Options) -> Session {
    Session::new(Arc::clone(&installed.model), options).expect("a session")
}

/// Every logit of every position, as bits.
fn logits(session: &mut Session, ids: &[TokenId]) -> Vec<f32> {
    let mut all = Vec::new();
    session
        .prefill_all(ids, &mut |_, row| all.extend_from_slice(row))
        .expect("a forward pass");
    all
}

fn token_ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

/// The largest difference, or a panic that names the stage.
fn check(what: &str, actual: &[f32], expected: &[f32], tolerance: f32) -> f32 {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let worst = actual
        .iter()
        .zip(expected)
        .map(|(a, e)| (a - e).abs())
        .fold(0.0, f32::max);
    assert!(
        worst <= tolerance,
        "{what}: off by {worst}, allowed {tolerance}"
    );
    worst
}

#[test]
fn exact_matches_every_golden_stage_of_both_models() {
    for name in ["tiny-a", "tiny-b"] {
        let installed = install(&format!("testdata/{name}/mlx"));
        let golden = Golden::load(&root().join(format!("testdata/{name}/golden.safetensors")))
            .expect("golden");
        let config = Arc::clone(installed.model.config());
        for sequence in ["seq1", "seq7", "seq40"] {
            let ids = token_ids(&golden.u32(&format!("{sequence}.ids")));
            let mut session = session(&installed, &options(Precision::Exact));
            let actual = logits(&mut session, &ids);
            let worst = check(
                &format!("{name} {sequence} logits"),
                &actual,
                golden.f32(&format!("{sequence}.logits")),
                LOGITS_TOLERANCE,
            );
            session.reset();
            session.cpu_mut().reserve(0, ids.len());
            let mut recorder = Recorder::new(session.cpu_mut());
            chunk(&mut recorder, &config, &ids, 0).expect("a forward pass");
            let mut report = format!("{name} {sequence}: logits {worst:.1e}");
            let stages: [(&str, &[Vec<f32>], f32); 6] = [
                ("hidden", &recorder.hidden, HIDDEN_TOLERANCE),
                ("router_logits", &recorder.router_logits, HIDDEN_TOLERANCE),
                ("topk_weights", &recorder.topk_weights, ROUTE_TOLERANCE),
                ("attn", &recorder.attn, HIDDEN_TOLERANCE),
                ("mlp", &recorder.mlp, HIDDEN_TOLERANCE),
                ("moe", &recorder.moe, HIDDEN_TOLERANCE),
            ];
            for (stage, actual, tolerance) in stages {
                let full_name = format!("{sequence}.{stage}");
                // Only the sequence of seven has the inner stages.
                if golden.has(&full_name) {
                    let worst = check(
                        &format!("{name} {full_name}"),
                        &actual.concat(),
                        golden.f32(&full_name),
                        tolerance,
                    );
                    report += &format!(", {stage} {worst:.1e}");
                }
            }
            assert_eq!(
                recorder.topk_ids.concat(),
                golden.u32(&format!("{sequence}.topk_ids")),
                "{name} {sequence} topk_ids"
            );
            println!("{report}");
        }
    }
}

#[test]
fn chunks_slots_and_threads_do_not_change_a_bit() {
    for name in ["tiny-a", "tiny-b"] {
        let installed = install(&format!("testdata/{name}/mlx"));
        let golden = Golden::load(&root().join(format!("testdata/{name}/golden.safetensors")))
            .expect("golden");
        let ids = token_ids(&golden.u32("seq40.ids"));
        let k = installed.model.config().experts_per_token as u32;
        let all = installed.model.config().n_experts as u32;
        for precision in [Precision::Exact, Precision::Fast] {
            let whole = logits(&mut session(&installed, &options(precision)), &ids);
            let with = |what: String, options: &Options| {
                assert_same_bits(
                    &what,
                    &logits(&mut session(&installed, options), &ids),
                    &whole,
                );
            };
            for n in [1, 7, 13, 40] {
                let options = Options {
                    chunk: Some(n),
                    ..options(precision)
                };
                with(format!("{name} {precision:?} chunk {n}"), &options);
            }
            // Between k and all of them single tokens look ahead.
            for n in [0, 1, k - 1, k, k + 1, all - 1, all] {
                for chunk in [1, 40] {
                    let options = Options {
                        slots: Some(n),
                        chunk: Some(chunk),
                        ..options(precision)
                    };
                    with(
                        format!("{name} {precision:?} slots {n} chunk {chunk}"),
                        &options,
                    );
                }
            }
            for n in [1, 2, 3] {
                let options = Options {
                    threads: Some(n),
                    ..options(precision)
                };
                with(format!("{name} {precision:?} threads {n}"), &options);
            }
        }
    }
}

#[test]
fn decode_continues_a_prefill_with_the_same_bits() {
    let installed = install("testdata/tiny-b/mlx");
    let golden = Golden::load(&root().join("testdata/tiny-b/golden.safetensors")).expect("golden");
    let ids = token_ids(&golden.u32("seq40.ids"));
    let vocab_size = installed.model.config().vocab_size;
    for precision in [Precision::Exact, Precision::Fast] {
        let options = Options {
            slots: Some(3),
            ..options(precision)
        };
        let whole = logits(&mut session(&installed, &options), &ids);
        let mut session = session(&installed, &options);
        session
            .prefill(&ids[..11], &mut |_| ControlFlow::Continue(()))
            .expect("a prefill");
        assert_same_bits(
            "prefill",
            session.logits(),
            &whole[10 * vocab_size..11 * vocab_size],
        );
        for (i, &id) in ids.iter().enumerate().skip(11) {
            let row = session.decode(id).expect("a decode");
            assert_same_bits(
                &format!("{precision:?} token {i}"),
                row,
                &whole[i * vocab_size..(i + 1) * vocab_size],
            );
        }
        // A rewind within what the ring holds, then the same tokens again.
        let last = session.position() - 1;
        assert!(session.rewind(last), "one token back is always held");
        let row = session.decode(ids[last]).expect("a decode");
        assert_same_bits("after a rewind", row, &whole[last * vocab_size..]);
        assert!(
            !session.rewind(3),
            "the ring of 8 no longer holds position 3"
        );
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let installed = install("testdata/tiny-a/mlx");
    let golden = Golden::load(&root().join("testdata/tiny-a/golden.safetensors")).expect("golden");
    let ids = token_ids(&golden.u32("seq40.ids"));
    for precision in [Precision::Exact, Precision::Fast] {
        let on = |isa| {
            let mut session =
                Session::with_isa(Arc::clone(&installed.model), &options(precision), isa)
                    .expect("a session");
            logits(&mut session, &ids)
        };
        let portable = on(Isa::Portable);
        for isa in Isa::available() {
            assert_same_bits(
                &format!("{precision:?} {}", isa.name()),
                &on(isa),
                &portable,
            );
        }
    }
}

fn assert_same_bits(what: &str, actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let different = actual
        .iter()
        .zip(expected)
        .position(|(a, e)| a.to_bits() != e.to_bits());
    if let Some(i) = different {
        panic!("{what}: value {i} is {} and not {}", actual[i], expected[i]);
    }
}
