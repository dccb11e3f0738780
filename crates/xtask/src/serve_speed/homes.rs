//! Decode speed of the model in the server's process against that through the decode service, in turns.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Place, Stream, user};
use crate::served::Served;

/// Tokens of one answer.
const N_TOKENS: u32 = 200;

/// Both servers hold the model all the time, and only one is asked at a time.
pub fn compare(place: &Place, n_rounds: usize) -> anyhow::Result<()> {
    let homes = [
        ("in process", &["--in-process", "--shared"][..]),
        ("decode service", &["--shared"]),
    ];
    let mut served = Vec::new();
    for (name, flags) in homes {
        let folder = place.work.join(name);
        std::fs::create_dir_all(&folder)?;
        let flags = [flags, &["--prefix-memory", "0", "--prefix-disk", "0"]].concat();
        served.push(place.serve(&folder, &flags)?);
    }
    let mut times: [Vec<Duration>; 2] = Default::default();
    let mut texts = Vec::new();
    for round in 0..n_rounds {
        // Each goes first every other time.
        for home in [round % 2, 1 - round % 2] {
            let (text, time) = answer(&served[home])?;
            times[home].push(time);
            texts.push(text);
        }
    }
    served.into_iter().try_for_each(Served::end)?;
    ensure!(
        texts.iter().all(|text| *text == texts[0]),
        "an answer differs"
    );
    println!(
        "answers of {N_TOKENS} tokens, from the first to the last, {n_rounds} rounds in turns:"
    );
    let medians = [0, 1].map(|home| {
        times[home].sort();
        let per_s = |time: Duration| f64::from(N_TOKENS - 1) / time.as_secs_f64();
        let times = &times[home];
        let median = per_s(times[times.len() / 2]);
        println!(
            "  {:15} median {median:6.1} tokens/s, {:6.1} to {:6.1}",
            homes[home].0,
            per_s(times[times.len() - 1]),
            per_s(times[0])
        );
        median
    });
    println!(
        "  through the service at {:.1} % of the speed",
        100.0 * medians[1] / medians[0]
    );
    Ok(())
}

/// An answer of a fixed length, and the time from its first text to its last.
fn answer(served: &Served) -> anyhow::Result<(String, Duration)> {
    let mark = json!({ "content": "<turn|>" });
    let mark = served.ask("/tokenize", &mark)?.1["tokens"][0].to_string();
    let request = json!({
        "messages": [user("What is a thrush?")], "max_tokens": N_TOKENS, "logit_bias": { mark: -100 },
    });
    let mut stream = Stream::begin(served, request)?;
    let mut text = stream.text()?.context("an empty answer")?;
    let began = Instant::now();
    let mut took = Duration::ZERO;
    while let Some(more) = stream.text()? {
        text += &more;
        took = began.elapsed();
    }
    Ok((text, took))
}
