//! `ouzel eval`: how likely a model finds given tokens, and its logits, for measuring from outside.

use std::path::Path;

use ouzel::{Model, Options, Score, Session};
use serde_json::{Value, json};

use crate::args::EvalArgs;
use crate::exit::usage;
use crate::new_file::Target;
use crate::output::{input_name, read_input, utf8, write_json};
use crate::progress::Progress;
use crate::{ids, models, report};

mod logits;

use logits::LogitsFile;

/// Rows of logits that are computed together: each reads the whole output head once.
const LOGITS_ROWS: u32 = 16;

/// Runs the command.
pub fn run(args: &EvalArgs, quiet: bool) -> anyhow::Result<()> {
    let target = args
        .logits
        .as_deref()
        .map(|path| Target::find(path, "--logits"))
        .transpose()?;
    let given = match &args.token_ids {
        Some(path) => Some(read_ids(path)?),
        None => None,
    };
    let chosen = models::choose(&args.model.model())?;
    let mut options = chosen.options(&args.session, args.precision);
    options.logits_rows = LOGITS_ROWS;
    let model = chosen.open(&options)?;
    let sequences = match given {
        Some(sequences) => sequences,
        None => vec![text_ids(args, &model)?],
    };
    for (i, ids) in sequences.iter().enumerate() {
        ids::check(ids, &model, &format!(" of sequence {i}"))?;
    }
    fit_context(&model, &sequences, &mut options)?;
    args.session.settle(&model, &mut options)?;
    if !quiet {
        report::before_loading(&model, &options, &args.session);
    }
    let _running = chosen.claim(&model, &options, args.session.shared)?;
    let mut session = model.session(&options)?;
    let mut logits = target
        .map(|target| LogitsFile::create(target, &sequences, model.config().vocab_size))
        .transpose()?;
    let mut scores = Vec::new();
    let progress = Progress::tokens("evaluating", quiet);
    progress.set(0, sequences.iter().map(Vec::len).sum::<usize>() as u64);
    for ids in &sequences {
        scores.push(score(&mut session, ids, logits.as_mut(), &progress)?);
    }
    progress.clear();
    if let Some(file) = logits {
        file.finish()?;
    }
    write_json(&summary(&sequences, &scores))
}

fn read_ids(path: &Path) -> anyhow::Result<Vec<Vec<u32>>> {
    let name = input_name(path);
    let sequences = ids::many(&name, &read_input(path)?)?;
    if sequences.is_empty() {
        return Err(usage(format!(
            "{name}: there are no sequences; give an array of arrays of token ids"
        )));
    }
    if let Some(at) = sequences.iter().position(Vec::is_empty) {
        return Err(usage(format!(
            "{name}: sequence {at} is empty; give at least one token id"
        )));
    }
    Ok(sequences)
}

fn text_ids(args: &EvalArgs, model: &Model) -> anyhow::Result<Vec<u32>> {
    // The parser asks for one of the two inputs.
    let path = args.text.as_deref().unwrap_or(Path::new("-"));
    let name = input_name(path);
    let text = utf8(read_input(path)?, &name)?;
    if text.is_empty() {
        return Err(usage(format!(
            "{name}: the text is empty; give at least one word"
        )));
    }
    Ok(model.raw_prompt(&text)?.ids)
}

/// The context is as long as the longest sequence, unless the user named another.
fn fit_context(model: &Model, sequences: &[Vec<u32>], options: &mut Options) -> anyhow::Result<()> {
    let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let limit = options
        .max_context
        .map_or(model.config().max_position, |n| n as usize);
    if longest > limit {
        return Err(usage(format!(
            "a sequence has {longest} tokens and the context {limit}; give shorter sequences{}",
            if options.max_context.is_some() {
                " or a larger --max-context"
            } else {
                ""
            }
        )));
    }
    options
        .max_context
        .get_or_insert(u32::try_from(longest).unwrap_or(u32::MAX));
    Ok(())
}

fn score(
    session: &mut Session,
    ids: &[u32],
    mut logits: Option<&mut LogitsFile>,
    progress: &Progress,
) -> anyhow::Result<Score> {
    let mut written = Ok(());
    let score = session.score(ids, &mut |_, row| {
        progress.add(1);
        if let Some(file) = logits.as_deref_mut()
            && written.is_ok()
        {
            written = file.row(row);
        }
    })?;
    written?;
    Ok(score)
}

fn summary(sequences: &[Vec<u32>], scores: &[Score]) -> Value {
    let each: Vec<Value> = sequences
        .iter()
        .zip(scores)
        .map(|(ids, score)| {
            json!({
                "tokens": ids.len(),
                "scored_tokens": score.nll.len(),
                "nll_per_token": score.mean_nll(),
                "perplexity": score.perplexity(),
                "nll": score.nll,
            })
        })
        .collect();
    let all = Score {
        nll: scores
            .iter()
            .flat_map(|score| score.nll.iter().copied())
            .collect(),
    };
    json!({
        "tokens": sequences.iter().map(Vec::len).sum::<usize>(),
        "scored_tokens": all.nll.len(),
        "nll_per_token": all.mean_nll(),
        "perplexity": all.perplexity(),
        "sequences": each,
    })
}
