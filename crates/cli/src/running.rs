//! Which models are loaded on this machine, so that two do not take the memory of one, and nobody changes files that somebody reads.
//!
//! Each process that loads a model leaves a note, `PID.json`, and keeps `PID.lock` locked beside it. A note whose lock nobody holds is
//! left over from a process that died, and is removed by the next one that looks. A note says which command it is and never
//! what it was asked.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ouzel::{Model, Options};
use ouzel_storage::{DirLock, ShowPath, StorageError, free_memory, resident_memory_of};
use serde::{Deserialize, Serialize};

use crate::exit::CliError;
use crate::models::{Chosen, Places};
use crate::report::bytes;

/// A larger file is no note.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// What a process says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Note {
    pid: u32,
    /// The process whose memory has the model; the same one, or a decode service of it.
    #[serde(default)]
    holder: Option<u32>,
    /// As in `ouzel generate`, without arguments: they may be private.
    command: String,
    memory_bytes: u64,
    model: PathBuf,
}

/// Held as long as a model is loaded.
#[derive(Debug)]
pub struct Running {
    /// On the model directory, shared with others who read it; `None` where nothing can be written beside it, so that nobody can
    /// install there either.
    model: Option<DirLock>,
    note: Option<DirLock>,
    note_file: Option<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(file) = &self.note_file {
            // A note that stays behind is removed by whoever looks next.
            let _ = fs::remove_file(file);
        }
        for lock in [self.model.take(), self.note.take()].into_iter().flatten() {
            lock.release();
        }
    }
}

/// Notes that this process loads `model`, into the memory of the process `holder`: itself, or a decode service that ends with it.
///
/// # Errors
/// [`CliError::Busy`] if another model is loaded and `shared` does not allow it; [`StorageError::Locked`] while the model is being
/// installed.
pub fn claim(
    chosen: &Chosen,
    holder: u32,
    (model, options): (&Model, &Options),
    shared: bool,
) -> anyhow::Result<Running> {
    let budget = model.plan_budget(options)?;
    let model = share(&chosen.dir)?;
    let places = chosen.places();
    let note = Note {
        pid: std::process::id(),
        holder: Some(holder),
        command: command(),
        memory_bytes: budget.total_bytes,
        model: chosen.dir.clone(),
    };
    let mut running = Running {
        model,
        note: None,
        note_file: None,
    };
    if let Some((lock, file)) = enter(places, &note, shared)? {
        (running.note, running.note_file) = (Some(lock), Some(file));
    }
    Ok(running)
}

/// A lock on the model that others who read it share.
fn share(dir: &Path) -> anyhow::Result<Option<DirLock>> {
    // Where the model is a link, the lock belongs to what it leads to, as an installation sees it.
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    match DirLock::try_share(&DirLock::path_for(&dir)) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ StorageError::Locked { .. }) => Err(error.into()),
        // A folder that cannot be written to cannot be installed to, either.
        Err(_) => Ok(None),
    }
}

/// Looks at the other notes and leaves one, both while nobody else does.
fn enter(places: &Places, note: &Note, shared: bool) -> anyhow::Result<Option<(DirLock, PathBuf)>> {
    let Some(folder) = &places.running else {
        return Ok(None);
    };
    // Where notes cannot be left, nobody can read them, and there is nothing to keep.
    if fs::create_dir_all(folder).is_err() {
        return Ok(None);
    }
    let Ok(gate) = DirLock::acquire(&folder.join("gate.held")) else {
        return Ok(None);
    };
    let others = others(folder);
    if let Some(other) = others.first()
        && !shared
    {
        return Err(busy(
            other,
            "give --shared to run both, where memory allows it",
        ));
    }
    if let (Some(other), Some(free)) = (others.first(), free_memory()) {
        let needed = needed(&others, note.memory_bytes);
        if needed > free {
            let what = format!(
                "together with this one {} more are needed and {} are free; lower --memory or end the other one",
                bytes(needed),
                bytes(free)
            );
            return Err(busy(other, &what));
        }
    }
    let lock = DirLock::try_acquire(&folder.join(format!("{}.lock", note.pid)))?;
    let file = folder.join(format!("{}.json", note.pid));
    fs::write(&file, serde_json::to_vec(note)?).with_context(|| file.shown().to_string())?;
    gate.release();
    Ok(Some((lock, file)))
}

/// What this session takes, and what the others were promised and have not taken yet.
fn needed(others: &[Note], own: u64) -> u64 {
    let promised = others.iter().map(|note| {
        let holder = note.holder.unwrap_or(note.pid);
        let taken = resident_memory_of(holder).unwrap_or(0);
        note.memory_bytes.saturating_sub(taken)
    });
    own + promised.sum::<u64>()
}

fn busy(other: &Note, advice: &str) -> anyhow::Error {
    CliError::Busy(format!(
        "process {} has a model loaded already, {} of memory: {}; {advice}",
        other.pid,
        bytes(other.memory_bytes),
        other.command
    ))
    .into()
}

/// The notes of processes that are alive; the others are removed.
fn others(folder: &Path) -> Vec<Note> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let notes = entries.map(|entry| entry.path()).filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "lock")
    });
    let mut alive: Vec<Note> = notes
        .filter_map(|path| match DirLock::try_acquire_existing(&path) {
            Ok(Some(left)) => {
                let _ = fs::remove_file(path.with_extension("json"));
                left.release();
                None
            }
            Ok(None) => None,
            Err(_) => read(&path.with_extension("json")),
        })
        .collect();
    alive.sort_by_key(|note| note.pid);
    alive
}

fn read(path: &Path) -> Option<Note> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_NOTE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Says who holds the lock on a model, where that is known.
pub fn explain(places: &Places, dir: &Path, error: StorageError) -> anyhow::Error {
    let StorageError::Locked { .. } = &error else {
        return error.into();
    };
    let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let notes = places.running.as_deref().map(others).unwrap_or_default();
    match notes
        .iter()
        .find(|note| canonical(&note.model) == canonical(dir))
    {
        Some(note) => CliError::Busy(format!(
            "{}: process {} runs this model: {}; end it first",
            dir.shown(),
            note.pid,
            note.command.shown()
        ))
        .into(),
        None => error.into(),
    }
}

/// Which command this process is; without arguments it is the app.
pub fn command() -> String {
    let name = std::env::args().nth(1).unwrap_or_else(|| "app".to_owned());
    format!("ouzel {}", name.escape_debug())
}
