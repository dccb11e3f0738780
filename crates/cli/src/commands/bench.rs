//! `ouzel bench`: how fast a model runs here, and which share that is of what the machine could do at best.

mod forecast;
mod markdown;
mod measure;
mod probe;
mod system;
mod table;

use std::path::{Path, PathBuf};

use ouzel::{Error, Model, Options};
use ouzel_engine::floor::{Rates, WeightBytes, gemma4_26b_a4b};
use ouzel_engine::{DEFAULT_CONTEXT_TOKENS, DEFAULT_MEMORY_BYTES};
use ouzel_format::paths;
use ouzel_storage::StorageError;

use crate::args::BenchArgs;
use crate::exit::usage;
use crate::interrupt::Armed;
use crate::new_file::{NewFile, Target};
use crate::output::write;
use crate::{models, report};
use measure::Plan;
use probe::{Limits, Order, Probe, Probes};
use table::Bench;

/// Tokens decoded at each frontier where nothing is said, and with `--quick`.
const DECODE_TOKENS: u32 = 64;
const QUICK_DECODE_TOKENS: u32 = 16;
/// Runs where nothing is said, and with `--quick`.
const RUNS: u32 = 3;
const QUICK_RUNS: u32 = 1;
/// The frontiers where none are named: this one, then eight times as much, then four times as much each.
const FIRST_FRONTIER: usize = 64;
const SECOND_FRONTIER: usize = 512;

/// Runs the command.
pub fn run(args: &BenchArgs, quiet: bool) -> anyhow::Result<()> {
    let csv = match &args.csv {
        Some(path) if path != Path::new("-") => {
            Some(NewFile::create(Target::find(path, "--csv")?)?)
        }
        Some(_) if args.report => {
            return Err(usage(
                "--csv - and --report both want standard output; give --csv a file",
            ));
        }
        _ => None,
    };
    if args.probe {
        return probe_alone(args, csv);
    }
    let bench = bench(args, quiet)?;
    finish(csv, || bench.csv())?;
    if args.csv.as_deref() == Some(Path::new("-")) {
        return write(&bench.csv());
    }
    if args.report {
        return write(&markdown::report(&bench));
    }
    write(&bench.table())
}

/// Completes the CSV file, if there is one.
fn finish(file: Option<NewFile>, rows: impl FnOnce() -> String) -> anyhow::Result<()> {
    match file {
        Some(mut file) => {
            file.write(rows().as_bytes())?;
            file.finish()
        }
        None => Ok(()),
    }
}

fn bench(args: &BenchArgs, quiet: bool) -> anyhow::Result<Bench> {
    let chosen = models::choose(&args.model.model())?;
    let mut options = chosen.options(&args.session, args.precision);
    let model = chosen.open(&options)?;
    let n_decode = args.decode.unwrap_or(if args.quick {
        QUICK_DECODE_TOKENS
    } else {
        DECODE_TOKENS
    });
    let frontiers = frontiers(args, n_decode as usize, &model, &mut options)?;
    args.session.settle(&model, &mut options)?;
    let budget = model.plan_budget(&options)?;
    if !quiet {
        report::before_loading(&model, &options, &args.session);
    }
    let _running = chosen.claim(&model, &options, args.session.shared)?;
    let limits = Limits {
        memory: budget.memory_bytes,
        threads: budget.threads,
        quick: args.quick,
    };
    let plan = Plan {
        model: &model,
        options,
        frontiers,
        n_decode: n_decode as usize,
        runs: args
            .runs
            .unwrap_or(if args.quick { QUICK_RUNS } else { RUNS }) as usize,
        seed: args.seed,
    };
    let armed = Armed::new();
    let before = Probe::of_model(model.dir(), limits)?;
    let measured = plan.measure(armed.cancel(), quiet)?;
    let after = Probe::of_model(model.dir(), limits)?;
    let probes = Probes { before, after };
    let rates = probes.rates();
    let row = |frontier: &measure::Frontier| {
        frontier.row(
            model.config(),
            &measured.about.weights,
            &rates,
            &plan.options,
        )
    };
    Ok(Bench {
        model_id: model.manifest().model_id.clone(),
        precision: args.precision,
        n_experts: model.config().n_experts,
        runs: plan.runs,
        rows: measured.frontiers.iter().map(row).collect(),
        about: measured.about,
        probes,
    })
}

