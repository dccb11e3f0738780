//! `ouzel completions`: what shells read.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::output;

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ouzel", &mut script);
    output::write(&String::from_utf8(script)?)
}
