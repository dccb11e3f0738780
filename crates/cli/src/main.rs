//! The `ouzel` command line: arguments, environment, progress, exit codes. It joins the rooms and does no maths.

mod args;
mod commands;
mod demo;
mod exit;
mod interrupt;
mod messages;
mod models;
mod output;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = interrupt::listen().and_then(|()| run(&cli));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = exit::code(&error);
            if let Some(line) = exit::line(&error) {
                output::note(&line);
            }
            ExitCode::from(code)
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match &cli.command {
        Command::Generate(args) => commands::generate::run(args, cli.quiet),
        Command::Chat(args) => commands::chat::run(args, cli.quiet),
        Command::Install(args) => commands::install::run(args, cli.quiet),
        Command::Verify(args) => commands::verify::run(args, cli.quiet),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Bench(args) => commands::bench::run(args, cli.quiet),
        Command::Eval(args) => commands::eval::run(args, cli.quiet),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Detokenize(args) => commands::tokenize::run_reverse(args),
    }
}

/// Help and version go to standard output; what clap refuses becomes one line.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_help = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    if is_help || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Whoever closed the pipe does not want it.
        let _ = error.print();
        return ExitCode::from(if is_help { 0 } else { exit::USAGE });
    }
    output::note(&exit::usage_line(&error.to_string()));
    ExitCode::from(exit::USAGE)
}
