//! Byte-pair merging of one piece of text: the symbols as a linked list, the possible merges in a heap.
//!
//! A piece of n symbols costs at most 3n heap entries (each merge adds two), so a long piece without any cut stays O(n log n). The order
//! of merges is the reference's to the letter, including one oddity: a heap entry that has become stale still counts if the pair now
//! at its place merges into the same token, even though that pair's own rank may differ.

use crate::image::Tables;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: usize = usize::MAX;

struct Symbol {
    id: u32,
    /// False once it was merged into its left neighbour.
    alive: bool,
    previous: usize,
    next: usize,
}

/// Scratch for merging pieces, reused from piece to piece.
#[derive(Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    /// Lowest rank first, leftmost first on equal rank: (rank, position of the left symbol, result).
    queue: BinaryHeap<Reverse<(u32, usize, u32)>>,
    /// Symbols and heap entries handled since the start: the measure of work that tests look at.
    pub steps: u64,
}

impl Merger {
    /// Appends one scalar value: its token, or the tokens of its UTF-8 bytes.
    pub fn push_char(&mut self, tables: Tables<'_>, c: char) {
        match tables.char_id(c) {
            Some(id) => self.push(id),
            None => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    self.push(tables.byte_id(byte));
                }
            }
        }
    }

    fn push(&mut self, id: u32) {
        let at = self.symbols.len();
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        self.symbols.push(Symbol {
            id,
            alive: true,
            previous: at.wrapping_sub(1),
            next: NONE,
        });
    }

    /// Merges the symbols pushed so far, appends their ids and starts the next piece.
    pub fn finish_piece(&mut self, tables: Tables<'_>, ids: &mut Vec<u32>) {
        self.steps += self.symbols.len() as u64;
        for left in 0..self.symbols.len().saturating_sub(1) {
            self.consider(tables, left);
        }
        while let Some(Reverse((_, left, result))) = self.queue.pop() {
            self.steps += 1;
            self.apply(tables, left, result);
        }
        ids.extend(self.symbols.iter().filter(|s| s.alive).map(|s| s.id));
        self.symbols.clear();
    }

    /// Queues the merge of a symbol with its right neighbour, where there is one.
    fn consider(&mut self, tables: Tables<'_>, left: usize) {
        if let Some((rank, result)) = self.merge_at(tables, left) {
            self.queue.push(Reverse((rank, left, result)));
        }
    }

    fn merge_at(&self, tables: Tables<'_>, left: usize) -> Option<(u32, u32)> {
        let symbol = self.symbols.get(left)?;
        let right = self.symbols.get(symbol.next)?;
        tables.merge(symbol.id, right.id)
    }

    fn apply(&mut self, tables: Tables<'_>, left: usize, result: u32) {
        if !self.symbols[left].alive
            || self
                .merge_at(tables, left)
                .is_none_or(|(_, now)| now != result)
        {
            return;
        }
        let right = self.symbols[left].next;
        let after = self.symbols[right].next;
        self.symbols[right].alive = false;
        self.symbols[left].id = result;
        self.symbols[left].next = after;
        if let Some(symbol) = self.symbols.get_mut(after) {
            symbol.previous = left;
        }
        if self.symbols[left].previous != NONE {
            self.consider(tables, self.symbols[left].previous);
        }
        self.consider(tables, left);
    }
}
