//! `ouzel install`: a checkpoint, fetched from a hub or read from a folder, becomes a model directory.

mod for_pages;
mod screen;
mod target;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use ouzel_install::{
    Hub, InstallError, InstallOptions, Installation, Installed, LocalFolder, Source, discard,
    pinned, repair, was_cut_short,
};
use ouzel_storage::{OsDisk, ShowPath, peak_memory};
use serde_json::json;

use crate::args::{InstallArgs, ProgressMode};
use crate::hub;
use crate::interrupt::Flagged;
use crate::output::{note_raw, write, write_json};
use crate::progress::Reporter;
use crate::report::bytes;
use target::Target;

pub use for_pages::ForPages;

/// Where the bytes come from.
enum Origin {
    Folder(LocalFolder),
    Hub { hub: Box<Hub>, is_pinned: bool },
}

/// How the result is told: a program that reads JSON gets nothing else.
fn is_json(args: &InstallArgs) -> bool {
    args.progress == ProgressMode::Json
}

impl Origin {
    fn source(&self) -> &dyn Source {
        match self {
            Origin::Folder(folder) => folder,
            Origin::Hub { hub, .. } => hub.as_ref(),
        }
    }
}

/// Runs the command.
pub fn run(args: &InstallArgs, quiet: bool) -> anyhow::Result<()> {
    let target = Target::find(args)?;
    if args.discard_partial {
        return discard_partial(&target, is_json(args));
    }
    if !args.dry_run && !args.repair && !args.overwrite && target.is_done()? {
        target.become_default()?;
        return match is_json(args) {
            true => write_json(&json!({ "event": "present", "path": target.path() })),
            false => write(&format!(
                "{}: installed already; `ouzel verify` compares it with its hashes\n",
                target.output.shown()
            )),
        };
    }
    if args.dry_run {
        target.check_writable()?;
    }
    let cancel = Arc::default();
    let origin = origin(args, &target, &cancel)?;
    let options = options(args, &target, &origin, cancel);
    let mut reporter = Reporter::new(args.progress, quiet);
    if args.dry_run {
        let installation =
            Installation::prepare(origin.source(), &OsDisk, &target.output, &options)?;
        match is_json(args) {
            true => write_json(&screen::json(&target, &origin, &installation))?,
            false => write(&screen::text(&target, &origin, &installation))?,
        }
        return Ok(installation.check_room()?);
    }
    let lock = target.lock()?;
    let flagged = Flagged::new(&options.cancel);
    let result = if args.repair {
        repair(
            origin.source(),
            &OsDisk,
            &target.output,
            &options,
            &mut |event| reporter.show(event),
        )
    } else {
        install(&target, &origin, &options, quiet, &mut reporter).map(Some)
    };
    drop(flagged);
    lock.release();
    drop(reporter);
    let installed = result?;
    if matches!(origin, Origin::Hub { .. }) {
        target.become_default()?;
    }
    tell(&target, installed.as_ref(), is_json(args))
}

fn install(
    target: &Target,
    origin: &Origin,
    options: &InstallOptions,
    quiet: bool,
    reporter: &mut Reporter,
) -> Result<Installed, InstallError> {
    let installation = Installation::prepare(origin.source(), &OsDisk, &target.output, options)?;
    for event in installation.missing() {
        reporter.show(event);
    }
    installation.check_room()?;
    if reporter.is_json() {
        reporter.tell(&screen::json(target, origin, &installation));
    } else if !quiet {
        note_raw(&screen::text(target, origin, &installation));
    }
    installation.run(&mut |event| reporter.show(event))
}

/// The repository and the revision that are fetched.
fn wanted(args: &InstallArgs) -> (String, String) {
    let repository = args.repo.as_deref().unwrap_or(pinned::REPOSITORY);
    let usual = match repository {
        pinned::REPOSITORY => pinned::REVISION,
        _ => "main",
    };
    let revision = args.revision.as_deref().unwrap_or(usual);
    (repository.to_owned(), revision.to_owned())
}

fn origin(args: &InstallArgs, target: &Target, cancel: &Arc<AtomicBool>) -> anyhow::Result<Origin> {
    if let Some(from) = &args.from {
        return Ok(Origin::Folder(LocalFolder::open(from)?));
    }
    let (repository, revision) = match (&args.repo, &args.revision) {
        (None, None) if args.repair => target.source(args)?,
        _ => wanted(args),
    };
    let hub = Hub::open(&hub::options(&repository, &revision, cancel)?)?;
    let is_pinned = repository == pinned::REPOSITORY && hub.commit() == pinned::REVISION;
    Ok(Origin::Hub {
        hub: Box::new(hub),
        is_pinned,
    })
}

fn options(
    args: &InstallArgs,
    target: &Target,
    origin: &Origin,
    cancel: Arc<AtomicBool>,
) -> InstallOptions {
    let (repository, revision) = match origin {
        Origin::Folder(_) => (None, None),
        Origin::Hub { hub, .. } => (
            Some(hub.repository().to_owned()),
            Some(hub.commit().to_owned()),
        ),
    };
    let is_pinned = matches!(
        origin,
        Origin::Hub {
            is_pinned: true,
            ..
        }
    );
    // A repair without --repo learns only from the model which repository it is.
    let name = repository
        .as_deref()
        .and_then(|name| name.rsplit('/').next());
    InstallOptions {
        overwrite: args.overwrite,
        model_id: Some(name.unwrap_or(&target.name).to_owned()),
        repository,
        revision,
        index_sha256: is_pinned.then(pinned::index_sha256),
        cancel,
    }
}

fn tell(target: &Target, installed: Option<&Installed>, is_json: bool) -> anyhow::Result<()> {
    let path = target.output.shown();
    let Some(installed) = installed else {
        return match is_json {
            true => write_json(&json!({ "event": "whole", "path": target.path() })),
            false => write(&format!("{path}: nothing is damaged\n")),
        };
    };
    let n_files = installed.manifest.files.len();
    if is_json {
        return write_json(&json!({
            "event": "installed", "path": target.path(), "files": n_files, "bytes": installed.bytes,
            "resumed_bytes": installed.resumed_bytes, "peak_memory_bytes": peak_memory(),
        }));
    }
    write(&format!(
        "{path}: {n_files} files, {}\n",
        bytes(installed.bytes)
    ))
}

fn discard_partial(target: &Target, is_json: bool) -> anyhow::Result<()> {
    let path = target.output.shown();
    let was_there = was_cut_short(&OsDisk, &target.output);
    if was_there {
        let lock = target.lock()?;
        let result = discard(&OsDisk, &target.output);
        lock.release();
        result.with_context(|| path.to_string())?;
    }
    if is_json {
        return write_json(&json!({
            "event": "discarded", "path": target.path(), "was_there": was_there,
        }));
    }
    let what = match was_there {
        true => "the unfinished installation is removed",
        false => "there is no unfinished installation",
    };
    write(&format!("{path}: {what}\n"))
}
