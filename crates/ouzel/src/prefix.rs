//! What a session keeps of the conversations that it has had.
//!
//! After each turn the rows behind its prompt and behind its answer are kept, and on the way those behind its system turn, which other
//! conversations share; a prompt that begins like something kept continues from the longest point that can be restored. Kept are rows of keys and values as they are, never text, so a continued answer has the bits of
//! one that was computed from the first token on. Rows live in blocks of the arena as far as they were asked for, and else in
//! files; the least used move from memory to disk and from the disk away. Nothing here can make an answer fail: what cannot be kept
//! is not kept, which is told once, and a file that is not exactly what was written is removed and computed again.

pub(crate) mod align;
pub(crate) mod file;
mod keep;
mod point;
mod restore;
#[cfg(test)]
mod tests;
mod tree;
mod trouble;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ouzel_engine::{IoMode, LayerKind};
use ouzel_storage::{DirLock, Disk, OsDisk, Region, Sha256, StorageError, create_private_dir};
use ouzel_tokenizer::Tokenizer;

use crate::PrefixOptions;
use align::{align, common};
use file::{Header, KeptFile, piece_rows};
use tree::{Key, Node, Place, Tree};
use trouble::Troubles;

/// Restoring costs some 200 MiB of reads in the full model; fewer tokens than these are computed sooner, since a prompt's rest has to
/// be computed anyway.
const MIN_GAIN_TOKENS: usize = 16;
/// Tokens that conversations share with which it is worth stopping a prompt: the stop makes one chunk more, for which the full model reads its
/// experts once more, and that takes about as long as computing so many tokens.
const MIN_SHARED_TOKENS: usize = 256;
/// Counts the changes of any arithmetic that show in a bit of a row, within a version: rows that a program before such a change kept on
/// disk would go on as an answer that no program gives.
const ARITHMETIC: u32 = 2;

/// Rows of which layers. The numbers stand in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Full = 0,
    Sliding = 1,
}

const KINDS: [Kind; 2] = [Kind::Full, Kind::Sliding];

impl Kind {
    fn layers(self) -> LayerKind {
        match self {
            Kind::Full => LayerKind::Full,
            Kind::Sliding => LayerKind::Sliding,
        }
    }
}

/// What is kept, and what keeping it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixStats {
    /// Stretches of conversations.
    pub n_stretches: usize,
    /// Bytes of the arena that they take.
    pub memory_bytes: u64,
    /// Whether files are kept: false without a folder, or where it cannot be used or another process uses it.
    pub uses_disk: bool,
    /// Bytes of files.
    pub disk_bytes: u64,
    /// Bytes written to files so far.
    pub written_bytes: u64,
    /// Files that were not what had been written, and were removed.
    pub n_damaged: u64,
    /// Time that keeping the last turn took, after its answer.
    pub last_keep: Duration,
}

/// Bytes of a row, and rows of a piece.
#[derive(Clone, Copy, Debug)]
struct RowShape {
    row_bytes: usize,
    piece_rows: usize,
}

#[derive(Debug)]
struct Folder {
    dir: PathBuf,
    limit: u64,
    bytes: u64,
    /// One process keeps its files there at a time.
    lock: DirLock,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct PrefixStore {
    tree: Tree,
    identity: [u8; 32],
    /// By kind.
    shapes: [RowShape; 2],
    window: usize,
    block_bytes: usize,
    /// Blocks that kept rows may take, and those that they take.
    max_blocks: usize,
    n_blocks: usize,
    /// Blocks that were taken back and go to the engine next.
    free: Vec<Region>,
    folder: Option<Folder>,
    io: IoMode,
    min_gain: usize,
    /// Counts turns.
    clock: u64,
    stats: PrefixStats,
    troubles: Troubles,
}

/// How far a prompt can be continued from what is there.
#[derive(Debug)]
pub(crate) struct Reach {
    /// The prompt, in the ids that are there where only the cut into tokens differs.
    pub prompt: Vec<u32>,
    /// Tokens of it that need no computing; never all, since the last one's logits are needed.
    pub n_tokens: usize,
}

impl Reach {
    /// How far the ids that the engine holds reach.
    pub fn of_held(
        engine: &ouzel_engine::Session,
        held: &[u32],
        prompt: &[u32],
        tokenizer: Option<&Tokenizer>,
    ) -> Reach {
        let (prompt, n) = aligned(held, prompt, tokenizer, engine.capacity());
        let n_tokens = if engine.can_rewind(n) { n } else { 0 };
        Reach { prompt, n_tokens }
    }
}

/// The prompt as [`align`] gives it, unless that has no room, and how much of it `held` begins with, but for its last token.
fn aligned(
    held: &[u32],
    prompt: &[u32],
    tokenizer: Option<&Tokenizer>,
    capacity: usize,
) -> (Vec<u32>, usize) {
    let ids = tokenizer.map(|tokenizer| align(held, prompt, tokenizer));
    let ids = ids.filter(|ids| ids.len() < capacity);
    let ids = ids.unwrap_or_else(|| prompt.to_vec());
    let n = common(held, &ids).min(ids.len() - 1);
    (ids, n)
}

impl PrefixStore {
    /// An empty store, or what an earlier one left in the folder. A folder that cannot be used, or that another process uses, is not used.
    pub fn open(
        engine: &ouzel_engine::Session,
        options: &PrefixOptions,
        io: IoMode,
    ) -> PrefixStore {
        let block_bytes = engine.budget().blocks.bytes;
        let shapes = KINDS.map(|kind| {
            let row_bytes = engine.row_bytes(kind.layers());
            RowShape {
                row_bytes,
                piece_rows: piece_rows(block_bytes, row_bytes),
            }
        });
        let mut troubles = Troubles::default();
        let folder = options.dir.as_deref().and_then(|dir| {
            let opened = Folder::open(dir, options.disk_bytes);
            opened
                .inspect_err(|error| troubles.of_folder(dir, error))
                .ok()
        });
        let mut store = PrefixStore {
            tree: Tree::default(),
            identity: identity(engine),
            shapes,
            window: engine.model().config().sliding_window,
            block_bytes,
            max_blocks: options.memory_bytes.div_ceil(block_bytes as u64) as usize,
            n_blocks: 0,
            free: Vec::new(),
            folder,
            io,
            min_gain: MIN_GAIN_TOKENS,
            clock: 0,
            stats: PrefixStats::default(),
            troubles,
        };
        store.find_files();
        store
    }

