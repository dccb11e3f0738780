//! Where models, compiled tokenizers and the history lie, and which model is meant.

mod catalog;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use directories::ProjectDirs;
use ouzel::{Model, Options};
use ouzel_storage::ShowPath;

use crate::args::{ModelArgs, Precision, SessionArgs};
use crate::demo;
use crate::exit::{CliError, usage};
use crate::output::note;
use crate::running::{self, Running};

pub use catalog::{Entry, State, size_of};

/// The name of the bundled model.
pub const DEMO: &str = "demo";
/// The extension of model directories.
const EXTENSION: &str = "gturbo";

/// The user's folders.
#[derive(Debug)]
pub struct Places {
    /// Where models are installed.
    pub models: PathBuf,
    /// Where compiled tokenizers are kept.
    pub cache: Option<PathBuf>,
    /// The lines typed in conversations.
    pub history: Option<PathBuf>,
    /// Where processes that have a model loaded leave a note.
    pub running: Option<PathBuf>,
    /// Where the page keeps conversations.
    pub chats: Option<PathBuf>,
    /// Where servers keep what was computed of conversations, a folder for each model.
    pub prefixes: Option<PathBuf>,
    /// Where a start without a terminal leaves its log.
    pub state: Option<PathBuf>,
}

impl Places {
    /// The folders of this user, unless the environment or the flag names others.
    pub fn find(models_dir: Option<&Path>) -> anyhow::Result<Places> {
        let dirs = ProjectDirs::from("", "", "ouzel");
        let variable = |name| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let models = models_dir
            .map(Path::to_owned)
            .or_else(|| variable("OUZEL_MODELS"))
            .or_else(|| {
                dirs.as_ref()
                    .map(|dirs| dirs.data_local_dir().join("models"))
            })
            .ok_or_else(|| {
                usage("this user has no home folder; name one for models with --models-dir DIR")
            })?;
        Ok(Places {
            models,
            cache: variable("OUZEL_CACHE")
                .or_else(|| dirs.as_ref().map(|dirs| dirs.cache_dir().to_owned())),
            running: variable("OUZEL_RUNTIME").or_else(|| {
                let dirs = dirs.as_ref()?;
                Some(
                    dirs.runtime_dir()
                        .unwrap_or(dirs.cache_dir())
                        .join("running"),
                )
            }),
            chats: variable("OUZEL_CHATS").or_else(|| {
                let dirs = dirs.as_ref()?;
                Some(dirs.data_local_dir().join("chats"))
            }),
            prefixes: variable("OUZEL_PREFIXES").or_else(|| {
                let dirs = dirs.as_ref()?;
                Some(dirs.data_local_dir().join("prefixes"))
            }),
            state: variable("OUZEL_STATE").or_else(|| state(dirs.as_ref()?)),
            history: dirs.map(|dirs| dirs.data_local_dir().join("history.txt")),
        })
    }

    /// The folder of the page's conversations.
    pub fn chats(&self) -> anyhow::Result<&Path> {
        self.chats
            .as_deref()
            .context("this user has no data folder; OUZEL_CHATS names another one")
    }

    /// The models installed here, by name.
    fn installed(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(&self.models).into_iter().flatten().flatten();
        let mut models: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension() == Some(OsStr::new(EXTENSION))
                    && path.join("manifest.json").is_file()
            })
            .filter(|path| !demo::is_demo(path))
            .filter_map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path)))
            .collect();
        models.sort();
        models
    }

    /// Whether a model at `output` could not be meant by its name, because the bundled one is.
    pub fn is_taken(&self, output: &Path) -> bool {
        let folder = output.parent().and_then(|folder| {
            let here = folder == Path::new("");
            fs::canonicalize(if here { Path::new(".") } else { folder }).ok()
        });
        let is_here = output.parent() == Some(&self.models)
            || (folder.is_some() && folder == fs::canonicalize(&self.models).ok());
        is_here && (output.file_stem() == Some(OsStr::new(DEMO)) || demo::is_demo(output))
    }

    /// Where a model of this name is installed.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        let mut file = name.to_owned();
        file.push(".");
        file.push(EXTENSION);
        self.models.join(file)
    }
}

/// Where this system's programs leave their logs.
fn state(dirs: &ProjectDirs) -> Option<PathBuf> {
    if cfg!(target_os = "macos") {
        let user = directories::BaseDirs::new()?;
        return Some(user.home_dir().join("Library/Logs/ouzel"));
    }
    let folder = dirs.state_dir().unwrap_or(dirs.data_local_dir());
    Some(folder.to_owned())
}

/// A model directory, and whether it is the bundled one, which has defaults of its own.
#[derive(Debug)]
pub struct Chosen {
    pub dir: PathBuf,
    pub is_demo: bool,
    places: Places,
}

/// Finds the model that is meant; unpacks the bundled one where need be.
pub fn choose(args: &ModelArgs) -> anyhow::Result<Chosen> {
    let places = Places::find(args.models_dir.as_deref())?;
    match args.model.as_deref() {
        Some(name) if name == DEMO => {
            let other = places.path_of(name);
            if other.is_dir() {
                note(&format!(
                    "`{DEMO}` is the bundled model; for the other one of this name give its path, {}",
                    other.shown()
                ));
            }
            bundled(places)
        }
        Some(name) => named(name, places),
        None => default(places),
    }
}

