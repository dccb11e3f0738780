use std::io;
use std::path::PathBuf;

use anyhow::Context;

use super::*;

#[test]
fn every_kind_of_error_has_its_code() {
    let no_space = || StorageError::NoSpace {
        path: PathBuf::new(),
    };
    let not_found = || StorageError::io("opening", "x".as_ref(), io::ErrorKind::NotFound.into());
    let not_a_model = EngineError::NotAModel {
        dir: PathBuf::new(),
        reason: String::new(),
    };
    let budget = EngineError::Budget {
        needed: 2,
        budget: 1,
        advice: String::new(),
    };
    let cases: [(anyhow::Error, u8); 11] = [
        (usage("x"), USAGE),
        (CliError::NoModel("x".to_owned()).into(), MODEL),
        (CliError::Interrupted.into(), INTERRUPTED),
        (CliError::ClosedPipe.into(), 0),
        (Error::EmptyPrompt.into(), USAGE),
        (Error::Engine(not_a_model).into(), MODEL),
        (Error::Engine(budget).into(), RESOURCES),
        (Error::Engine(EngineError::Storage(not_found())).into(), IO),
        (InstallError::Storage(no_space()).into(), RESOURCES),
        (
            InstallError::Exists {
                path: PathBuf::new(),
            }
            .into(),
            USAGE,
        ),
        (anyhow::anyhow!("x"), FAILURE),
    ];
    for (error, expected) in cases {
        assert_eq!(code(&error), expected, "{error:#}");
        let with_context = Err::<(), _>(error)
            .context("while trying")
            .expect_err("an error");
        assert_eq!(code(&with_context), expected, "{with_context:#}");
    }
}

#[test]
fn a_cause_is_told_once() {
    let full = StorageError::io("opening", "x".as_ref(), io::ErrorKind::IsADirectory.into());
    let error =
        anyhow::Error::from(Error::Engine(EngineError::Storage(full))).context("while trying");
    let line = line(&error).expect("something is said");
    assert_eq!(
        line,
        format!(
            "while trying: x: opening: {}",
            io::Error::from(io::ErrorKind::IsADirectory)
        )
    );
}

#[test]
fn what_clap_says_becomes_one_line() {
    let message = "error: unexpected argument '--foo' found\n\n  tip: a similar argument exists: '--for'\n\nUsage: x\n\n\
                   For more information, try '--help'.\n";
    let expected = "unexpected argument '--foo' found; tip: a similar argument exists: '--for'; --help says more";
    assert_eq!(usage_line(message), expected);
    let message =
        "error: the following required arguments were not provided:\n  --from <DIR>\n\nUsage: x";
    let expected =
        "the following required arguments were not provided: --from <DIR>; --help says more";
    assert_eq!(usage_line(message), expected);
}
