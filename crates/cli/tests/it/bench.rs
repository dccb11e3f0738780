//! `ouzel bench`: rows that other programs can read, lines that people can, and what is refused before anything is measured. How fast
//! anything is, no test asks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::tool::{User, tiny};

/// What every reader of the rows may rely on, in this order; other columns follow.
const COLUMNS: &str = "model,skew,precision,memory_bytes,slots_per_layer,context_tokens,prefill_tokens_per_s,decode_tokens_per_s,\
hit_rate,misses,bytes_read,expert_stride_bytes,disk_wait_ms,floor_tokens_per_s,share_of_floor,peak_memory_bytes,io_mode,isa,threads,\
commit";
/// Keeps the probe's buffer small: tests run beside each other, on machines of any size.
const SMALL: [&str; 2] = ["--memory", "256MiB"];

fn bench(user: &User, args: &[&str]) -> crate::tool::Run {
    let all = [&["bench"], args, &SMALL].concat();
    user.run(&all)
}

/// The rows by their columns.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines().map(|line| line.split(','));
    let header: Vec<&str> = lines.next().expect("a header").collect();
    lines
        .map(|fields| {
            let fields: Vec<&str> = fields.collect();
            assert_eq!(fields.len(), header.len(), "{csv}");
            let pairs = header.iter().zip(fields);
            pairs
                .map(|(a, b)| ((*a).to_owned(), b.to_owned()))
                .collect()
        })
        .collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    let text = &row[column];
    let value: f64 = text
        .parse()
        .unwrap_or_else(|_| panic!("{column}: {text:?}"));
    assert!(value.is_finite(), "{column}: {value}");
    value
}

/// What holds for any model on any machine.
fn check(row: &BTreeMap<String, String>) {
    for column in [
        "prefill_tokens_per_s",
        "decode_tokens_per_s",
        "floor_tokens_per_s",
    ] {
        assert!(number(row, column) > 0.0, "{row:?}");
    }
    let share = number(row, "decode_tokens_per_s") / number(row, "floor_tokens_per_s");
    assert!(
        (share - number(row, "share_of_floor")).abs() < 1e-3,
        "{row:?}"
    );
    let hit_rate = number(row, "hit_rate");
    assert!((0.0..=1.0).contains(&hit_rate), "{row:?}");
    let stride = number(row, "expert_stride_bytes");
    let misses = number(row, "misses");
    // Guesses that did not come true are read as well.
    assert!(number(row, "bytes_read") >= misses * stride, "{row:?}");
    assert!(number(row, "disk_wait_ms") >= 0.0, "{row:?}");
    assert!(["direct", "dropping"].contains(&row["io_mode"].as_str()));
    assert!(["portable", "avx2", "avx512", "neon"].contains(&row["isa"].as_str()));
    let is_commit = |text: &str| text.len() >= 7 && text.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(
        is_commit(&row["commit"]) || row["commit"] == "unknown",
        "{row:?}"
    );
}

#[test]
fn a_quick_run_of_the_demo_gives_rows() {
    let user = User::with_demo();
    let run = bench(&user, &["demo", "--quick", "--csv", "-", "--threads", "1"]);
    let csv = run.ok();
    let header = csv.lines().next().expect("a header");
    assert!(header.starts_with(&format!("{COLUMNS},")), "{header}");
    let rows = rows(&csv);
    let contexts: Vec<f64> = rows
        .iter()
        .map(|row| number(row, "context_tokens"))
        .collect();
    assert_eq!(contexts, [64.0, 512.0]);
    for row in &rows {
        check(row);
        let fixed = ["model", "skew", "precision", "memory_bytes", "threads"];
        let fixed = fixed.map(|column| row[column].as_str());
        assert_eq!(fixed, ["ouzel-demo-47m", "-", "fast", "268435456", "1"]);
        // 16 tokens, each choosing 4 of 32 experts in 12 layers.
        let chosen = 16.0 * 4.0 * 12.0;
        let misses = (1.0 - number(row, "hit_rate")) * chosen;
        assert!((number(row, "misses") - misses).abs() < 0.5, "{row:?}");
    }
}

#[test]
fn counts_do_not_depend_on_the_machine() {
    let user = User::new();
    let counts = |args: &[&str]| -> Vec<[String; 3]> {
        let fixed = [
            tiny(),
            "--quick",
            "--csv",
            "-",
            "--frontiers",
            "40,7",
            "--slots",
            "2",
        ];
        let csv = bench(&user, &[&fixed, args].concat()).ok();
        let rows = rows(&csv);
        rows.iter().for_each(check);
        let of_row = |row: &BTreeMap<String, String>| {
            ["context_tokens", "misses", "slots_per_layer"].map(|column| row[column].clone())
        };
        rows.iter().map(of_row).collect()
    };
    let once = counts(&["--decode", "9"]);
    assert_eq!((once[0][0].as_str(), once[1][0].as_str()), ("7", "40"));
    assert!(once.iter().all(|row| row[2] == "2.00"), "{once:?}");
    // Every run is like every other, on any number of threads.
    let args = ["--decode", "9", "--runs", "2", "--threads", "2"];
    assert_eq!(counts(&args), once);
    let other = counts(&["--decode", "9", "--seed", "2", "--precision", "exact"]);
    assert_eq!(other.len(), once.len());
}

