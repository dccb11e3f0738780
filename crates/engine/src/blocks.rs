//! How the arena is cut: into blocks of one size, each of which may hold an expert, pages of the KV cache, or rows of the residual
//! stream.
//!
//! One size lets them change places: a longer context takes blocks from the expert slots, a prompt borrows some for its
//! activations and gives them back. Pure arithmetic over the configuration.

use ouzel_kernels::KEY_BLOCK;
use ouzel_storage::{AlignedBuf, Region};

use crate::config::{Config, LayerShape};
use crate::{LayerId, Precision};

/// Rows that go through attention and the shared expert together: enough that a matmul reuses each unpacked weight.
const MAX_BLOCK_ROWS: usize = 128;
/// KV pages in a block where each still has whole key blocks: with fewer, a short context would leave much of its blocks empty.
const PAGES_PER_BLOCK: usize = 3;
/// A page starts at a cache line.
const PAGE_ALIGNMENT: usize = 64;

/// Who has the blocks that nobody borrowed.
pub trait Lender {
    /// Hands out a block; the budget rules out that there is none.
    fn lend(&mut self) -> Region;

    /// Takes a block back.
    fn give_back(&mut self, block: Region);
}

/// The sizes of a block and of what fits into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Bytes of a block: at least an expert with its padding.
    pub bytes: usize,
    /// Pages of the KV cache in a block.
    pub pages: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Rows of `hidden_size` f32 that a block holds, a multiple of `block_rows`.
    pub chunk_rows: usize,
    /// Rows that most operations take together.
    pub block_rows: usize,
}

impl BlockShape {
    /// Blocks for experts of `stride` bytes.
    pub fn new(config: &Config, stride: u64, precision: Precision) -> BlockShape {
        let row_bytes = 4 * config.hidden_size;
        let kv_row_bytes = config.layers.iter().map(|s| kv_row_bytes(s, precision));
        let key_block_bytes = KEY_BLOCK * kv_row_bytes.max().unwrap_or(0);
        // Experts are the largest in every real model; a tiny one may have wide rows and small experts.
        let bytes = (stride as usize)
            .max(16 * row_bytes)
            .max(key_block_bytes)
            .next_multiple_of(AlignedBuf::ALIGNMENT);
        let part = bytes / PAGES_PER_BLOCK / PAGE_ALIGNMENT * PAGE_ALIGNMENT;
        let (pages, page_bytes) = if part >= key_block_bytes {
            (PAGES_PER_BLOCK, part)
        } else {
            (1, bytes)
        };
        let rows = bytes / row_bytes;
        let blocks = rows.div_ceil(MAX_BLOCK_ROWS);
        let block_rows = (rows / blocks / 16 * 16).clamp(16, MAX_BLOCK_ROWS);
        BlockShape {
            bytes,
            pages,
            page_bytes,
            chunk_rows: rows / block_rows * block_rows,
            block_rows,
        }
    }

    /// Positions of a layer that a page holds, in whole key blocks.
    pub fn page_rows(&self, shape: &LayerShape, precision: Precision) -> usize {
        self.page_bytes / kv_row_bytes(shape, precision) / KEY_BLOCK * KEY_BLOCK
    }

    /// Pages of layer `l` for a context of `n_tokens`.
    pub fn layer_pages(
        &self,
        config: &Config,
        l: LayerId,
        precision: Precision,
        n_tokens: usize,
    ) -> usize {
        config
            .kv_rows(l, n_tokens)
            .div_ceil(self.page_rows(&config.layer(l), precision))
    }

    /// Blocks that the KV cache needs for a context of `n_tokens`.
    pub fn kv_blocks(&self, config: &Config, precision: Precision, n_tokens: usize) -> usize {
        config
            .layer_ids()
            .map(|l| self.layer_pages(config, l, precision, n_tokens))
            .sum::<usize>()
            .div_ceil(self.pages)
    }

    /// Blocks that `n_buffers` buffers of the residual's width need for a chunk of `n_rows`.
    pub fn chunk_blocks(&self, n_buffers: usize, n_rows: usize) -> usize {
        n_buffers * n_rows.div_ceil(self.chunk_rows)
    }
}

/// Bytes of the key and the value of one position.
pub fn kv_row_bytes(shape: &LayerShape, precision: Precision) -> usize {
    2 * shape.kv_width() * element_bytes(precision)
}

/// Bytes of an element of the KV cache.
pub fn element_bytes(precision: Precision) -> usize {
    match precision {
        Precision::Exact => 4,
        Precision::Fast => 2,
    }
}
