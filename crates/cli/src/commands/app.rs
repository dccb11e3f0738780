//! `ouzel app`: the page in the browser that the person already has. Where another process shows it already, that one's page is opened.

use std::sync::Arc;

use ouzel_storage::ShowPath;

use super::install::ForPages;
use super::serve::{self, ForPage, Opened};
use crate::args::AppArgs;
use crate::browser;
use crate::conversations::{self, Found};
use crate::models::Places;
use crate::output::note;

/// Runs the command.
pub fn run(args: &AppArgs, quiet: bool) -> anyhow::Result<()> {
    let places = Places::find(args.model.model().models_dir.as_deref())?;
    let held = match conversations::find(places.chats()?)? {
        Found::Ours(held) => held,
        Found::Theirs(other) => {
            note(&format!(
                "process {}, {}, is running already and goes on as it was started",
                other.pid,
                other.command.shown()
            ));
            show(args, &other.page);
            return Ok(());
        }
    };
    let for_page = ForPage {
        held,
        installer: Arc::new(ForPages::new(args)?),
    };
    serve::start(
        &args.serving(),
        quiet,
        Some(for_page),
        &|opened: &Opened| {
            if let Some(page) = &opened.page {
                show(args, page);
            }
        },
    )
}

fn show(args: &AppArgs, page: &str) {
    // Scripts wait for this line, so it comes with --quiet, too.
    note(&format!("the page is at {page}"));
    if !args.no_open
        && let Err(error) = browser::open(page)
    {
        note(&format!(
            "no browser could be opened ({error}); open the address above"
        ));
    }
}
