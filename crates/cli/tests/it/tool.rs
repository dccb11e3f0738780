//! Runs the binary in folders of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// What a run gave.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// What a process left.
    pub fn of(output: std::process::Output) -> Run {
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("output is UTF-8"),
            err: String::from_utf8(output.stderr).expect("messages are UTF-8"),
        }
    }

    /// The run succeeded; its output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// The run was refused: this code, one line that begins with `ouzel: ` and says all of these things, and no output.
    #[track_caller]
    pub fn refused(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert!(self.err.starts_with("ouzel: "), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for part in says {
            assert!(self.err.contains(part), "{part:?} is not in {self:?}");
        }
    }
}

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A user with folders of their own.
pub struct User {
    pub models: PathBuf,
    cache: PathBuf,
    runtime: Option<PathBuf>,
    /// Goes away with the user, unless the folders are shared.
    _dir: Option<TempDir>,
}

impl User {
    /// Somebody who never ran the program.
    pub fn new() -> User {
        let dir = tempfile::tempdir().expect("a temporary folder");
        User {
            models: dir.path().join("models"),
            cache: dir.path().join("cache"),
            runtime: None,
            _dir: Some(dir),
        }
    }

    /// Somebody who has nothing but the bundled model, unpacked by whichever test came first. Nothing may write to it.
    pub fn with_demo() -> User {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-it");
        User {
            models: dir.join("models"),
            cache: dir.join("cache"),
            runtime: None,
            _dir: None,
        }
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ouzel"));
        let runtime = self.runtime();
        command
            .env("OUZEL_MODELS", &self.models)
            .env("OUZEL_CACHE", &self.cache)
            .env("OUZEL_PREFIXES", self.cache.with_file_name("prefixes"))
            // One process at a time has them.
            .env("OUZEL_CHATS", runtime.join("chats"))
            .env("OUZEL_STATE", runtime.join("state"))
            .env_remove("OUZEL_API_KEY")
            // Tests run beside each other, as if each had a machine of its own.
            .env("OUZEL_RUNTIME", runtime)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Run {
        self.run_with(args, b"")
    }

    /// The same with something on standard input.
    pub fn run_with<S: AsRef<OsStr>>(&self, args: &[S], stdin: &[u8]) -> Run {
        let mut child = self
            .command()
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut pipe = child.stdin.take().expect("a pipe was asked for");
        // A program that refuses its arguments never reads its input. What tests write fits into the pipe.
        let _ = pipe.write_all(stdin);
        drop(pipe);
        Run::of(child.wait_with_output().expect("the program ends"))
    }

    /// Another one for every call, unless the user keeps one.
    fn runtime(&self) -> PathBuf {
        static N: AtomicU64 = AtomicU64::new(0);
        let id = (std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let name = format!("runtime-{}-{}", id.0, id.1);
        let dir = self.cache.with_file_name("runtime").join(name);
        self.runtime.clone().unwrap_or(dir)
    }

    /// The same user, all of whose processes see each other.
    pub fn with_one_machine(mut self) -> User {
        self.runtime = Some(self.cache.with_file_name("machine"));
        self
    }

    /// Runs with these variables in the environment.
    pub fn run_env(&self, variables: &[(&str, &str)], args: &[&str]) -> Run {
        let mut command = self.command();
        let command = command.envs(variables.iter().copied()).args(args);
        Run::of(command.output().expect("the binary was built"))
    }

    /// A path beside the user's folders, where there is nothing yet.
    pub fn path(&self, name: &str) -> String {
        let dir = self.models.parent().expect("models lie in a folder");
        std::fs::create_dir_all(dir).expect("the folder is ours");
        let path = dir.join(name);
        path.to_str()
            .expect("temporary folders have plain names")
            .to_owned()
    }

    /// Writes a file beside the user's folders and returns its path.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("the folder is ours");
        path
    }
}

/// A directory with an installation of the tiny model, which has no tokenizer. Nothing may write to it.
pub fn tiny() -> &'static str {
    static DIR: OnceLock<String> = OnceLock::new();
    DIR.get_or_init(|| {
        let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-it/tiny-a.gturbo");
        install_to("testdata/tiny-a/mlx", &output);
        output
            .to_str()
            .expect("the target folder has a plain name")
            .to_owned()
    })
}

/// Installs a checkpoint of the repository.
pub fn install_to(checkpoint: &str, output: &Path) {
    let checkpoint = repository(checkpoint);
    let args: [&OsStr; 6] = [
        "install".as_ref(),
        "--from".as_ref(),
        checkpoint.as_ref(),
        "--output".as_ref(),
        output.as_ref(),
        "--overwrite".as_ref(),
    ];
    User::new().run(&args).ok();
}
