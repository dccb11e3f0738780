//! `ouzel serve`: the model for other programs, over HTTP.

use std::any::Any;
use std::sync::Arc;

use anyhow::Context;
use ouzel::{EngineError, Error, Model, Options, PrefixOptions, SamplerOptions};
use ouzel_chats::Chats;
use ouzel_server::engine::Engine;
use ouzel_server::log::{Log, Record, Silent};
use ouzel_server::model::{
    Grammar, MIN_SLOTS_A_LAYER, ModelEngine, OWN_PROCESS_BYTES, SERVER_BYTES,
};
use ouzel_server::turn::Usage;
use ouzel_server::wire::Defaults;
use ouzel_server::{Page, ServerOptions, Stop, serve};
use ouzel_storage::{ShowPath, create_private_file};

use super::decode_service;
use crate::args::{ServeArgs, ServedArgs};
use crate::conversations::{self, Held};
use crate::exit::CliError;
use crate::interrupt::Stoppable;
use crate::models::{self, Chosen, Places};
use crate::output::note;
use crate::report::{self, bytes};

/// The environment variable with the key.
const KEY_VARIABLE: &str = "OUZEL_API_KEY";

/// Memory for kept conversations where nobody says, and with the bundled model.
const PREFIX_MEMORY_BYTES: u64 = 128 << 20;
const DEMO_PREFIX_MEMORY_BYTES: u64 = 32 << 20;

/// The file of the page's conversations.
const CHATS_FILE: &str = "chats.sqlite3";

/// What one of the commands that serve does about the page.
pub struct Door<'a> {
    /// The conversations, where there is nothing to do without the page.
    pub held: Option<Held>,
    /// Tells the person that the server listens.
    pub opened: &'a dyn Fn(&Opened),
}

/// Where a server listens.
pub struct Opened {
    /// HOST:PORT
    pub at: String,
    /// The model's names.
    pub names: String,
    /// The page's address with its token, where there is a page.
    pub page: Option<String>,
}

/// Runs the command.
pub fn run(args: &ServeArgs, quiet: bool) -> anyhow::Result<()> {
    let door = Door {
        held: None,
        opened: &|opened: &Opened| {
            // Scripts wait for this line, so it comes with --quiet, too.
            note(&format!(
                "{} at http://{}/v1",
                opened.names.shown(),
                opened.at
            ));
            if let Some(page) = &opened.page {
                note(&format!("the page is at {page}"));
            }
        },
    };
    start(args, quiet, door)
}

/// Serves until it is told to end.
pub fn start(args: &ServeArgs, quiet: bool, door: Door<'_>) -> anyhow::Result<()> {
    let chosen = models::choose(&args.model.model())?;
    let mut options = chosen.options(&args.served.session, args.served.precision);
    let model = chosen.open(&options)?;
    options.prefixes = Some(prefixes(args, &chosen));
    let grammar = Grammar::new(model.tokenizer()?);
    options.other_bytes = other_bytes(&args.served, &grammar);
    args.served.session.settle(&model, &mut options)?;
    if options.max_context.is_none() {
        options.max_context = largest_context(&model, &options)?;
    }
    if !quiet {
        report::before_loading(&model, &options, &args.served.session);
        note(&cost(&model, &options)?);
    }
    let shown = match door.held {
        Some(held) => Some(page(held)?),
        None => match free(chosen.places()).and_then(page) {
            Ok(shown) => Some(shown),
            Err(error) => {
                note(&format!("there is no page: {error:#}"));
                None
            }
        },
    };
    let page = shown.as_ref().map(|(page, _)| page.clone());
    let server = server_options(args, &chosen, page.clone());
    let (names, is_public) = (server.names.join(", "), !server.is_local_only());
    let engine = engine(chosen, (model, grammar), options, &args.served)?;
    let log: Arc<dyn Log> = if quiet {
        Arc::new(Silent)
    } else {
        Arc::new(Console)
    };
    let stop = Stop::new();
    let _stoppable = Stoppable::new(&stop);
    Ok(serve(server, engine, log, &stop, |address| {
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
        (door.opened)(&Opened {
            at: address.to_string(),
            names,
            page: page.map(|page| page.address(address)),
        });
    })?)
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

/// What is kept of conversations, and where.
fn prefixes(args: &ServeArgs, chosen: &Chosen) -> PrefixOptions {
    let usual = if chosen.is_demo {
        DEMO_PREFIX_MEMORY_BYTES
    } else {
        PREFIX_MEMORY_BYTES
    };
    let dir = chosen
        .places()
        .prefixes
        .as_ref()
        .map(|dir| dir.join(chosen.name()));
    PrefixOptions {
        memory_bytes: args.served.prefix_memory.unwrap_or(usual),
        dir: dir.filter(|_| args.served.prefix_disk > 0),
        disk_bytes: args.served.prefix_disk,
    }
}

/// The longest context that leaves a model enough slots to be worth running, or nothing where no context does.
fn largest_context(model: &Model, options: &Options) -> anyhow::Result<Option<u32>> {
    let n_experts = u32::try_from(model.config().n_experts).unwrap_or(u32::MAX);
    match model.largest_context(options, MIN_SLOTS_A_LAYER.min(n_experts)) {
        Ok(context) => Ok(Some(context)),
        // The default context may do; if not, its plan says what would.
        Err(Error::Engine(EngineError::Budget { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
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

/// What the server takes beside the model, in bytes.
fn other_bytes(served: &ServedArgs, grammar: &Grammar) -> u64 {
    let own_process = if served.in_process {
        0
    } else {
        OWN_PROCESS_BYTES
    };
    SERVER_BYTES + own_process + grammar.bytes() as u64
}

/// The engine of a model that was chosen: in a decode service, unless this process shall have it.
fn engine(
    chosen: Chosen,
    (model, grammar): (Model, Grammar),
    options: Options,
    served: &ServedArgs,
) -> anyhow::Result<Arc<dyn Engine>> {
    let (claimed, planned) = (model.clone(), options.clone());
    let shared = served.session.shared;
    let claim = move |pid| match chosen.claim_for(pid, &claimed, &planned, shared) {
        Ok(running) => Ok(Box::new(running) as Box<dyn Any>),
        Err(error) => Err(format!("{error:#}")),
    };
    let engine = ModelEngine::new(model, grammar, options, Box::new(claim))?;
    Ok(Arc::new(if served.in_process {
        engine
    } else {
        engine.in_service(decode_service::program()?)
    }))
}

fn server_options(args: &ServeArgs, chosen: &Chosen, page: Option<Arc<Page>>) -> ServerOptions {
    let from_environment = || {
        std::env::var(KEY_VARIABLE)
            .ok()
            .filter(|key| !key.is_empty())
    };
    let names = if args.model_name.is_empty() {
        vec![chosen.name()]
    } else {
        args.model_name.clone()
    };
    ServerOptions {
        host: args.host.clone(),
        port: args.port,
        api_key: args.api_key.clone().or_else(from_environment),
        names,
        cors_origins: args.cors_origin.clone(),
        queue: args.queue as usize,
        time_limit: args.time_limit,
        idle_unload: args.served.idle_unload,
        defaults: Defaults {
            sampler: SamplerOptions {
                temperature: args.served.temperature.unwrap_or(chosen.temperature()),
                top_k: args.top_k,
                ..SamplerOptions::default()
            },
        },
        on_terminate: true,
        page,
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
