//! A disk in memory whose faults come from a plan: it fills up, or it fails or dies at the nth change; and a power cut takes what was
//! never made durable. A test runs the same work for every n and looks at what is left.
//!
//! What a power cut may take is what POSIX allows: of each folder, every change of names since it was last made durable, the last
//! ones first; of each file, the writes since it was last made durable, each of which may be left in part, as zeros, or not at all,
//! whatever became of the others; and a file that was emptied to be written anew may have its old bytes back.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Disk, StorageError, WriteFile};

type Names = BTreeMap<OsString, usize>;

/// One change of the names in a folder.
#[derive(Clone, Debug)]
enum Change {
    Add(OsString, usize),
    Remove(OsString),
    Rename(OsString, OsString),
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Change::Add(name, id) => {
                names.insert(name.clone(), *id);
            }
            Change::Remove(name) => {
                names.remove(name);
            }
            Change::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Folder {
    names: Names,
    durable: Names,
    /// What turns `durable` into `names`.
    pending: Vec<Change>,
}

impl Folder {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }
}

#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// What survives a power cut for certain.
    durable: Vec<u8>,
    /// Where it was written since.
    pending: Vec<Range<usize>>,
    /// The durable bytes from before the file was emptied, which a power cut may bring back.
    before: Option<Vec<u8>>,
}

impl Contents {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.bytes, at, bytes);
        self.pending.push(at..at + bytes.len());
    }

    fn sync(&mut self) {
        for range in std::mem::take(&mut self.pending) {
            put(&mut self.durable, range.start, &self.bytes[range]);
        }
        self.before = None;
    }

    /// Loses what a power cut may take.
    fn cut(&mut self, random: &mut SplitMix) {
        let mut left = std::mem::take(&mut self.durable);
        for range in std::mem::take(&mut self.pending) {
            let some = range.start..range.start + random.below(range.len() + 1);
            match random.below(5) {
                0 => {}
                1 => put(&mut left, some.start, &vec![0; some.len()]),
                2 | 3 => put(&mut left, some.start, &self.bytes[some]),
                _ => put(&mut left, range.start, &self.bytes[range]),
            }
        }
        if let Some(before) = self.before.take()
            && random.below(2) == 0
        {
            left = before;
        }
        self.durable.clone_from(&left);
        self.bytes = left;
    }
}

/// Writes into bytes that grow, with zeros before what is written beyond their end.
fn put(target: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    target.resize(target.len().max(at + bytes.len()), 0);
    target[at..at + bytes.len()].copy_from_slice(bytes);
}

#[derive(Clone, Debug)]
enum Node {
    Folder(Folder),
    File(Contents),
}

/// Nodes are never dropped: a file may be open, or come back with a folder's durable names.
#[derive(Clone, Debug)]
struct State {
    /// The first is the root.
    nodes: Vec<Node>,
}

impl State {
    fn find(&self, path: &Path) -> Option<usize> {
        components(path).try_fold(0, |at, name| match &self.nodes[at] {
            Node::Folder(folder) => folder.names.get(name).copied(),
            Node::File(_) => None,
        })
    }

    fn file(&self, path: &Path) -> Option<&Contents> {
        match &self.nodes[self.find(path)?] {
            Node::File(contents) => Some(contents),
            Node::Folder(_) => None,
        }
    }

    fn contents(&mut self, id: usize) -> &mut Contents {
        match &mut self.nodes[id] {
            Node::File(contents) => contents,
            Node::Folder(_) => panic!("node {id} is a folder"),
        }
    }

    /// The folder that a path's last name is in.
    fn folder_of(&mut self, path: &Path) -> Option<&mut Folder> {
        let id = self.find(path.parent()?)?;
        match &mut self.nodes[id] {
            Node::Folder(folder) => Some(folder),
            Node::File(_) => None,
        }
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn add_file(&mut self, path: &Path) -> Result<usize, StorageError> {
        let id = self.add(Node::File(Contents::default()));
        let Some(folder) = self.folder_of(path) else {
            return Err(refused("creating", path, io::ErrorKind::NotFound));
        };
        folder.change(Change::Add(file_name(path), id));
        Ok(id)
    }

    /// Calls `f` with every file below a node and its path from there.
    fn each_file(&self, id: usize, path: &Path, f: &mut dyn FnMut(&Path, &Contents)) {
        match &self.nodes[id] {
            Node::File(contents) => f(path, contents),
            Node::Folder(folder) => {
                for (name, &child) in &folder.names {
                    self.each_file(child, &path.join(name), f);
                }
            }
        }
    }
}

fn components(path: &Path) -> impl Iterator<Item = &std::ffi::OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => panic!("{}: the simulated disk has no ..", path.display()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    FailsAt(u64),
    DiesAt(u64),
}

/// A disk in memory.
#[derive(Debug)]
pub struct SimDisk {
    state: Mutex<State>,
    fault: Option<Fault>,
    capacity: Option<u64>,
    n_changes: AtomicU64,
    largest_write: AtomicUsize,
    largest_read: AtomicUsize,
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> SimDisk {
        SimDisk::holding(vec![Node::Folder(Folder::default())])
    }