    /// What is kept.
    pub fn stats(&self) -> PrefixStats {
        PrefixStats {
            n_stretches: self.tree.nodes().count(),
            memory_bytes: (self.n_blocks * self.block_bytes) as u64,
            uses_disk: self.folder.is_some(),
            disk_bytes: self.folder.as_ref().map_or(0, |folder| folder.bytes),
            ..self.stats
        }
    }

    /// Why conversations are not kept on the disk, as far as this was not asked before; each kind of trouble once.
    pub fn take_troubles(&mut self) -> Vec<String> {
        self.troubles.take()
    }

    /// Brings the engine, which holds `tokens`, to where `prompt` continues, and gives the prompt in the ids that are then held; its
    /// own without a tokenizer.
    pub fn begin(
        &mut self,
        engine: &mut ouzel_engine::Session,
        tokens: &mut Vec<u32>,
        prompt: &[u32],
        tokenizer: Option<&Tokenizer>,
    ) -> Vec<u32> {
        self.clock += 1;
        loop {
            let held = Reach::of_held(engine, tokens, prompt, tokenizer);
            let found = self.find(prompt, tokenizer, engine.capacity());
            let Some((leaf, reach)) =
                found.filter(|(_, reach)| reach.n_tokens >= held.n_tokens + self.min_gain)
            else {
                rewind(engine, tokens, held.n_tokens);
                return held.prompt;
            };
            match self.restore(engine, tokens, leaf, reach.n_tokens) {
                Ok(()) => return reach.prompt,
                Err((key, kind)) => {
                    self.stats.n_damaged += 1;
                    tokens.truncate(engine.position());
                    self.forget(key, kind);
                    self.give_back_free(engine);
                }
            }
        }
    }

    /// The leaf whose path continues the prompt farthest.
    fn find(
        &self,
        prompt: &[u32],
        tokenizer: Option<&Tokenizer>,
        capacity: usize,
    ) -> Option<(Key, Reach)> {
        let reach = |leaf: Key| {
            let path = self.tree.path(leaf);
            let ids = tree::ids_of(&path);
            let (prompt, n) = aligned(&ids, prompt, tokenizer, capacity);
            let n_tokens = tree::farthest(&path, self.window, n);
            (leaf, Reach { prompt, n_tokens })
        };
        let leaves = self.tree.leaves().into_iter();
        leaves.map(reach).max_by_key(|(_, reach)| reach.n_tokens)
    }

    /// Where a prompt, of which the engine holds `n_held` tokens, should stop on its way so that what precedes it is kept: the end of its
    /// system turn, unless that is short, passed or kept already.
    pub fn point_on_the_way(
        &self,
        prompt: &[u32],
        n_held: usize,
        tokenizer: &Tokenizer,
    ) -> Option<usize> {
        let end = point::end_of_system_turn(prompt, tokenizer)?;
        let is_worth_it = end >= MIN_SHARED_TOKENS && end > n_held;
        (is_worth_it && !self.has(&prompt[..end])).then_some(end)
    }

    /// Whether a context of exactly these tokens can be restored.
    fn has(&self, ids: &[u32]) -> bool {
        let path = self.tree.path(Key::of(&self.identity, ids));
        !path.is_empty() && tree::farthest(&path, self.window, ids.len()) == ids.len()
    }

