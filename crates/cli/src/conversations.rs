//! Which process has the page's conversations, so that a second start opens the page of the first and no two write answers beside each other.
//!
//! Whoever shows the page keeps `page.lock` in the folder of the conversations locked, and leaves `page.json` beside it: which process it is and an
//! address that opens its page once, replaced whenever it was used. Only the person may read either: the address lets whoever has it in. A note whose lock
//! nobody holds is left over from a process that died, and the next one replaces it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use ouzel_storage::{DirLock, ShowPath, StorageError, create_private_dir, create_private_file};
use serde::{Deserialize, Serialize};

use crate::exit::{self, CliError};
use crate::output::note;
use crate::running;

const LOCK: &str = "page.lock";
const NOTE: &str = "page.json";
/// A larger file is no note.
const MAX_NOTE_BYTES: u64 = 64 << 10;

/// Another process may be loading its model, and has a page when that is done.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at its note.
const PAUSE: Duration = Duration::from_millis(100);
/// A person who waits longer than this is told for what.
const SILENCE: Duration = Duration::from_secs(2);

/// What a process says about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    pid: u32,
    /// As in `ouzel app`, without arguments.
    command: String,
    /// Opens the page once.
    page: Option<String>,
}

/// Held as long as this process shows the page.
#[derive(Debug)]
pub struct Held {
    lock: Option<DirLock>,
    folder: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        // What stays behind is replaced by whoever comes next.
        let _ = fs::remove_file(self.folder.join(NOTE));
        if let Some(lock) = self.lock.take() {
            lock.release();
        }
    }
}

/// The page that another process shows.
#[derive(Debug)]
pub struct Other {
    pub pid: u32,
    pub command: String,
    /// Opens it once.
    pub page: String,
}

/// Whose the conversations are.
#[derive(Debug)]
pub enum Found {
    /// This process's, now.
    Ours(Held),
    /// Those of another one, which has a page.
    Theirs(Other),
}

/// Takes the conversations, or finds the page of whoever has them, which may take a while to come.
///
/// # Errors
/// [`CliError::Busy`] if another process has them and no page; [`StorageError`] where the folder cannot be used.
pub fn find(folder: &Path) -> anyhow::Result<Found> {
    let (began, mut was_told) = (Instant::now(), false);
    loop {
        if let Some(held) = hold(folder)? {
            return Ok(Found::Ours(held));
        }
        let found = read(folder);
        if let Some(Note {
            pid,
            command,
            page: Some(page),
        }) = found
        {
            return Ok(Found::Theirs(Other { pid, command, page }));
        }
        if began.elapsed() > PATIENCE {
            return Err(CliError::Busy(format!(
                "{}, and shows no page; end it first",
                holder(folder)
            ))
            .into());
        }
        if !was_told && began.elapsed() > SILENCE {
            was_told = true;
            note(&format!("{}; waiting for its page", holder(folder)));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Takes the conversations, unless another process has them.
pub fn hold(folder: &Path) -> anyhow::Result<Option<Held>> {
    create_private_dir(folder)?;
    let path = folder.join(LOCK);
    create_private_file(&path)?;
    match DirLock::try_acquire(&path) {
        Ok(lock) => {
            let held = Held {
                lock: Some(lock),
                folder: folder.to_owned(),
            };
            write(folder, None)?;
            Ok(Some(held))
        }
        Err(StorageError::Locked { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says who has the conversations.
pub fn holder(folder: &Path) -> String {
    let who = read(folder).map_or_else(
        || "another process".to_owned(),
        |note| format!("process {}, {},", note.pid, note.command.shown()),
    );
    format!("{who} has the conversations in {} open", folder.shown())
}

impl Held {
    /// Where they lie.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes down where the page is, each time that it is told.
    pub fn teller(&self) -> impl Fn(Option<&str>) + Send + Sync + use<> {
        let folder = self.folder.clone();
        move |page| {
            if let Err(error) = write(&folder, page) {
                note(&format!(
                    "a second start will not find this page: {}",
                    exit::full(&error)
                ));
            }
        }
    }
}

/// Replaces the note, so that a reader finds the old one or the new one.
fn write(folder: &Path, page: Option<&str>) -> anyhow::Result<()> {
    let (path, partial) = (folder.join(NOTE), folder.join("page.json.partial"));
    let note = Note {
        pid: std::process::id(),
        command: running::command(),
        page: page.map(ToOwned::to_owned),
    };
    let written = create_private_file(&partial).map_err(anyhow::Error::from);
    let written = written.and_then(|()| Ok(fs::write(&partial, serde_json::to_vec(&note)?)?));
    written
        .and_then(|()| Ok(fs::rename(&partial, &path)?))
        .with_context(|| path.shown().to_string())
}

fn read(folder: &Path) -> Option<Note> {
    let mut text = String::new();
    let file = File::open(folder.join(NOTE)).ok()?;
    file.take(MAX_NOTE_BYTES).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_finds_the_first_and_takes_over_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("chats");
        let first = hold(&folder).unwrap().unwrap();
        assert!(hold(&folder).unwrap().is_none());
        first.teller()(Some("http://127.0.0.1:1/#a"));
        let Found::Theirs(other) = find(&folder).unwrap() else {
            panic!("the first has them");
        };
        assert_eq!(other.pid, std::process::id());
        assert_eq!(other.page, "http://127.0.0.1:1/#a");
        assert!(holder(&folder).contains("chats"));
        drop(first);
        assert!(matches!(find(&folder).unwrap(), Found::Ours(_)));
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_may_read_it() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("chats");
        let held = hold(&folder).unwrap().unwrap();
        held.teller()(Some("http://127.0.0.1:1/#a"));
        for (path, mode) in [
            (folder.clone(), 0o700),
            (folder.join(NOTE), 0o600),
            (folder.join(LOCK), 0o600),
        ] {
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{}", path.display());
        }
    }
}
