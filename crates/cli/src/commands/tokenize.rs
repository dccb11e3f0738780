//! `ouzel tokenize` and `ouzel detokenize`: text to token ids and back.

use std::path::Path;

use ouzel::Model;
use serde_json::json;

use crate::args::{DetokenizeArgs, ModelArgs, Precision, SessionArgs, TokenizeArgs};
use crate::output::{input_name, read_input, utf8, write, write_json};
use crate::{ids, messages, models};

/// Runs `tokenize`.
pub fn run(args: &TokenizeArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.chat {
        let input = messages::read_input_of_template(path)?;
        let prompt = open(&args.model.model())?.render(input)?;
        return write_json(&json!({"text": prompt.text, "ids": prompt.ids}));
    }
    let model = open(&args.model.model())?;
    let stdin = Path::new("-");
    let text = utf8(read_input(stdin)?, &input_name(stdin))?;
    write_json(&model.tokenizer()?.encode(&text))
}

/// Runs `detokenize`.
pub fn run_reverse(args: &DetokenizeArgs) -> anyhow::Result<()> {
    let model = open(&args.model.model())?;
    let stdin = Path::new("-");
    let ids = ids::one(&input_name(stdin), &read_input(stdin)?)?;
    ids::check(&ids, &model, "")?;
    let tokenizer = model.tokenizer()?;
    write(&tokenizer.decode(&ids, false))
}

fn open(args: &ModelArgs) -> anyhow::Result<Model> {
    let chosen = models::choose(args)?;
    chosen.open(&chosen.options(&SessionArgs::default(), Precision::Fast))
}
