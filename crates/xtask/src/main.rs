//! `cargo xtask`: what the repository does to itself.
//!
//! One module a command. Checks are pure functions of text, so that each of them is tested with input it must refuse; only the
//! entry points run programs and read files. Nothing here is part of the shipped binary.

mod app;
#[cfg(unix)]
mod clients;
mod cross;
mod demo;
mod deps;
mod dist;
#[cfg(unix)]
mod install_speed;
mod memory;
mod metadata;
mod neon;
mod notices;
mod pictures;
mod prefix_speed;
mod process;
mod readme;
mod rooms;
#[cfg(unix)]
mod serve_speed;
#[cfg(unix)]
mod served;
mod style;
mod synth;
mod tests_run;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [ARGS]    every test of the workspace; then what this system could not run, and why
  token-sequence VOCABULARY SEED N
                 the ids that `ouzel bench` feeds, for other engines
  style          lengths, headers, words, unsafe code, tensor names, rooms, paths, repository size
  deps           licences and sources as deny.toml lists them, the notices, known advisories
  notices        lists the crates of the binary in THIRD_PARTY_NOTICES.md
  demo-check     the demo command of README.md, literally and from another folder, byte by byte
  clients [NAMES]
                 the SDKs of clients/ against `ouzel serve` with the bundled model; needs Python and Node (Linux, macOS)
  app [--check]  builds the page from app/ into crates/server/page, or compares; needs Node
  app-test       the page in a browser, against the release build with the bundled model; needs Node, and a Chromium or a way to one
  app-shots      the pictures of docs/app.md anew, into docs/pictures; needs what app-test needs
  dist [--target TARGET] [--binary PATH] [--check]
                 the archives that people download, into target/dist; docs/dist.md has more
  cross          a type-check for the other systems
  memory [MODEL.gturbo --memory BYTES,…]
                 the memory budget against what the kernel counts (Linux, as a user who may make cgroups)
  neon           the kernels' tests on an emulated aarch64
  load [SECONDS] two hundred clients, some of them rude, against the server with its scripted engine; 120 seconds where none are given
  hub FOLDER [BYTES_PER_S]
                 a model hub on loopback that serves a checkpoint; a synthetic one is made where there is none
  install-speed FOLDER
                 the network installer against a plain download of the same bytes; needs 6 GB (Linux, macOS)
  prefix-speed MODEL.gturbo FOLDER [--tokens 20000] [--memory BYTES]
                 bringing a kept prefix back from the disk against what the disk gives; needs 2 GB
  serve-speed [ROUNDS]
                 how soon a turn ends whose client is gone, what kept conversations save, and what the decode service
                 costs, with the bundled model (Linux, macOS)
  synth --preset NAME --skew trace|hard --seed S [--tokenizer DIR] [--gguf OUT.gguf --gguf-vocab FILE] [OUT.gturbo]
                 a model of random weights to measure on; NAME is gemma4-26b-a4b (14.3 GB), scaled (0.4 GB),
                 scaled-text (0.5 GB, with the real vocabulary) or tiny;
                 --gguf writes the same for llama.cpp, with the tokenizer of FILE, its models/ggml-vocab-gemma-4.gguf
  synth-check MODEL [--slots 4,8,12,16,24,32] [--prefill N] [--decode N] [--choices OUT.csv]
              [--compare THEIRS.csv]
                 such a model's residual stream, popularity of experts and hit rates; an error where these are off
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[][..]),
    };
    // No folder or file is meant by it.
    if rest.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let result = match command {
        "test" => tests_run::run(rest),
        "token-sequence" => token_sequence(rest),
        "style" => no_arguments(rest).and_then(|()| style::run()),
        "deps" => no_arguments(rest).and_then(|()| deps::run()),
        "notices" => no_arguments(rest).and_then(|()| notices::run()),
        "demo-check" => no_arguments(rest).and_then(|()| demo::run()),
        #[cfg(unix)]
        "clients" => clients::run(rest),
        "app" => app::run(rest),
        "app-test" => app::test(rest),
        "app-shots" => no_arguments(rest).and_then(|()| pictures::run()),
        "dist" => dist::run(rest),
        "cross" => no_arguments(rest).and_then(|()| cross::run()),
        #[cfg(unix)]
        "hub" => install_speed::serve(rest),
        #[cfg(unix)]
        "install-speed" => install_speed::run(rest),
        "prefix-speed" => prefix_speed::run(rest),
        #[cfg(unix)]
        "serve-speed" => serve_speed::run(rest),
        "synth" => synth::run(rest),
        "synth-check" => synth::check::run(rest),
        "memory" => memory::run(rest),
        "memory-session" => memory::session(rest),
        "load" => load(rest),
        "neon" => no_arguments(rest).and_then(|()| neon::run()),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the ids that `ouzel bench` feeds, one a line, for other engines to be fed the same.
fn token_sequence(rest: &[String]) -> anyhow::Result<ExitCode> {
    let [vocab_size, seed, n] = rest else {
        anyhow::bail!("token-sequence takes a vocabulary's size, a seed and how many ids");
    };
    for id in ouzel::token_sequence(vocab_size.parse()?, seed.parse()?, n.parse()?) {
        println!("{id}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The server's load test at length; in the suite it runs for a moment.
fn load(rest: &[String]) -> anyhow::Result<ExitCode> {
    let seconds = match rest {
        [] => 120,
        [seconds] => seconds.parse::<u64>()?,
        _ => anyhow::bail!("load takes a number of seconds"),
    };
    let test = [
        "test",
        "--release",
        "-p",
        "ouzel-server",
        "--test",
        "it",
        "load::",
        "--",
        "--nocapture",
    ];
    process::must(process::cargo(&test)?.env("OUZEL_LOAD_SECONDS", seconds.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

fn no_arguments(rest: &[String]) -> anyhow::Result<()> {
    match rest.first() {
        Some(argument) => anyhow::bail!("what is {argument:?}? This command takes no arguments"),
        None => Ok(()),
    }
}
