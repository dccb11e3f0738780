//! The `ouzel` command line: arguments, environment, progress, exit codes. It joins the rooms and does no maths.

mod args;
mod browser;
mod commands;
mod conversations;
mod demo;
mod desktop;
mod exit;
mod hub;
mod ids;
mod interrupt;
mod library;
mod messages;
mod models;
mod new_file;
mod output;
mod progress;
mod report;
mod running;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use args::{Cli, Command};

fn main() -> ExitCode {
    if desktop::is_start() {
        return desktop::run();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    end(interrupt::listen().and_then(|()| run(&cli)))
}

fn end(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if let Some(line) = exit::line(&error) {
        output::note(&line);
    }
    ExitCode::from(exit::code(&error))
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    match &cli.command {
        Command::Generate(args) => commands::generate::run(args, cli.quiet),
        Command::Chat(args) => commands::chat::run(args, cli.quiet),
        Command::Serve(args) => commands::serve::run(&args.clone().with_names_once(), cli.quiet),
        Command::App(args) => commands::app::run(args, cli.quiet),
        Command::DecodeService => commands::decode_service::run(),
        Command::PdfText => commands::pdf_text::run(),
        Command::Install(args) => commands::install::run(args, cli.quiet),
        Command::Models(args) => commands::models::run(args),
        Command::Verify(args) => commands::verify::run(args, cli.quiet),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Bench(args) => commands::bench::run(args, cli.quiet),
        Command::Eval(args) => commands::eval::run(args, cli.quiet),
        Command::Tokenize(args) => commands::tokenize::run(args),
        Command::Detokenize(args) => commands::tokenize::run_reverse(args),
        Command::Completions(args) => commands::completions::run(args),
    }
}

/// Help and version go to standard output; what clap refuses becomes one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return end(output::write_help(error));
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // It goes to standard error, and nobody minds if that is closed.
            let _ = error.print();
            return ExitCode::from(exit::USAGE);
        }
        _ => {}
    }
    output::note(&exit::usage_line(&error.to_string()));
    ExitCode::from(exit::USAGE)
}