    fn holding(nodes: Vec<Node>) -> SimDisk {
        SimDisk {
            state: Mutex::new(State { nodes }),
            fault: None,
            capacity: None,
            n_changes: AtomicU64::new(0),
            largest_write: AtomicUsize::new(0),
            largest_read: AtomicUsize::new(0),
        }
    }

    /// The same contents on a disk that dies at its `n`th change from now, counted from 0: that change and every later operation fails.
    pub fn dying_at(self, n: u64) -> SimDisk {
        self.n_changes.store(0, Ordering::Relaxed);
        SimDisk {
            fault: Some(Fault::DiesAt(n)),
            ..self
        }
    }

    /// The same contents on a disk whose `n`th change from now fails, and no other.
    pub fn failing_at(self, n: u64) -> SimDisk {
        self.n_changes.store(0, Ordering::Relaxed);
        SimDisk {
            fault: Some(Fault::FailsAt(n)),
            ..self
        }
    }

    /// The same contents on a disk that holds at most `bytes`.
    pub fn with_capacity(self, bytes: u64) -> SimDisk {
        SimDisk {
            capacity: Some(bytes),
            ..self
        }
    }

    /// What is left after a power cut, on a healthy disk; `seed` decides what was lost of what was not durable.
    pub fn after_power_cut(&self, seed: u64) -> SimDisk {
        let mut random = SplitMix(seed);
        let mut nodes = self.state().nodes.clone();
        for node in &mut nodes {
            match node {
                Node::Folder(folder) => {
                    let left = random.below(folder.pending.len() + 1);
                    let mut names = std::mem::take(&mut folder.durable);
                    for change in folder.pending.drain(..).take(left) {
                        change.apply(&mut names);
                    }
                    folder.durable = names.clone();
                    folder.names = names;
                }
                Node::File(file) => file.cut(&mut random),
            }
        }
        SimDisk::holding(nodes)
    }

    /// Changes made so far.
    pub fn n_changes(&self) -> u64 {
        self.n_changes.load(Ordering::Relaxed)
    }

    /// The largest single write, in bytes.
    pub fn largest_write(&self) -> usize {
        self.largest_write.load(Ordering::Relaxed)
    }

    /// The largest single read, in bytes.
    pub fn largest_read(&self) -> usize {
        self.largest_read.load(Ordering::Relaxed)
    }

    /// Every file below `dir` with its bytes, by path relative to it.
    pub fn files_below(&self, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state();
        let mut files = BTreeMap::new();
        if let Some(id) = state.find(dir) {
            state.each_file(id, Path::new(""), &mut |path, contents| {
                files.insert(path.to_owned(), contents.bytes.clone());
            });
        }
        files
    }

    /// Flips the lowest bit of a file's byte.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, byte: usize) {
        let mut state = self.state();
        let id = state
            .find(path)
            .unwrap_or_else(|| panic!("no file {}", path.display()));
        let contents = state.contents(id);
        contents.bytes[byte] ^= 1;
        // What rots on the disk is not healed by a power cut.
        if let Some(byte) = contents.durable.get_mut(byte) {
            *byte ^= 1;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked meanwhile is lost already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, path: &Path, id: usize) -> Box<dyn WriteFile + '_> {
        Box::new(SimFile {
            disk: self,
            path: path.to_owned(),
            id,
        })
    }

    fn alive(&self, path: &Path) -> Result<(), StorageError> {
        match self.fault {
            Some(Fault::DiesAt(n)) if self.n_changes.load(Ordering::Relaxed) > n => {
                Err(failed(path))
            }
            _ => Ok(()),
        }
    }

    /// Counts a change, which fails if it is the one that is to fail.
    fn change(&self, path: &Path) -> Result<(), StorageError> {
        let n = self.n_changes.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Some(Fault::DiesAt(at)) if n >= at => Err(failed(path)),
            Some(Fault::FailsAt(at)) if n == at => Err(failed(path)),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        let mut bytes = 0;
        let state = self.state();
        state.each_file(0, Path::new(""), &mut |_, contents| {
            bytes += contents.bytes.len() as u64;
        });
        bytes
    }
}

fn failed(path: &Path) -> StorageError {
    StorageError::io(
        "writing",
        path,
        io::Error::other("the simulated disk failed"),
    )
}

fn refused(action: &'static str, path: &Path, kind: io::ErrorKind) -> StorageError {
    StorageError::io(action, path, kind.into())
}

fn file_name(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}

struct SimFile<'a> {
    disk: &'a SimDisk,
    path: PathBuf,
    id: usize,
}