    /// Loads what the session had kept on disk when it ended last; whatever else has a name of ours goes.
    fn find_files(&mut self) {
        let Some(folder) = &self.folder else { return };
        let dir = folder.dir.clone();
        let names = OsDisk.names(&dir).ok().flatten().unwrap_or_default();
        let names = names.iter().filter_map(|name| name.to_str());
        let mut files = Vec::new();
        for name in names.filter(|name| file::is_ours(name)) {
            let path = dir.join(name);
            match KeptFile::open(&path, self.io).map(|file| file.header) {
                Some(header) if self.is_expected(&header, &path) => files.push((path, header)),
                _ => self.remove_odd(&path),
            }
        }
        files.sort_by_key(|(path, header)| (header.kind as u32, header.start, age(path)));
        let mut ages: Vec<_> = files.iter().map(|(path, _)| age(path)).collect();
        ages.sort();
        for (path, header) in files {
            self.clock = 1 + ages.partition_point(|other| *other < age(&path)) as u64;
            if !self.add_file(header) {
                self.remove_odd(&path);
            }
        }
        self.clock = 1 + ages.len() as u64;
        self.make_disk_room(0);
    }

    fn is_expected(&self, header: &Header, path: &Path) -> bool {
        let shape = self.shapes[header.kind as usize];
        let dir = path.parent().unwrap_or(Path::new(""));
        header.identity == self.identity
            && header.row_bytes == shape.row_bytes
            && header.piece_rows == shape.piece_rows
            && file::path(dir, header.key, header.kind) == path
    }

    /// Takes a file into the tree, if its node and its parent are there or it is the node.
    fn add_file(&mut self, header: Header) -> bool {
        let Some(bytes) = header.file_bytes() else {
            return false;
        };
        let blob = tree::Blob {
            rows: header.rows.clone(),
            place: Place::Disk,
            file_bytes: bytes,
            used: self.clock,
        };
        let is_added = match header.kind {
            Kind::Full => self.add_node(&header, blob),
            Kind::Sliding => {
                let node = self.tree.get(header.key);
                let fits = node.is_some_and(|node| {
                    (node.start, node.end()) == (header.start, header.rows.end)
                });
                if fits {
                    *self.tree.blob_mut(header.key, Kind::Sliding) = Some(blob);
                }
                fits
            }
        };
        if is_added && let Some(folder) = &mut self.folder {
            folder.bytes += bytes;
        }
        is_added
    }

    fn add_node(&mut self, header: &Header, blob: tree::Blob) -> bool {
        let path = header.parent.map_or(Vec::new(), |key| self.tree.path(key));
        let mut ids = tree::ids_of(&path);
        let is_behind = ids.len() == header.start && header.parent.is_some() != ids.is_empty();
        ids.extend(&header.ids);
        let is_whole = header.rows == (header.start..ids.len());
        if !is_behind || !is_whole || Key::of(&self.identity, &ids) != header.key {
            return false;
        }
        self.tree.insert(Node {
            key: header.key,
            parent: header.parent,
            start: header.start,
            ids: header.ids.clone(),
            blobs: [Some(blob), None],
        });
        true
    }

    fn remove_odd(&mut self, path: &Path) {
        self.stats.n_damaged += 1;
        // What cannot be removed is refused again next time.
        let _ = OsDisk.remove_file(path);
    }

    fn give_back_free(&mut self, engine: &mut ouzel_engine::Session) {
        self.free
            .drain(..)
            .for_each(|block| engine.give_back(block));
    }
}

impl Folder {
    fn open(dir: &Path, limit: u64) -> Result<Folder, StorageError> {
        create_private_dir(dir)?;
        Ok(Folder {
            dir: dir.to_owned(),
            limit,
            bytes: 0,
            lock: DirLock::try_acquire(&DirLock::path_for(dir))?,
        })
    }
}

/// Goes back to the first `n` of the tokens that are held, or to none.
pub(crate) fn rewind(engine: &mut ouzel_engine::Session, tokens: &mut Vec<u32>, n: usize) {
    if !engine.rewind(n) {
        engine.reset();
    }
    tokens.truncate(engine.position());
}

/// Whatever makes rows what they are: every file of the model, tokenizer and template included, by the hashes of the manifest; and how
/// the session computes, in which program. The instruction set is no part of it, since it shows in no bit.
fn identity(engine: &ouzel_engine::Session) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION").as_bytes());
    hash.update(&ARITHMETIC.to_le_bytes());
    hash.update(&engine.model().manifest().encode());
    hash.update(format!("{:?}", engine.precision()).as_bytes());
    hash.finish()
}

/// When a file was written, as far as the system says.
fn age(path: &Path) -> Duration {
    let modified = path.metadata().and_then(|meta| meta.modified());
    let since = modified.map(|time| time.duration_since(std::time::UNIX_EPOCH));
    since.ok().and_then(Result::ok).unwrap_or_default()
}

/// Runs `f` and says how long it took.
fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}
