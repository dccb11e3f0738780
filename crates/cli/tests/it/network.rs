//! `ouzel install` from a hub on loopback, as a user gives it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use ouzel_hub::snapshot::{self, Shape};
use ouzel_hub::{COMMIT, Fault, Hub, Kind, Options, REPOSITORY};

use crate::tool::{Run, User, repository};

/// What the issue asks for: the whole process, while it installs.
const MAX_RESIDENT_BYTES: u64 = 100 << 20;
/// How often a running installation is killed.
const N_KILLS: u32 = 50;

fn hub(options: Options) -> Hub {
    Hub::serve(&repository("models/demo"), options).expect("a port")
}

fn install(user: &User, hub: &Hub, more: &[&str]) -> Run {
    let args = [
        &["install", "--repo", REPOSITORY, "--revision", COMMIT],
        more,
    ]
    .concat();
    user.run_env(&[("HF_ENDPOINT", &hub.endpoint())], &args)
}

/// Every file but the receipt, which states the time.
fn payload(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(folder) = dirs.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = path.strip_prefix(dir).expect("below").to_owned();
                files.insert(name, fs::read(path).expect("a file"));
            }
        }
    }
    files.remove(Path::new("verified-install.json"));
    files
}

#[test]
fn a_newcomer_installs_and_uses_a_model() {
    let (user, hub) = (User::new(), hub(Options::default()));
    let dry = install(&user, &hub, &["--dry-run"]).ok();
    for part in [
        "ouzel/synthetic",
        COMMIT,
        "not pinned",
        "apache-2.0",
        "transfer",
        "bytes",
        "free",
    ] {
        assert!(dry.contains(part), "{part}: {dry}");
    }
    assert!(!user.models.exists(), "a dry run writes nothing");
    println!("{dry}");
    let run = install(&user, &hub, &[]);
    assert!(
        run.err.contains("transfer"),
        "it says what it does: {run:?}"
    );
    assert!(run.ok().contains("synthetic.gturbo: "));
    assert!(install(&user, &hub, &[]).ok().contains("installed already"));
    assert!(
        user.run(&["verify"])
            .ok()
            .contains("every expert as installed")
    );
    let list = user.run(&["models"]).ok();
    assert!(
        list.contains("* synthetic") && list.contains("complete"),
        "{list}"
    );

    // The same bytes as from the folder.
    let from = repository("models/demo").display().to_string();
    let local = user.path("local.gturbo");
    user.run(&["install", "--from", &from, "--output", &local])
        .ok();
    let fetched = payload(&user.models.join("synthetic.gturbo"));
    let mut copied = payload(Path::new(&local));
    // The manifest has the model's name, which is the checkpoint's.
    let renamed =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\"demo\"", "\"synthetic\"");
    let manifest = Path::new("manifest.json");
    assert_eq!(renamed(&copied[manifest]), renamed(&fetched[manifest]));
    copied.insert(manifest.to_owned(), fetched[manifest].clone());
    assert!(copied == fetched, "other bytes than from the folder");

    let answer = user.run(&[
        "generate",
        "--max-new",
        "4",
        "--temperature",
        "0",
        "What is a fieldfare?",
    ]);
    assert!(!answer.ok().is_empty());
    user.run(&["models", "remove", "synthetic"])
        .refused(2, &["--yes"]);
    user.run(&["models", "default", "nothing"])
        .refused(3, &["synthetic"]);
    assert!(
        user.run(&["models", "remove", "synthetic", "--yes"])
            .ok()
            .contains("removed")
    );
    assert!(user.run(&["models"]).ok().contains("no model is installed"));
}

