//! The operations at the shapes of Gemma 4 26B-A4B: one list, which the tests run on every instruction set and the benches time.
//!
//! A case owns its operands and runs as the engine runs it: products cut over output rows, attention over kv heads and spans. For
//! the benches, weights and keys lie in memory so many times that each run finds them out of the caches, as a token does.

use half::f16;
use ouzel_kernels::{
    Attend, Bits, Columns, Isa, KvRows, KvSegment, Pool, QuantRows, Query, attend, geglu,
    matmul_i8, merge_partials, partial_len, quantize, rms_norm, rope, top_k,
};

use crate::data::{Codes, Kind, Matrix, Random};

/// Positions of one attention task, as the engine cuts them.
const SPAN: usize = 2048;

/// How much memory the operands of a case may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Each operand once, with no more than so many output rows, or positions.
    Cut { rows: usize, positions: usize },
    /// As many copies as fill so many bytes, used in turn.
    Bytes(u64),
}

/// An operation and its shape.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A 4-bit matrix times `n` rows of activations in int8 `planes`.
    ProductQ4 {
        n_out: usize,
        n_in: usize,
        n: usize,
        planes: usize,
    },
    /// `heads` groups of `g` queries over the f16 keys and values of `n` positions.
    Attend {
        heads: usize,
        g: usize,
        d: usize,
        n: usize,
    },
    RmsNorm(usize),
    Rope(usize),
    TopK {
        n: usize,
        k: usize,
    },
    Geglu(usize),
}

/// Every case with its name.
pub fn all() -> Vec<(&'static str, Shape)> {
    let product = |n_out, n_in, n, planes| Shape::ProductQ4 {
        n_out,
        n_in,
        n,
        planes,
    };
    let attend = |heads, g, d, n| Shape::Attend { heads, g, d, n };
    vec![
        ("matvec_q4 query [4096, 2816]", product(4096, 2816, 1, 1)),
        ("matvec_q4 output [2816, 8192]", product(2816, 8192, 1, 1)),
        (
            "matvec_q4 shared_up [2112, 2816]",
            product(2112, 2816, 1, 1),
        ),
        ("matvec_q4 expert_up [704, 2816]", product(704, 2816, 1, 1)),
        (
            "matvec_q4 expert_down [2816, 704]",
            product(2816, 704, 1, 2),
        ),
        (
            "matvec_q4 head [262144, 2816]",
            product(262_144, 2816, 1, 1),
        ),
        (
            "matmul_q4 expert_up [704, 2816] x 7",
            product(704, 2816, 7, 1),
        ),
        (
            "matmul_q4 expert_up [704, 2816] x 64",
            product(704, 2816, 64, 1),
        ),
        (
            "matmul_q4 expert_down [2816, 704] x 64",
            product(2816, 704, 64, 2),
        ),
        (
            "matmul_q4 query [4096, 2816] x 64",
            product(4096, 2816, 64, 1),
        ),
        ("attend ring of 1024", attend(8, 2, 256, 1024)),
        ("attend full at 8192", attend(2, 8, 512, 8192)),
        ("attend full at 32768", attend(2, 8, 512, 32_768)),
        ("rms_norm 2816", Shape::RmsNorm(2816)),
        ("rope 512", Shape::Rope(512)),
        ("top_k 8 of 128", Shape::TopK { n: 128, k: 8 }),
        ("geglu 2112", Shape::Geglu(2112)),
    ]
}

impl Shape {
    /// Bytes of weights, of keys and values, or of rows that a run touches.
    pub fn bytes(self) -> u64 {
        let bytes = match self {
            // Half a byte a weight, and four bytes a group of 64.
            Shape::ProductQ4 { n_out, n_in, .. } => n_out * n_in * 9 / 16,
            Shape::Attend { heads, d, n, .. } => 2 * 2 * heads * n * d,
            Shape::RmsNorm(n) | Shape::Rope(n) | Shape::Geglu(n) => 4 * 3 * n,
            Shape::TopK { n, k } => 4 * (n + 2 * k),
        };
        bytes as u64
    }
}

/// The operands of a shape, and how to run it.
pub struct Case {
    y: Vec<f32>,
    run: Box<Run>,
}

type Run = dyn FnMut(Isa, &Pool, &mut [f32]);

