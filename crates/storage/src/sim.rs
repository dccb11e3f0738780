//! A disk in memory whose faults come from a plan: it fills up, or it dies at the nth change, and then what was never made
//! durable may be gone. A test runs the same work for every n and looks at what is left.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use crate::{Disk, StorageError, WriteFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(u64),
}

#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Bytes that survive a power cut for certain.
    durable: usize,
}

#[derive(Clone, Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, Node>,
    durable_names: BTreeMap<PathBuf, Node>,
    files: HashMap<u64, Contents>,
    next_file: u64,
    n_changes: u64,
    largest_write: usize,
}

/// A disk in memory.
#[derive(Debug, Default)]
pub struct SimDisk {
    state: RefCell<State>,
    dies_at: Option<u64>,
    capacity: Option<u64>,
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// The same contents on a disk that dies at its `n`th change from now, counted from 0: that change and every later operation fails.
    pub fn dying_at(self, n: u64) -> SimDisk {
        self.state.borrow_mut().n_changes = 0;
        SimDisk {
            dies_at: Some(n),
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

    /// What is left after a power cut, on a healthy disk. Of the bytes that were not made durable, `seed` decides how many are left
    /// of each file and whether changes of names took effect.
    pub fn after_power_cut(&self, seed: u64) -> SimDisk {
        let mut state = self.state.borrow().clone();
        let mut random = SplitMix(seed);
        let names_kept = random.next().is_multiple_of(2);
        if !names_kept {
            state.names = state.durable_names.clone();
        }
        let mut ids: Vec<u64> = state.files.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(file) = state.files.get_mut(&id) {
                let loose = (file.bytes.len() - file.durable) as u64;
                let left = file.durable + (random.next() % (loose + 1)) as usize;
                file.bytes.truncate(left);
                file.durable = left;
            }
        }
        state.durable_names = state.names.clone();
        SimDisk {
            state: RefCell::new(state),
            dies_at: None,
            capacity: None,
        }
    }

    /// Changes made so far.
    pub fn n_changes(&self) -> u64 {
        self.state.borrow().n_changes
    }

    /// The largest single write, in bytes.
    pub fn largest_write(&self) -> usize {
        self.state.borrow().largest_write
    }

    /// Every file below `dir` with its bytes, by path relative to it.
    pub fn files_below(&self, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.state.borrow();
        let below = state.names.iter().filter_map(|(path, node)| match node {
            Node::File(id) => Some((
                path.strip_prefix(dir).ok()?.to_owned(),
                state.files[id].bytes.clone(),
            )),
            Node::Dir => None,
        });
        below.collect()
    }

    /// Flips one bit of a file.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, byte: usize) {
        let mut state = self.state.borrow_mut();
        let Some(Node::File(id)) = state.names.get(path).copied() else {
            panic!("no file {}", path.display());
        };
        let file = state.files.get_mut(&id).expect("every name has a file");
        file.bytes[byte] ^= 1;
    }

    fn alive(&self, path: &Path) -> Result<(), StorageError> {
        match self.dies_at {
            Some(n) if self.state.borrow().n_changes > n => Err(dead(path)),
            _ => Ok(()),
        }
    }

    /// Counts a change, which fails if the disk dies at it.
    fn change(&self, path: &Path) -> Result<(), StorageError> {
        let n = {
            let mut state = self.state.borrow_mut();
            state.n_changes += 1;
            state.n_changes - 1
        };
        match self.dies_at {
            Some(dies_at) if n >= dies_at => Err(dead(path)),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        self.state
            .borrow()
            .files
            .values()
            .map(|file| file.bytes.len() as u64)
            .sum()
    }
}

fn dead(path: &Path) -> StorageError {
    StorageError::io("writing", path, io::Error::other("the simulated disk died"))
}

fn not_found(action: &'static str, path: &Path) -> StorageError {
    StorageError::io(action, path, io::ErrorKind::NotFound.into())
}

struct SimFile<'a> {
    disk: &'a SimDisk,
    path: PathBuf,
    id: u64,
}