impl WriteFile for SimFile<'_> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.disk
            .largest_write
            .fetch_max(bytes.len(), Ordering::Relaxed);
        let outcome = self.disk.change(&self.path);
        let room = self.disk.capacity.map(|capacity| {
            let used = self.disk.used();
            let mut state = self.disk.state();
            let own = state.contents(self.id).bytes.len() as u64;
            (capacity + own).saturating_sub(used + offset) as usize
        });
        let (n, outcome) = match (outcome, room) {
            // A write that fails may have taken part of the bytes.
            (Err(error), _) => (bytes.len() / 2, Err(error)),
            (Ok(()), Some(room)) if room < bytes.len() => (
                room,
                Err(refused("writing", &self.path, io::ErrorKind::StorageFull)),
            ),
            (Ok(()), _) => (bytes.len(), Ok(())),
        };
        let mut state = self.disk.state();
        state.contents(self.id).write(offset as usize, &bytes[..n]);
        outcome
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.disk.change(&self.path)?;
        let mut state = self.disk.state();
        state.contents(self.id).sync();
        Ok(())
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError> {
        self.change(path)?;
        let mut state = self.state();
        let id = match state.find(path) {
            Some(id) if matches!(state.nodes[id], Node::Folder(_)) => {
                return Err(refused("creating", path, io::ErrorKind::IsADirectory));
            }
            Some(id) => {
                let file = state.contents(id);
                let before = std::mem::take(&mut file.durable);
                file.before.get_or_insert(before);
                file.bytes.clear();
                file.pending.clear();
                id
            }
            None => state.add_file(path)?,
        };
        Ok(self.opened(path, id))
    }

    fn open_write(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError> {
        self.change(path)?;
        let mut state = self.state();
        let id = match state.find(path) {
            Some(id) if matches!(state.nodes[id], Node::Folder(_)) => {
                return Err(refused("creating", path, io::ErrorKind::IsADirectory));
            }
            Some(id) => id,
            None => state.add_file(path)?,
        };
        Ok(self.opened(path, id))
    }

    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError> {
        self.alive(path)?;
        self.largest_read.fetch_max(buf.len(), Ordering::Relaxed);
        let state = self.state();
        let Some(file) = state.file(path) else {
            return Err(refused("reading", path, io::ErrorKind::NotFound));
        };
        let start = (offset as usize).min(file.bytes.len());
        let n = buf.len().min(file.bytes.len() - start);
        buf[..n].copy_from_slice(&file.bytes[start..start + n]);
        Ok(n)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError> {
        self.alive(path)?;
        let state = self.state();
        Ok(state.file(path).map(|file| file.bytes.len() as u64))
    }

    fn taken(&self, path: &Path) -> Result<u64, StorageError> {
        Ok(self.file_len(path)?.unwrap_or(0))
    }

    fn exists(&self, path: &Path) -> bool {
        self.state().find(path).is_some()
    }

    fn names(&self, path: &Path) -> Result<Option<Vec<OsString>>, StorageError> {
        self.alive(path)?;
        let state = self.state();
        Ok(match state.find(path).map(|id| &state.nodes[id]) {
            Some(Node::Folder(folder)) => Some(folder.names.keys().cloned().collect()),
            Some(Node::File(_)) | None => None,
        })
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state();
        let mut dir = PathBuf::new();
        for name in components(path) {
            dir.push(name);
            if state.find(&dir).is_none() {
                let id = state.add(Node::Folder(Folder::default()));
                let Some(parent) = state.folder_of(&dir) else {
                    let kind = io::ErrorKind::NotADirectory;
                    return Err(refused("making the folder", path, kind));
                };
                parent.change(Change::Add(name.to_owned(), id));
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        self.change(from)?;
        let refused = |kind| Err(refused("renaming", from, kind));
        let mut state = self.state();
        let Some(id) = state.find(from) else {
            return refused(io::ErrorKind::NotFound);
        };
        if matches!(state.nodes[id], Node::Folder(_)) && state.find(to).is_some() {
            return refused(io::ErrorKind::AlreadyExists);
        }
        // Within one folder a rename is one change, which a power cut takes or leaves as a whole; no caller needs more.
        if from.parent() != to.parent() {
            return refused(io::ErrorKind::CrossesDevices);
        }
        let folder = state.folder_of(from).expect("a name was found in it");
        folder.change(Change::Rename(file_name(from), file_name(to)));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state();
        if state.file(path).is_some() {
            let folder = state.folder_of(path).expect("a file was found in it");
            folder.change(Change::Remove(file_name(path)));
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        // Files go one by one, each a change that may be the last.
        loop {
            self.change(path)?;
            let mut state = self.state();
            let Some(id) = state.find(path) else {
                return Ok(());
            };
            let mut first = None;
            state.each_file(id, Path::new(""), &mut |file, _| {
                first.get_or_insert_with(|| file.to_owned());
            });
            let target = first.map_or_else(|| path.to_owned(), |file| path.join(file));
            let folder = state.folder_of(&target).expect("the name was found in it");
            folder.change(Change::Remove(file_name(&target)));
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state();
        let Some(id) = state.find(path) else {
            return Err(refused("making durable", path, io::ErrorKind::NotFound));
        };
        if let Node::Folder(folder) = &mut state.nodes[id] {
            folder.durable = folder.names.clone();
            folder.pending.clear();
        }
        Ok(())
    }

    fn free_space(&self, path: &Path) -> Result<u64, StorageError> {
        self.alive(path)?;
        Ok(self.capacity.map_or(u64::MAX / 2, |capacity| {
            capacity.saturating_sub(self.used())
        }))
    }
}

/// A generator of 64-bit numbers; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
