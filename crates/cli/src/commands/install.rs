//! `ouzel install`: a checkpoint in a local folder becomes a model directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ouzel_install::{Event, InstallOptions, LocalFolder, install};
use ouzel_storage::{DirLock, OsDisk};

use crate::args::InstallArgs;
use crate::exit::usage;
use crate::models::Places;
use crate::output::{note, write};
use crate::progress::Progress;
use crate::report::bytes;

/// Runs the command.
pub fn run(args: &InstallArgs, quiet: bool) -> anyhow::Result<()> {
    let Some(from) = &args.from else {
        return Err(usage(
            "say where the checkpoint is: `ouzel install --from DIR`, where DIR holds an MLX 4-bit checkpoint (config.json and \
             *.safetensors), for example a download of mlx-community/gemma-4-26b-a4b-it-4bit",
        ));
    };
    let source = LocalFolder::open(from)?;
    let output = output(args, from)?;
    let lock = lock(&output)?;
    let options = InstallOptions {
        overwrite: args.overwrite,
        model_id: name(from).map(|name| name.to_string_lossy().into_owned()),
        ..InstallOptions::default()
    };
    let progress = Progress::bytes("installing", quiet);
    let result = install(
        &source,
        &OsDisk,
        &output,
        &options,
        &mut |event| match event {
            Event::Missing { file, consequence } => {
                note(&format!("the checkpoint has no {file}: {consequence}"))
            }
            Event::Begins {
                total_bytes,
                done_bytes,
                ..
            } => progress.set(done_bytes, total_bytes),
            Event::Advances { bytes } => progress.add(bytes),
            Event::Retries { .. } => {}
        },
    );
    progress.clear();
    lock.release();
    let installed = result?;
    write(&format!(
        "{}: {} files, {}\n",
        output.display(),
        installed.manifest.files.len(),
        bytes(installed.bytes)
    ))
}

fn output(args: &InstallArgs, from: &Path) -> anyhow::Result<PathBuf> {
    let places = || Places::find(args.models_dir.as_deref());
    let (output, places) = match &args.output {
        // What lies beside the output is named after it: a slash at its end would be in the way.
        Some(output) => (output.components().collect(), places().ok()),
        None => {
            let places = places()?;
            let name = name(from).ok_or_else(|| {
                usage("this folder has no name to call the model by; give --output")
            })?;
            (places.path_of(&name), Some(places))
        }
    };
    if places.is_some_and(|places| places.is_taken(&output)) {
        return Err(usage(format!(
            "{}: this is the name of the bundled model, which --model would mean; give another one with --output, such as {}",
            output.display(),
            output.with_file_name("my-model.gturbo").display()
        )));
    }
    Ok(output)
}

/// The name of a folder, also of `.`.
fn name(dir: &Path) -> Option<std::ffi::OsString> {
    let full = fs::canonicalize(dir).ok()?;
    full.file_name().map(ToOwned::to_owned)
}

/// Keeps a second installation of the same model away; the lock's file goes with the lock.
struct OutputLock {
    lock: DirLock,
    path: PathBuf,
}

fn lock(output: &Path) -> anyhow::Result<OutputLock> {
    if let Some(parent) = output.parent().filter(|parent| *parent != Path::new("")) {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    let path = DirLock::path_for(output);
    let lock = DirLock::try_acquire(&path)?;
    Ok(OutputLock { lock, path })
}

impl OutputLock {
    fn release(self) {
        drop(self.lock);
        // An empty file that stays behind does no harm.
        let _ = fs::remove_file(self.path);
    }
}
