//! `ouzel verify`: every file of a model is hashed again.

use ouzel_install::{Event, verify_dir};
use ouzel_storage::OsDisk;

use crate::args::VerifyArgs;
use crate::models;
use crate::output::write;
use crate::progress::Progress;
use crate::report::bytes;

/// Runs the command.
pub fn run(args: &VerifyArgs, quiet: bool) -> anyhow::Result<()> {
    let chosen = models::choose(&args.model.model())?;
    let progress = Progress::bytes("verifying", quiet);
    let verified = verify_dir(&OsDisk, &chosen.dir, &mut |event| match event {
        Event::Begins {
            total_bytes,
            done_bytes,
            ..
        } => progress.set(done_bytes, total_bytes),
        Event::Advances { bytes } => progress.add(bytes),
        Event::Missing { .. } | Event::Retries { .. } => {}
    })?;
    progress.clear();
    let experts = if verified.has_checksums {
        " and every expert"
    } else {
        " (its experts have no checksums)"
    };
    let size = format!("{} files, {}", verified.n_files, bytes(verified.bytes));
    let (dir, id) = (chosen.dir.display(), &verified.model_id);
    write(&if verified.has_receipt {
        format!("{dir}: {id}{experts} as installed: {size}\n")
    } else {
        format!(
            "{dir}: {id}{experts} as manifest.json says: {size}; the manifest itself could not be checked, because verified-install.json is \
             missing\n"
        )
    })
}
