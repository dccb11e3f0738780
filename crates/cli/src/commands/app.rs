//! `ouzel app`: the page in the browser that the person already has.

use std::net::SocketAddr;

use ouzel_server::Page;

use super::serve::{self, Door};
use crate::args::AppArgs;
use crate::browser;
use crate::output::note;

/// Runs the command.
pub fn run(args: &AppArgs, quiet: bool) -> anyhow::Result<()> {
    let door = Door {
        needs_page: true,
        opened: &|page: Option<&Page>, at: SocketAddr, _| {
            let Some(address) = page.map(|page| page.address(at)) else {
                return;
            };
            // Scripts wait for this line, so it comes with --quiet, too.
            note(&format!("the page is at {address}"));
            if !args.no_open
                && let Err(error) = browser::open(&address)
            {
                note(&format!(
                    "no browser could be opened ({error}); open the address above"
                ));
            }
        },
    };
    serve::start(&args.serving(), quiet, door)
}
