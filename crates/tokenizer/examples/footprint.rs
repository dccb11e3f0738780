//! What a tokenizer costs: `footprint compile TOKENIZER.json IMAGE`, then `footprint load IMAGE`.
//!
//! Prints the image's bytes, the times, and resident memory before, after and at its peak (Linux only; the file is read here, mapped
//! where the program uses it). Two runs, so that compiling does not blur what loading costs.

use ouzel_tokenizer::Tokenizer;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["compile", json, image] => compile(json, image),
        ["load", image] => load(image),
        _ => Err("usage: footprint compile TOKENIZER.json IMAGE | footprint load IMAGE".into()),
    }
}

fn compile(json: &str, image: &str) -> Result<(), Box<dyn Error>> {
    let before = status("VmRSS:");
    let start = Instant::now();
    let bytes = Tokenizer::compile(File::open(json)?)?;
    println!("compiled to {} bytes in {:?}", bytes.len(), start.elapsed());
    println!("VmRSS before {before}, VmHWM after {}", status("VmHWM:"));
    std::fs::write(image, bytes)?;
    Ok(())
}

fn load(image: &str) -> Result<(), Box<dyn Error>> {
    let before = status("VmRSS:");
    let start = Instant::now();
    let bytes = std::fs::read(image)?;
    let read = start.elapsed();
    let tokenizer = Tokenizer::from_image(bytes)?;
    println!("read in {read:?}, opened after {:?}", start.elapsed());
    println!("resident_bytes {}", tokenizer.resident_bytes());
    println!("VmRSS before {before}, after {}", status("VmRSS:"));
    let text =
        "The fieldfare is a thrush.\nIt breeds in woodland and scrub, and flocks in winter. "
            .repeat(2_000);
    let start = Instant::now();
    let ids = black_box(tokenizer.encode(&text));
    println!(
        "encoded {} bytes to {} ids in {:?}",
        text.len(),
        ids.len(),
        start.elapsed()
    );
    let start = Instant::now();
    let length = black_box(tokenizer.decode(&ids, true)).len();
    println!("decoded {length} bytes in {:?}", start.elapsed());
    Ok(())
}

/// A line of the process's status file.
fn status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