/// The directory that is meant, unless that is the bundled model, and the folder where models are installed; unpacks nothing.
pub fn installed(args: &ModelArgs) -> anyhow::Result<(Option<PathBuf>, PathBuf)> {
    let places = Places::find(args.models_dir.as_deref())?;
    let folder = places.models.clone();
    let dir = match args.model.as_deref() {
        Some(name) if name == DEMO => None,
        Some(name) => Some(named(name, places)?.dir),
        None => usual(&places)?,
    };
    Ok((dir, folder))
}

fn bundled(places: Places) -> anyhow::Result<Chosen> {
    let dir = demo::unpack(&places.models)
        .context("cannot unpack the bundled model; --models-dir names another folder for it")?;
    Ok(Chosen {
        dir,
        is_demo: true,
        places,
    })
}

fn default(places: Places) -> anyhow::Result<Chosen> {
    match usual(&places)? {
        Some(dir) => Ok(Chosen {
            dir,
            is_demo: false,
            places,
        }),
        None => {
            note("this is the bundled 47M dictionary model; `ouzel install` brings the real one");
            bundled(places)
        }
    }
}

/// The model that is used when none is named: the default one, or the only one.
fn usual(places: &Places) -> anyhow::Result<Option<PathBuf>> {
    let Some(dir) = places.default_model() else {
        return only(places.installed());
    };
    // Of one that was cut short it is said later what to do.
    if dir.exists() || ouzel_install::was_cut_short(&ouzel_storage::OsDisk, &dir) {
        return Ok(Some(dir));
    }
    Err(CliError::NoModel(format!(
        "the default model {} is gone; `ouzel models default NAME` chooses another, `--model demo` is always there",
        dir.shown()
    ))
    .into())
}

/// The installed model where there is exactly one.
fn only(mut installed: Vec<(String, PathBuf)>) -> anyhow::Result<Option<PathBuf>> {
    if installed.len() > 1 {
        return Err(usage(format!(
            "several models are installed; name one with --model, or choose one with `ouzel models default NAME`: {}",
            names(&installed)
        )));
    }
    Ok(installed.pop().map(|(_, dir)| dir))
}

/// A name is a path where there is something at that path, or where it could be nothing else; a slash at its end means nothing.
fn named(name: &OsStr, places: Places) -> anyhow::Result<Chosen> {
    let path: PathBuf = Path::new(name).components().collect();
    let installed = places.path_of(name);
    // Of one that was cut short it is said later what to do.
    let partial = installed.with_extension(format!("{EXTENSION}.partial"));
    let is_path = path.components().count() > 1
        || path.extension() == Some(OsStr::new(EXTENSION))
        || path.is_dir();
    let dir = if is_path {
        path
    } else if installed.exists() || partial.exists() {
        installed
    } else {
        let known = places.installed();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            names(&known)
        };
        return Err(CliError::NoModel(format!(
            "there is no folder {path:?} and no model of this name in {}; installed: {known}; `demo` is always there",
            places.models.shown()
        ))
        .into());
    };
    Ok(Chosen {
        dir,
        is_demo: false,
        places,
    })
}

fn names(installed: &[(String, PathBuf)]) -> String {
    let names: Vec<_> = installed
        .iter()
        .map(|(name, _)| name.shown().to_string())
        .collect();
    names.join(", ")
}

/// Bytes of this program's file that count as the process's memory, where the system says.
pub fn program_bytes() -> Option<u64> {
    ouzel_storage::program_file_bytes(&std::env::current_exe().ok()?)
}

impl Chosen {
    /// The options of a session: the flags, the cache, and the bundled model's own defaults.
    pub fn options(&self, args: &SessionArgs, precision: Precision) -> Options {
        let mut options = args.options(precision);
        options.cache_dir = self.places.cache.clone();
        options.program_bytes = program_bytes();
        if self.is_demo && args.slots.is_none() && args.memory.is_none() {
            options.slots = Some(demo::SLOTS);
        }
        options
    }

    /// The temperature where none was given.
    pub fn temperature(&self) -> f32 {
        if self.is_demo { 0.0 } else { 0.2 }
    }

    /// What clients of a server call the model where nobody says.
    pub fn name(&self) -> String {
        let stem = self.dir.file_stem().map(OsStr::to_string_lossy);
        match stem {
            Some(stem) if !self.is_demo => stem.into_owned(),
            _ => DEMO.to_owned(),
        }
    }

    /// Where the lines of conversations are kept.
    pub fn history(&self) -> Option<&Path> {
        self.places.history.as_deref()
    }

    /// The user's folders.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Notes that this process is about to load the model.
    pub fn claim(&self, model: &Model, options: &Options, shared: bool) -> anyhow::Result<Running> {
        self.claim_for(std::process::id(), model, options, shared)
    }

    /// Notes that a process of this one's is about to load the model.
    pub fn claim_for(
        &self,
        pid: u32,
        model: &Model,
        options: &Options,
        shared: bool,
    ) -> anyhow::Result<Running> {
        running::claim(self, pid, (model, options), shared)
    }

    /// Opens the directory.
    pub fn open(&self, options: &Options) -> anyhow::Result<Model> {
        Ok(Model::open(&self.dir, options)?)
    }
}
