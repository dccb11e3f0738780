//! Keeping what a turn has computed, and making room for it.

use std::ops::Range;

use ouzel_engine::LayerKind;
use ouzel_storage::{Disk, OsDisk, Region};

use super::file::{self, Header, Pieces};
use super::tree::{self, Blob, Key, Node, Place};
use super::{Kind, PrefixStore, timed};

impl PrefixStore {
    /// Keeps what the engine, which holds `tokens`, has behind the prompt and behind the answer.
    pub fn keep(&mut self, engine: &mut ouzel_engine::Session, tokens: &[u32], n_prompt: usize) {
        self.stats.last_keep = timed(|| {
            self.keep_to(engine, &tokens[..n_prompt.min(tokens.len())]);
            self.keep_to(engine, tokens);
            self.give_back_free(engine);
        });
    }

    /// Keeps, in the middle of a turn, what the engine has behind `ids`: what it would not have at the turn's end.
    pub fn keep_now(&mut self, engine: &mut ouzel_engine::Session, ids: &[u32]) {
        self.keep_to(engine, ids);
        self.give_back_free(engine);
    }

    /// Keeps what it takes to continue behind `ids`, with which the engine's tokens begin, if the engine still has that.
    fn keep_to(&mut self, engine: &mut ouzel_engine::Session, ids: &[u32]) {
        let end = ids.len();
        let held = engine.held_rows(LayerKind::Sliding);
        let seen_from = engine.seen_rows(LayerKind::Sliding, end).start;
        let can_keep = self.shapes.iter().all(|shape| shape.piece_rows > 0);
        if end == 0 || held.start > seen_from || !can_keep {
            return;
        }
        let key = Key::of(&self.identity, ids);
        // The same tokens are never kept twice, in whatever stretches they are.
        let before = self.tree.get(key).or_else(|| self.tree.deepest(ids));
        let (parent, start) = (before.map(|node| node.key), before.map_or(0, Node::end));
        if start < end {
            self.touch(parent, start);
            let mut node = Node {
                key,
                parent,
                start,
                ids: ids[start..].to_vec(),
                blobs: [None, None],
            };
            let Some(blob) = self.capture(engine, &node, Kind::Full, start..end) else {
                return;
            };
            node.blobs[Kind::Full as usize] = Some(blob);
            self.tree.insert(node);
        }
        // What the ring will lean on must not go to make room for it.
        self.touch(Some(key), end);
        self.keep_ring(engine, key, held.start, seen_from);
    }

    /// Keeps the rows of sliding layers before the end of a node that its path lacks.
    fn keep_ring(
        &mut self,
        engine: &mut ouzel_engine::Session,
        key: Key,
        held_from: usize,
        seen_from: usize,
    ) {
        let path = self.tree.path(key);
        let node = *path.last().expect("the path of a node ends with it");
        let (start, end) = (node.start, node.end());
        // One more than is seen from the end on: a repeated prompt goes one token back.
        let wanted_from = end.saturating_sub(self.window).max(held_from);
        let has_own = node.blob(Kind::Sliding).is_some();
        if has_own && tree::covered_from(&path, end) <= seen_from {
            return;
        }
        let by_ancestors = tree::covered_from(&path[..path.len() - 1], start);
        let from = if !has_own && by_ancestors <= wanted_from {
            wanted_from.max(start)
        } else {
            wanted_from
        };
        let header_of = Node {
            key,
            parent: node.parent,
            start,
            ids: Vec::new(),
            blobs: [None, None],
        };
        self.forget(key, Kind::Sliding);
        if let Some(blob) = self.capture(engine, &header_of, Kind::Sliding, from..end) {
            *self.tree.blob_mut(key, Kind::Sliding) = Some(blob);
        }
    }

    /// Says that what a context of `end` tokens on a node's path needs was used now.
    pub(super) fn touch(&mut self, key: Option<Key>, end: usize) {
        let Some(key) = key else { return };
        let keys: Vec<Key> = self.tree.path(key).iter().map(|node| node.key).collect();
        let clock = self.clock;
        for key in keys {
            if let Some(full) = self.tree.blob_mut(key, Kind::Full) {
                full.used = clock;
            }
            if let Some(ring) = self.tree.blob_mut(key, Kind::Sliding)
                && ring.rows.end + self.window > end
            {
                ring.used = clock;
            }
        }
    }

