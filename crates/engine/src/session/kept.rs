//! What a session has computed, out to another place and back.
//!
//! The rows of keys and values are all that later tokens need of earlier ones. They are bits like any other: what comes back gives the
//! logits that computing again would give. The session neither knows where they are kept nor whose tokens they belong to; it lends
//! blocks of the arena to whoever does.

use std::ops::Range;

use ouzel_storage::Region;

use super::Session;
use crate::blocks::Lender;
use crate::config::LayerKind;
use crate::kv::row_bytes;
use crate::{EngineError, Precision};

impl Session {
    /// How the session keeps keys and values.
    pub fn precision(&self) -> Precision {
        self.cpu.precision()
    }

    /// Bytes of the keys and values of one position in all layers of a kind.
    pub fn row_bytes(&self, kind: LayerKind) -> usize {
        row_bytes(self.model.config(), self.precision(), kind)
    }

    /// The positions whose rows are at hand in all layers of a kind.
    pub fn held_rows(&self, kind: LayerKind) -> Range<usize> {
        self.cpu.kv.held(kind, self.position)
    }

    /// The rows that a token at `position` sees behind it, without which no context can be restored to there.
    pub fn seen_rows(&self, kind: LayerKind, position: usize) -> Range<usize> {
        self.cpu.kv.seen(kind, position)
    }

    /// Whether decoding one more token would cost the rows that a token at `position` sees: the last moment to keep them.
    pub fn is_about_to_lose(&self, position: usize) -> bool {
        self.cpu.kv.is_about_to_lose(self.position, position)
    }

    /// Copies the rows of `positions` to `out`: `[layers of the kind][keys, values][n_kv_heads][n, head_dim]`.
    ///
    /// # Panics
    /// If not all of them are held, or `out` has another length.
    pub fn save_rows(&self, kind: LayerKind, positions: Range<usize>, out: &mut [u8]) {
        let held = self.held_rows(kind);
        assert!(
            held.start <= positions.start && positions.end <= held.end,
            "rows {positions:?} of {held:?}"
        );
        self.cpu.kv.save_rows(kind, positions, out);
    }

    /// Begins to bring a context of `position` tokens back. The rows of full layers before `kept` are those of the present context, if
    /// it is so long; every other row that is [`Restore::needed`] has to come. Until then the session is empty for everyone else.
    ///
    /// # Errors
    /// [`EngineError::ContextFull`] changes nothing.
    pub fn restore(&mut self, position: usize, kept: usize) -> Result<Restore<'_>, EngineError> {
        self.abandon_prefill();
        let capacity = self.capacity();
        if position > capacity {
            return Err(EngineError::ContextFull {
                n_tokens: position,
                position: 0,
                capacity,
            });
        }
        let kept = kept.min(self.position).min(position);
        self.position = 0;
        self.cpu.kv.begin_restore(position, &mut self.cpu.store);
        Ok(Restore {
            n_missing: [LayerKind::Full, LayerKind::Sliding]
                .map(|kind| needed(self, kind, position, kept).len()),
            session: self,
            position,
            kept,
            is_finished: false,
        })
    }

    /// Lends a block of the arena, as long as not all blocks that the budget counted for the caller are lent; see
    /// [`Options::kept_bytes`](crate::Options::kept_bytes). A slot gives way.
    pub fn lend(&mut self) -> Option<Region> {
        (self.n_lent < self.budget.kept_blocks).then(|| {
            self.n_lent += 1;
            self.cpu.store.lend()
        })
    }

    /// Takes back a block that was lent.
    pub fn give_back(&mut self, block: Region) {
        self.n_lent -= 1;
        self.cpu.store.give_back(block);
    }
}

/// A context on its way back; dropped before its end, it leaves the session empty.
pub struct Restore<'s> {
    session: &'s mut Session,
    position: usize,
    kept: usize,
    /// Rows that have not come, of full and of sliding layers.
    n_missing: [usize; 2],
    is_finished: bool,
}

impl Restore<'_> {
    /// The rows that must come.
    pub fn needed(&self, kind: LayerKind) -> Range<usize> {
        needed(self.session, kind, self.position, self.kept)
    }

    /// Takes rows, each needed one once and in any order: those of `wanted` among the rows of `positions`, whose bytes are as
    /// [`Session::save_rows`] gave them.
    ///
    /// # Panics
    /// If `wanted` is not needed or not in `positions`, or the bytes are not as long.
    pub fn load(
        &mut self,
        kind: LayerKind,
        positions: Range<usize>,
        bytes: &[u8],
        wanted: Range<usize>,
    ) {
        let needed = self.needed(kind);
        assert!(needed.start <= wanted.start && wanted.end <= needed.end);
        let missing = match kind {
            LayerKind::Full => &mut self.n_missing[0],
            LayerKind::Sliding => &mut self.n_missing[1],
        };
        *missing = missing.checked_sub(wanted.len()).expect("each row once");
        let kv = &mut self.session.cpu.kv;
        kv.load_rows(kind, positions, bytes, wanted);
    }

    /// Ends: the session stands behind the restored tokens. There are no logits until another token comes.
    ///
    /// # Panics
    /// If rows are missing.
    pub fn finish(mut self) {
        assert_eq!(self.n_missing, [0, 0], "rows that never came");
        self.session.position = self.position;
        self.is_finished = true;
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.session.reset();
        }
    }
}

fn needed(session: &Session, kind: LayerKind, position: usize, kept: usize) -> Range<usize> {
    match kind {
        LayerKind::Full => kept..position,
        LayerKind::Sliding => session.seen_rows(kind, position),
    }
}
