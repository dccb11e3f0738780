//! Asks a model one question: `cargo run --release -p ouzel --example hello -- MODEL.gturbo`.

use std::io::{self, Write};

use ouzel::{Cancel, Event, GenerateOptions, Message, Model, Options, SamplerOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args_os().nth(1).ok_or("name a model directory")?;
    let options = Options::default();
    let model = Model::open(dir, &options)?;
    let mut session = model.session(&options)?;
    let generate = GenerateOptions {
        sampler: SamplerOptions {
            temperature: 0.0,
            ..SamplerOptions::default()
        },
        ..GenerateOptions::default()
    };
    let messages = [Message::user("What is a thrush?")];
    for event in session.chat(&messages, &generate, &Cancel::new())? {
        match event? {
            Event::Answer(text) => print!("{text}"),
            Event::Done(stats) => println!("\n[{} tokens: {}]", stats.new_tokens, stats.stop),
            _ => {}
        }
        io::stdout().flush()?;
    }
    Ok(())
}