/// The context lengths to measure at, ascending; makes the session's context long enough for all of them.
fn frontiers(
    args: &BenchArgs,
    n_decode: usize,
    model: &Model,
    options: &mut Options,
) -> anyhow::Result<Vec<usize>> {
    let longest_possible = model.config().max_position;
    let usual = DEFAULT_CONTEXT_TOKENS.min(longest_possible);
    let given = options.max_context.map(|n| n as usize);
    let mut frontiers: Vec<usize> = args.frontiers.iter().map(|&n| n as usize).collect();
    frontiers.sort_unstable();
    frontiers.dedup();
    if frontiers.is_empty() {
        let context = given.unwrap_or(usual);
        let last = if args.quick { SECOND_FRONTIER } else { context };
        let usual = std::iter::successors(Some(SECOND_FRONTIER), |n| n.checked_mul(4));
        frontiers = std::iter::once(FIRST_FRONTIER)
            .chain(usual)
            .take_while(|&n| n <= last && n + n_decode <= context)
            .collect();
    }
    let needed = n_decode + frontiers.last().copied().unwrap_or(FIRST_FRONTIER);
    let limit = given.unwrap_or(longest_possible);
    if needed > limit {
        return Err(usage(format!(
            "the longest frontier and {n_decode} decoded tokens need a context of {needed} tokens, and {limit} are the limit; \
             give smaller --frontiers, a smaller --decode or a larger --max-context"
        )));
    }
    let context = given.unwrap_or(usual.max(needed));
    options.max_context = Some(u32::try_from(context).unwrap_or(u32::MAX));
    Ok(frontiers)
}

/// `--probe`: disk, memory and arithmetic alone, and what budgets of the real model would give with them.
fn probe_alone(args: &BenchArgs, csv: Option<NewFile>) -> anyhow::Result<()> {
    let (dir, folder) = models::installed(&args.model.model())?;
    let (files, read_bytes) = match &dir {
        Some(dir) => {
            let model = ouzel_engine::Model::open(dir).map_err(Error::from)?;
            (expert_files(dir)?, model.bytes().expert_stride)
        }
        None => {
            std::fs::create_dir_all(&folder)
                .map_err(|source| StorageError::io("making the folder", &folder, source))?;
            let weights = WeightBytes::of_shape(&gemma4_26b_a4b());
            (Vec::new(), weights.expert_stride)
        }
    };
    let memory = args.session.memory_of_any_model()?;
    let order = Order {
        limits: Limits {
            memory: memory.unwrap_or(DEFAULT_MEMORY_BYTES),
            threads: match args.session.threads {
                Some(n) => n as usize,
                None => std::thread::available_parallelism().map_or(1, usize::from),
            },
            quick: args.quick,
        },
        files,
        folder,
        read_bytes,
    };
    let probe = order.run()?;
    finish(csv, || probe.to_csv())?;
    if args.csv.as_deref() == Some(Path::new("-")) {
        return write(&probe.to_csv());
    }
    let forecast = forecast::table(args, memory, &probe.rates()).map_err(Error::from)?;
    write(&format!("{}\n{forecast}", table::probe(&probe)))
}

/// What the machine can do with a model's files, measured in a few seconds by another process.
pub fn rates(model: &Model, options: &Options) -> anyhow::Result<Rates> {
    let budget = model.plan_budget(options)?;
    let limits = Limits {
        memory: budget.memory_bytes,
        threads: budget.threads,
        quick: true,
    };
    Ok(Probe::of_model(model.dir(), limits)?.rates())
}

/// The files of a model that hold its experts.
fn expert_files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let dir = dir.join(paths::EXPERTS_DIR);
    let failed = |source| StorageError::io("listing", &dir, source);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_layer = path.extension().is_some_and(|extension| extension == "bin");
        if is_layer && !path.ends_with(paths::CHECKSUMS) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The one in the middle, or halfway between the two there.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => f64::NAN,
        _ if n.is_multiple_of(2) => (values[n / 2 - 1] + values[n / 2]) / 2.0,
        _ => values[n / 2],
    }
}

#[cfg(test)]
mod tests;
