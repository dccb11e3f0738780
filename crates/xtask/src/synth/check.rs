//! `cargo xtask synth-check`: how a synthetic model behaves.
//!
//! It runs the seeded token sequence through the engine and shows the root mean square of the residual stream behind each layer, how
//! uneven the choice of experts is, and the hit rates of the engine's cache policy at several sizes, replayed from one pass: a row's experts do
//! not depend on how rows are put together, nor on what is cached.

mod compare;
mod replay;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ouzel::token_sequence;
use ouzel_engine::{Model, Options, Session, TokenId};

use super::preset::{self, Skew};
use replay::Choices;

/// The seed of the token sequence, which is not that of the model.
const SEQUENCE_SEED: u64 = 1;
/// How far from what is wanted a hit rate may be, in points.
const TOLERANCE: f64 = 4.0;
/// Experts that the real model has and chooses; others have other hit rates.
const REAL_EXPERTS: (usize, usize) = (128, 8);

/// What to check, and how.
struct Order {
    model: PathBuf,
    slots: Vec<usize>,
    prefill: usize,
    decode: usize,
    /// Where to write which experts each token chose, for comparison with another engine.
    choices: Option<PathBuf>,
    /// What another engine wrote of the same kind.
    compare: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let order = Order::parse(args)?;
    let model = Arc::new(Model::open(&order.model)?);
    println!("{}", model.manifest().model_id);
    let trace = Trace::take(&model, &order)?;
    if let Some(path) = &order.choices {
        std::fs::write(path, trace.choices.csv(&trace.ids))
            .with_context(|| path.display().to_string())?;
    }
    if let Some(path) = &order.compare {
        trace.print_agreement(path)?;
    }
    trace.print_layers(&model);
    trace.print_hit_rates(&model, &order)
}

impl Order {
    fn parse(args: &[String]) -> anyhow::Result<Order> {
        let mut model = None;
        let mut slots = preset::WANTED_SLOTS.to_vec();
        let (mut prefill, mut decode) = (512, 256);
        let (mut choices, mut compare) = (None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--slots" => {
                    let list = value()?.split(',').map(str::parse);
                    let list = list.collect::<Result<_, _>>();
                    slots = list.context("--slots is a list like 8,16")?;
                }
                "--prefill" => prefill = value()?.parse().context("--prefill is a number")?,
                "--decode" => decode = value()?.parse().context("--decode is a number")?,
                "--choices" => choices = Some(PathBuf::from(value()?)),
                "--compare" => compare = Some(PathBuf::from(value()?)),
                flag if flag.starts_with('-') => bail!("what is {flag:?}?"),
                path if model.is_none() => model = Some(PathBuf::from(path)),
                path => bail!("{path:?}: one model is enough"),
            }
        }
        ensure!(decode > 0, "there is no hit rate without a decoded token");
        Ok(Order {
            model: model.context("the model is missing")?,
            slots,
            prefill,
            decode,
            choices,
            compare,
        })
    }
}

/// What a pass over the sequence showed.
struct Trace {
    ids: Vec<TokenId>,
    /// Root mean square of the stream behind each layer, of each token.
    rms: Vec<Vec<f64>>,
    choices: Choices,
    /// Tokens that went through a layer together.
    chunk: usize,
}

impl Trace {
    fn take(model: &Arc<Model>, order: &Order) -> anyhow::Result<Trace> {
        let config = model.config();
        let n = order.prefill + order.decode;
        let options = Options {
            max_context: Some(u32::try_from(n).context("so many tokens")?),
            ..Options::default()
        };
        let mut session = Session::new(Arc::clone(model), &options)?;
        let ids: Vec<TokenId> = token_sequence(config.vocab_size, SEQUENCE_SEED, n)
            .into_iter()
            .map(TokenId)
            .collect();
        let mut rms = vec![Vec::with_capacity(n); config.n_layers()];
        let mut layers = vec![Vec::with_capacity(n * config.experts_per_token); config.n_layers()];
        session.trace_layers(&ids, &mut |l, trace| {
            let rows = trace.hidden.chunks_exact(config.hidden_size);
            rms[l.index()].extend(rows.map(root_mean_square));
            for chosen in trace.chosen {
                layers[l.index()].extend_from_slice(chosen);
            }
        })?;
        Ok(Trace {
            ids,
            rms,
            choices: Choices {
                n_experts: config.n_experts,
                k: config.experts_per_token,
                layers,
            },
            chunk: session.budget().chunk,
        })
    }
}

fn root_mean_square(row: &[f32]) -> f64 {
    let sum: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
    (sum / row.len() as f64).sqrt()
}

