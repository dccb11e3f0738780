//! `cargo xtask clients`: the SDKs that people use, against `ouzel serve` with the bundled model.
//!
//! Each folder of `clients/` is one client: its pinned packages and its test, which knows the client alone. Here they are installed into a
//! folder that is removed, each gets a server of its own, and the server has to be idle afterwards and to end when it is told to. The
//! tests see no environment but what is set here: nothing of a user's keys, proxies or settings. A client that cannot be installed
//! has failed.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::metadata::Metadata;
use crate::process::{cargo, must, root};
use crate::served::Served;

/// A slow registry gets this long; some packages hang.
const INSTALL_TIME: Duration = Duration::from_secs(300);
/// All tests of one client, which take seconds.
const TEST_TIME: Duration = Duration::from_secs(180);
/// How often a program is asked whether it has ended.
const POLL: Duration = Duration::from_millis(50);
/// Where the tests are.
const FOLDER: &str = "clients";
/// What the tests of Python clients share.
const SHARED: &str = "clients/shared";

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

struct Client {
    /// Its folder, and what it is called here.
    name: &'static str,
    /// The package whose version stands for the client's.
    package: &'static str,
    language: Language,
}

const CLIENTS: &[Client] = &[
    python("openai", "openai"),
    python("anthropic", "anthropic"),
    python("litellm", "litellm"),
    python("langchain", "langchain-openai"),
    python("llm", "llm"),
    Client {
        name: "ai-sdk",
        package: "@ai-sdk/openai-compatible",
        language: Language::Node,
    },
];

const fn python(name: &'static str, package: &'static str) -> Client {
    Client {
        name,
        package,
        language: Language::Python,
    }
}

/// What came of a client.
enum Outcome {
    Passed { n_tests: usize, took: Duration },
    Failed(anyhow::Error),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Passed { n_tests, took } => {
                write!(f, "{n_tests} tests passed, {:.1} s", took.as_secs_f64())
            }
            Outcome::Failed(error) => write!(f, "FAILED: {error:#}"),
        }
    }
}

/// Runs all clients, or those that are named.
pub fn run(names: &[String]) -> anyhow::Result<ExitCode> {
    let is_known = |name: &&String| CLIENTS.iter().any(|client| client.name == **name);
    if let Some(other) = names.iter().find(|name| !is_known(name)) {
        bail!("there is no client {other:?}");
    }
    let root = root()?;
    // As the demo check builds it, so that it is there already.
    must(&mut cargo(&["build", "--release"])?)?;
    let target = root.join(Metadata::of_members()?.target_dir()?);
    let work = std::env::temp_dir().join(format!("ouzel-clients-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let place = Place {
        binary: target.join("release/ouzel"),
        root,
        work,
    };
    let wanted =
        |client: &&Client| names.is_empty() || names.iter().any(|name| name == client.name);
    let results: Vec<(&Client, String, Outcome)> = CLIENTS
        .iter()
        .filter(wanted)
        .map(|client| place.judge(client))
        .collect();
    fs::remove_dir_all(&place.work).context("removing what was installed")?;
    println!("\n{:12} {:34} outcome", "client", "version");
    for (client, version, outcome) in &results {
        let what = format!("{} {version}", client.package);
        println!("{:12} {what:34} {outcome}", client.name);
    }
    let has_failed = |outcome: &Outcome| matches!(outcome, Outcome::Failed(_));
    Ok(ExitCode::from(u8::from(
        results.iter().any(|(.., outcome)| has_failed(outcome)),
    )))
}

/// Where everything is.
struct Place {
    root: PathBuf,
    binary: PathBuf,
    /// Removed at the end.
    work: PathBuf,
}

impl Place {
    fn judge<'c>(&self, client: &'c Client) -> (&'c Client, String, Outcome) {
        println!("\n---- {}", client.name);
        let version = self.version(client);
        let outcome = match self.prepare_and_test(client) {
            Ok((n_tests, took)) => Outcome::Passed { n_tests, took },
            Err(error) => Outcome::Failed(error),
        };
        (
            client,
            version.unwrap_or_else(|error| format!("{error:#}")),
            outcome,
        )
    }

    fn folder(&self, client: &Client) -> PathBuf {
        self.root.join(FOLDER).join(client.name)
    }

    fn version(&self, client: &Client) -> anyhow::Result<String> {
        let file = match client.language {
            Language::Python => "requirements.txt",
            Language::Node => "package.json",
        };
        let text = fs::read_to_string(self.folder(client).join(file)).context(file)?;
        pinned(client, &text).with_context(|| format!("{file} does not pin {}", client.package))
    }

    fn prepare_and_test(&self, client: &Client) -> anyhow::Result<(usize, Duration)> {
        let installed = self.work.join(client.name);
        self.install(client, &installed)
            .context("could not be installed")?;
        let served = Served::start(&self.binary, &self.work, &[])?;
        let tested = self.test(client, &installed, &served);
        let idle = served.check_idle();
        let ended = served.end();
        // What a test says explains most; a server that is not well afterwards is a failure all the same.
        let result = tested?;
        idle?;
        ended?;
        Ok(result)
    }

    fn install(&self, client: &Client, to: &Path) -> anyhow::Result<()> {
        let from = self.folder(client);
        match client.language {
            Language::Python => {
                let mut command = Command::new("python3");
                run_within(command.args(["-m", "venv"]).arg(to), INSTALL_TIME)?;
                let mut command = Command::new(to.join("bin/python"));
                command.args(["-m", "pip", "install", "--quiet"]);
                command.args(["--disable-pip-version-check", "--no-deps", "-r"]);
                run_within(command.arg(from.join("requirements.txt")), INSTALL_TIME)
            }
            Language::Node => {
                fs::create_dir_all(to)?;
                for file in ["package.json", "package-lock.json", ".npmrc", "test.mjs"] {
                    fs::copy(from.join(file), to.join(file)).context(file)?;
                }
                let mut command = Command::new("npm");
                command.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
                run_within(command.current_dir(to), INSTALL_TIME)
            }
        }
    }

    fn test(
        &self,
        client: &Client,
        installed: &Path,
        served: &Served,
    ) -> anyhow::Result<(usize, Duration)> {
        let mut command = match client.language {
            Language::Python => {
                let mut command = Command::new(installed.join("bin/python"));
                command.arg("test.py").current_dir(self.folder(client));
                command
            }
            Language::Node => {
                let mut command = Command::new("node");
                command.args(["--test-reporter=spec", "test.mjs"]);
                command.current_dir(installed);
                command
            }
        };
        command
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
            .env("HOME", &self.work)
            .env("PYTHONPATH", self.root.join(SHARED))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUTF8", "1")
            // What a client's dependencies are deprecated for is not what is tested.
            .env("PYTHONWARNINGS", "ignore")
            // LiteLLM would fetch a list of prices.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .envs(served.environment());
        let path = self.work.join(format!("{}.log", client.name));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        command.stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let status = status_within(&mut command, TEST_TIME);
        let said = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        print!("{said}");
        let (status, n_tests) = (status?, n_tests(&said));
        ensure!(
            status.success(),
            "{n_tests} tests ran, and not all passed ({status})"
        );
        ensure!(n_tests > 0, "no test ran");
        Ok((n_tests, started.elapsed()))
    }
}

