//! Where models lie: folders that cannot be written to, links, unfinished installations of something else, and what programs are told.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use ouzel_hub::{COMMIT, Hub, Options, REPOSITORY};

use crate::tool::{Run, User, repository};

#[cfg(target_os = "linux")]
const TINY: &str = "testdata/tiny-a/mlx";

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref()
        .to_str()
        .expect("temporary folders have plain names")
        .to_owned()
}

/// Runs with `folder` read-only, for an administrator too: in a mount namespace. `None` where none may be made.
#[cfg(target_os = "linux")]
fn read_only(user: &User, folder: &Path, args: &[&str]) -> Option<Run> {
    let unshare = ["--user", "--map-root-user", "--mount", "--"];
    let is_permitted = std::process::Command::new("unshare")
        .args(unshare)
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_permitted {
        println!("skipped: no mount namespace may be made here");
        return None;
    }
    let script = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@""#;
    let own = user.command();
    let mut command = std::process::Command::new("unshare");
    command
        .args(unshare)
        .args(["sh", "-c", script, "sh"])
        .arg(folder)
        .arg(own.get_program())
        .args(args)
        .envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null());
    Some(Run::of(command.output().expect("unshare is there")))
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_read_and_refused_in_one_line() {
    let user = User::new();
    crate::tool::install_to(TINY, &user.models.join("tiny.gturbo"));
    let before = fs::read_dir(&user.models).expect("a folder").count();
    let on = |args: &[&str]| read_only(&user, &user.models, args);
    let demo = text(repository("models/demo"));
    let new = text(user.models.join("new.gturbo"));
    let Some(run) = on(&["install", "--from", &demo, "--output", &new]) else {
        return;
    };
    let says = ["nothing can be installed there", "--output", "ead-only"];
    run.refused(5, &says);
    let run = |args: &[&str]| on(args).expect("it was permitted before");
    let tiny = text(user.models.join("tiny.gturbo"));
    let from = text(repository(TINY));
    run(&["install", "--from", &from, "--output", &tiny, "--overwrite"]).refused(5, &says);
    run(&["install", "--from", &from, "--output", &tiny, "--repair"]).refused(5, &says);
    run(&["models", "remove", "tiny", "--yes"]).refused(5, &["tiny", "ead-only"]);
    run(&["models", "default", "tiny"]).refused(5, &["default", "ead-only"]);
    assert!(run(&["models"]).ok().contains("complete"));
    assert!(run(&["verify", "tiny"]).ok().contains("as installed"));
    let ids = user.file("ids.json", b"[[1, 2, 3]]");
    run(&["eval", "tiny", "--token-ids", &ids, "--quiet"]).ok();
    let after = fs::read_dir(&user.models).expect("a folder").count();
    assert_eq!(before, after, "nothing was made or removed");
}

#[test]
fn the_bundled_name_is_taken_in_the_folder_one_stands_in_too() {
    let user = User::new();
    fs::create_dir_all(&user.models).expect("the folder is ours");
    let from = text(repository("models/demo"));
    let mut command = user.command();
    command
        .current_dir(&user.models)
        .args(["install", "--from", &from, "--models-dir", "."])
        .args(["--output", "demo.gturbo"]);
    Run::of(command.output().expect("the binary was built")).refused(2, &["bundled model"]);
}

/// A model behind a link is one model: it is the default under its own name, nobody changes it while it is loaded through the link, and
/// it goes with what it leads to.
#[cfg(unix)]
#[test]
fn a_link_and_what_it_leads_to_are_one_model() {
    let user = User::new().with_one_machine();
    let real = user.path("elsewhere.gturbo");
    crate::tool::install_to("models/demo", Path::new(&real));
    fs::create_dir_all(&user.models).expect("the folder is ours");
    let link = user.models.join("link.gturbo");
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    user.run(&["models", "default", "link"]).ok();
    let list = user.run(&["models"]).ok();
    assert!(list.contains("* link"), "{list}");
    assert_eq!(list.matches("complete").count(), 1, "{list}");

    let chat = crate::running::Chat::start(&user, &[]);
    let pid = chat.child.id().to_string();
    let from = text(repository("models/demo"));
    let change = ["install", "--from", &from, "--output", &real, "--overwrite"];
    user.run(&change).refused(5, &[&pid, "ouzel chat"]);
    user.run(&["models", "remove", "link", "--yes"])
        .refused(5, &[&pid, "ouzel chat"]);
    chat.end();
    user.run(&["models", "remove", "link", "--yes"]).ok();
    assert!(!link.is_symlink() && !Path::new(&real).exists());
    assert!(user.run(&["models"]).ok().contains("no model"));
}

