//! `cargo xtask serve-speed`: how soon a turn ends whose client is gone, what kept conversations save, and what the decode service costs.
//!
//! `ouzel serve` as it is shipped, with the bundled model, over HTTP. A client goes away while its turn waits, while its prompt is read and
//! while its answer is written; what is timed is how long the server then still has the turn, seen from outside, so a request for the
//! metrics is part of it. Warm answers are held against those of a server without any past: they must be the same to the byte.

mod homes;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::metadata::Metadata;
use crate::process::{cargo, must, root};
use crate::served::Served;

const CHAT: &str = "/v1/chat/completions";
/// Rounds where nobody says how many.
const N_ROUNDS: usize = 10;
/// A turn has come to where it is wanted, or gone, within this.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sentences of the instructions that conversations share, and of a prompt that fills most of the bundled model's context.
const N_SHARED: usize = 150;
const N_LONG: usize = 550;
const SENTENCE: &str = "A thrush is a songbird. ";

/// `cargo xtask serve-speed [ROUNDS]`
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let n_rounds = match args {
        [] => N_ROUNDS,
        [n] => n.parse::<usize>().context("a number of rounds")?.max(1),
        _ => bail!("serve-speed takes a number of rounds"),
    };
    must(&mut cargo(&["build", "--release"])?)?;
    let target = root()?.join(Metadata::of_members()?.target_dir()?);
    let place = Place {
        binary: target.join("release/ouzel"),
        work: std::env::temp_dir().join(format!("ouzel-serve-speed-{}", std::process::id())),
    };
    fs::create_dir_all(&place.work)?;
    let result = place
        .cancellations(n_rounds)
        .and_then(|()| place.warm_and_cold(n_rounds))
        .and_then(|()| homes::compare(&place, n_rounds));
    fs::remove_dir_all(&place.work).context("removing what was kept")?;
    result.map(|()| ExitCode::SUCCESS)
}

struct Place {
    binary: PathBuf,
    work: PathBuf,
}

/// What came of a streamed answer.
struct Answer {
    text: String,
    to_first_token: Duration,
    prompt_tokens: u64,
    reused_tokens: u64,
}

/// A streamed answer on its way.
struct Stream {
    lines: BufReader<TcpStream>,
    asked: Instant,
    usage: Value,
}

impl Stream {
    fn begin(served: &Served, mut request: Value) -> anyhow::Result<Stream> {
        request["stream"] = json!(true);
        request["stream_options"] = json!({ "include_usage": true });
        request["temperature"] = json!(0);
        let asked = Instant::now();
        Ok(Stream {
            lines: BufReader::new(served.post(CHAT, &request)?),
            asked,
            usage: Value::Null,
        })
    }

    /// The next text; `None` behind the last one.
    fn text(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line)? == 0 {
                bail!("the stream broke off");
            }
            let Some(data) = line.trim_end().strip_prefix("data: ") else {
                continue;
            };
            if data == "[DONE]" {
                return Ok(None);
            }
            let chunk: Value = serde_json::from_str(data)?;
            ensure!(chunk["error"].is_null(), "{}", chunk["error"]);
            if chunk["usage"].is_object() {
                self.usage = chunk["usage"].clone();
            }
            let text = chunk["choices"][0]["delta"]["content"].as_str();
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                return Ok(Some(text.to_owned()));
            }
        }
    }

    fn finish(mut self) -> anyhow::Result<Answer> {
        let mut text = self.text()?.context("an empty answer")?;
        let to_first_token = self.asked.elapsed();
        while let Some(more) = self.text()? {
            text += &more;
        }
        let count = |value: &Value| value.as_u64().context("no usage");
        Ok(Answer {
            text,
            to_first_token,
            prompt_tokens: count(&self.usage["prompt_tokens"])?,
            reused_tokens: count(&self.usage["prompt_tokens_details"]["cached_tokens"])?,
        })
    }
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn ask(served: &Served, messages: &[Value]) -> anyhow::Result<Answer> {
    let request = json!({ "messages": messages, "max_tokens": 24 });
    Stream::begin(served, request)?.finish()
}

/// Waits until a metric has a value, as fast as it can be asked for; how long that took.
fn until(served: &Served, name: &str, wanted: f64) -> anyhow::Result<Duration> {
    let since = Instant::now();
    while served.metric(name)? != wanted {
        ensure!(since.elapsed() < PATIENCE, "{name} never became {wanted}");
    }
    Ok(since.elapsed())
}

impl Place {
    fn serve(&self, folder: &Path, flags: &[&str]) -> anyhow::Result<Served> {
        let served = Served::start(&self.binary, folder, flags)?;
        // The model is loaded by its first request.
        ask(&served, &[user("hello")])?;
        Ok(served)
    }

