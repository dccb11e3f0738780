//! Installing from a hub on loopback, well-behaved and not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ouzel_format::paths;
use ouzel_hub::{Ask, COMMIT, Fault, Hub as Loopback, Kind, Options, REPOSITORY, Script};
use ouzel_install::{
    Checkpoint, Event, Hub, HubOptions, InstallError, InstallOptions, Installed, Patience, Token,
    install,
};
use ouzel_storage::Disk;
use ouzel_storage::sim::SimDisk;

use crate::synthetic::{Synthetic, is_kept};
use crate::{CHECKPOINTS, checkpoint, disk, install_on, output};

/// The most that one request asks for, and what a data question of the hub asked for.
const MAX_REQUEST_BYTES: u64 = 8 << 20;

/// Waits of milliseconds instead of seconds.
fn options(hub: &Loopback) -> HubOptions {
    HubOptions {
        endpoint: hub.endpoint(),
        stall: Duration::from_millis(400),
        patience: Patience {
            tries: 5,
            first_wait: Duration::from_millis(1),
            longest_wait: Duration::from_millis(4),
        },
        ..HubOptions::new(REPOSITORY, COMMIT)
    }
}

fn folder(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn try_install(hub: &Hub, disk: &SimDisk) -> Result<Installed, InstallError> {
    install(
        hub,
        disk,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
}

fn payload(disk: &SimDisk) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = disk.files_below(&output());
    files.remove(Path::new(paths::RECEIPT));
    files
}

fn script(script: impl Fn(&Ask) -> Option<Fault> + Send + Sync + 'static) -> Options {
    let script: Script = Arc::new(script);
    Options {
        script: Some(script),
        ..Options::default()
    }
}

#[test]
fn a_hub_gives_the_same_bytes_as_a_folder() {
    for path in CHECKPOINTS {
        let expected = disk();
        install_on(&expected, &checkpoint(path));
        for is_terse in [false, true] {
            let terms = Options {
                is_terse,
                ..Options::default()
            };
            let loopback = Loopback::serve(&folder(path), terms).expect("a port");
            let hub = Hub::open(&options(&loopback)).expect(path);
            assert_eq!(hub.commit(), COMMIT);
            assert_eq!(hub.licence(), Some("apache-2.0"));
            let fetched = disk();
            try_install(&hub, &fetched).expect(path);
            assert_eq!(payload(&fetched), payload(&expected), "{path}");
        }
    }
}

#[test]
fn only_what_is_kept_is_asked_for_and_nothing_twice() {
    let mut whole = Synthetic::from("testdata/tiny-b/mlx");
    for tower in ["vision_tower.a", "embed_vision.b", "audio_tower.c"] {
        whole.add(tower);
    }
    for seed in 0..3 {
        let source = whole.scattered(seed, 3);
        let loopback = Loopback::serve_bytes(&source.files, Options::default()).expect("a port");
        let hub = Hub::open(&options(&loopback)).expect("a hub");
        let checkpoint = Checkpoint::read(&hub).expect("a checkpoint");
        loopback.forget_asks();
        let fetched = disk();
        let installed = try_install(&hub, &fetched).expect("a model");
        // Planning reads the headers again; what lies behind them is asked for by what lands.
        let mut asked: Vec<(String, u64, u64)> = Vec::new();
        for ask in loopback.asks() {
            if let (Kind::Data, Some((first, last))) = (ask.kind, ask.range) {
                assert!(last - first < MAX_REQUEST_BYTES);
                asked.push((ask.file, first, last + 1));
            }
        }
        for tensor in checkpoint.tensors.values() {
            let overlap: u64 = asked
                .iter()
                .filter(|(file, ..)| *file == tensor.shard)
                .map(|&(_, first, end)| {
                    let (first, end) = (first.max(tensor.info.start), end.min(tensor.info.end));
                    end.saturating_sub(first)
                })
                .sum();
            let expected = if is_kept(&tensor.info.name) {
                tensor.info.size()
            } else {
                0
            };
            assert_eq!(overlap, expected, "seed {seed}: {}", tensor.info.name);
        }
        assert_eq!(installed.resumed_bytes, 0);
    }
}

#[test]
fn the_token_stays_at_the_endpoint() {
    let terms = Options {
        token: Some("hf_secret".to_owned()),
        ..Options::default()
    };
    let loopback = Loopback::serve(&folder(CHECKPOINTS[1]), terms).expect("a port");
    let error = Hub::open(&options(&loopback)).err().expect("no token");
    assert!(matches!(error, InstallError::Refused { .. }));
    assert!(error.to_string().contains("HF_TOKEN"), "{error}");
    let mut wrong = options(&loopback);
    wrong.token = Some(Token::parse("hf_wrong").expect("a token"));
    let error = Hub::open(&wrong).err().expect("a wrong token").to_string();
    assert!(
        error.contains("HF_TOKEN") && !error.contains("hf_wrong"),
        "{error}"
    );

    let mut right = options(&loopback);
    right.token = Some(Token::parse(" hf_secret\n").expect("a token"));
    assert!(!format!("{right:?}").contains("secret"));
    loopback.forget_asks();
    let hub = Hub::open(&right).expect("the right token");
    let fetched = disk();
    try_install(&hub, &fetched).expect("a model");
    let asks = loopback.asks();
    let (mut here, mut there) = (0, 0);
    for ask in asks {
        let is_endpoint = ask.host.starts_with("127.0.0.1");
        assert_eq!(ask.has_token, is_endpoint, "{ask:?}");
        here += u32::from(is_endpoint);
        there += u32::from(!is_endpoint);
    }
    assert!(here > 0 && there > 0);
    for (path, bytes) in fetched.files_below(Path::new("")) {
        let has_token = bytes.windows(9).any(|window| window == b"hf_secret");
        assert!(!has_token, "{}", path.display());
    }
}

/// Every fault at one question in three: what comes is the same, and what went wrong is told.
#[test]
fn passing_faults_change_nothing() {
    let path = CHECKPOINTS[2];
    let expected = disk();
    install_on(&expected, &checkpoint(path));
    for fault in [
        Fault::Truncates(0),
        Fault::Truncates(20_000),
        Fault::Stalls(0),
        Fault::Stalls(30_000),
        Fault::Resets(0),
        Fault::Resets(10_000),
        Fault::Answers(429, None),
        Fault::Answers(429, Some(0)),
        Fault::Answers(500, None),
        Fault::Answers(503, Some(0)),
        Fault::Answers(403, None),
        Fault::Answers(416, None),
        Fault::Answers(404, None),
        Fault::WholeForRange,
        Fault::OtherRange,
        Fault::Fewer(7),
        Fault::More(7),
        Fault::Swapped,
        Fault::OtherCommit,
        Fault::Compressed,
        Fault::WebPage,
        Fault::Expires,
    ] {
        // A small file comes from the endpoint, whose 403 and 404 are final.
        let chosen = fault.clone();
        let loopback = Loopback::serve(
            &folder(path),
            script(move |ask| {
                let is_stored = ask.kind == Kind::Data && ask.file.ends_with(".safetensors");
                // The first ones are headers; a pattern with a stall in it would take long.
                (is_stored && ask.n > 2 && ask.n % 5 == 0 && ask.n < 24).then(|| chosen.clone())
            }),
        )
        .expect("a port");
        let hub = Hub::open(&options(&loopback)).expect("a hub");
        let fetched = disk();
        let mut reasons = Vec::new();
        let result = install(
            &hub,
            &fetched,
            &output(),
            &InstallOptions::default(),
            &mut |event| {
                if let Event::Retries { reason, .. } = event {
                    reasons.push(reason);
                }
            },
        );
        result.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(payload(&fetched), payload(&expected), "{fault:?}");
        assert!(!reasons.is_empty(), "{fault:?} went unnoticed");
        println!("{fault:?}: {} retries: {}", reasons.len(), reasons[0]);
    }
}

/// Every fault at every question from one on: an error that says what happened, and a partial that the next run completes.
#[test]
fn lasting_faults_end_with_a_reason_and_can_be_resumed() {
    let path = CHECKPOINTS[2];
    let expected = disk();
    install_on(&expected, &checkpoint(path));
    for (fault, says) in [
        (Fault::Truncates(100), "the connection broke"),
        (Fault::Stalls(0), "no byte for"),
        (Fault::Resets(0), "connection"),
        (Fault::Answers(429, None), "too many requests"),
        (Fault::Answers(500, None), "500"),
        (Fault::Answers(403, None), "403"),
        (Fault::Answers(416, None), "416"),
        (Fault::WholeForRange, "200 OK"),
        (Fault::OtherRange, "the range"),
        (Fault::Fewer(7), "the range"),
        (Fault::More(7), "the range"),
        (Fault::Swapped, "changed"),
        (Fault::OtherCommit, "commit"),
        (Fault::Compressed, "compressed"),
        (Fault::WebPage, "web page"),
    ] {
        let is_broken = Arc::new(AtomicBool::new(true));
        let (flag, chosen) = (is_broken.clone(), fault.clone());
        let loopback = Loopback::serve(
            &folder(path),
            script(move |ask| {
                let is_hit = ask.kind == Kind::Data && ask.n > 6 && flag.load(Ordering::Relaxed);
                is_hit.then(|| chosen.clone())
            }),
        )
        .expect("a port");
        let mut how = options(&loopback);
        how.stall = Duration::from_millis(60);
        // One after the other, so that some ranges land before the faults begin.
        how.connections = 1;
        let fetched = disk();
        let hub = Hub::open(&how).expect("a hub");
        let error = try_install(&hub, &fetched).expect_err("nothing comes");
        let text = error.to_string();
        assert!(
            matches!(error, InstallError::Network { .. }),
            "{fault:?}: {text}"
        );
        assert!(
            text.contains(says) && text.lines().count() == 1,
            "{fault:?}: {text}"
        );
        assert!(!fetched.exists(&output()), "{fault:?}");
        is_broken.store(false, Ordering::Relaxed);
        let installed = try_install(&hub, &fetched).expect("a healthy hub");
        assert!(installed.resumed_bytes > 0, "{fault:?}");
        assert_eq!(payload(&fetched), payload(&expected), "{fault:?}");
        println!("{fault:?}: {text}");
    }
}

#[test]
fn what_the_hub_will_not_give_is_final() {
    let path = folder(CHECKPOINTS[0]);
    let at =
        |kind: Kind, fault: Fault| script(move |ask| (ask.kind == kind).then(|| fault.clone()));
    for (kind, fault, says) in [
        (Kind::Listing, Fault::OtherCommit, "0000000 came instead of"),
        (
            Kind::Listing,
            Fault::Answers(404, None),
            "no such repository",
        ),
        (Kind::Listing, Fault::Answers(403, None), "terms"),
        (Kind::Listing, Fault::WebPage, "list of files"),
        (Kind::Listing, Fault::Answers(500, None), "500"),
        (Kind::Resolve, Fault::OtherCommit, "0000000 came instead of"),
        (Kind::Resolve, Fault::OtherSize, "bytes instead of"),
        (Kind::Resolve, Fault::Swapped, "content"),
        (
            Kind::Resolve,
            Fault::Answers(404, None),
            "no such repository",
        ),
        (Kind::Resolve, Fault::Answers(502, None), "502"),
    ] {
        let loopback = Loopback::serve(&path, at(kind, fault.clone())).expect("a port");
        let fetched = disk();
        let result = Hub::open(&options(&loopback)).and_then(|hub| try_install(&hub, &fetched));
        let text = result.expect_err("it is refused").to_string();
        assert!(text.contains(says), "{kind:?} {fault:?}: {text}");
        assert!(!fetched.exists(&output()));
    }
    let loopback = Loopback::serve(&path, Options::default()).expect("a port");
    for (repository, revision, says) in [
        ("ouzel/other", "main", "no such repository"),
        (REPOSITORY, "v2", "--revision"),
        (REPOSITORY, "", "revision"),
        ("ouzel", "main", "OWNER/NAME"),
        ("ouzel/../x", "main", "OWNER/NAME"),
        ("ou zel/x\r\n", "main", "OWNER/NAME"),
    ] {
        let mut how = options(&loopback);
        (how.repository, how.revision) = (repository.to_owned(), revision.to_owned());
        let error = Hub::open(&how).err().expect(repository).to_string();
        assert!(error.contains(says), "{repository} {revision}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    drop(loopback);
    let nobody = HubOptions {
        endpoint: "http://127.0.0.1:1".to_owned(),
        ..options(&Loopback::serve(&path, Options::default()).expect("a port"))
    };
    let error = Hub::open(&nobody).err().expect("nobody is there");
    assert!(matches!(error, InstallError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("HF_ENDPOINT"), "{error}");
}

/// Whatever a hub does not say, Ctrl-C ends the wait for it: at the listing, and at the headers, before anything is written.
#[test]
fn a_silent_hub_holds_nobody_who_cancels() {
    for silent in [Kind::Listing, Kind::Data] {
        let cancel = Arc::new(AtomicBool::new(false));
        let flag = cancel.clone();
        let loopback = Loopback::serve(
            &folder(CHECKPOINTS[0]),
            script(move |ask| {
                let is_hit = ask.kind == silent;
                flag.fetch_or(is_hit, Ordering::Relaxed);
                is_hit.then_some(Fault::Stalls(0))
            }),
        )
        .expect("a port");
        let how = HubOptions {
            cancel,
            stall: Duration::from_secs(600),
            ..options(&loopback)
        };
        let fetched = disk();
        let result = Hub::open(&how).and_then(|hub| try_install(&hub, &fetched));
        let error = result.expect_err("it was cancelled");
        assert!(matches!(error, InstallError::Paused), "{silent:?}: {error}");
        assert!(!fetched.exists(&output()), "{silent:?}");
    }
}