fn install(user: &User, hub: &Hub, args: &[&str]) -> Run {
    let args = [&["install"], args].concat();
    user.run_env(&[("HF_ENDPOINT", &hub.endpoint())], &args)
}

/// Starts an installation and kills it when it has left something.
fn cut_short(user: &User, output: &str, args: &[&str]) {
    let slow = Hub::serve(
        &repository("models/demo"),
        Options {
            bytes_per_s: Some(50_000),
            ..Options::default()
        },
    );
    let slow = slow.expect("a port");
    let mut child = user
        .command()
        .env("HF_ENDPOINT", slow.endpoint())
        .args(["install", "--output", output])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built");
    let partial = format!("{output}.partial/model_weights.bin");
    while !Path::new(&partial).exists() {
        let status = child.try_wait().expect("a child");
        assert!(status.is_none(), "it ended: {status:?}");
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
}

/// A repair that nobody told a repository does not take the unfinished rest of another one for the usual model's.
#[test]
fn an_unfinished_model_is_repaired_from_its_own_repository_only() {
    let user = User::new();
    let output = user.path("bird.gturbo");
    let named = ["--repo", REPOSITORY, "--revision", COMMIT];
    let hub = Hub::serve(&repository("models/demo"), Options::default()).expect("a port");
    cut_short(&user, &output, &named);
    install(&user, &hub, &["--repair", "--output", &output])
        .refused(2, &["bird.gturbo", "--repo", "--from"]);
    assert!(Path::new(&format!("{output}.partial")).exists());
    let repair = [&["--repair", "--output", &output], &named[..]].concat();
    install(&user, &hub, &repair).ok();

    // A repair that was cut short goes on with the same command.
    let weights = Path::new(&output).join("model_weights.bin");
    let mut bytes = fs::read(&weights).expect("a file");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&weights, bytes).expect("a file");
    cut_short(&user, &output, &["--repair"]);
    assert!(!Path::new(&output).exists());
    install(&user, &hub, &["--repair", "--output", &output]).ok();
    let verified = user.run(&["verify", &output]).ok();
    assert!(
        verified.contains("synthetic and every expert"),
        "{verified}"
    );
}

#[test]
fn programs_are_told_everything_in_json() {
    let user = User::new();
    let hub = Hub::serve(&repository("models/demo"), Options::default()).expect("a port");
    let named = ["--repo", REPOSITORY, "--revision", COMMIT];
    let events = |args: &[&str]| -> Vec<String> {
        let args = [&named[..], &["--progress", "json"], args].concat();
        let run = install(&user, &hub, &args);
        assert_eq!(run.err, "", "{args:?}");
        let values = run.ok();
        let values = values.lines().map(|line| {
            let value: serde_json::Value =
                serde_json::from_str(line).unwrap_or_else(|_| panic!("{args:?}: {line}"));
            value["event"].as_str().expect("its name").to_owned()
        });
        values.collect()
    };
    assert_eq!(events(&["--dry-run"]), ["plan"]);
    assert_eq!(events(&["--discard-partial"]), ["discarded"]);
    let all = events(&[]);
    assert_eq!(all.first().map(String::as_str), Some("plan"), "{all:?}");
    assert_eq!(all.last().map(String::as_str), Some("installed"), "{all:?}");
    assert_eq!(events(&[]), ["present"]);
    let all = events(&["--repair"]);
    assert_eq!(all.last().map(String::as_str), Some("whole"), "{all:?}");
}

/// What is set but cannot be read is not passed over: the usual hub is not a mirror's stand-in.
#[cfg(unix)]
#[test]
fn an_environment_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let user = User::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    for name in ["HF_ENDPOINT", "HF_TOKEN", "HTTPS_PROXY"] {
        let mut command = user.command();
        command.env(name, odd).args(["install", "--dry-run"]);
        let run = Run::of(command.output().expect("the binary was built"));
        run.refused(2, &[name, "UTF-8"]);
    }
}
