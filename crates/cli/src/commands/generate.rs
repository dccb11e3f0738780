//! `ouzel generate`: one answer.

use ouzel::{Error, Message, StopReason};

use super::answer;
use crate::args::GenerateArgs;
use crate::exit::CliError;
use crate::interrupt::Armed;
use crate::output::note;
use crate::{messages, models, report};

enum Input {
    Chat(Vec<Message>),
    Raw(String),
}

/// Runs the command.
pub fn run(args: &GenerateArgs, quiet: bool) -> anyhow::Result<()> {
    // What is wrong with the input is said before a model is looked for.
    let input = input(args)?;
    let chosen = models::choose(&args.model)?;
    let mut options = chosen.options(&args.session, args.sampling.precision);
    let model = chosen.open(&options)?;
    args.session.settle(&model, &mut options)?;
    let answer_options = args.sampling.options(chosen.temperature());
    // A prompt that cannot be made is refused before gigabytes are read.
    let prompt = match &input {
        Input::Chat(messages) => model.chat_prompt(messages, answer_options.thinking)?,
        Input::Raw(text) => model.raw_prompt(text)?,
    };
    if !quiet {
        report::before_loading(&model, &options, &args.session);
    }
    let _running = chosen.claim(&model, &options, args.session.shared)?;
    let mut session = model.session(&options)?;

    let armed = Armed::new();
    let generation = session.generate(prompt.ids, &answer_options, armed.cancel())?;
    let answer = answer::show(generation, args.sampling.thinking, quiet)?;
    if !quiet {
        note(&report::stats(&answer.stats));
    }
    match answer.stats.stop {
        StopReason::Cancelled => Err(CliError::Interrupted.into()),
        _ => Ok(()),
    }
}

fn input(args: &GenerateArgs) -> anyhow::Result<Input> {
    let not_empty = |text: &str| match text.trim() {
        "" => Err(Error::EmptyPrompt),
        _ => Ok(text.to_owned()),
    };
    match (&args.instruction, &args.prompt, &args.messages_file) {
        (Some(text), _, _) => Ok(Input::Chat(vec![Message::user(not_empty(text)?)])),
        (_, Some(text), _) => Ok(Input::Raw(not_empty(text)?)),
        (_, _, Some(path)) => Ok(Input::Chat(messages::read(path)?)),
        // The parser asks for one of the three.
        _ => Err(Error::EmptyPrompt.into()),
    }
}
