//! `ouzel inspect`: what a model holds and how its memory would be spent.

use std::fmt::Write;

use ouzel::{Error, Model};
use ouzel_storage::ShowPath;

use crate::args::InspectArgs;
use crate::models;
use crate::output::write;
use crate::report::{self, bytes};

/// Runs the command.
pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let chosen = models::choose(&args.model.model())?;
    let mut options = chosen.options(&args.session, args.precision);
    let model = chosen.open(&options)?;
    args.session.settle(&model, &mut options)?;
    write(&describe(&model))?;
    let budget = model.plan_budget(&options)?;
    let n_layers = model.config().n_layers();
    let a_layer = |slots: usize| slots as f64 / n_layers as f64;
    write(&format!(
        "\nmemory of a session, of {} allowed:\n{}smallest that would do: {}\nlongest chunk of a prompt: {} tokens\nexperts in memory, of {}: {} with an empty context ({:.1} a layer), {} with a full one ({:.1})\n",
        bytes(budget.memory_bytes),
        report::budget(&budget),
        bytes(budget.smallest_bytes),
        budget.chunk,
        model.config().n_experts * n_layers,
        budget.slots_at_start,
        a_layer(budget.slots_at_start),
        budget.slots,
        a_layer(budget.slots),
    ))?;
    let mode = model.read_mode(&options)?;
    write(&format!(
        "reads: {}{}\n",
        report::reads(mode),
        report::uncounted(mode)
    ))
}

fn describe(model: &Model) -> String {
    let (config, manifest) = (model.config(), model.manifest());
    let n_full = manifest
        .arch
        .full_attention_layer_mask
        .iter()
        .filter(|full| **full)
        .count();
    let n_experts = config.n_experts as u64 * config.n_layers() as u64;
    let size: u64 = manifest.files.values().map(|file| file.size).sum();
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{what:<14} {value}");
    };
    line("model", manifest.model_id.shown().to_string());
    line("directory", model.dir().shown().to_string());
    line(
        "files",
        format!("{}, {}", manifest.files.len(), bytes(size)),
    );
    line(
        "layers",
        format!(
            "{}: {} sliding over {} tokens, {n_full} full",
            config.n_layers(),
            config.n_layers() - n_full,
            config.sliding_window
        ),
    );
    line("hidden size", config.hidden_size.to_string());
    line(
        "experts",
        format!(
            "{} a layer, {} for each token, {} each, {} in all",
            config.n_experts,
            config.experts_per_token,
            bytes(manifest.expert_stride),
            bytes(manifest.expert_stride * n_experts)
        ),
    );
    line("vocabulary", config.vocab_size.to_string());
    line("context", format!("at most {} tokens", config.max_position));
    line(
        "tokenizer",
        presence(
            model
                .tokenizer()
                .map(|t| format!("{} in memory", bytes(t.resident_bytes() as u64))),
        ),
    );
    line(
        "chat template",
        presence(model.template().map(|_| "yes".to_owned())),
    );
    line(
        "stop ids",
        presence(model.stop_ids().map(|ids| format!("{ids:?}"))),
    );
    text
}

fn presence(part: Result<String, Error>) -> String {
    part.unwrap_or_else(|error| format!("no: {error}"))
}