impl WriteFile for SimFile<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let outcome = self.disk.change(&self.path);
        let room = self.disk.capacity.map_or(u64::MAX, |capacity| {
            capacity.saturating_sub(self.disk.used())
        });
        let mut state = self.disk.state.borrow_mut();
        state.largest_write = state.largest_write.max(bytes.len());
        let file = state
            .files
            .get_mut(&self.id)
            .expect("an open file is not dropped");
        if let Err(error) = outcome {
            // A dying disk may have taken part of the bytes.
            file.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(error);
        }
        if (bytes.len() as u64) > room {
            file.bytes.extend_from_slice(&bytes[..room as usize]);
            let full = io::ErrorKind::StorageFull.into();
            return Err(StorageError::io("writing", &self.path, full));
        }
        file.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.disk.change(&self.path)?;
        let mut state = self.disk.state.borrow_mut();
        let file = state
            .files
            .get_mut(&self.id)
            .expect("an open file is not dropped");
        file.durable = file.bytes.len();
        Ok(())
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError> {
        self.change(path)?;
        let mut state = self.state.borrow_mut();
        let parent = path.parent().unwrap_or(Path::new(""));
        if parent != Path::new("") && state.names.get(parent) != Some(&Node::Dir) {
            return Err(not_found("creating", path));
        }
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, Contents::default());
        state.names.insert(path.to_owned(), Node::File(id));
        Ok(Box::new(SimFile {
            disk: self,
            path: path.to_owned(),
            id,
        }))
    }

    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError> {
        self.alive(path)?;
        let state = self.state.borrow();
        let Some(Node::File(id)) = state.names.get(path) else {
            return Err(not_found("reading", path));
        };
        let bytes = &state.files[id].bytes;
        let start = (offset as usize).min(bytes.len());
        let n = buf.len().min(bytes.len() - start);
        buf[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(n)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError> {
        self.alive(path)?;
        let state = self.state.borrow();
        Ok(match state.names.get(path) {
            Some(Node::File(id)) => Some(state.files[id].bytes.len() as u64),
            _ => None,
        })
    }

    fn exists(&self, path: &Path) -> bool {
        self.state.borrow().names.contains_key(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state.borrow_mut();
        for dir in path.ancestors().filter(|dir| *dir != Path::new("")) {
            state.names.entry(dir.to_owned()).or_insert(Node::Dir);
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        self.change(from)?;
        let mut state = self.state.borrow_mut();
        let Some(node) = state.names.get(from).copied() else {
            return Err(not_found("renaming", from));
        };
        if node == Node::Dir && state.names.contains_key(to) {
            return Err(StorageError::io(
                "renaming",
                from,
                io::ErrorKind::AlreadyExists.into(),
            ));
        }
        let moved: Vec<(PathBuf, Node)> = state
            .names
            .iter()
            .filter(|(path, _)| path.starts_with(from))
            .map(|(path, node)| (path.clone(), *node))
            .collect();
        for (path, node) in moved {
            state.names.remove(&path);
            let rest = path.strip_prefix(from).expect("filtered by this prefix");
            // Joining an empty rest would add a separator.
            let target = if rest == Path::new("") {
                to.to_owned()
            } else {
                to.join(rest)
            };
            state.names.insert(target, node);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state.borrow_mut();
        if let Some(Node::File(_)) = state.names.get(path) {
            state.names.remove(path);
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state.borrow_mut();
        state.names.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<(), StorageError> {
        self.change(path)?;
        let mut state = self.state.borrow_mut();
        let known: Vec<Node> = state.durable_names.values().copied().collect();
        let below: Vec<(PathBuf, Node)> = state
            .names
            .iter()
            .filter(|(name, node)| {
                let direct = name.parent() == Some(path);
                // What was durable under an old name moved with its folder.
                direct || (name.starts_with(path) && known.contains(node))
            })
            .map(|(name, node)| (name.clone(), *node))
            .collect();
        state
            .durable_names
            .retain(|name, _| !name.starts_with(path));
        state.durable_names.extend(below);
        for dir in path.ancestors().filter(|dir| *dir != Path::new("")) {
            state.durable_names.insert(dir.to_owned(), Node::Dir);
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
}