#[test]
fn damage_is_named_and_only_that_comes_again() {
    let (user, hub) = (User::new(), hub(Options::default()));
    install(&user, &hub, &[]).ok();
    let model = user.models.join("synthetic.gturbo");
    let expected = payload(&model);
    for (file, at) in [
        ("packed_experts/layer_02.bin", 100_000),
        ("packed_experts/layer_05.bin", 7),
    ] {
        let path = model.join(file);
        let mut bytes = fs::read(&path).expect("a file");
        bytes[at] ^= 1;
        fs::write(path, bytes).expect("a file");
    }
    let run = user.run(&["verify"]);
    assert_eq!(run.code, Some(3), "{run:?}");
    for part in ["layer_02.bin", "layer_05.bin", "expert 0", "--repair"] {
        assert!(run.err.contains(part), "{part}: {run:?}");
    }
    let before = hub.bytes_sent();
    let repaired = user.run_env(
        &[("HF_ENDPOINT", &hub.endpoint())],
        &["install", "--repair"],
    );
    assert!(repaired.ok().contains("synthetic.gturbo"));
    let came = hub.bytes_sent() - before;
    assert!(came < 3 << 20, "{came} bytes came");
    assert!(payload(&model) == expected);
    let again = user.run_env(
        &[("HF_ENDPOINT", &hub.endpoint())],
        &["install", "--repair"],
    );
    assert!(again.ok().contains("nothing is damaged"));
}

