//! `cargo xtask memory`: the budget against what the kernel counts.
//!
//! A session of its own process loads a model, takes a prompt and decodes 64 tokens inside a memory cgroup, which counts the page
//! cache and the kernel's own memory too. (a) Without a limit, the peak must not exceed the budget. (b) With a limit of exactly the
//! budget and no swap, nothing may be killed and the text must be the same; how fast it decodes beside (a) is printed, not judged.
//! So does `ouzel serve`, with a model that can be talked to, conversations that it keeps, and answers under a grammar. Where this user may
//! not make a cgroup, it says so.

mod cgroup;
#[cfg(unix)]
mod serve;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use ouzel::{Model, Options};
use ouzel_engine::TokenId;
use ouzel_storage::{AlignedBuf, StreamWriter, program_file_bytes};

use crate::synth;
use cgroup::Cgroup;

/// Tokens that a session decodes.
const N_DECODE: usize = 64;
/// What `--memory` of the scaled model is beyond the least that would do, in MiB: few slots, some, most.
const BEYOND_LEAST_MIB: [u64; 3] = [8, 32, 128];

/// `cargo xtask memory [MODEL.gturbo --memory BYTES[,BYTES…] [--prompt N] [--context N]]`; without a model, on a small synthetic one.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    if let Err(why) = Cgroup::new("probe") {
        println!(
            "no memory cgroup can be made here, so the budget was not held against one: {why:#}"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let folder = std::env::temp_dir().join(format!("ouzel-memory-{}", std::process::id()));
    let result = Proof::parse(args).and_then(|proof| proof.run(&folder));
    if folder.exists() {
        std::fs::remove_dir_all(&folder).context("removing the synthetic model")?;
    }
    result.map(|()| ExitCode::SUCCESS)
}

struct Proof {
    model: Option<PathBuf>,
    budgets: Vec<u64>,
    prompt: usize,
    context: u32,
}

impl Proof {
    fn parse(args: &[String]) -> anyhow::Result<Proof> {
        let mut proof = Proof {
            model: None,
            budgets: Vec::new(),
            prompt: 500,
            context: 2048,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--memory" => {
                    let bytes = value()?.split(',').map(str::parse);
                    proof.budgets = bytes
                        .collect::<Result<_, _>>()
                        .context("--memory in bytes")?;
                }
                "--prompt" => proof.prompt = value()?.parse().context("--prompt in tokens")?,
                "--context" => proof.context = value()?.parse().context("--context in tokens")?,
                flag if flag.starts_with('-') => bail!("what is {flag:?}?"),
                path => proof.model = Some(PathBuf::from(path)),
            }
        }
        ensure!(
            proof.model.is_none() || !proof.budgets.is_empty(),
            "--memory names the budgets to hold the model to"
        );
        Ok(proof)
    }

    fn run(mut self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).context("a folder for programs and a model")?;
        #[cfg(unix)]
        let is_named = self.model.is_some();
        let model = match self.model.take() {
            Some(model) => model,
            None => {
                let model = folder.join("scaled.gturbo");
                synth::make_scaled("scaled", &model)?;
                self.budgets = self.scaled_budgets(&model)?;
                model
            }
        };
        println!(
            "budget MB   peak MB  peak under the limit  decode tokens/s  under the limit  ratio"
        );
        for &budget in &self.budgets {
            self.check(&model, budget, folder)?;
        }
        // A server has no model of the caller's to go by: it needs one that can be talked to.
        #[cfg(unix)]
        if !is_named {
            serve::check(folder)?;
        }
        Ok(())
    }

    fn scaled_budgets(&self, model: &Path) -> anyhow::Result<Vec<u64>> {
        let options = self.options(1 << 40);
        let least = Model::open(model, &options)?
            .plan_budget(&options)?
            .smallest_bytes;
        Ok(BEYOND_LEAST_MIB.map(|mib| least + (mib << 20)).to_vec())
    }

    fn options(&self, budget: u64) -> Options {
        Options {
            memory: Some(budget),
            max_context: Some(self.context),
            program_bytes: std::env::current_exe()
                .ok()
                .and_then(|program| program_file_bytes(&program)),
            ..Options::default()
        }
    }

    fn check(&self, model: &Path, budget: u64, folder: &Path) -> anyhow::Result<()> {
        let program = folder.join("session");
        let free = self.session(model, budget, None, &program)?;
        ensure!(
            free.peak <= budget,
            "a budget of {budget} bytes, and the kernel counted {}",
            free.peak
        );
        let limited = self.session(model, budget, Some(budget), &program)?;
        ensure!(free.text == limited.text, "the limit changed the tokens");
        let mb = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "{:9.1} {:9.1}  {:20.1}  {:15.2}  {:15.2}  {:5.3}",
            mb(budget),
            mb(free.peak),
            mb(limited.peak),
            free.tokens_per_s,
            limited.tokens_per_s,
            limited.tokens_per_s / free.tokens_per_s
        );
        Ok(())
    }

    /// Runs a session in a cgroup of its own, as a `program` of which the page cache holds nothing: what is read of it is charged too.
    fn session(
        &self,
        model: &Path,
        budget: u64,
        limit: Option<u64>,
        program: &Path,
    ) -> anyhow::Result<Outcome> {
        copy_past_the_cache(&std::env::current_exe()?, program)?;
        let group = Cgroup::new("session")?;
        if let Some(limit) = limit {
            group.limit(limit)?;
        }
        let output = Command::new(program)
            .arg("memory-session")
            .arg(group.processes())
            .arg(model)
            .args([budget, self.prompt as u64, u64::from(self.context)].map(|n| n.to_string()))
            .output()
            .context("starting the session")?;
        ensure!(
            output.status.success(),
            "a budget of {budget} bytes, limit {limit:?}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let said = String::from_utf8(output.stdout)?;
        let (speed, text) = said
            .trim()
            .split_once(' ')
            .context("what the session said")?;
        Ok(Outcome {
            peak: group.peak()?,
            tokens_per_s: speed.parse()?,
            text: text.to_owned(),
        })
    }
}

