//! `ouzel install`: a checkpoint, fetched from a hub or read from a folder, becomes a model directory.

mod target;

use std::fmt::Write as _;

use anyhow::Context;
use ouzel_format::{Receipt, paths};
use ouzel_install::{
    Hub, InstallError, InstallOptions, Installation, Installed, LocalFolder, Source, discard,
    pinned, repair, was_cut_short,
};
use ouzel_storage::{OsDisk, peak_memory};
use serde_json::json;

use crate::args::InstallArgs;
use crate::exit::usage;
use crate::hub;
use crate::interrupt::Flagged;
use crate::output::{note_raw, write, write_json};
use crate::progress::Reporter;
use crate::report::bytes;
use target::Target;

/// Where the bytes come from.
enum Origin {
    Folder(LocalFolder),
    Hub { hub: Box<Hub>, is_pinned: bool },
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
        return discard_partial(&target);
    }
    if !args.dry_run && !args.repair && !args.overwrite && target.is_done()? {
        target.become_default()?;
        return write(&format!(
            "{}: installed already; `ouzel verify` compares it with its hashes\n",
            target.output.display()
        ));
    }
    let origin = origin(args, &target)?;
    let options = options(args, &target, &origin);
    let mut reporter = Reporter::new(args.progress, quiet);
    if args.dry_run {
        let installation =
            Installation::prepare(origin.source(), &OsDisk, &target.output, &options)?;
        write(&screen(&target, &origin, &installation))?;
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
    let is_json = reporter.is_json();
    drop(reporter);
    let installed = result?;
    if matches!(origin, Origin::Hub { .. }) {
        target.become_default()?;
    }
    tell(&target, installed.as_ref(), is_json)
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
    if !quiet && !reporter.is_json() && matches!(origin, Origin::Hub { .. }) {
        note_raw(&screen(target, origin, &installation));
    }
    installation.run(&mut |event| reporter.show(event))
}

fn origin(args: &InstallArgs, target: &Target) -> anyhow::Result<Origin> {
    if let Some(from) = &args.from {
        return Ok(Origin::Folder(LocalFolder::open(from)?));
    }
    let (repository, revision) = match (&args.repo, &args.revision) {
        (None, None) if args.repair => of_receipt(target)?,
        (repository, revision) => {
            let repository = repository.as_deref().unwrap_or(pinned::REPOSITORY);
            let usual = match repository {
                pinned::REPOSITORY => pinned::REVISION,
                _ => "main",
            };
            let revision = revision.as_deref().unwrap_or(usual);
            (repository.to_owned(), revision.to_owned())
        }
    };
    let hub = Hub::open(&hub::options(&repository, &revision)?)?;
    let is_pinned = repository == pinned::REPOSITORY && hub.commit() == pinned::REVISION;
    Ok(Origin::Hub {
        hub: Box::new(hub),
        is_pinned,
    })
}

/// The repository and the commit that a model was installed from.
fn of_receipt(target: &Target) -> anyhow::Result<(String, String)> {
    if !target.output.exists() && was_cut_short(&OsDisk, &target.output) {
        return Ok((pinned::REPOSITORY.to_owned(), pinned::REVISION.to_owned()));
    }
    let path = target.output.join(paths::RECEIPT);
    let receipt = std::fs::read(&path).ok();
    let receipt = receipt.and_then(|bytes| Receipt::parse(&bytes).ok());
    let source = receipt.and_then(|receipt| receipt.source_repo_id.zip(receipt.source_revision));
    source.ok_or_else(|| {
        usage(format!(
            "{} does not say which repository it came from; name it with --repo and --revision, or its checkpoint's folder with --from",
            target.output.display()
        ))
    })
}

fn options(args: &InstallArgs, target: &Target, origin: &Origin) -> InstallOptions {
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
    InstallOptions {
        overwrite: args.overwrite,
        model_id: Some(target.name.clone()),
        repository,
        revision,
        index_sha256: is_pinned.then(pinned::index_sha256),
        ..InstallOptions::default()
    }
}

/// What will be done, in a form that people read before it is.
fn screen(target: &Target, origin: &Origin, installation: &Installation<'_>) -> String {
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<9} {value}");
    };
    match origin {
        Origin::Folder(folder) => line("from", folder.dir().display().to_string()),
        Origin::Hub { hub, is_pinned } => {
            line("from", format!("{} at {}", hub.repository(), hub.host()));
            let kind = if *is_pinned {
                "pinned"
            } else {
                "not pinned: nobody has vouched for it; this installation is held to this commit"
            };
            line("revision", format!("{} ({kind})", hub.commit()));
            let licence = hub.licence().unwrap_or("not stated");
            line(
                "licence",
                format!(
                    "{licence}, says the repository; the terms are at {}",
                    hub.page()
                ),
            );
        }
    }
    let mut transfer = exact(installation.transfer_bytes());
    if installation.claimed_bytes > 0 {
        let _ = write!(
            transfer,
            ", {} of them have come already",
            bytes(installation.claimed_bytes)
        );
    }
    line("transfer", transfer);
    line(
        "on disk",
        format!(
            "{} in {}",
            exact(installation.size_bytes()),
            target.output.display()
        ),
    );
    line(
        "free",
        format!(
            "{}, of which {} stay free in any case",
            bytes(installation.free_bytes),
            bytes(installation.reserve_bytes())
        ),
    );
    text
}

fn exact(n: u64) -> String {
    format!("{n} bytes ({})", bytes(n))
}

fn tell(target: &Target, installed: Option<&Installed>, is_json: bool) -> anyhow::Result<()> {
    let path = target.output.display();
    let Some(installed) = installed else {
        return match is_json {
            true => write_json(&json!({ "event": "whole", "path": path.to_string() })),
            false => write(&format!("{path}: nothing is damaged\n")),
        };
    };
    let n_files = installed.manifest.files.len();
    if is_json {
        return write_json(&json!({
            "event": "installed", "path": path.to_string(), "files": n_files, "bytes": installed.bytes,
            "resumed_bytes": installed.resumed_bytes, "peak_memory_bytes": peak_memory(),
        }));
    }
    write(&format!(
        "{path}: {n_files} files, {}\n",
        bytes(installed.bytes)
    ))
}

fn discard_partial(target: &Target) -> anyhow::Result<()> {
    let path = target.output.display();
    if !was_cut_short(&OsDisk, &target.output) {
        return write(&format!("{path}: there is no unfinished installation\n"));
    }
    let lock = target.lock()?;
    let result = discard(&OsDisk, &target.output);
    lock.release();
    result.with_context(|| path.to_string())?;
    write(&format!("{path}: the unfinished installation is removed\n"))
}