/// Thirty layers of 128 experts, from the hub to an answer.
#[test]
fn the_full_topology_installs_in_little_memory_and_answers() {
    let user = User::new();
    let folder = PathBuf::from(user.path("checkpoint"));
    snapshot::write(&folder, &Shape::FULL_TOPOLOGY, 1).expect("a snapshot");
    let hub = Hub::serve(&folder, Options::default()).expect("a port");
    let run = install(&user, &hub, &["--progress", "json"]).ok();
    let events: Vec<serde_json::Value> = run
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let last = events.last().expect("events");
    assert_eq!(last["event"], "installed", "{last}");
    let peak = last["peak_memory_bytes"]
        .as_u64()
        .expect("Linux, macOS and Windows say");
    println!(
        "{} bytes installed with {peak} resident at most",
        last["bytes"]
    );
    assert!(peak <= MAX_RESIDENT_BYTES, "{peak}");
    for event in ["begins", "advances"] {
        assert!(events.iter().any(|e| e["event"] == event), "{event}");
    }
    // The tower of the other modality stayed where it is.
    let weights: u64 = fs::read_dir(&folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").metadata().expect("metadata").len())
        .sum();
    assert!(
        hub.bytes_sent() < weights - snapshot::TOWER_BYTES / 2,
        "{}",
        hub.bytes_sent()
    );

    let local = user.path("local.gturbo");
    let from = folder.display().to_string();
    user.run(&["install", "--from", &from, "--output", &local])
        .ok();
    let ask = |model: &str| {
        let args = [
            "generate",
            "--model",
            model,
            "--prompt",
            "A thrush",
            "--max-new",
            "3",
        ];
        let run = user.run(&[&args[..], &["--temperature", "0", "--memory", "128MiB"]].concat());
        run.ok()
    };
    let (one, two) = (ask("synthetic"), ask(&local));
    assert!(!one.is_empty());
    assert_eq!(one, two, "the same model answers the same");
}

/// Marsaglia's xorshift64.
fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn start(user: &User, hub: &Hub) -> Child {
    user.command()
        .env("HF_ENDPOINT", hub.endpoint())
        .args(["install", "--repo", REPOSITORY, "--revision", COMMIT])
        .args(["--progress", "json"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built")
}

#[test]
fn killed_fifty_times_it_still_installs_the_same_bytes() {
    let seed = std::env::var("OUZEL_TEST_SEED").ok();
    let mut random = seed
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(20_260_731_u64);
    println!("OUZEL_TEST_SEED={random}");
    let user = User::new();
    let reference = hub(Options::default());
    install(&user, &reference, &[]).ok();
    let model = user.models.join("synthetic.gturbo");
    let expected = payload(&model);
    fs::remove_dir_all(&user.models).expect("it is ours");

    // Slow enough to be hit on the way: some 26 MB at 8 connections.
    let hub = hub(Options {
        bytes_per_s: Some(3_000_000),
        ..Options::default()
    });
    let (mut n_killed, mut n_whole, mut n_resumed) = (0, 0, 0);
    while n_killed < N_KILLS {
        let mut child = start(&user, &hub);
        thread::sleep(Duration::from_millis(next(&mut random) % 500));
        let is_running = child.try_wait().expect("a child").is_none();
        // SIGKILL, on the systems that have it.
        child.kill().expect("a child");
        child.wait().expect("a child");
        n_killed += u32::from(is_running);
        n_resumed += u32::from(user.models.join("synthetic.gturbo.journal").exists());
        if model.join("manifest.json").exists() {
            assert!(payload(&model) == expected, "after {n_killed} kills");
            n_whole += 1;
            fs::remove_dir_all(&user.models).expect("it is ours");
        }
    }
    let run = install(&user, &reference, &[]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(payload(&model) == expected);
    let names: Vec<_> = fs::read_dir(&user.models)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name != "default")
        .collect();
    assert_eq!(names, ["synthetic.gturbo"]);
    println!("{n_killed} kills: {n_resumed} left something to resume, {n_whole} came too late");
}

#[cfg(unix)]
#[test]
fn ctrl_c_pauses_and_the_same_command_goes_on() {
    let user = User::new();
    let hub = hub(Options {
        bytes_per_s: Some(600_000),
        ..Options::default()
    });
    let mut child = start(&user, &hub);
    let out = child.stdout.take().expect("a pipe was asked for");
    for line in BufReader::new(out).lines() {
        let line = line.expect("text");
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        if event["done_bytes"].as_u64() > Some(4_000_000) {
            let pid = child.id().to_string();
            let status = std::process::Command::new("kill")
                .args(["-INT", &pid])
                .status();
            assert!(status.expect("every Unix has kill").success());
            break;
        }
    }
    let status = child.wait().expect("a child");
    assert_eq!(status.code(), Some(130));
    let list = user.run(&["models"]).ok();
    assert!(list.contains("unfinished"), "{list}");
    let fast = self::hub(Options::default());
    let run = install(&user, &fast, &["--progress", "json"]).ok();
    let last: serde_json::Value =
        serde_json::from_str(run.lines().last().expect("a line")).expect("JSON");
    assert!(last["resumed_bytes"].as_u64() > Some(2_000_000), "{last}");
    // What is left of another one is removed on demand.
    let mut child = start(&user, &hub);
    child.kill().expect("a child");
    child.wait().expect("a child");
    let discard = install(&user, &fast, &["--discard-partial"]);
    assert_eq!(discard.code, Some(0), "{discard:?}");
}

#[test]
fn what_cannot_be_installed_says_so_in_one_line() {
    let user = User::new();
    let hub = hub(Options {
        token: Some("hf_right".to_owned()),
        ..Options::default()
    });
    let endpoint = hub.endpoint();
    let env = |more: &[(&str, &str)], args: &[&str]| {
        let variables = [&[("HF_ENDPOINT", endpoint.as_str())], more].concat();
        user.run_env(&variables, &[&["install"], args].concat())
    };
    let home = user.path("home");
    let named = ["--repo", REPOSITORY];
    env(&[("HF_HOME", &home)], &named).refused(5, &[REPOSITORY, "HF_TOKEN"]);
    env(&[("HF_TOKEN", "hf_wrong")], &named).refused(5, &["token"]);
    env(
        &[("HF_TOKEN", "hf_right"), ("HTTPS_PROXY", "socks5://x")],
        &named,
    )
    .refused(2, &["HTTPS_PROXY"]);
    env(&[("HF_ENDPOINT", "http://example.com")], &named).refused(2, &["https"]);
    env(&[], &["--repo", "synthetic"]).refused(2, &["OWNER/NAME"]);
    env(&[], &["--repo", "ouzel/a b"]).refused(2, &["OWNER/NAME"]);
    let token = [("HF_TOKEN", "hf_right")];
    env(&token, &["--repo", REPOSITORY, "--revision", "none"]).refused(5, &["--revision"]);
    let file = user.file("a-file.gturbo", b"mine");
    let on_file = [&named[..], &["--output", &file, "--overwrite"]].concat();
    env(&token, &on_file).refused(2, &["a-file.gturbo", "is no folder"]);
    let below = format!("{file}/model.gturbo");
    let run = env(&token, &[&named[..], &["--output", &below]].concat());
    run.refused(5, &["a-file.gturbo", "--output"]);
    // A hub whose token lies where `hf auth login` puts it.
    fs::create_dir_all(&home).expect("a folder");
    fs::write(Path::new(&home).join("token"), "hf_right\n").expect("a file");
    let odd = user.path("mo del é.gturbo");
    let run = env(
        &[("HF_HOME", &home)],
        &[&named[..], &["--output", &odd]].concat(),
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!format!("{run:?}").contains("hf_right"));
    assert!(Path::new(&odd).join("manifest.json").is_file());
}

/// A model of another architecture, and one with a quantization that the engine has not.
#[test]
fn other_models_are_refused_by_name() {
    for (edit, says) in [
        (
            (r#""model_type": "gemma4_text""#, r#""model_type": "llama""#),
            "model_type",
        ),
        ((r#""group_size": 64"#, r#""group_size": 32"#), "group_size"),
    ] {
        let user = User::new();
        let folder = PathBuf::from(user.path("checkpoint"));
        fs::create_dir_all(&folder).expect("a folder");
        for entry in fs::read_dir(repository("testdata/tiny-a/mlx")).expect("a folder") {
            let entry = entry.expect("an entry");
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
        }
        let config = fs::read_to_string(folder.join("config.json")).expect("a config");
        fs::write(folder.join("config.json"), config.replace(edit.0, edit.1)).expect("a file");
        let hub = Hub::serve(&folder, Options::default()).expect("a port");
        install(&user, &hub, &[]).refused(3, &["config.json", says]);
    }
}

#[cfg(unix)]
#[test]
fn a_model_may_lie_behind_a_link_but_hold_none() {
    let (user, hub) = (User::new(), hub(Options::default()));
    install(&user, &hub, &[]).ok();
    let (real, link) = (
        user.models.join("synthetic.gturbo"),
        user.path("link.gturbo"),
    );
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    assert!(user.run(&["verify", &link]).ok().contains("as installed"));
    install(&user, &hub, &["--output", &link, "--overwrite"]).ok();
    assert!(Path::new(&link).is_symlink() && real.join("manifest.json").is_file());
    let layer = real.join("packed_experts/layer_00.bin");
    let elsewhere = user.path("layer");
    fs::rename(&layer, &elsewhere).expect("a move");
    std::os::unix::fs::symlink(&elsewhere, &layer).expect("a link");
    user.run(&["verify", &link])
        .refused(3, &["layer_00.bin", "link"]);
    user.run(&["generate", "--model", &link, "hello"])
        .refused(3, &["layer_00.bin", "link"]);
}

/// A hub that answers nothing but errors from some point on: the exit code and the line that says what to do.
#[test]
fn a_hub_that_fails_in_the_middle_leaves_something_to_resume() {
    let user = User::new();
    let script = |ask: &ouzel_hub::Ask| {
        (ask.kind == Kind::Data && ask.n > 12).then_some(Fault::Answers(404, None))
    };
    let broken = hub(Options {
        script: Some(std::sync::Arc::new(script)),
        ..Options::default()
    });
    let mut child = start(&user, &broken);
    thread::sleep(Duration::from_millis(1500));
    child.kill().expect("a child");
    child.wait().expect("a child");
    let list = user.run(&["models"]).ok();
    assert!(list.contains("unfinished"), "{list}");
    let healthy = hub(Options::default());
    install(&user, &healthy, &[]).ok();
}

/// With a hub in reach, the real thing. It takes fifteen gigabytes, so it is asked for.
#[test]
fn the_real_checkpoint_installs_where_a_hub_is_in_reach() {
    if std::env::var_os("OUZEL_TEST_LIVE_HUB").is_none() {
        println!(
            "skipped: with OUZEL_TEST_LIVE_HUB=1 it fetches 15 GB from the real hub into a temporary folder (TMPDIR), as HF_ENDPOINT, \
             HTTPS_PROXY and HF_TOKEN say"
        );
        return;
    }
    let user = User::new();
    let run = user.run(&["install", "--progress", "none"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(user.run(&["verify"]).ok().contains("as installed"));
}
