//! Installing, verifying and repairing for the page: what `ouzel install` and `ouzel verify` do, told to a server instead of a terminal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ouzel_install::{
    ENDPOINT, Event, InstallError, InstallOptions, Installation, Phase, discard, find_damage,
    repair, was_cut_short,
};
use ouzel_server::installer::{Ended, Found, Installer, News, Offer, Trouble, Work, WorkPhase};
use ouzel_storage::{OsDisk, free_space};

use super::target::Target;
use super::{Origin, options, origin, wanted};
use crate::args::{AppArgs, InstallArgs, ModelArgs};
use crate::commands::verify;
use crate::exit;
use crate::hub;
use crate::models::{self, DEMO, size_of};

/// What a page may install.
pub struct ForPages {
    args: InstallArgs,
    target: Target,
    host: String,
}

type Done = anyhow::Result<Ended>;

impl ForPages {
    /// What these arguments offer.
    ///
    /// # Errors
    /// Where they name no place to install to.
    pub fn new(args: &AppArgs) -> anyhow::Result<ForPages> {
        let args = args.installing();
        let target = Target::find(&args)?;
        let (repository, revision) = wanted(&args);
        // What the environment has wrong is said when the hub is asked: nobody needs a hub to use what is there.
        let options = hub::options(&repository, &revision, &Arc::default());
        let endpoint = options.map_or(ENDPOINT.to_owned(), |options| options.endpoint);
        let host = endpoint
            .split_once("://")
            .map_or(&*endpoint, |(_, host)| host);
        Ok(ForPages {
            host: host.trim_end_matches('/').to_owned(),
            args,
            target,
        })
    }

    fn offered(&self) -> anyhow::Result<Offer> {
        let cancel = Arc::default();
        let origin = origin(&self.args, &self.target, &cancel)?;
        let options = options(&self.args, &self.target, &origin, cancel);
        let installation =
            Installation::prepare(origin.source(), &OsDisk, &self.target.output, &options)?;
        let (commit, licence, page, is_pinned) = match &origin {
            Origin::Hub { hub, is_pinned } => (
                hub.commit().to_owned(),
                hub.licence().map(str::to_owned),
                hub.page(),
                *is_pinned,
            ),
            Origin::Folder(_) => Default::default(),
        };
        Ok(Offer {
            commit,
            is_pinned,
            licence,
            page,
            transfer_bytes: installation.transfer_bytes(),
            come_bytes: installation.claimed_bytes,
            removes_bytes: installation.discarded_bytes.unwrap_or(0),
            disk_bytes: installation.size_bytes(),
            needed_bytes: installation.room.missing_bytes + installation.room.reserve_bytes,
        })
    }

    fn download(&self, cancel: &Arc<AtomicBool>, tell: &mut dyn FnMut(News)) -> Done {
        let target = &self.target;
        if !target.is_done()? {
            let origin = origin(&self.args, target, cancel)?;
            let options = options(&self.args, target, &origin, cancel.clone());
            locked(target, || {
                let installation =
                    Installation::prepare(origin.source(), &OsDisk, &target.output, &options)?;
                installation.run(&mut |event| hear(event, tell))
            })?;
        }
        target.become_default()?;
        Ok(Ended::Whole(self.name()))
    }

    fn verify(
        &self,
        model: &str,
        cancel: &AtomicBool,
        tell: &mut dyn FnMut(News),
    ) -> anyhow::Result<Ended> {
        let dir = self.dir(model)?;
        let verified = find_damage(&OsDisk, &dir, cancel, &mut |event| hear(event, tell))?;
        let damages: Vec<String> = verified.damages.iter().map(verify::describe).collect();
        Ok(match damages.is_empty() {
            true => Ended::Whole(model.to_owned()),
            false => Ended::Damaged(model.to_owned(), damages),
        })
    }

    fn repair(&self, model: &str, cancel: &Arc<AtomicBool>, tell: &mut dyn FnMut(News)) -> Done {
        let dir = self.dir(model)?;
        // Whoever asks for the bundled model's folder has it whole.
        if model != DEMO {
            let args = InstallArgs {
                repo: None,
                revision: None,
                output: Some(dir),
                repair: true,
                ..self.args.clone()
            };
            let target = Target::find(&args)?;
            let origin = origin(&args, &target, cancel)?;
            let options: InstallOptions = options(&args, &target, &origin, cancel.clone());
            locked(&target, || {
                let hear = &mut |event| hear(event, tell);
                repair(origin.source(), &OsDisk, &target.output, &options, hear)
            })?;
        }
        Ok(Ended::Whole(model.to_owned()))
    }

    fn dir(&self, model: &str) -> anyhow::Result<PathBuf> {
        let args = ModelArgs {
            model: Some(model.into()),
            models_dir: self.args.models_dir.clone(),
        };
        Ok(models::choose(&args)?.dir)
    }

    fn name(&self) -> String {
        let stem = self.target.output.file_stem();
        stem.map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    }
}

impl Installer for ForPages {
    fn found(&self) -> Found {
        let output = &self.target.output;
        let (repository, revision) = wanted(&self.args);
        let there = output.ancestors().find(|folder| folder.exists());
        let partial = was_cut_short(&OsDisk, output).then(|| {
            let mut partial = output.as_os_str().to_owned();
            partial.push(".partial");
            size_of(Path::new(&partial))
        });
        Found {
            repository,
            revision,
            host: self.host.clone(),
            model: self.name(),
            folder: output.parent().unwrap_or(output).display().to_string(),
            free_bytes: there.and_then(|folder| free_space(folder).ok()),
            is_installed: output.join("manifest.json").is_file(),
            partial_bytes: partial,
        }
    }

    fn offer(&self) -> Result<Offer, String> {
        self.offered().map_err(|error| exit::sentence(&error))
    }

    fn run(
        &self,
        work: &Work,
        cancel: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(News),
    ) -> Result<Ended, Trouble> {
        let done = match work {
            Work::Download => self.download(cancel, tell),
            Work::Verify { model } => self.verify(model, cancel, tell),
            Work::Repair { model } => self.repair(model, cancel, tell),
        };
        done.map_err(|error| match error.downcast_ref() {
            Some(InstallError::Paused) => Trouble::Paused,
            _ => Trouble::Failed(exit::sentence(&error)),
        })
    }

    fn discard(&self) -> Result<(), String> {
        let discarded = locked(&self.target, || discard(&OsDisk, &self.target.output));
        discarded.map_err(|error| exit::sentence(&error)).map(drop)
    }
}

/// Does it while no other process installs or reads the same model.
fn locked<T>(target: &Target, work: impl FnOnce() -> Result<T, InstallError>) -> anyhow::Result<T> {
    let lock = target.lock()?;
    let result = work();
    lock.release();
    Ok(result?)
}

fn hear(event: Event, tell: &mut dyn FnMut(News)) {
    tell(match event {
        Event::Begins {
            phase,
            total_bytes,
            done_bytes,
        } => News::Begins {
            phase: match phase {
                Phase::Checking => WorkPhase::Checking,
                Phase::Fetching => WorkPhase::Fetching,
                Phase::Verifying => WorkPhase::Verifying,
            },
            total_bytes,
            done_bytes,
        },
        Event::Advances { bytes } => News::Advances { bytes },
        Event::Retries { file, reason, wait } => News::Retries {
            reason: format!("{file}: {reason}"),
            wait,
        },
        // The offer said what is removed; a model without a file that it needs says so when it is opened.
        Event::Missing { .. } | Event::Discards { .. } => return,
    });
}
