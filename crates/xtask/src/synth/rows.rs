//! The bytes of a tensor, a row at a time.

use half::bf16;

use super::affine::{Scales, quantize_q8};
use super::balance::Balance;
use super::directions::Embedding;
use super::random::{Random, stream};
use super::tensors::{Fill, GROUP, Part, Source, Tensor};

/// A tensor that is ready to be written: what its rows have in common is made.
pub struct Rows<'s> {
    kind: Kind<'s>,
    values: u64,
    scales: u64,
}

enum Kind<'s> {
    Weights(Scales),
    Embedding(Scales, &'s Embedding),
    /// Values, scales and biases of each row.
    Router(Vec<[Vec<u8>; 3]>),
    Vector(f32, f32),
}

impl Rows<'_> {
    /// Prepares `tensor` of the model of `source`.
    pub fn new<'s>(source: &'s Source, tensor: &Tensor) -> Rows<'s> {
        let kind = match tensor.fill {
            Fill::Weights => Kind::Weights(Scales::for_deviation(root(tensor).recip())),
            Fill::Embedding => {
                let scale = root(tensor).recip() / Balance::EMBEDDING_DEVIATION;
                Kind::Embedding(Scales::around(scale), &source.embedding)
            }
            Fill::Router(layer) => {
                Kind::Router(source.router(layer).iter().map(|row| q8(row)).collect())
            }
            Fill::Vector(mean, deviation) => Kind::Vector(mean, deviation),
        };
        Rows {
            kind,
            values: stream(source.seed, &tensor.name),
            scales: stream(source.seed, &format!("{} scales", tensor.name)),
        }
    }

    /// Fills `out`, [`Tensor::row_bytes`] long, with a part of row `row`.
    pub fn fill(&self, part: Part, row: usize, out: &mut [u8]) {
        let (row, nth) = (row as u64, row);
        match (&self.kind, part) {
            (Kind::Weights(_), Part::Values) => Random::of_row(self.values, row).fill(out),
            (Kind::Embedding(_, embedding), Part::Values) => {
                embedding.fill(row as u32, &mut Random::of_row(self.values, row), out);
            }
            (Kind::Weights(scales) | Kind::Embedding(scales, _), part) => {
                let mut random = Random::of_row(self.scales, row);
                scales.fill(&mut random, part == Part::Biases, out);
            }
            (Kind::Router(rows), part) => {
                let [values, scales, biases] = &rows[nth];
                out.copy_from_slice(match part {
                    Part::Values => values,
                    Part::Scales => scales,
                    Part::Biases => biases,
                });
            }
            (Kind::Vector(mean, deviation), _) => {
                let mut random = Random::of_row(self.values, row);
                for out in out.chunks_exact_mut(2) {
                    let x = mean + deviation * random.normal();
                    out.copy_from_slice(&bf16::from_f32(x).to_le_bytes());
                }
            }
        }
    }
}

fn root(tensor: &Tensor) -> f32 {
    (tensor.n_in as f32).sqrt()
}

fn q8(row: &[f32]) -> [Vec<u8>; 3] {
    let mut values = vec![0; row.len()];
    let groups = row.chunks_exact(GROUP).zip(values.chunks_exact_mut(GROUP));
    let (scales, biases): (Vec<_>, Vec<_>) = groups.map(|(row, q)| quantize_q8(row, q)).unzip();
    [values, scales.concat(), biases.concat()]
}