#[test]
fn a_table_and_a_file_or_a_report() {
    let user = User::new();
    let taken = user.file("taken.csv", b"kept");
    bench(&user, &[tiny(), "--quick", "--csv", &taken]).refused(2, &["already exists"]);
    assert_eq!(fs::read(&taken).expect("the file"), b"kept");
    let path = user.file("old.csv", b"").replace("old.csv", "rows.csv");
    let args = [tiny(), "--quick", "--decode", "4", "--csv", &path];
    let table = bench(&user, &args).ok();
    for part in [
        "model",
        "before",
        "after",
        "of floor",
        "misses a token",
        "peak memory",
    ] {
        assert!(table.contains(part), "{part:?} is not in\n{table}");
    }
    let csv = fs::read_to_string(&path).expect("the file is there");
    let rows = rows(&csv);
    assert!(
        !rows.is_empty() && table.contains(&rows[0]["model"]),
        "{csv}"
    );
    assert!(!Path::new(&format!("{path}.partial")).exists());

    let args = [
        tiny(),
        "--quick",
        "--decode",
        "4",
        "--frontiers",
        "8",
        "--report",
    ];
    let report = bench(&user, &args).ok();
    for part in [
        "### ",
        "| computer |",
        "| system |",
        "| commit |",
        "| total |",
        "|---:|",
    ] {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
}

#[test]
fn a_probe_needs_no_model_and_leaves_nothing() {
    let user = User::new();
    let out = bench(&user, &["--probe", "--quick"]).ok();
    for part in [
        "disk ",
        "memory ",
        "int8 ",
        "f32 ",
        "GB/s",
        "G multiply-adds/s",
    ] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    // What the real model needs is more than the probe may take here.
    assert!(out.contains("256 MiB is too little"), "{out}");
    let left = fs::read_dir(&user.models).expect("the folder").count();
    assert_eq!(
        left, 0,
        "the scratch file is gone and no model was unpacked"
    );
}

#[test]
fn a_forecast_names_budgets() {
    let user = User::new();
    // Reads the tiny model's files; the probe's memory is that of the budget asked about.
    let args = ["bench", "--probe", "--quick", tiny(), "--memory", "2GiB"];
    let out = user.run(&args).ok();
    assert!(
        out.contains("Forecast for Gemma 4 26B-A4B with 4096 tokens"),
        "{out}"
    );
    let row = out.lines().last().expect("a row");
    assert!(row.contains("of 128") && row.contains('%'), "{out}");
}

#[test]
fn bad_flags_are_refused_before_anything_is_measured() {
    let user = User::new();
    let cases: [(&[&str], &str); 10] = [
        (&["--frontiers", "0"], "--frontiers"),
        (&["--frontiers", "64,many"], "--frontiers"),
        (&["--decode", "0"], "--decode"),
        (&["--runs", "0"], "--runs"),
        (&["--runs", "100"], "--runs"),
        (&["--seed", "-1"], "--seed"),
        (&["--probe", "--report"], "cannot be used with"),
        (&["--probe", "--frontiers", "64"], "cannot be used with"),
        (&["--csv", "-", "--report"], "give --csv a file"),
        (&["--threads", "0"], "--threads"),
    ];
    for (args, says) in cases {
        bench(&user, args).refused(2, &[says]);
    }
    assert!(!user.models.exists(), "nothing was unpacked for a refusal");
    bench(
        &user,
        &[tiny(), "--frontiers", "64", "--max-context", "100"],
    )
    .refused(2, &["128 tokens", "100", "--max-context"]);
    bench(&user, &[tiny(), "--max-context", "20"]).refused(2, &["--decode"]);
}

#[test]
fn what_else_goes_wrong_has_its_exit_code() {
    let user = User::new();
    bench(&user, &[tiny(), "--csv", "/no/such/folder/rows.csv"])
        .refused(2, &["/no/such/folder/rows.csv", "does not exist"]);
    bench(&user, &["/no/such.gturbo"]).refused(3, &["/no/such.gturbo"]);
    bench(&user, &["--probe", "/no/such.gturbo"]).refused(3, &["/no/such.gturbo"]);
    user.run(&["bench", tiny(), "--memory", "1MiB"])
        .refused(4, &["--memory"]);
    assert!(!user.models.exists());
}