impl Trace {
    fn print_agreement(&self, path: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let layers = compare::compare(&self.choices, &text)?;
        println!("layer  experts that {} has too", path.display());
        for layer in &layers {
            println!("{:5}  {:5.1} %", layer.layer, 100.0 * layer.same);
        }
        let mean = layers.iter().map(|layer| layer.same).sum::<f64>() / layers.len() as f64;
        println!("  all  {:5.1} %", 100.0 * mean);
        Ok(())
    }

    fn print_layers(&self, model: &Model) {
        let n_experts = model.config().n_experts;
        let most = [8, 16, 32].map(|n: usize| n.min(n_experts));
        println!(
            "layer  rms (least to most)      choices of the most popular {most:?}  never  repeated"
        );
        for (l, rms) in self.rms.iter().enumerate() {
            let mean = rms.iter().sum::<f64>() / rms.len() as f64;
            let least = rms.iter().copied().fold(f64::INFINITY, f64::min);
            let largest = rms.iter().copied().fold(0.0, f64::max);
            let counts = self.choices.counts(l);
            let total: u32 = counts.iter().sum();
            let shares = most.map(|n| {
                let chosen: u32 = counts[..n].iter().sum();
                format!("{:4.0} %", 100.0 * f64::from(chosen) / f64::from(total))
            });
            println!(
                "{l:5}  {mean:5.2} ({least:.2} to {largest:.2})  {}  {:5}  {:4.0} %",
                shares.join(" "),
                counts.iter().filter(|&&n| n == 0).count(),
                100.0 * self.choices.repeated(l)
            );
        }
    }

    /// Prints the rates, and compares them with those wanted where there are some.
    fn print_hit_rates(&self, model: &Model, order: &Order) -> anyhow::Result<ExitCode> {
        let config = model.config();
        let skew = (REAL_EXPERTS == (config.n_experts, config.experts_per_token))
            .then(|| Skew::of_model(&model.manifest().model_id))
            .flatten();
        println!(
            "hit rates over {} tokens, after {} in chunks of {}",
            order.decode, order.prefill, self.chunk
        );
        let mut n_off = 0;
        for &n_slots in &order.slots {
            let rate = 100.0 * self.choices.hit_rate(n_slots, order.prefill, self.chunk);
            let wanted = skew.and_then(|skew| skew.wanted(n_slots));
            match wanted {
                Some(wanted) => {
                    let is_off = (rate - wanted).abs() > TOLERANCE;
                    n_off += usize::from(is_off);
                    let mark = if is_off { "  OFF" } else { "" };
                    println!("{n_slots:3} slots  {rate:5.1} %  wanted {wanted} %{mark}");
                }
                None => println!("{n_slots:3} slots  {rate:5.1} %"),
            }
        }
        ensure!(
            n_off == 0,
            "{n_off} hit rates are more than {TOLERANCE} points from what is wanted"
        );
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::tests::{make_tiny, temp};

    /// The stream starts near 1, and six layers of 0.15 and 0.25 add an energy of a half.
    const RMS: std::ops::Range<f64> = 0.8..1.6;
    /// A layer multiplies the stream by 1.04; a sample of tokens shows that within this.
    const GROWTH: std::ops::Range<f64> = 1.0..1.1;

    #[test]
    fn the_stream_neither_collapses_nor_blows_up() {
        let dir = temp();
        let output = dir.path().join("tiny.gturbo");
        make_tiny(&output, None).expect("a tiny model");
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let mut args = words("--slots 0,4,16 --prefill 100 --decode 60");
        args.push(output.display().to_string());
        let order = Order::parse(&args).expect("fine");
        let model = Arc::new(Model::open(&output).expect("a model"));
        let trace = Trace::take(&model, &order).expect("a pass");
        let means: Vec<f64> = trace
            .rms
            .iter()
            .map(|rms| {
                assert_eq!(rms.len(), 160);
                rms.iter().sum::<f64>() / 160.0
            })
            .collect();
        assert!(means.iter().all(|mean| RMS.contains(mean)), "{means:?}");
        let grows = |pair: &[f64]| GROWTH.contains(&(pair[1] / pair[0]));
        assert!(means.windows(2).all(grows), "{means:?}");
        // With room for all 16 experts only first uses miss.
        assert_eq!(trace.choices.hit_rate(0, 100, 100), 0.0);
        let (some, all) = (
            trace.choices.hit_rate(4, 100, 100),
            trace.choices.hit_rate(16, 100, 100),
        );
        assert!(0.1 < some && some < all && all > 0.99, "{some} {all}");
        trace.print_layers(&model);
        trace
            .print_hit_rates(&model, &order)
            .expect("nothing is wanted of it");
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let order = Order::parse(&words("a.gturbo --slots 8,16 --decode 3")).expect("fine");
        assert_eq!((order.slots, order.decode), (vec![8, 16], 3));
        for bad in [
            "--slots 8 --decode 3",
            "a b",
            "a --decode 0",
            "a --slots x",
            "a --quick",
        ] {
            assert!(Order::parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