fn copy_past_the_cache(from: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(from)?;
    let whole = bytes.len() / AlignedBuf::ALIGNMENT * AlignedBuf::ALIGNMENT;
    let mut block = AlignedBuf::new(whole)?;
    block.copy_from_slice(&bytes[..whole]);
    if to.exists() {
        std::fs::remove_file(to)?;
    }
    let mut copy = StreamWriter::create(to)?;
    copy.write_block(&block)?;
    copy.finish(&bytes[whole..])?;
    std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())?;
    Ok(())
}

/// What came of a session.
struct Outcome {
    /// Bytes that the kernel counted at most.
    peak: u64,
    tokens_per_s: f64,
    /// A digest of the logits.
    text: String,
}

/// The process inside the cgroup: joins it before anything else, and prints tokens a second and a digest of the last logits.
pub fn session(args: &[String]) -> anyhow::Result<ExitCode> {
    let [group, model, budget, prompt, context] = args else {
        bail!("this command is for `cargo xtask memory` itself");
    };
    std::fs::write(group, std::process::id().to_string()).context("joining the cgroup")?;
    let proof = Proof {
        model: None,
        budgets: Vec::new(),
        prompt: prompt.parse()?,
        context: context.parse()?,
    };
    let options = proof.options(budget.parse()?);
    let model = Model::open(Path::new(model), &options)?;
    let mut session = model.session(&options)?.into_engine();
    let n = proof.prompt + N_DECODE;
    let ids = ouzel::token_sequence(model.config().vocab_size, 1, n);
    let ids: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
    let (prompt, rest) = ids.split_at(proof.prompt);
    session.prefill(prompt, &mut |_| ControlFlow::Continue(()))?;
    let started = Instant::now();
    let mut digest = 0_u64;
    for &id in rest {
        for z in session.decode(id)? {
            digest = digest.rotate_left(5).wrapping_add(u64::from(z.to_bits()));
        }
    }
    let speed = N_DECODE as f64 / started.elapsed().as_secs_f64();
    println!("{speed} {digest:x}");
    Ok(ExitCode::SUCCESS)
}