    fn cancellations(&self, n_rounds: usize) -> anyhow::Result<()> {
        let served = self.serve(&self.work, &["--prefix-memory", "0", "--prefix-disk", "0"])?;
        let mark = json!({ "content": "<turn|>" });
        let mark = served.ask("/tokenize", &mark)?.1["tokens"][0].to_string();
        // Without the token that ends it, an answer goes on.
        let endless =
            json!({ "messages": [user("What is a thrush?")], "logit_bias": { mark: -100 } });
        let long = |round: usize| {
            let text = format!("{round}. {}", SENTENCE.repeat(N_LONG));
            json!({ "messages": [user(&text)] })
        };
        let (mut queued, mut in_prompt, mut in_answer) = (Vec::new(), Vec::new(), Vec::new());
        // How long such a prompt takes when nobody goes away.
        let prompt_time = Stream::begin(&served, long(n_rounds))?.finish()?;
        println!(
            "a prompt of {} tokens takes {:.0} ms to its first token",
            prompt_time.prompt_tokens,
            ms(prompt_time.to_first_token)
        );
        for round in 0..n_rounds {
            let mut running = Stream::begin(&served, endless.clone())?;
            running.text()?.context("an answer")?;
            let waiting = Stream::begin(&served, long(round))?;
            until(&served, "queue_waiting", 1.0)?;
            drop(waiting);
            queued.push(until(&served, "queue_waiting", 0.0)?);
            drop(running);
            in_answer.push(until(&served, "turns_running", 0.0)?);

            let reading = Stream::begin(&served, long(round))?;
            until(&served, "turns_running", 1.0)?;
            // At another place of the prompt each time, well before its end.
            let share = (round + 1) as f64 / (2 * n_rounds) as f64;
            thread::sleep(prompt_time.to_first_token.mul_f64(share));
            drop(reading);
            in_prompt.push(until(&served, "turns_running", 0.0)?);
        }
        served.end()?;
        println!("from the disconnect to the turn's end, {n_rounds} rounds:");
        for (what, times) in [
            ("waiting", &mut queued),
            ("reading its prompt", &mut in_prompt),
            ("writing its answer", &mut in_answer),
        ] {
            times.sort();
            let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
            println!(
                "  {what:20} median {:6.1} ms, worst {:6.1} ms",
                ms(median),
                ms(worst)
            );
        }
        Ok(())
    }

    fn warm_and_cold(&self, n_rounds: usize) -> anyhow::Result<()> {
        const CASES: [&str; 5] = [
            "continued",
            "repeated",
            "another conversation with the same instructions",
            "back after another conversation",
            "after a restart, from the disk",
        ];
        let mut rows: [Vec<(Answer, Answer)>; CASES.len()] = Default::default();
        for round in 0..n_rounds {
            let folder = self.work.join(format!("round-{round}"));
            fs::create_dir_all(&folder)?;
            let system = format!("Round {round}. {}", SENTENCE.repeat(N_SHARED));
            let system = json!({ "role": "system", "content": system });
            let first = [system.clone(), user("What is a thrush?")];
            let served = self.serve(&folder, &[])?;
            let answer = ask(&served, &first)?.text;
            let answer = json!({ "role": "assistant", "content": answer });
            let [system, question] = first;
            let next = user("And what is a fieldfare?");
            let second = vec![system.clone(), question, answer, next];
            let other = vec![system, user("What is an owl?")];
            let asked = [&second, &second, &other, &second, &second];
            let mut warm = vec![ask(&served, asked[0])?, ask(&served, asked[1])?];
            let elsewhere = [user(&SENTENCE.repeat(N_SHARED))];
            for messages in &asked[2..4] {
                ask(&served, &elsewhere)?;
                warm.push(ask(&served, messages)?);
            }
            served.end()?;
            let served = self.serve(&folder, &[])?;
            warm.push(ask(&served, asked[4])?);
            served.end()?;
            for (case, warm) in warm.into_iter().enumerate() {
                let served =
                    self.serve(&folder, &["--prefix-memory", "0", "--prefix-disk", "0"])?;
                let cold = ask(&served, asked[case])?;
                served.end()?;
                ensure!(
                    warm.text == cold.text,
                    "{}: {:?} is not {:?}",
                    CASES[case],
                    warm.text,
                    cold.text
                );
                rows[case].push((warm, cold));
            }
        }
        println!(
            "warm against cold, medians of {n_rounds} rounds; every answer has the same bytes:"
        );
        println!("  {:48} prompt  reused  first token warm  cold", "");
        for (case, row) in CASES.iter().zip(&rows) {
            let (last, _) = row.last().context("a round")?;
            let median = |of: fn(&(Answer, Answer)) -> Duration| {
                let mut times: Vec<Duration> = row.iter().map(of).collect();
                times.sort();
                ms(times[times.len() / 2])
            };
            println!(
                "  {case:48} {:6}  {:6}  {:13.1} ms  {:.1} ms",
                last.prompt_tokens,
                last.reused_tokens,
                median(|(warm, _)| warm.to_first_token),
                median(|(_, cold)| cold.to_first_token)
            );
        }
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
