//! `ouzel serve`: the model for other programs, over HTTP.

use std::sync::Arc;

use anyhow::Context;
use ouzel::{Model, Options};
use ouzel_chats::Chats;
use ouzel_server::installer::Installer;
use ouzel_server::log::{Log, Record, Silent};
use ouzel_server::models::{self, Wish};
use ouzel_server::turn::Usage;
use ouzel_server::{Loading, Page, ServerOptions, Stop, serve};
use ouzel_storage::{ShowPath, create_private_file, free_memory};

use super::pdf_text::InProcess;
use crate::args::ServeArgs;
use crate::conversations::{self, Held};
use crate::exit::{self, CliError};
use crate::interrupt::Stoppable;
use crate::library::{Library, Ready};
use crate::models::Places;
use crate::output::note;
use crate::report::{self, bytes};

/// The environment variable with the key.
const KEY_VARIABLE: &str = "OUZEL_API_KEY";

/// The file of the page's conversations.
const CHATS_FILE: &str = "chats.sqlite3";

/// What `ouzel app` has before the server, and `ouzel serve` has not.
pub struct ForPage {
    /// The conversations, without which there is nothing to do.
    pub held: Held,
    /// Installs models.
    pub installer: Arc<dyn Installer>,
}

/// Where a server listens.
pub struct Opened {
    /// HOST:PORT
    pub at: String,
    /// The model's names; empty where there is no model.
    pub names: String,
    /// The page's address with its token, where there is a page.
    pub page: Option<String>,
}

/// Runs the command.
pub fn run(args: &ServeArgs, quiet: bool) -> anyhow::Result<()> {
    start(args, quiet, None, &|opened: &Opened| {
        // Scripts wait for this line, so it comes with --quiet, too.
        note(&format!(
            "{} at http://{}/v1",
            opened.names.shown(),
            opened.at
        ));
        if let Some(page) = &opened.page {
            note(&format!("the page is at {page}"));
        }
    })
}

/// Serves until it is told to end. `opened` tells the person that the server listens.
pub fn start(
    args: &ServeArgs,
    quiet: bool,
    for_page: Option<ForPage>,
    opened: &dyn Fn(&Opened),
) -> anyhow::Result<()> {
    let library = Library::new(args);
    let mut server = server_options(args);
    let (first, shown) = match for_page {
        None => {
            let ready = library.ready(&Wish::default())?;
            describe(&ready, quiet)?;
            let shown = beside(ready.chosen.places());
            (library.opened(ready)?, shown)
        }
        Some(ForPage { held, installer }) => {
            let (page, held) = page(held)?;
            let first = First::find(&library, &page.wish(), quiet)?;
            (server.problem, server.loading) = (first.problem, first.loading);
            server.installer = Some(installer);
            server.models = Some(library.clone());
            (first.opened, Some((page, held)))
        }
    };
    server.documents = Some(Arc::new(InProcess));
    server.page = shown.as_ref().map(|(page, _)| page.clone());
    let (names, is_public) = (first.names.join(", "), !server.is_local_only());
    let page = server.page.clone();
    let log: Arc<dyn Log> = if quiet {
        Arc::new(Silent)
    } else {
        Arc::new(Console)
    };
    let stop = Stop::new();
    let _stoppable = Stoppable::new(&stop);
    Ok(serve(server, first, log, &stop, |address| {
        if is_public {
            note(
                "this is plain HTTP beyond loopback: whoever is on the way can read it; put a proxy with TLS before it",
            );
        }
        if let Some((page, held)) = &shown
            && let Err(error) = page.lend(address, held.teller())
        {
            note(&format!("a second start will not find this page: {error}"));
        }
        opened(&Opened {
            at: address.to_string(),
            names,
            page: page.map(|page| page.address(address)),
        });
    })?)
}

/// What `ouzel app` begins with.
struct First {
    opened: models::Opened,
    /// Why what was wanted could not be had.
    problem: Option<String>,
    loading: Loading,
}

impl First {
    /// The model that the command line names, else the one that was chosen on the page, else the usual one; none where there is none, or where that one
    /// cannot be had, which the page then says. What the command line asks for and cannot get is an error of the command.
    fn find(library: &Library, kept: &Wish, quiet: bool) -> anyhow::Result<First> {
        if library.names_a_model() {
            return First::loaded(library, library.ready(&Wish::default())?, quiet);
        }
        match First::of_page(library, kept, quiet) {
            Ok(Some(first)) => Ok(first),
            Ok(None) => Ok(First::nothing(None)),
            Err(error) if library.is_told() => Err(error),
            Err(error) => Ok(First::nothing(exit::line(&error))),
        }
    }

    fn of_page(library: &Library, kept: &Wish, quiet: bool) -> anyhow::Result<Option<First>> {
        if kept.model.is_none() && !library.has_usual()? {
            return Ok(None);
        }
        let of_kept_model = Wish {
            model: kept.model.clone(),
            ..Wish::default()
        };
        // What the command line says of memory counts for a model that was chosen on the page, too.
        let wish = if library.is_told() {
            &of_kept_model
        } else {
            kept
        };
        First::loaded(library, library.ready(wish)?, quiet).map(Some)
    }