impl Case {
    pub fn new(random: &mut Random, shape: Shape, size: Size) -> Case {
        match shape {
            Shape::ProductQ4 { .. } => product(random, size.cut(shape), size.copies(shape)),
            Shape::Attend { .. } => attention(random, size.cut(shape), size.copies(shape)),
            Shape::RmsNorm(n) => {
                let (x, weight) = (random.normals(n), random.normals(n));
                on_rows(vec![0.0; n], move |isa, y| {
                    rms_norm(isa, &x, Some(&weight), 1e-6, y)
                })
            }
            Shape::Rope(d) => {
                let angles = random.normals(d / 2);
                let cos: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
                let sin: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
                on_rows(random.normals(d), move |isa, y| rope(isa, y, &cos, &sin))
            }
            Shape::TopK { n, k } => {
                let (x, mut ids) = (random.normals(n), vec![0; k]);
                on_rows(vec![0.0; k], move |_, y| top_k(&x, &mut ids, y))
            }
            Shape::Geglu(n) => {
                let (gate, up) = (random.normals(n), random.normals(n));
                on_rows(vec![0.0; n], move |isa, y| {
                    // It works in place.
                    y.copy_from_slice(&gate);
                    geglu(isa, y, &up);
                })
            }
        }
    }

    /// Runs it once and returns what it wrote.
    pub fn run(&mut self, isa: Isa, pool: &Pool) -> &[f32] {
        (self.run)(isa, pool, &mut self.y);
        &self.y
    }
}

/// A case of one thread on floats.
fn on_rows(y: Vec<f32>, mut f: impl FnMut(Isa, &mut [f32]) + 'static) -> Case {
    Case {
        y,
        run: Box::new(move |isa, _, y| f(isa, y)),
    }
}

fn product(random: &mut Random, shape: Shape, copies: usize) -> Case {
    let Shape::ProductQ4 {
        n_out,
        n_in,
        n,
        planes,
    } = shape
    else {
        unreachable!("the caller saw a product")
    };
    let w = Matrix::random(random, Bits::Q4, (copies * n_out, n_in), Codes::Random, 0);
    // A second plane serves GeGLU products, and is as fast as they have few outliers.
    let kind = [Kind::Gaussian, Kind::GegluProduct][planes - 1];
    let x = kind.row(random, n * n_in);
    let mut rows = QuantRows::new(n, n_in, planes);
    let mut turn = 0;
    Case {
        y: vec![0.0; n * n_out],
        run: Box::new(move |isa, pool, y| {
            quantize(isa, &x, n_in, planes, &mut rows);
            let w = w.view().rows(turn * n_out..(turn + 1) * n_out);
            pool.for_each_column_range(Columns::new(y, n, n_out), &|range, y| {
                matmul_i8(isa, &w.rows(range), rows.all(), y)
            });
            turn = (turn + 1) % copies;
        }),
    }
}

fn attention(random: &mut Random, shape: Shape, copies: usize) -> Case {
    let Shape::Attend { heads, g, d, n } = shape else {
        unreachable!("the caller saw attention")
    };
    let floats = heads * n * d;
    let mut draw = || -> Vec<f16> {
        let one = (0..floats).map(|_| f16::from_f32(2.0 * random.unit() as f32 - 1.0));
        one.collect::<Vec<_>>().repeat(copies)
    };
    let (keys, values) = (draw(), draw());
    let q = random.normals(heads * g * d);
    let n_spans = n.div_ceil(SPAN);
    let mut partials = vec![0.0; heads * n_spans * partial_len(g, d)];
    let mut turn = 0;
    Case {
        y: vec![0.0; heads * g * d],
        run: Box::new(move |isa, pool, y| {
            let (keys, values) = (&keys[turn * floats..], &values[turn * floats..]);
            pool.for_each_chunk(&mut partials, partial_len(g, d), &|task, partial| {
                let (head, span) = (task / n_spans, task % n_spans);
                let rows = head * n * d..(head + 1) * n * d;
                let query = Query {
                    heads: &q[head * g * d..(head + 1) * g * d],
                    visible: span * SPAN..n.min((span + 1) * SPAN),
                };
                let op = Attend {
                    queries: &[query],
                    g,
                    head_dim: d,
                    segments: &[KvSegment {
                        first_position: 0,
                        keys: KvRows::F16(&keys[rows.clone()]),
                        values: KvRows::F16(&values[rows]),
                    }],
                };
                attend(isa, &op, partial);
            });
            let of_head = n_spans * partial_len(g, d);
            pool.for_each_chunk(y, g * d, &|head, y| {
                let partials = &partials[head * of_head..(head + 1) * of_head];
                merge_partials(isa, (partials, partial_len(g, d)), g, d, y)
            });
            turn = (turn + 1) % copies;
        }),
    }
}

impl Size {
    fn copies(self, shape: Shape) -> usize {
        match self {
            Size::Cut { .. } => 1,
            Size::Bytes(all) => all.div_ceil(shape.bytes()) as usize,
        }
    }

    fn cut(self, mut shape: Shape) -> Shape {
        if let Size::Cut { rows, positions } = self {
            match &mut shape {
                Shape::ProductQ4 { n_out, .. } => *n_out = rows.min(*n_out),
                Shape::Attend { n, .. } => *n = positions.min(*n),
                _ => {}
            }
        }
        shape
    }
}
