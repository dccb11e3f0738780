//! What is refused before any model is looked for.

use crate::tool::User;

#[test]
fn absurd_values_are_refused_when_parsed() {
    let cases: [(&[&str], &str); 15] = [
        (&["--temperature", "-1"], "--temperature"),
        (&["--temperature", "nan"], "from 0 to 10"),
        (&["--top-p", "0"], "above 0 and at most 1"),
        (&["--max-new", "0"], "--max-new"),
        (&["--max-context", "99999999999"], "--max-context"),
        (&["--memory", "2 bananas"], "2GiB"),
        (&["--memory", "99999999999999GiB"], "--memory"),
        (&["--threads", "0"], "--threads"),
        (&["--io", "telepathy"], "auto, direct, buffered"),
        (&["--tempreature", "1"], "--temperature"),
        (&["--memory", "-1"], "2GiB"),
        (&["--max-new", "x"], "a whole number from 1 to 1048576"),
        (&["--slots", ""], "a whole number from 0 to 1048576"),
        (&["--threads", "1025"], "a whole number from 1 to 1024"),
        (
            &["--seed", "18446744073709551616", "--stop", "-1"],
            "a whole number from 0 to 18446744073709551615",
        ),
    ];
    let user = User::new();
    for (flags, says) in cases {
        let args: Vec<&str> = ["generate", "Hello"].iter().chain(flags).copied().collect();
        user.run(&args).refused(2, &[says]);
    }
    assert!(!user.models.exists(), "nothing was unpacked for a refusal");
}

#[test]
fn exactly_one_input_and_never_an_empty_one() {
    let user = User::new();
    user.run(&["generate"])
        .refused(2, &["--prompt", "--messages-file"]);
    user.run(&["generate", "Hello", "--prompt", "Hello"])
        .refused(2, &["cannot be used with"]);
    for args in [
        ["generate", ""].as_slice(),
        &["generate", " \n "],
        &["generate", "--prompt", ""],
    ] {
        user.run(args).refused(2, &["prompt is empty"]);
    }
}

#[test]
fn install_needs_a_hub_or_a_folder() {
    let nobody = [("HF_ENDPOINT", "http://127.0.0.1:1")];
    User::new().run_env(&nobody, &["install"]).refused(
        5,
        &["gemma-4-26b-a4b-it-4bit", "127.0.0.1:1", "HF_ENDPOINT"],
    );
    User::new()
        .run(&["install", "--from", "nowhere"])
        .refused(3, &["nowhere", "config.json"]);
    User::new()
        .run(&["install", "--from", "here", "--repo", "a/b"])
        .refused(2, &["--from", "--repo"]);
}

#[test]
fn help_has_examples_and_exit_codes() {
    let user = User::new();
    let help = user.run(&["--help"]).ok();
    assert!(
        help.contains("Exit codes:") && help.contains("OUZEL_MODELS"),
        "{help}"
    );
    for command in [
        "generate",
        "chat",
        "install",
        "models",
        "verify",
        "inspect",
        "bench",
        "eval",
        "tokenize",
        "detokenize",
        "completions",
    ] {
        let help = user.run(&[command, "--help"]).ok();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    let version = user.run(&["--version"]).ok();
    assert_eq!(version.trim(), concat!("ouzel ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn shells_are_told_of_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = User::new().run(&["completions", shell]).ok();
        assert!(
            script.contains("ouzel") && script.contains("models-dir"),
            "{shell}: {script}"
        );
    }
    User::new()
        .run(&["completions", "cmd"])
        .refused(2, &["bash"]);
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let user = User::new();
    let garbage = OsStr::from_bytes(b"caf\xe9");
    user.run(&[OsStr::new("generate"), garbage])
        .refused(2, &["UTF-8"]);
    // A path may be anything.
    user.run(&[OsStr::new("verify"), OsStr::from_bytes(b"/caf\xe9.gturbo")])
        .refused(3, &["does not exist"]);
}
