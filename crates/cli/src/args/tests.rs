use clap::{CommandFactory, Parser};

use super::parse::{duration, memory, origin, size_or_nothing};
use super::*;

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn sizes_have_units() {
    let cases = [
        ("2GiB", Some(2 << 30)),
        ("1.5GiB", Some(3 << 29)),
        ("512 MiB", Some(512 << 20)),
        ("64kib", Some(64 << 10)),
        ("2GB", Some(2_000_000_000)),
        ("800MB", Some(800_000_000)),
        ("1KB", Some(1_000)),
        ("123", Some(123)),
        ("7B", Some(7)),
        ("1048576GiB", Some(1 << 50)),
        ("1048577GiB", None),
        ("0", None),
        ("0GiB", None),
        ("-1GiB", None),
        ("2G", None),
        ("GiB", None),
        ("", None),
        ("1e3MB", None),
        ("inf", None),
        ("nan", None),
        ("2 TiB", None),
        ("1.2.3GB", None),
    ];
    for (text, expected) in cases {
        assert_eq!(memory(text).ok(), expected.map(Memory::Bytes), "{text:?}");
    }
}

#[test]
fn memory_may_be_left_to_the_program() {
    for text in ["auto", "AUTO", " auto "] {
        assert_eq!(memory(text), Ok(Memory::Auto), "{text:?}");
    }
    for text in ["automatic", "auto 2GiB", "half", "50%"] {
        assert!(memory(text).is_err(), "{text:?}");
    }
    let args = generate(&["--memory", "auto"]).expect("a value of the flag");
    // How much that is only the model and the machine can tell.
    assert_eq!(args.session.options(Precision::Fast).memory, None);
}