/// The version that a file pins.
fn pinned(client: &Client, text: &str) -> Option<String> {
    match client.language {
        Language::Python => text
            .lines()
            .find_map(|line| line.trim().strip_prefix(client.package)?.strip_prefix("=="))
            .map(str::to_owned),
        Language::Node => {
            let package: Value = serde_json::from_str(text).ok()?;
            let version = package["dependencies"][client.package].as_str()?;
            let is_exact = version.starts_with(|c: char| c.is_ascii_digit());
            is_exact.then(|| version.to_owned())
        }
    }
}

/// How many tests ran, as `unittest` ("Ran 5 tests in 1 s") or Node ("ℹ tests 5") says it.
fn n_tests(said: &str) -> usize {
    let count = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Ran", n, "test" | "tests", ..] | [_, "tests", n] => n.parse().ok(),
            _ => None,
        }
    };
    said.lines().rev().find_map(count).unwrap_or(0)
}

fn run_within(command: &mut Command, limit: Duration) -> anyhow::Result<()> {
    let status = status_within(command, limit)?;
    let program = command.get_program().to_string_lossy().into_owned();
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

fn status_within(command: &mut Command, limit: Duration) -> anyhow::Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| program.clone())?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("{program} was not through after {} s", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_tests_is_read_from_either_runner() {
        for (said, expected) in [
            ("....\nRan 27 tests in 8.123s\n\nOK\n", 27),
            ("Ran 1 test in 0.1s\n\nFAILED (errors=1)\n", 1),
            ("ℹ tests 5\nℹ suites 0\nℹ pass 5\n", 5),
            ("Traceback (most recent call last):\n", 0),
            ("", 0),
        ] {
            assert_eq!(n_tests(said), expected, "{said:?}");
        }
    }

    #[test]
    fn every_client_is_pinned_and_nothing_else_lies_beside_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients");
        for client in CLIENTS {
            let file = match client.language {
                Language::Python => "requirements.txt",
                Language::Node => "package.json",
            };
            let text = fs::read_to_string(folder.join(client.name).join(file)).unwrap();
            let version = pinned(client, &text);
            assert!(version.is_some(), "{}", client.name);
            if let Language::Python = client.language {
                let loose = text.lines().find(|line| !line.contains("=="));
                assert_eq!(loose, None, "{}", client.name);
            }
        }
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_known = name == "shared" || CLIENTS.iter().any(|client| client.name == name);
            assert!(is_known || entry.path().is_file(), "{name} is never run");
        }
    }

    #[test]
    fn a_range_of_versions_pins_nothing() {
        let (openai, sdk) = (&CLIENTS[0], CLIENTS.last().unwrap());
        assert_eq!(pinned(openai, "idna==3.20\nopenai>=3\n"), None);
        assert_eq!(
            pinned(openai, "openai==3.57.0\n").as_deref(),
            Some("3.57.0")
        );
        let package =
            |version| format!(r#"{{"dependencies": {{"{}": "{version}"}}}}"#, sdk.package);
        assert_eq!(pinned(sdk, &package("^2.0.92")), None);
        assert_eq!(pinned(sdk, &package("2.0.92")).as_deref(), Some("2.0.92"));
    }
}
