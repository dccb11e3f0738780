//! `ouzel eval`: the golden logits, seen from outside.

use std::fs;
use std::path::Path;

use ouzel_format::safetensors::Header;
use serde_json::{Value, json};

use crate::tool::{User, repository, tiny};

/// What the golden logits are held to in `exact`: a hundred times the noise of f32 in another order, far below what any wrong
/// formula changes.
const TOLERANCE: f32 = 2e-3;

/// A tensor of f32 in a safetensors file: its shape and its values.
fn tensor(path: &Path, name: &str) -> (Vec<u64>, Vec<f32>) {
    let bytes = fs::read(path).expect("the file is there");
    let size = Header::header_size(&bytes[..8]).expect("a safetensors file") as usize;
    let header = Header::parse(&bytes[..size], bytes.len() as u64).expect("a safetensors file");
    let info = header
        .tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .expect(name);
    let values = bytes[info.start as usize..info.end as usize].chunks_exact(4);
    let values = values
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    (info.shape.clone(), values)
}

fn golden_ids() -> Value {
    let golden = fs::read(repository("testdata/tiny-a/golden.json")).expect("golden values");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    golden["sequences"]["seq40"]["ids"].clone()
}

#[test]
fn logits_match_the_reference() {
    let user = User::new();
    let ids = golden_ids();
    let input = user.file("ids.json", json!([ids, ids]).to_string().as_bytes());
    let output = user.path("logits.safetensors");
    let out = user
        .run(&[
            "eval",
            tiny(),
            "--token-ids",
            &input,
            "--logits",
            &output,
            "--slots",
            "1",
            "--chunk",
            "7",
        ])
        .ok();
    let (shape, expected) = tensor(
        &repository("testdata/tiny-a/golden.safetensors"),
        "seq40.logits",
    );
    for name in ["seq0.logits", "seq1.logits"] {
        let (actual_shape, actual) = tensor(output.as_ref(), name);
        assert_eq!(actual_shape, shape[shape.len() - 2..]);
        let worst = actual
            .iter()
            .zip(&expected)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);
        assert!(
            worst <= TOLERANCE && actual.len() == expected.len(),
            "{name}: {worst}"
        );
    }
    let out: Value = serde_json::from_str(&out).expect("JSON");
    let n = ids.as_array().expect("ids").len();
    assert_eq!(
        (&out["tokens"], &out["scored_tokens"]),
        (&json!(2 * n), &json!(2 * n - 2))
    );
    assert_eq!(
        out["sequences"][0], out["sequences"][1],
        "each starts from an empty context"
    );
    let nll = out["nll_per_token"].as_f64().expect("a number");
    let perplexity = out["perplexity"].as_f64().expect("a number");
    assert!((perplexity.ln() - nll).abs() < 1e-9, "{out}");
    assert!(!Path::new(&format!("{output}.partial")).exists());
}

#[test]
fn a_text_is_one_sequence_and_fast_is_near_exact() {
    let user = User::with_demo();
    let path = user.file(
        "text.txt",
        b"A fieldfare is a medium-sized Eurasian thrush seen chiefly in winter.",
    );
    let nll = |precision: &str| -> f64 {
        let out = user
            .run(&[
                "eval",
                "demo",
                "--text",
                &path,
                "--precision",
                precision,
                "--quiet",
            ])
            .ok();
        let out: Value = serde_json::from_str(&out).expect("JSON");
        out["nll_per_token"].as_f64().expect("a number")
    };
    let (exact, fast) = (nll("exact"), nll("fast"));
    assert!(exact > 0.0 && (exact - fast).abs() < 0.1, "{exact} {fast}");
}

#[test]
fn a_failed_evaluation_leaves_no_file() {
    let user = User::new();
    let output = user.path("logits.safetensors");
    let args = ["eval", tiny(), "--token-ids", "-", "--quiet", "--logits"];
    let run = user.run_with(
        &[args.as_slice(), &[&output]].concat(),
        b"[[2, 3], [4000000000]]",
    );
    run.refused(2, &["4000000000 at place 0 of sequence 1"]);
    assert!(!Path::new(&output).exists());
    assert!(!Path::new(&format!("{output}.partial")).exists());
}

#[test]
fn logits_replace_nothing() {
    let user = User::new();
    let kept = user.file("kept.json", b"[[2, 3]]");
    let folder = user.path("folder");
    fs::create_dir(&folder).expect("the folder is ours");
    let nowhere = user.path("nowhere/logits.safetensors");
    // The input is the output, too, and nothing is read before it is refused.
    let eval = |output: &str| user.run(&["eval", tiny(), "--token-ids", &kept, "--logits", output]);
    eval(&kept).refused(2, &[&kept, "already exists"]);
    eval(&folder).refused(2, &[&folder, "is a folder"]);
    eval(&nowhere).refused(2, &[&nowhere, "folder does not exist"]);
    assert_eq!(fs::read(&kept).expect("the file is there"), b"[[2, 3]]");
}

#[cfg(unix)]
#[test]
fn a_fifo_gets_the_logits_and_stays_one() {
    use std::os::unix::fs::FileTypeExt;
    let user = User::new();
    let kept = user.file("ids.json", b"[[2, 3]]");
    let fifo = user.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo is everywhere").success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).expect("a FIFO")
    });
    user.run(&["eval", tiny(), "--token-ids", &kept, "--logits", &fifo])
        .ok();
    let bytes = reader.join().expect("the reader ends");
    let size = Header::header_size(&bytes[..8]).expect("a safetensors file") as usize;
    let header = Header::parse(&bytes[..size], bytes.len() as u64).expect("complete");
    assert_eq!(header.tensors[0].shape[0], 2);
    let kind = fs::symlink_metadata(&fifo)
        .expect("it is there")
        .file_type();
    assert!(kind.is_fifo());
}

#[test]
fn one_token_has_no_likelihood() {
    let user = User::new();
    let run = user.run_with(&["eval", tiny(), "--token-ids", "-"], b"[[2]]");
    let out: Value = serde_json::from_str(&run.ok()).expect("JSON");
    assert_eq!(
        (&out["tokens"], &out["perplexity"]),
        (&json!(1), &Value::Null)
    );
}

#[test]
fn ids_that_are_none() {
    let user = User::new();
    let eval =
        |stdin: &[u8]| user.run_with(&["eval", tiny(), "--token-ids", "-", "--quiet"], stdin);
    eval(b"[[1, 2], [3").refused(2, &["line 1 column 11"]);
    eval(b"[1, 2]").refused(2, &["standard input", "line 1"]);
    eval(b"[]").refused(2, &["no sequences"]);
    eval(b"[[1], []]").refused(2, &["sequence 1 is empty"]);
    eval(b"[[1, 4000000000]]").refused(2, &["4000000000"]);
    let args = ["eval", tiny(), "--token-ids", "-", "--max-context", "2"];
    user.run_with(&args, b"[[1, 2, 3]]")
        .refused(2, &["3 tokens", "--max-context"]);
    user.run(&["eval", tiny(), "--text", "/no/such/file"])
        .refused(2, &["/no/such/file"]);
}
