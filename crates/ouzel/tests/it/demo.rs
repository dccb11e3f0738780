//! The demo model, and what the tests ask of it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ouzel::{
    Cancel, Event, GenerateOptions, Generation, Message, Model, Options, SamplerOptions, Session,
    Stats,
};
use ouzel_install::{InstallOptions, LocalFolder, install};
use ouzel_storage::OsDisk;

/// A file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Installs a checkpoint's folder, in place of what an earlier run left there.
pub fn install_to(source: &Path, output: &Path) {
    let source = LocalFolder::open(source).expect("the checkpoint is there");
    let options = InstallOptions {
        overwrite: true,
        ..InstallOptions::default()
    };
    install(&source, &OsDisk, output, &options, &mut |_| {}).expect("the checkpoint installs");
}

/// The directory of the installed demo model. Nothing may write to it.
pub fn dir() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ouzel-it");
        std::fs::create_dir_all(&folder).expect("the target folder is ours");
        let dir = folder.join("demo.gturbo");
        install_to(&repository("models/demo"), &dir);
        dir
    })
}

/// The options of most tests: small, so that several sessions fit side by side.
pub fn options() -> Options {
    Options {
        max_context: Some(512),
        slots: Some(8),
        threads: Some(1),
        ..Options::default()
    }
}

pub fn model() -> Model {
    Model::open(dir(), &options()).expect("the demo opens")
}

pub fn session() -> Session {
    model().session(&options()).expect("the demo loads")
}

/// Always the likeliest token.
pub fn greedy() -> GenerateOptions {
    GenerateOptions {
        sampler: SamplerOptions {
            temperature: 0.0,
            ..SamplerOptions::default()
        },
        ..GenerateOptions::default()
    }
}

/// What a generation said, and what it took.
pub fn listen(generation: Generation<'_>) -> (String, Stats) {
    let (mut text, mut stats) = (String::new(), None);
    for event in generation {
        match event.expect("the answer goes on") {
            Event::Answer(piece) => text += &piece,
            Event::Done(done) => stats = Some(done),
            _ => {}
        }
    }
    (text, stats.expect("the last event says what it took"))
}

pub fn ask(
    session: &mut Session,
    messages: &[Message],
    options: &GenerateOptions,
) -> (String, Stats) {
    listen(
        session
            .chat(messages, options, &Cancel::new())
            .expect("the conversation fits"),
    )
}