    /// Copies rows out of the engine, into memory if there is room, else into a file.
    fn capture(
        &mut self,
        engine: &mut ouzel_engine::Session,
        node: &Node,
        kind: Kind,
        rows: Range<usize>,
    ) -> Option<Blob> {
        let header = self.header(node, kind, rows.clone());
        let file_bytes = header.file_bytes()?;
        let place = if self.make_memory_room(header.n_pieces()) {
            let mut blocks = self.blocks(engine, header.n_pieces())?;
            for (nth, block) in blocks.iter_mut().enumerate() {
                save(engine, &header, header.piece(nth), block);
            }
            self.n_blocks += blocks.len();
            Place::Memory(blocks)
        } else {
            let block = self.blocks(engine, 1)?.pop()?;
            let mut live = Live {
                engine,
                header: &header,
                block,
            };
            let is_written = self.write(&header, &mut live);
            self.free.push(live.block);
            is_written.then_some(Place::Disk)?
        };
        Some(Blob {
            rows,
            place,
            file_bytes,
            used: self.clock,
        })
    }

    /// Blocks to work with; none where there are not so many.
    fn blocks(&mut self, engine: &mut ouzel_engine::Session, n: usize) -> Option<Vec<Region>> {
        let mut blocks = Vec::with_capacity(n);
        while blocks.len() < n {
            match self.free.pop().or_else(|| engine.lend()) {
                Some(block) => blocks.push(block),
                None => {
                    self.free.append(&mut blocks);
                    return None;
                }
            }
        }
        Some(blocks)
    }

    fn header(&self, node: &Node, kind: Kind, rows: Range<usize>) -> Header {
        let shape = self.shapes[kind as usize];
        Header {
            kind,
            identity: self.identity,
            key: node.key,
            parent: node.parent,
            start: node.start,
            rows,
            row_bytes: shape.row_bytes,
            piece_rows: shape.piece_rows,
            ids: match kind {
                Kind::Full => node.ids.clone(),
                Kind::Sliding => Vec::new(),
            },
        }
    }

    /// Writes a file, if the folder has room for it.
    fn write(&mut self, header: &Header, pieces: &mut dyn Pieces) -> bool {
        let bytes = header.file_bytes().unwrap_or(u64::MAX);
        if !self.make_disk_room(bytes) {
            return false;
        }
        let Some(folder) = &mut self.folder else {
            return false;
        };
        let path = file::path(&folder.dir, header.key, header.kind);
        match file::write(&path, header, pieces) {
            Ok(()) => {
                folder.bytes += bytes;
                self.stats.written_bytes += bytes;
                true
            }
            Err(error) => {
                self.troubles.of_file(&folder.dir, &error);
                false
            }
        }
    }

    /// Whether `n` blocks more may be taken, for which the least used rows move to the disk.
    fn make_memory_room(&mut self, n: usize) -> bool {
        if n > self.max_blocks {
            return false;
        }
        while self.n_blocks + n > self.max_blocks {
            let has_folder = self.folder.is_some();
            let oldest = self.oldest(|place| matches!(place, Place::Memory(_)), has_folder);
            let is_gone = oldest.is_some_and(|(key, kind)| self.spill(key, kind));
            if !is_gone {
                return false;
            }
        }
        true
    }

    /// Whether a file of so many bytes may be written, for which the least used files go.
    pub(super) fn make_disk_room(&mut self, bytes: u64) -> bool {
        loop {
            match &self.folder {
                Some(folder) if bytes <= folder.limit => {
                    if folder.bytes + bytes <= folder.limit {
                        return true;
                    }
                }
                _ => return false,
            }
            match self.oldest(|place| matches!(place, Place::Disk), false) {
                Some((key, kind)) => self.forget(key, kind),
                None => return false,
            }
        }
    }

    /// The least used rows in such a place that this turn has not used. Unless `all`, only such as nothing else depends on.
    fn oldest(&self, is_there: impl Fn(&Place) -> bool, all: bool) -> Option<(Key, Kind)> {
        let mut oldest = None;
        for node in self.tree.nodes() {
            let is_last =
                node.blob(Kind::Sliding).is_none() && self.tree.children(node.key).next().is_none();
            for kind in [Kind::Sliding, Kind::Full] {
                let may_go = all || kind == Kind::Sliding || is_last;
                let blob = node.blob(kind).filter(|blob| is_there(&blob.place));
                let Some(blob) = blob.filter(|blob| may_go && blob.used < self.clock) else {
                    continue;
                };
                if oldest.is_none_or(|(used, _, _)| blob.used < used) {
                    oldest = Some((blob.used, node.key, kind));
                }
            }
        }
        oldest.map(|(_, key, kind)| (key, kind))
    }

