//! `ouzel serve` in a cgroup, held to the budget that it plans and prints.
//!
//! The program as it is shipped serves a small model with the real vocabulary, so that tokenizer and grammars are as large as they get. It keeps
//! conversations, more than its memory for them holds; several clients ask at once, under a JSON schema and without; and one sends a
//! megabyte that is refused. Then the peak of both processes must not exceed what the budget adds up to, and with exactly that as a limit nothing
//! may be killed and every answer must be the same. Compiling the tokenizer, which happens once for every model, is done before.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::cgroup::Cgroup;
use super::copy_past_the_cache;
use crate::metadata::Metadata;
use crate::process::{cargo, must, output, root};
use crate::served::{Served, at_home};
use crate::synth;

/// What the server is given: the model, what it keeps, and a third of the experts.
const MEMORY: &str = "448MiB";
/// Some turns' rows; further ones go to the disk.
const PREFIX_MEMORY: &str = "16MiB";
const CONTEXT: &str = "2048";
/// Clients that ask at the same time, and how often each does.
const N_CLIENTS: usize = 6;
const N_TURNS: usize = 2;
/// Words of each prompt, every other one a number: some 700 tokens, which choose nearly every expert.
const N_WORDS: usize = 200;
/// A prompt that no context holds, in bytes.
const TOO_LONG: usize = 1 << 20;
const CHAT: &str = "/v1/chat/completions";

/// What the server printed and took.
struct Outcome {
    budget: u64,
    peak: u64,
    /// Of the server's process alone, what no other process shares, at the end.
    own_bytes: u64,
    disk_bytes: u64,
    answers: Vec<String>,
}

/// Serves without a limit and with one.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    must(&mut cargo(&["build", "--release"])?)?;
    let target = root()?.join(Metadata::of_members()?.target_dir()?);
    let binary = target.join("release/ouzel");
    let model = folder.join("talking.gturbo");
    synth::make_scaled("scaled-text", &model)?;
    let rig = Rig {
        binary: &binary,
        model: &model,
        folder,
    };
    let mut inspect = Command::new(&binary);
    inspect
        .arg("inspect")
        .arg(&model)
        .args(["--memory", MEMORY]);
    output(at_home(&mut inspect, folder))?;
    let alone = rig.serve(None, "alone", &["--in-process"])?;
    let free = rig.serve(None, "free", &[])?;
    ensure!(
        free.peak <= free.budget,
        "serve has a budget of {} bytes, and the kernel counted {}",
        free.budget,
        free.peak
    );
    let limited = rig.serve(Some(free.budget), "limited", &[])?;
    ensure!(free.answers == limited.answers, "the limit changed answers");
    ensure!(
        alone.peak <= alone.budget,
        "serve in one process has a budget of {} bytes, and the kernel counted {}",
        alone.budget,
        alone.peak
    );
    // With other slots an answer has the same bits all the same.
    ensure!(free.answers == alone.answers, "the service changed answers");
    let mb = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "serve: budget {:.1} MB, peak {:.1} MB, under the limit {:.1} MB; {} answers, {:.1} MB of conversations on disk",
        mb(free.budget),
        mb(free.peak),
        mb(limited.peak),
        free.answers.len(),
        mb(free.disk_bytes)
    );
    println!(
        "  in one process: budget {:.1} MB, peak {:.1} MB; beside the service the server's own process has {:.1} MB of its own",
        mb(alone.budget),
        mb(alone.peak),
        mb(free.own_bytes)
    );
    Ok(())
}

struct Rig<'a> {
    binary: &'a Path,
    model: &'a Path,
    folder: &'a Path,
}

impl Rig<'_> {
    fn serve(&self, limit: Option<u64>, name: &str, flags: &[&str]) -> anyhow::Result<Outcome> {
        let program = self.folder.join("ouzel");
        copy_past_the_cache(self.binary, &program)?;
        let home = self.folder.join(name);
        std::fs::create_dir_all(&home)?;
        let group = Cgroup::new("serve")?;
        if let Some(limit) = limit {
            group.limit(limit)?;
        }
        // The shell joins, and becomes the server.
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(group.processes()).arg(&program);
        command.arg("serve").arg(self.model);
        command.args(["--port", "0", "--memory", MEMORY]);
        command.args(["--max-context", CONTEXT]);
        command.args(["--prefix-memory", PREFIX_MEMORY]).args(flags);
        at_home(&mut command, &home).env("OUZEL_CACHE", self.folder.join("cache"));
        let served = Served::of(&mut command)?;
        let answers = talk(&served)?;
        let budget = served.metric("model_memory_bytes")? as u64;
        let own_bytes = served.anonymous_bytes()?;
        served.end()?;
        let outcome = Outcome {
            budget,
            own_bytes,
            peak: group.peak()?,
            disk_bytes: bytes_below(&home)?,
            answers,
        };
        ensure!(
            outcome.disk_bytes > 16 << 20,
            "conversations outgrew their memory, and {} bytes went to the disk",
            outcome.disk_bytes
        );
        Ok(outcome)
    }
}

/// All answers, in the order of clients and turns.
fn talk(served: &Served) -> anyhow::Result<Vec<String>> {
    let too_long = json!({ "messages": [user(&"thrush ".repeat(TOO_LONG / 7))] });
    let (status, refusal) = served.ask(CHAT, &too_long)?;
    ensure!(
        status == 400,
        "a prompt that is too long: {status} {refusal}"
    );
    let clients = (0..N_CLIENTS).map(|client| move || converse(served, client));
    let answers: Vec<anyhow::Result<Vec<String>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients.map(|client| scope.spawn(client)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        let joined = threads.into_iter().map(join);
        joined
            .map(|result| result.unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked"))))
            .collect()
    });
    let answers: anyhow::Result<Vec<Vec<String>>> = answers.into_iter().collect();
    Ok(answers?.concat())
}

/// The answers of one conversation; every other one is under a schema.
fn converse(served: &Served, client: usize) -> anyhow::Result<Vec<String>> {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["kind", "note"],
        "properties": { "kind": { "enum": ["bird", "fish"] }, "note": { "type": "string", "maxLength": 20 } },
    });
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "note", "schema": schema } });
    let (mut messages, mut answers) = (Vec::new(), Vec::new());
    for turn in 0..N_TURNS {
        messages.push(user(&words(client * N_TURNS + turn)));
        let mut request = json!({ "messages": messages, "max_tokens": 64, "temperature": 0 });
        if turn % 2 == 0 {
            request["response_format"] = format.clone();
        }
        let (status, answer) = served.ask(CHAT, &request)?;
        ensure!(status == 200, "{status}: {answer}");
        let message = &answer["choices"][0]["message"];
        let text = message["content"].as_str().unwrap_or_default().to_owned();
        messages.push(json!({ "role": "assistant", "content": text }));
        answers.push(text);
    }
    Ok(answers)
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// Words that choose many experts: numbers of all lengths, no two prompts alike.
fn words(seed: usize) -> String {
    let mut x = seed as u32 + 1;
    let word = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let name = ["thrush", "wren", "owl", "fieldfare", "ouzel"][(x >> 8) as usize % 5];
        format!("{name} {} ", x >> 20)
    };
    (0..N_WORDS / 2).map(word).collect()
}

fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let meta = entry.metadata()?;
            match meta.is_dir() {
                true => folders.push(entry.path()),
                false => bytes += meta.len(),
            }
        }
    }
    Ok(bytes)
}
