//! `ouzel verify`: every file of a model is hashed again.

use std::sync::atomic::AtomicBool;

use ouzel_install::{Damage, find_damage};
use ouzel_storage::{OsDisk, ShowPath};

use crate::args::{ProgressMode, VerifyArgs};
use crate::exit::{self, CliError};
use crate::models;
use crate::output::{note, write};
use crate::progress::Reporter;
use crate::report::bytes;

/// Runs the command.
pub fn run(args: &VerifyArgs, quiet: bool) -> anyhow::Result<()> {
    let chosen = models::choose(&args.model.model())?;
    let mut reporter = Reporter::new(ProgressMode::Auto, quiet);
    let cancel = AtomicBool::new(false);
    let verified = find_damage(&OsDisk, &chosen.dir, &cancel, &mut |event| {
        reporter.show(event);
    })?;
    drop(reporter);
    let dir = chosen.dir.shown();
    match verified.damages.as_slice() {
        [] => {}
        [damage] => {
            let what = describe(damage);
            note(&format!(
                "{what}; `ouzel install --repair --output {dir}` brings it again"
            ));
            return Err(CliError::Told(exit::MODEL).into());
        }
        damages => {
            for damage in damages {
                note(&describe(damage));
            }
            let n = damages.len();
            note(&format!(
                "{dir}: {n} damages; `ouzel install --repair --output {dir}` brings what is damaged again"
            ));
            return Err(CliError::Told(exit::MODEL).into());
        }
    }
    let experts = if verified.has_checksums {
        " and every expert"
    } else {
        " (its experts have no checksums)"
    };
    let size = format!("{} files, {}", verified.n_files, bytes(verified.bytes));
    let id = &verified.model_id;
    write(&if verified.has_receipt {
        format!("{dir}: {id}{experts} as installed: {size}\n")
    } else {
        format!(
            "{dir}: {id}{experts} as manifest.json says: {size}; the manifest itself could not be checked, because verified-install.json is \
             missing\n"
        )
    })
}

pub fn describe(damage: &Damage) -> String {
    format!(
        "{}: {}: expected {}, found {}",
        damage.path.shown(),
        damage.what,
        damage.expected,
        damage.actual
    )
}