/// The flags of `generate` with one more argument, or two.
fn generate(more: &[&str]) -> Result<GenerateArgs, clap::Error> {
    let args = ["ouzel", "generate", "Hello"].iter().chain(more);
    match Cli::try_parse_from(args)?.command {
        Command::Generate(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_are_those_of_the_design() {
    let args = generate(&[]).expect("no flag is needed");
    let options = args.sampling.options(0.2);
    assert_eq!(options, GenerateOptions::default());
    assert_eq!(args.session.options(Precision::Fast), Options::default());
}

#[test]
fn both_sides_of_every_limit() {
    let cases: [(&str, &[&str], &[&str]); 13] = [
        ("--max-new", &["1", "1048576"], &["0", "1048577", "-1", "x"]),
        (
            "--temperature",
            &["0", "10", "0.2"],
            &["-0.1", "10.1", "nan", "inf", "hot"],
        ),
        ("--top-k", &["0", "1048576"], &["-1", "1048577"]),
        ("--top-p", &["0.001", "1"], &["0", "1.001", "nan"]),
        ("--min-p", &["0", "1"], &["-0.1", "1.1", "nan"]),
        (
            "--repetition-penalty",
            &["0.1", "10"],
            &["0", "10.5", "nan"],
        ),
        ("--presence-penalty", &["-2", "2"], &["-2.1", "2.1"]),
        ("--frequency-penalty", &["-2", "2"], &["-2.1", "2.1"]),
        (
            "--seed",
            &["0", "18446744073709551615"],
            &["-1", "18446744073709551616"],
        ),
        (
            "--max-context",
            &["1", "1048576"],
            &["0", "1048577", "99999999999999999999"],
        ),
        ("--slots", &["0", "1048576"], &["-1", "1048577"]),
        ("--chunk", &["1", "1048576"], &["0", "1048577"]),
        ("--threads", &["1", "1024"], &["0", "1025"]),
    ];
    for (flag, allowed, refused) in cases {
        for value in allowed {
            if let Err(error) = generate(&[flag, value]) {
                panic!("{flag} {value}: {error}");
            }
        }
        for value in refused {
            assert!(generate(&[flag, value]).is_err(), "{flag} {value}");
        }
    }
    assert!(generate(&["--stop", ""]).is_err());
    assert!(generate(&["--io", "fast"]).is_err());
    assert!(generate(&["--memory", "2G"]).is_err());
}

#[test]
fn times_have_units() {
    let cases = [
        ("90s", Some(90)),
        ("10m", Some(600)),
        ("168h", Some(604_800)),
        ("169h", None),
        ("0s", None),
        ("10", None),
        ("m", None),
        ("-1m", None),
        ("1.5h", None),
        ("99999999999999999999h", None),
        ("9999999999999999h", None),
    ];
    for (text, expected) in cases {
        let seconds = duration(text).ok().map(|time| time.as_secs());
        assert_eq!(seconds, expected, "{text:?}");
    }
}

/// The arguments of `serve` with some more.
fn serve(more: &[&str]) -> Result<ServeArgs, clap::Error> {
    let args = ["ouzel", "serve"].iter().chain(more);
    match Cli::try_parse_from(args)?.command {
        Command::Serve(args) => Ok(*args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_sides_of_the_limits_of_a_server() {
    let cases: [(&str, &[&str], &[&str], &str); 5] = [
        (
            "--port",
            &["0", "65535"],
            &["-1", "65536", "http"],
            "from 0 to 65535",
        ),
        (
            "--temperature",
            &["0", "2"],
            &["-0.1", "2.1", "10", "nan"],
            "from 0 to 2",
        ),
        (
            "--prefix-memory",
            &["0", "64MiB"],
            &["auto", "-1", "64M"],
            "expected 0, or a size",
        ),
        (
            "--prefix-disk",
            &["0", "1GiB"],
            &["auto", "-1"],
            "expected 0, or a size",
        ),
        (
            "--cors-origin",
            &["*", "https://example.org", "http://localhost:3000/"],
            &["foo", "http://x/y", "https://", "://x", ""],
            "https://example.org",
        ),
    ];
    for (flag, allowed, refused, says) in cases {
        for value in allowed {
            if let Err(error) = serve(&[flag, value]) {
                panic!("{flag} {value}: {error}");
            }
        }
        for value in refused {
            let error = serve(&[flag, value]).expect_err(value).to_string();
            assert!(error.contains(says), "{flag} {value}: {error}");
        }
    }
    // `app` takes the same.
    for args in [["--port", "-1"], ["--temperature", "2.1"]] {
        assert!(Cli::try_parse_from(["ouzel", "app"].iter().chain(&args)).is_err());
    }
    assert!(size_or_nothing("auto").is_err_and(|error| !error.contains("auto")));
    assert!(memory("x").is_err_and(|error| error.contains("auto")));
}

#[test]
fn an_origin_is_kept_as_browsers_say_it() {
    for (text, kept) in [
        ("HTTPS://Example.org/", "https://example.org"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("tauri://localhost", "tauri://localhost"),
        ("null", "null"),
        ("*", "*"),
    ] {
        assert_eq!(origin(text).as_deref(), Ok(kept), "{text}");
    }
    for text in [
        "x",
        "x:1",
        "http://a b",
        "http://a?b",
        "http://u@a",
        "http://a//",
        "**",
    ] {
        assert!(origin(text).is_err(), "{text}");
    }
}

#[test]
fn a_name_is_kept_once() {
    let names = ["a", "b", "a", "b", "c"];
    let args: Vec<&str> = names.iter().flat_map(|n| ["--model-name", *n]).collect();
    let args = serve(&args).expect("names").with_names_once();
    assert_eq!(args.model_name, ["a", "b", "c"]);
}

/// A default that is only some commands' is said there.
#[test]
fn help_tells_the_defaults_of_its_command() {
    let help = |name: &str| {
        let mut cli = Cli::command();
        let command = cli.find_subcommand_mut(name).expect("a command");
        command.render_long_help().to_string()
    };
    for name in ["serve", "app"] {
        let help = help(name);
        assert!(help.contains("eight expert slots a layer"), "{help}");
        assert!(!help.contains("[default: 4096,"), "{help}");
    }
    assert!(help("generate").contains("[default: 4096,"));
}

#[test]
fn exactly_one_input() {
    assert!(Cli::try_parse_from(["ouzel", "generate"]).is_err());
    assert!(generate(&["--prompt", "x"]).is_err());
    assert!(generate(&["--messages-file", "x"]).is_err());
    assert!(Cli::try_parse_from(["ouzel", "generate", "--prompt", "--x"]).is_ok());
    assert!(Cli::try_parse_from(["ouzel", "eval"]).is_err());
    assert!(Cli::try_parse_from(["ouzel", "eval", "a", "--model", "b", "--text", "c"]).is_err());
}
