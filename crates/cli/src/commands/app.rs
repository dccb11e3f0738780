//! `ouzel app`: the page in the browser that the person already has.

use super::serve::{self, Door, Opened};
use crate::args::AppArgs;
use crate::browser;
use crate::output::note;

/// Runs the command.
pub fn run(args: &AppArgs, quiet: bool) -> anyhow::Result<()> {
    let door = Door {
        needs_page: true,
        opened: &|opened: &Opened| {
            let Some(page) = &opened.page else {
                return;
            };
            // Scripts wait for this line, so it comes with --quiet, too.
            note(&format!("the page is at {page}"));
            if !args.no_open
                && let Err(error) = browser::open(page)
            {
                note(&format!(
                    "no browser could be opened ({error}); open the address above"
                ));
            }
        },
    };
    serve::start(&args.serving(), quiet, door)
}
