//! Rotary angles of the block under way, kept for both kinds of layers while the layers go by. A chunk of several blocks computes
//! them anew for each block and layer, by estimate some 0.4 % of a prompt; tables for all of it would take slots.
//!
//! `angle(position, i) = position * theta^(-2i / head_dim)`, in f64: at position 262,144 an f32 product is off by hundredths of a
//! radian. Pairs beyond the rotated share keep an angle of 0.

use crate::config::{Config, LayerKind, LayerShape};
use crate::ops::Rows;

/// Cosines and sines for both kinds of layers.
pub struct Rotary {
    sliding: Option<Table>,
    full: Option<Table>,
}

struct Table {
    /// `[head_dim / 2]`, radians a position.
    frequencies: Vec<f64>,
    /// `[block, head_dim / 2]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
    /// The first position and the rows that the table holds.
    held: Option<(usize, usize)>,
}

impl Rotary {
    pub fn new(config: &Config, block: usize) -> Rotary {
        let table = |kind| {
            let shape = config.layers.iter().find(|shape| shape.kind == kind)?;
            Some(Table::new(shape, block))
        };
        Rotary {
            sliding: table(LayerKind::Sliding),
            full: table(LayerKind::Full),
        }
    }

    /// Makes the angles of `rows` at hand.
    pub fn prepare(&mut self, kind: LayerKind, rows: Rows) {
        let table = match kind {
            LayerKind::Sliding => &mut self.sliding,
            LayerKind::Full => &mut self.full,
        };
        if let Some(table) = table {
            table.prepare(rows.position(), rows.n);
        }
    }

    /// Cosines and sines of the block's row `row`, each `[head_dim / 2]`.
    pub fn angles(&self, kind: LayerKind, row: usize) -> (&[f32], &[f32]) {
        let table = match kind {
            LayerKind::Sliding => &self.sliding,
            LayerKind::Full => &self.full,
        };
        let table = table.as_ref().expect("a layer of this kind made the table");
        let half = table.frequencies.len();
        let range = row * half..(row + 1) * half;
        (&table.cos[range.clone()], &table.sin[range])
    }
}

impl Table {
    fn new(shape: &LayerShape, block: usize) -> Table {
        let half = shape.head_dim / 2;
        let frequencies = (0..half)
            .map(|i| {
                if i < shape.n_rotated_pairs {
                    shape
                        .rope_theta
                        .powf(-2.0 * i as f64 / shape.head_dim as f64)
                } else {
                    0.0
                }
            })
            .collect();
        Table {
            frequencies,
            cos: vec![0.0; block * half],
            sin: vec![0.0; block * half],
            held: None,
        }
    }

    fn prepare(&mut self, position: usize, n: usize) {
        if self
            .held
            .is_some_and(|(first, rows)| first == position && rows >= n)
        {
            return;
        }
        let half = self.frequencies.len();
        for row in 0..n {
            for (i, &frequency) in self.frequencies.iter().enumerate() {
                let (sin, cos) = ((position + row) as f64 * frequency).sin_cos();
                self.cos[row * half + i] = cos as f32;
                self.sin[row * half + i] = sin as f32;
            }
        }
        self.held = Some((position, n));
    }
}
