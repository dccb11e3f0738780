use super::*;

const HEADER: &str = "//! Header.\n";

/// The findings about one file, without its name.
fn said(path: &str, text: &str) -> Vec<String> {
    let found = check_text(path, text);
    found
        .iter()
        .map(|line| line.strip_prefix(&format!("{path}:")).unwrap().to_owned())
        .collect()
}

fn passes(path: &str, text: &str) {
    assert_eq!(said(path, text), [""; 0], "{path}: {text}");
}

fn refused(path: &str, text: &str, expected: &str) {
    let found = said(path, text);
    assert_eq!(found.len(), 1, "{path}: {found:?}");
    assert!(found[0].contains(expected), "{path}: {found:?}");
}

#[test]
fn a_file_has_a_header() {
    passes("crates/engine/src/a.rs", HEADER);
    passes("crates/engine/src/a/tests.rs", "use super::*;\n");
    refused("crates/engine/src/a.rs", "use std::fs;\n", "opens with");
}

#[test]
fn lengths_are_limited_on_both_sides_of_the_limit() {
    let file = |lines: usize| HEADER.repeat(lines);
    passes("crates/engine/src/a.rs", &file(MAX_FILE_LINES));
    refused(
        "crates/engine/src/a.rs",
        &file(MAX_FILE_LINES + 1),
        &format!("{} lines", MAX_FILE_LINES + 1),
    );
    let function = |lines: usize| {
        format!(
            "{HEADER}fn long() {{\n{}}}\n",
            "    f();\n".repeat(lines - 2)
        )
    };
    passes("crates/engine/src/a.rs", &function(MAX_FUNCTION_LINES));
    refused(
        "crates/engine/src/a.rs",
        &function(MAX_FUNCTION_LINES + 1),
        &format!("2: long has {} lines", MAX_FUNCTION_LINES + 1),
    );
}

#[test]
fn unfinished_work_is_refused() {
    for word in UNFINISHED {
        refused("docs/a.md", &format!("ok\n{word}: more\n"), "2: ");
        refused(
            "crates/engine/src/a.rs",
            &format!("{HEADER}// {word} more\n"),
            "2: ",
        );
    }
    for word in ABSENT {
        refused(
            "crates/engine/src/a/tests.rs",
            &format!("{word}\n"),
            "nothing is left",
        );
        passes("crates/engine/src/a/tests.rs", &format!("// {word}\n"));
    }
    passes("testdata/a/golden.json", concat!("{\"TO", "DO\": 1}\n"));
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let text = format!("{HEADER}{} {{ f() }}\n", concat!("un", "safe"));
    passes("crates/storage/src/map.rs", &text);
    passes("crates/kernels/src/avx2.rs", &text);
    refused("crates/engine/src/a.rs", &text, "2: unsafe code");
    passes(
        "crates/engine/src/a.rs",
        &format!(
            "{HEADER}#![forbid(unsafe_code)] // {}\n",
            concat!("un", "safe")
        ),
    );
}

#[test]
fn the_pool_may_start_threads_and_nothing_else() {
    let line = |line: &str| format!("{HEADER}{line}\n");
    passes(
        "crates/kernels/src/pool.rs",
        &line("std::thread::yield_now();"),
    );
    refused(
        "crates/kernels/src/pool.rs",
        &line("println!();"),
        "must not know",
    );
}

#[test]
fn a_room_knows_nothing_beyond_its_walls() {
    for (room, line) in [
        ("engine", "println!();"),
        ("ouzel", "eprint!();"),
        ("format", "use std::fs::File;"),
        ("kernels", "std::thread::yield_now();"),
        ("tokenizer", "let a = fs::read(b);"),
        ("install", "use std::net::TcpStream;"),
        ("storage", "let a = std::env::var(b);"),
        ("cli", "dbg!(a);"),
    ] {
        let text = format!("{HEADER}{line}\n");
        refused(&format!("crates/{room}/src/a.rs"), &text, "must not know");
        passes(&format!("crates/{room}/tests/it/a.rs"), &text);
        passes(
            &format!("crates/{room}/src/a.rs"),
            &format!("{HEADER}#[cfg(test)]\nmod tests {{\n{line}\n}}\n"),
        );
        passes(
            &format!("crates/{room}/src/a.rs"),
            &format!("{HEADER}// {line}\n"),
        );
    }
    passes(
        "crates/engine/src/a.rs",
        &format!("{HEADER}use std::fs::File; // its weights\n"),
    );
    passes(
        "crates/cli/src/a.rs",
        &format!("{HEADER}let a = std::env::var(b);\n"),
    );
    passes(
        "crates/engine/src/a.rs",
        &format!("{HEADER}let a = env!(b);\n"),
    );
}

#[test]
fn names_of_tensors_stay_in_one_file() {
    for name in TENSOR_NAMES {
        let text = format!("{HEADER}const A: &str = \"{name}\";\n");
        passes("crates/format/src/names.rs", &text);
        passes("crates/oracle/src/lib.rs", &text);
        passes("crates/install/tests/it/main.rs", &text);
        passes(
            "crates/install/src/plan.rs",
            &format!("{HEADER}#[cfg(test)]\nmod tests {{\n    // {name}\n}}\n"),
        );
        refused("crates/install/src/plan.rs", &text, "tensors are named");
        passes(
            "crates/install/src/plan.rs",
            &format!("{HEADER}// {name}\n"),
        );
    }
}

#[test]
fn paths_outside_the_repository_are_refused() {
    for path in OUTSIDE {
        refused(
            "tools/a/b.py",
            &format!("open('{path}x')\n"),
            "not part of the repository",
        );
    }
    passes("tools/a/b.py", concat!("open('net/wo", "rk/x')\n"));
    passes("tools/a/b.py", "open('shared/x')\n");
}

#[test]
fn the_repository_stays_small() {
    assert_eq!(repository_size(MAX_REPOSITORY_BYTES), None);
    assert!(repository_size(MAX_REPOSITORY_BYTES + 1).is_some());
}
