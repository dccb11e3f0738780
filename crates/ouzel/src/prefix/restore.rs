//! Bringing kept rows back: those in memory are copied, those on disk are read by a few threads, each into a block of its own, checked
//! there, and copied while the others read.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use ouzel_engine::Restore;
use ouzel_storage::Region;

use super::align::common;
use super::file::{self, KeptFile};
use super::tree::{self, Key, Need, Place};
use super::{Kind, PrefixStore};

/// Reads in flight: as many as experts have.
const N_READERS: usize = 4;

/// A piece of a file, and which of its rows are wanted.
struct Job<'a> {
    file: &'a KeptFile,
    need: &'a Need,
    nth: usize,
}

/// A piece that was read, or not.
struct Arrival {
    job: usize,
    reader: usize,
    block: Region,
    is_sound: bool,
}

impl PrefixStore {
    /// Restores the first `position` tokens of a leaf's path. An error names rows that are not what was kept; the engine is empty then.
    pub(super) fn restore(
        &mut self,
        engine: &mut ouzel_engine::Session,
        tokens: &mut Vec<u32>,
        leaf: Key,
        position: usize,
    ) -> Result<(), (Key, Kind)> {
        let path = self.tree.path(leaf);
        let ids = tree::ids_of(&path);
        let kept = common(tokens, &ids).min(position);
        let needs = tree::needs(&path, self.window, position, kept);
        let files = self.open_files(&needs)?;
        let mut blocks = std::mem::take(&mut self.free);
        while blocks.len() < N_READERS && !files.is_empty() {
            match engine.lend() {
                Some(block) => blocks.push(block),
                None => break,
            }
        }
        let result = self.load(engine, (position, kept), &needs, &files, &mut blocks);
        blocks.into_iter().for_each(|block| engine.give_back(block));
        drop(files);
        result?;
        tokens.clear();
        tokens.extend_from_slice(&ids[..position]);
        self.touch(Some(leaf), position);
        Ok(())
    }

    fn load(
        &self,
        engine: &mut ouzel_engine::Session,
        (position, kept): (usize, usize),
        needs: &[Need],
        files: &[Option<KeptFile>],
        blocks: &mut Vec<Region>,
    ) -> Result<(), (Key, Kind)> {
        let unfit = needs.first().map(|need| (need.key, need.kind));
        let restore = engine.restore(position, kept);
        let Some(mut restore) = restore.ok() else {
            return unfit.map_or(Ok(()), Err);
        };
        for need in needs {
            self.load_from_memory(need, &mut restore);
        }
        let with_files = needs.iter().zip(files);
        let jobs: Vec<Job<'_>> = with_files
            .filter_map(|(need, file)| Some((need, file.as_ref()?)))
            .flat_map(|(need, file)| {
                let pieces = file.header.pieces_of(&need.wanted);
                pieces.map(move |nth| Job { file, need, nth })
            })
            .collect();
        read_all(&jobs, blocks, &mut restore)?;
        restore.finish();
        Ok(())
    }

    /// Opens the files of those needs that are on disk.
    fn open_files(&self, needs: &[Need]) -> Result<Vec<Option<KeptFile>>, (Key, Kind)> {
        let open = |need: &Need| {
            let lost = (need.key, need.kind);
            let node = self.tree.get(need.key).ok_or(lost)?;
            let blob = node.blob(need.kind).ok_or(lost)?;
            let (Place::Disk, Some(folder)) = (&blob.place, &self.folder) else {
                return Ok(None);
            };
            let path = file::path(&folder.dir, need.key, need.kind);
            let file = KeptFile::open(&path, self.io).ok_or(lost)?;
            let is_same = self.is_expected(&file.header, &path) && file.header.rows == blob.rows;
            is_same.then_some(Some(file)).ok_or(lost)
        };
        needs.iter().map(open).collect()
    }

    fn load_from_memory(&self, need: &Need, restore: &mut Restore<'_>) {
        let blob = self
            .tree
            .get(need.key)
            .and_then(|node| node.blob(need.kind));
        let Some((blob, Place::Memory(blocks))) = blob.map(|blob| (blob, &blob.place)) else {
            return;
        };
        let shape = self.shapes[need.kind as usize];
        for (nth, block) in blocks.iter().enumerate() {
            let start = blob.rows.start + nth * shape.piece_rows;
            let rows = start..blob.rows.end.min(start + shape.piece_rows);
            let wanted = overlap(&rows, &need.wanted);
            if !wanted.is_empty() {
                let bytes = &block[..rows.len() * shape.row_bytes];
                restore.load(need.kind.layers(), rows, bytes, wanted);
            }
        }
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// Reads all pieces, `blocks.len()` at once, and loads those that are sound; stops at the first that is not.
fn read_all(
    jobs: &[Job<'_>],
    blocks: &mut Vec<Region>,
    restore: &mut Restore<'_>,
) -> Result<(), (Key, Kind)> {
    let next = AtomicUsize::new(0);
    let mut result = match (jobs.first(), blocks.is_empty()) {
        // Without a block nothing can be read, so as good as lost.
        (Some(job), true) => Err((job.need.key, job.need.kind)),
        _ => Ok(()),
    };
    std::thread::scope(|scope| {
        let (arrived, arrivals) = mpsc::channel();
        let mut returns = Vec::new();
        for (reader, block) in blocks.drain(..).enumerate() {
            let (give_back, returned) = mpsc::channel();
            returns.push(give_back);
            let (arrived, next) = (arrived.clone(), &next);
            scope.spawn(move || read_some(jobs, next, reader, block, &arrived, &returned));
        }
        drop(arrived);
        for Arrival {
            job,
            reader,
            block,
            is_sound,
        } in arrivals
        {
            // The last thing that a reader sends is its block alone.
            let Some(job) = jobs.get(job) else {
                blocks.push(block);
                continue;
            };
            if !is_sound && result.is_ok() {
                result = Err((job.need.key, job.need.kind));
                next.store(jobs.len(), Ordering::Relaxed);
            }
            if result.is_ok() {
                let header = &job.file.header;
                let rows = header.piece(job.nth);
                let wanted = overlap(&rows, &job.need.wanted);
                let bytes = &block[..rows.len() * header.row_bytes];
                restore.load(job.need.kind.layers(), rows, bytes, wanted);
            }
            // A reader waits for its block as long as it lives.
            let _ = returns[reader].send(block);
        }
    });
    result
}

fn read_some(
    jobs: &[Job<'_>],
    next: &AtomicUsize,
    reader: usize,
    mut block: Region,
    arrived: &mpsc::Sender<Arrival>,
    returned: &mpsc::Receiver<Region>,
) {
    loop {
        let job = next.fetch_add(1, Ordering::Relaxed);
        let is_sound = match jobs.get(job) {
            Some(job) => job.file.read_piece(job.nth, &mut block),
            None => false,
        };
        let arrival = Arrival {
            job,
            reader,
            block,
            is_sound,
        };
        if arrived.send(arrival).is_err() || job >= jobs.len() {
            return;
        }
        match returned.recv() {
            Ok(back) => block = back,
            Err(_) => return,
        }
    }
}