    /// A model that is loaded while the page opens, if there is room for it.
    fn loaded(library: &Library, ready: Ready, quiet: bool) -> anyhow::Result<First> {
        describe(&ready, quiet)?;
        let wanted = ready.model.plan_budget(&ready.options)?.total_bytes;
        let missing = free_memory().filter(|free| *free < wanted);
        let problem = missing.map(|free| {
            format!(
                "the model is not loaded: it would take {} of memory, and {} are free; close other programs, or choose less memory",
                bytes(wanted),
                bytes(free)
            )
        });
        Ok(First {
            opened: library.opened(ready)?,
            loading: match problem {
                Some(_) => Loading::Asked,
                None => Loading::Meanwhile,
            },
            problem,
        })
    }

    fn nothing(problem: Option<String>) -> First {
        First {
            opened: models::Opened::nothing(),
            problem,
            loading: Loading::Asked,
        }
    }
}

/// Says what will be loaded, and what it costs.
fn describe(ready: &Ready, quiet: bool) -> anyhow::Result<()> {
    if !quiet {
        report::before_loading(&ready.model, &ready.options, &ready.session);
        note(&cost(&ready.model, &ready.options)?);
    }
    Ok(())
}

/// The page beside a server for programs, which does without it.
fn beside(places: &Places) -> Option<(Arc<Page>, Held)> {
    match free(places).and_then(page) {
        Ok(shown) => Some(shown),
        Err(error) => {
            note(&format!("there is no page: {}", exit::full(&error)));
            None
        }
    }
}

/// The conversations, where no other process has them.
fn free(places: &Places) -> anyhow::Result<Held> {
    let folder = places.chats()?;
    conversations::hold(folder)?.ok_or_else(|| CliError::Busy(conversations::holder(folder)).into())
}

/// The page over the conversations in a folder that only its owner may enter.
fn page(held: Held) -> anyhow::Result<(Arc<Page>, Held)> {
    let file = held.folder().join(CHATS_FILE);
    create_private_file(&file)?;
    let chats = Chats::open(&file).with_context(|| file.display().to_string())?;
    Ok((Page::new(chats)?, held))
}

fn cost(model: &Model, options: &Options) -> anyhow::Result<String> {
    let budget = model.plan_budget(options)?;
    let a_layer = budget.slots as f64 / model.config().n_layers() as f64;
    Ok(format!(
        "a context of {} tokens; {} of memory in all, {a_layer:.1} of {} experts of each layer in memory when it is full",
        budget.context,
        bytes(budget.total_bytes),
        model.config().n_experts,
    ))
}

fn server_options(args: &ServeArgs) -> ServerOptions {
    let from_environment = || {
        std::env::var(KEY_VARIABLE)
            .ok()
            .filter(|key| !key.is_empty())
    };
    ServerOptions {
        host: args.host.clone(),
        port: args.port,
        api_key: args.api_key.clone().or_else(from_environment),
        cors_origins: args.cors_origin.clone(),
        queue: args.queue as usize,
        time_limit: args.time_limit,
        idle_unload: args.served.idle_unload,
        on_terminate: true,
        ..ServerOptions::default()
    }
}

/// Records as lines on standard error.
struct Console;

impl Log for Console {
    fn record(&self, record: &Record<'_>) {
        if let Some(line) = line(record) {
            note(&line);
        }
    }
}

fn line(record: &Record<'_>) -> Option<String> {
    match record {
        Record::Loaded { took } => Some(format!(
            "the model is loaded, after {:.1} s",
            took.as_secs_f64()
        )),
        Record::Lost => {
            Some("the decode service is gone; the next request starts it again".to_owned())
        }
        Record::NotKept { why } => Some(format!(
            "conversations are not kept on the disk: {why}; change that, name another folder in OUZEL_PREFIXES, or keep none there with --prefix-disk 0"
        )),
        Record::Unloaded => Some("the model's memory is given back".to_owned()),
        Record::Draining => Some(
            "taking no more requests; what was begun is answered, a second signal cuts it off"
                .to_owned(),
        ),
        Record::Turn {
            id,
            waited,
            took,
            end,
            usage,
        } => Some(format!(
            "turn {id}: {}{end}; waited {:.1} s, took {:.1} s",
            usage.as_ref().map_or(String::new(), tokens),
            waited.as_secs_f64(),
            took.as_secs_f64()
        )),
        Record::Request {
            method,
            route,
            status,
            ..
        } if *status >= 400 => Some(format!("{method} {route}: {status}")),
        _ => None,
    }
}

fn tokens(usage: &Usage) -> String {
    format!(
        "{} prompt tokens ({} held from before), {} new, ",
        usage.prompt, usage.cached, usage.new
    )
}