    /// Moves rows from memory to the disk, or drops them where that does not work and nothing depends on them.
    fn spill(&mut self, key: Key, kind: Kind) -> bool {
        let node = self.tree.get(key).expect("a node of the tree");
        let may_go = kind == Kind::Sliding
            || (node.blob(Kind::Sliding).is_none() && self.tree.children(key).next().is_none());
        let rows = node.blob(kind).expect("kept rows").rows.clone();
        let header = self.header(node, kind, rows);
        let mut blocks = match self.tree.blob_mut(key, kind).as_mut().map(|b| &mut b.place) {
            // The blob stays in its node meanwhile, so that the node does not go to make room for it.
            Some(Place::Memory(blocks)) => std::mem::take(blocks),
            _ => return false,
        };
        let is_written = self.write(&header, &mut InMemory(&mut blocks));
        let place = if is_written || may_go {
            self.n_blocks -= blocks.len();
            self.free.append(&mut blocks);
            Place::Disk
        } else {
            Place::Memory(blocks)
        };
        if let Some(blob) = self.tree.blob_mut(key, kind) {
            blob.place = place;
        }
        if may_go && !is_written {
            self.drop_unwritten(key, kind);
        }
        is_written || may_go
    }

    /// Drops rows that are nowhere.
    fn drop_unwritten(&mut self, key: Key, kind: Kind) {
        if let Some(blob) = self.tree.blob_mut(key, kind) {
            blob.place = Place::Memory(Vec::new());
        }
        self.forget(key, kind);
    }

    /// Drops everything.
    #[cfg(test)]
    pub(super) fn forget_all(&mut self) {
        for key in self.tree.leaves() {
            self.forget(key, Kind::Full);
        }
        if self.tree.nodes().next().is_some() {
            self.forget_all();
        }
    }

    /// Drops rows, and with those of full layers everything that depends on them.
    pub(super) fn forget(&mut self, key: Key, kind: Kind) {
        if kind == Kind::Sliding {
            let blob = self.tree.blob_mut(key, kind).take();
            self.discard(key, kind, blob);
            return;
        }
        for mut node in self.tree.remove(key) {
            for kind in super::KINDS {
                let blob = node.blobs[kind as usize].take();
                self.discard(node.key, kind, blob);
            }
        }
    }

    fn discard(&mut self, key: Key, kind: Kind, blob: Option<Blob>) {
        let Some(blob) = blob else { return };
        match (blob.place, &mut self.folder) {
            (Place::Memory(blocks), _) => {
                self.n_blocks -= blocks.len();
                self.free.extend(blocks);
            }
            (Place::Disk, Some(folder)) => {
                folder.bytes -= blob.file_bytes;
                // A file that stays behind is found, or refused, next time.
                let _ = OsDisk.remove_file(&file::path(&folder.dir, key, kind));
            }
            (Place::Disk, None) => {}
        }
    }
}

impl PrefixStore {
    /// Writes what is in memory to the disk, as far as there is room, so that it outlives the session; the least used goes first, so that the
    /// most used stays.
    pub fn put_away(&mut self) {
        self.clock += 1;
        while self.folder.is_some() {
            let oldest = self.oldest(|place| matches!(place, Place::Memory(_)), true);
            let Some((key, kind)) = oldest else { break };
            if !self.spill(key, kind) {
                break;
            }
        }
    }
}

impl Drop for PrefixStore {
    fn drop(&mut self) {
        self.put_away();
        if let Some(folder) = self.folder.take() {
            folder.lock.release();
        }
    }
}

/// Rows on their way out of an engine.
struct Live<'a> {
    engine: &'a ouzel_engine::Session,
    header: &'a Header,
    block: Region,
}

impl Pieces for Live<'_> {
    fn piece(&mut self, _: usize, rows: Range<usize>) -> &mut [u8] {
        save(self.engine, self.header, rows, &mut self.block);
        &mut self.block
    }
}

/// Rows in memory, a piece a block.
struct InMemory<'a>(&'a mut [Region]);

impl Pieces for InMemory<'_> {
    fn piece(&mut self, nth: usize, _: Range<usize>) -> &mut [u8] {
        &mut self.0[nth]
    }
}

fn save(engine: &ouzel_engine::Session, header: &Header, rows: Range<usize>, block: &mut [u8]) {
    let bytes = rows.len() * header.row_bytes;
    engine.save_rows(header.kind.layers(), rows, &mut block[..bytes]);
}
