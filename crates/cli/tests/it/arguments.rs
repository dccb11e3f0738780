//! What is refused before any model is looked for.

use crate::tool::User;

#[test]
fn absurd_values_are_refused_when_parsed() {
    let cases: [(&[&str], &str); 10] = [
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
fn install_says_what_it_needs() {
    User::new()
        .run(&["install"])
        .refused(2, &["--from DIR", "config.json"]);
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
        "verify",
        "inspect",
        "bench",
        "eval",
        "tokenize",
        "detokenize",
    ] {
        let help = user.run(&[command, "--help"]).ok();
        assert!(help.contains("Examples:"), "{command}: {help}");
    }
    let version = user.run(&["--version"]).ok();
    assert_eq!(version.trim(), concat!("ouzel ", env!("CARGO_PKG_VERSION")));
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
