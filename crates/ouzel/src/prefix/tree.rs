//! What is kept, as a tree over token ids: pure, but for the memory that it owns.
//!
//! A node is a stretch of tokens behind its parent's; together they are the conversation so far. A node has the rows of full layers
//! for its own tokens, and the rows of sliding layers for the last of them: no more than a window before its end, and none that its
//! ancestors have. So conversations that begin alike share what they share, each turn adds only what is new, and a context can
//! be restored to every position whose window is covered.
//!
//! Rows of full layers are useless without those of all ancestors; rows of sliding layers may go at any time, and only make some
//! positions unreachable.

use std::collections::BTreeMap;
use std::ops::Range;

use ouzel_storage::{Region, Sha256};

use super::Kind;

/// Names a node: a hash of the model's identity and of all tokens up to the node's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub [u8; 32]);

impl Key {
    /// The key of these tokens.
    pub fn of(identity: &[u8; 32], ids: &[u32]) -> Key {
        let mut hash = Sha256::new();
        hash.update(identity);
        ids.iter().for_each(|id| hash.update(&id.to_le_bytes()));
        Key(hash.finish())
    }
}

/// Where rows are kept.
#[derive(Debug)]
pub enum Place {
    /// In blocks of the arena, one piece each.
    Memory(Vec<Region>),
    /// In the file that node and kind name.
    Disk,
}

/// The rows of some consecutive positions.
#[derive(Debug)]
pub struct Blob {
    pub rows: Range<usize>,
    pub place: Place,
    /// Bytes of its file.
    pub file_bytes: u64,
    /// When it was used last.
    pub used: u64,
}

#[derive(Debug)]
pub struct Node {
    pub key: Key,
    pub parent: Option<Key>,
    /// Tokens of all ancestors.
    pub start: usize,
    pub ids: Vec<u32>,
    /// By kind.
    pub blobs: [Option<Blob>; 2],
}

impl Node {
    /// Tokens up to its end.
    pub fn end(&self) -> usize {
        self.start + self.ids.len()
    }

    pub fn blob(&self, kind: Kind) -> Option<&Blob> {
        self.blobs[kind as usize].as_ref()
    }
}

/// Rows that a restored context takes from a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub key: Key,
    pub kind: Kind,
    pub wanted: Range<usize>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<Key, Node>,
}

impl Tree {
    pub fn get(&self, key: Key) -> Option<&Node> {
        self.nodes.get(&key)
    }

    pub fn blob_mut(&mut self, key: Key, kind: Kind) -> &mut Option<Blob> {
        let node = self.nodes.get_mut(&key).expect("a node of the tree");
        &mut node.blobs[kind as usize]
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Adds a node, whose parent is there.
    pub fn insert(&mut self, node: Node) {
        self.nodes.insert(node.key, node);
    }

    /// Takes a node and all behind it out.
    pub fn remove(&mut self, key: Key) -> Vec<Node> {
        let children: Vec<Key> = self.children(key).map(|node| node.key).collect();
        let mut removed: Vec<Node> = children
            .into_iter()
            .flat_map(|key| self.remove(key))
            .collect();
        removed.extend(self.nodes.remove(&key));
        removed
    }

    pub fn children(&self, key: Key) -> impl Iterator<Item = &Node> {
        self.nodes
            .values()
            .filter(move |node| node.parent == Some(key))
    }

    /// The nodes from the first token to the end of a node.
    pub fn path(&self, key: Key) -> Vec<&Node> {
        let mut path: Vec<&Node> =
            std::iter::successors(self.get(key), |node| self.get(node.parent?)).collect();
        path.reverse();
        path
    }

    /// The keys of nodes behind which nothing follows.
    pub fn leaves(&self) -> Vec<Key> {
        let is_leaf = |node: &&Node| self.children(node.key).next().is_none();
        self.nodes
            .values()
            .filter(is_leaf)
            .map(|node| node.key)
            .collect()
    }

    /// A node with many tokens, all of which `ids` begins with: of each node's children the longest that fits.
    pub fn deepest(&self, ids: &[u32]) -> Option<&Node> {
        let mut at: Option<&Node> = None;
        loop {
            let (key, start) = (at.map(|node| node.key), at.map_or(0, Node::end));
            let rest = &ids[start..];
            let next = self.nodes.values().filter(|node| node.parent == key);
            let next = next.filter(|node| rest.starts_with(&node.ids));
            match next.max_by_key(|node| node.ids.len()) {
                Some(node) => at = Some(node),
                None => return at,
            }
        }
    }
}

/// All tokens of a path.
pub fn ids_of(path: &[&Node]) -> Vec<u32> {
    path.iter().flat_map(|node| &node.ids).copied().collect()
}

/// The lowest position from which on the sliding rows of a path are there up to `end`.
pub fn covered_from(path: &[&Node], end: usize) -> usize {
    let mut from = end;
    for node in path.iter().rev() {
        if let Some(ring) = node.blob(Kind::Sliding)
            && ring.rows.end >= from
        {
            from = from.min(ring.rows.start);
        }
    }
    from
}

/// The last position, `limit` at most, to which the rows of a path restore a context; 0 if there is none.
pub fn farthest(path: &[&Node], window: usize, limit: usize) -> usize {
    let whole = path
        .iter()
        .take_while(|node| node.blob(Kind::Full).is_some());
    let limit = whole.last().map_or(0, |node| node.end()).min(limit);
    let ends = path
        .iter()
        .filter_map(|node| Some(node.blob(Kind::Sliding)?.rows.end));
    let reaches = |end: usize| {
        let position = end.min(limit);
        let seen_from = (position + 1).saturating_sub(window);
        (covered_from(path, end) <= seen_from).then_some(position)
    };
    ends.filter_map(reaches).max().unwrap_or(0)
}

/// What it takes to restore a context to a position that [`farthest`] allows, where the full rows before `kept` are there already.
pub fn needs(path: &[&Node], window: usize, position: usize, kept: usize) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut add = |key, kind, wanted: Range<usize>| {
        if !wanted.is_empty() {
            needs.push(Need { key, kind, wanted });
        }
    };
    for node in path {
        let wanted = node.start.max(kept)..node.end().min(position);
        add(node.key, Kind::Full, wanted);
    }
    let seen_from = (position + 1).saturating_sub(window).min(position);
    let mut missing_to = position;
    for node in path.iter().rev() {
        if let Some(ring) = node.blob(Kind::Sliding)
            && ring.rows.end >= missing_to
        {
            let from = ring.rows.start.max(seen_from).min(missing_to);
            add(node.key, Kind::Sliding, from..missing_to);
            missing_to = from;
        }
    }
    needs
}
