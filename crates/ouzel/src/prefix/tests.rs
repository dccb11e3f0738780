//! Random turns of a few conversations against a twin that computes every prompt from its first token: whatever is kept where, evicted,
//! damaged or found again, every logit has the same bits. The tiny models' window is eight, so that every turn is longer than it.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use ouzel_engine::{IoMode, LayerKind, Model, Options, Precision, Session, TokenId};
use ouzel_install::{InstallOptions, LocalFolder, install};
use ouzel_storage::{OsDisk, xxh3_64};
use ouzel_tokenizer::Tokenizer;
use tempfile::TempDir;

use super::PrefixStore;
use super::align::align;
use crate::PrefixOptions;

const CONTEXT: usize = 160;
const N_TURNS: usize = 60;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let file = fs::File::open(repository("models/demo/tokenizer.json")).expect("the demo");
    Tokenizer::from_image(Tokenizer::compile(file).expect("it compiles")).expect("it opens")
});

struct Tiny {
    model: Arc<Model>,
    _dir: TempDir,
}

static TINY: LazyLock<Tiny> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a folder");
    let output = dir.path().join("model.gturbo");
    let source = LocalFolder::open(&repository("testdata/tiny-a/mlx")).expect("the checkpoint");
    let options = InstallOptions::default();
    install(&source, &OsDisk, &output, &options, &mut |_| {}).expect("it installs");
    Tiny {
        model: Arc::new(Model::open(&output).expect("it opens")),
        _dir: dir,
    }
});

/// SplitMix64.
struct Random(u64);

impl Random {
    fn from_seed() -> Random {
        let seed = std::env::var("OUZEL_TEST_SEED").ok();
        let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(7);
        println!("OUZEL_TEST_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// Ids of plain text.
    fn ids(&mut self, n: usize) -> Vec<u32> {
        (0..n).map(|_| 300 + self.below(200) as u32).collect()
    }
}

/// Where a store keeps things.
#[derive(Clone, Debug)]
struct Places {
    memory_blocks: u64,
    disk_bytes: Option<u64>,
    precision: Precision,
}

fn engine(places: Option<&Places>) -> Session {
    let options = Options {
        precision: places.map_or(Precision::Fast, |places| places.precision),
        max_context: Some(CONTEXT as u32),
        slots: Some(8),
        chunk: Some(48),
        threads: Some(1),
        kept_bytes: places.map(|places| places.memory_blocks * block_bytes(places.precision)),
        ..Options::default()
    };
    Session::new(Arc::clone(&TINY.model), &options).expect("a session")
}

fn block_bytes(precision: Precision) -> u64 {
    let options = Options {
        precision,
        ..Options::default()
    };
    TINY.model
        .plan_budget(&options)
        .expect("a plan")
        .blocks
        .bytes as u64
}

/// A session with a store, as a process would have it.
struct Rig {
    engine: Session,
    store: PrefixStore,
    tokens: Vec<u32>,
    /// Where the next prompt stops on its way, if it gets there.
    stop_at: Option<usize>,
}

impl Rig {
    fn new(places: &Places, dir: &Path) -> Rig {
        let engine = engine(Some(places));
        let options = PrefixOptions {
            memory_bytes: places.memory_blocks * block_bytes(places.precision),
            dir: places.disk_bytes.map(|_| dir.join("kept")),
            disk_bytes: places.disk_bytes.unwrap_or(0),
        };
        let mut store = PrefixStore::open(&engine, &options, IoMode::Auto);
        store.min_gain = 1;
        Rig {
            engine,
            store,
            tokens: Vec::new(),
            stop_at: None,
        }
    }

    /// A turn of `n_new` greedy tokens: how many tokens needed no computing, every row of logits, and the answer.
    fn turn(&mut self, prompt: &[u32], n_new: usize) -> (usize, Vec<u32>, Vec<u32>) {
        let Rig {
            engine,
            store,
            tokens,
            stop_at,
        } = self;
        let prompt = store.begin(engine, tokens, prompt, Some(&TOKENIZER));
        assert_eq!(engine.position(), tokens.len());
        assert_eq!(tokens[..], prompt[..tokens.len()]);
        let n_reused = tokens.len();
        let stop_at = stop_at.take();
        if let Some(end) = stop_at.filter(|end| (n_reused + 1..prompt.len()).contains(end)) {
            compute(engine, &prompt[n_reused..end], 1);
            store.keep_now(engine, &prompt[..end]);
        }
        let rest = &prompt[engine.position()..];
        let (logits, answer) = compute_and(engine, rest, n_new, &mut |engine| {
            if engine.is_about_to_lose(prompt.len() - 1) {
                store.keep_now(engine, &prompt);
            }
        });
        tokens.extend(&prompt[n_reused..]);
        // The last token of an answer never enters the context.
        tokens.extend(answer.iter().take(answer.len().saturating_sub(1)));
        store.keep(engine, tokens, prompt.len());
        (n_reused, logits, answer)
    }

    /// The blocks that it borrowed are those that kept rows take.
    fn check_blocks(&self) {
        let stats = self.store.stats();
        let n_blocks = stats.memory_bytes / self.store.block_bytes as u64;
        assert!(n_blocks as usize <= self.store.max_blocks);
        assert!(self.store.free.is_empty());
    }
}

fn argmax(logits: &[f32]) -> u32 {
    let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    best as u32
}

/// The bits of every row of logits from a prompt's last token on, and the greedy answer.
fn compute(engine: &mut Session, rest: &[u32], n_new: usize) -> (Vec<u32>, Vec<u32>) {
    compute_and(engine, rest, n_new, &mut |_| {})
}

/// The same, with something to do before each token.
fn compute_and(
    engine: &mut Session,
    rest: &[u32],
    n_new: usize,
    before: &mut dyn FnMut(&mut Session),
) -> (Vec<u32>, Vec<u32>) {
    let ids: Vec<TokenId> = rest.iter().copied().map(TokenId).collect();
    engine
        .prefill(&ids, &mut |_| ControlFlow::Continue(()))
        .expect("a prefill");
    let mut rows: Vec<u32> = engine.logits().iter().map(|z| z.to_bits()).collect();
    let mut answer = vec![argmax(engine.logits())];
    while answer.len() < n_new {
        let last = TokenId(answer[answer.len() - 1]);
        before(engine);
        let logits = engine.decode(last).expect("a token");
        rows.extend(logits.iter().map(|z| z.to_bits()));
        answer.push(argmax(logits));
    }
    (rows, answer)
}

/// Some prompt that a client might send next, and the conversation that it belongs to.
fn next_prompt(
    conversations: &mut Vec<Vec<u32>>,
    random: &mut Random,
) -> (usize, Vec<u32>, &'static str) {
    let which = random.below(4);
    if which >= conversations.len() {
        let n = 10 + random.below(40);
        conversations.push(random.ids(n));
        let last = conversations.len() - 1;
        return (last, conversations[last].clone(), "a new conversation");
    }
    let mut prompt = conversations[which].clone();
    let what = match random.below(4) {
        0 => "the same again",
        1 => {
            let cut = random.below(prompt.len().min(30));
            prompt.truncate(prompt.len() - cut);
            "taken back"
        }
        _ => "continued",
    };
    if what != "the same again" {
        let n = 1 + random.below(30);
        prompt.extend(random.ids(n));
    }
    if prompt.len() + 20 > CONTEXT {
        prompt = prompt[..12].to_vec();
        prompt.extend(random.ids(5));
        return (which, prompt, "begun anew");
    }
    (which, prompt, what)
}

/// Changes a random file of the folder in one of many ways; says how.
fn damage(dir: &Path, random: &mut Random) -> String {
    let entries = fs::read_dir(dir.join("kept")).expect("the folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    if files.is_empty() {
        return "nothing to damage".to_owned();
    }
    let path = &files[random.below(files.len())];
    let mut bytes = fs::read(path).expect("a file");
    let what = match random.below(5) {
        0 => {
            bytes.truncate(random.below(bytes.len()));
            "cut"
        }
        1 => {
            bytes.extend([0; 4096]);
            "longer"
        }
        2 => {
            bytes = fs::read(&files[random.below(files.len())]).expect("a file");
            "another's"
        }
        3 => {
            fs::remove_file(path).expect("a file");
            return "gone".to_owned();
        }
        _ => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
            "flipped"
        }
    };
    fs::write(path, bytes).expect("a file");
    format!("{}: {what}", path.display())
}

#[test]
fn random_turns_have_the_bits_of_turns_computed_from_the_first_token() {
    let mut random = Random::from_seed();
    let (memory, disk) = (40, Some(8 << 20));
    for (memory_blocks, disk_bytes, precision) in [
        (memory, None, Precision::Exact),
        (0, disk, Precision::Fast),
        (8, disk, Precision::Exact),
        (12, Some(700 << 10), Precision::Fast),
        (0, None, Precision::Fast),
    ] {
        let places = Places {
            memory_blocks,
            disk_bytes,
            precision,
        };
        let dir = tempfile::tempdir().expect("a folder");
        let mut twin = engine(Some(&Places {
            memory_blocks: 0,
            ..places.clone()
        }));
        let mut rig = Rig::new(&places, dir.path());
        let mut conversations = Vec::new();
        let mut log = Vec::new();
        let (mut n_reused_in_all, mut n_tokens) = (0, 0);
        for _ in 0..N_TURNS {
            if random.below(12) == 0 {
                drop(rig);
                if disk_bytes.is_some() && random.below(2) == 0 {
                    log.push(damage(dir.path(), &mut random));
                }
                rig = Rig::new(&places, dir.path());
                log.push("a restart".to_owned());
            }
            if disk_bytes.is_some() && random.below(10) == 0 {
                log.push(damage(dir.path(), &mut random));
            }
            let (which, prompt, what) = next_prompt(&mut conversations, &mut random);
            let n_new = 1 + random.below(18);
            rig.stop_at = (random.below(3) == 0).then(|| 1 + random.below(prompt.len()));
            let (n_reused, logits, answer) = rig.turn(&prompt, n_new);
            log.push(format!(
                "{which}: {what}, {} tokens, {n_reused} reused",
                prompt.len()
            ));
            twin.reset();
            let (expected, expected_answer) = compute(&mut twin, &prompt, n_new);
            assert!(logits == expected, "{places:?}: {log:#?}");
            assert_eq!(answer, expected_answer);
            rig.check_blocks();
            if let Some(limit) = disk_bytes {
                assert!(rig.store.stats().disk_bytes <= limit, "{log:#?}");
            }
            n_reused_in_all += n_reused;
            n_tokens += prompt.len();
            let mut conversation = prompt;
            conversation.extend(answer);
            conversations[which] = conversation;
        }
        let stats = rig.store.stats();
        println!("{places:?}: {n_reused_in_all} of {n_tokens} tokens reused, {stats:?}");
        rig.store.forget_all();
        rig.store.give_back_free(&mut rig.engine);
        rig.engine.reset();
        assert_eq!(rig.engine.n_slots(), rig.engine.budget().slots_at_start);
    }
}

/// Several turns, another conversation in between, and a last message that differs: what agents do.
#[test]
fn the_common_pattern_computes_only_what_is_new() {
    let mut random = Random(3);
    let disk_only = Places {
        memory_blocks: 0,
        disk_bytes: Some(64 << 20),
        precision: Precision::Fast,
    };
    let memory_only = Places {
        memory_blocks: 60,
        disk_bytes: None,
        precision: Precision::Fast,
    };
    for places in [disk_only, memory_only] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut rig = Rig::new(&places, dir.path());
        let mut a = random.ids(40);
        let (_, _, answer) = rig.turn(&a, 12);
        let first_prompt = a.len();
        let first_turn = a.len() + answer.len() - 1;
        a.extend(&answer);
        a.extend(random.ids(9));
        assert_eq!(rig.turn(&a, 10).0, first_turn, "{places:?}: continued");
        assert_eq!(rig.turn(&a, 10).0, a.len() - 1, "{places:?}: repeated");
        let b = random.ids(50);
        assert_eq!(rig.turn(&b, 10).0, 0, "{places:?}: another");
        assert_eq!(rig.turn(&a, 10).0, a.len() - 1, "{places:?}: back again");
        let mut other_end = a[..first_turn].to_vec();
        other_end.extend(random.ids(14));
        assert_eq!(
            rig.turn(&other_end, 10).0,
            first_turn,
            "{places:?}: another last message"
        );
        // An answer that the next prompt does not have, as a thought that is left out.
        let mut without = a[..first_prompt].to_vec();
        without.extend(random.ids(20));
        assert_eq!(
            rig.turn(&without, 3).0,
            first_prompt,
            "{places:?}: without the answer"
        );
        if places.disk_bytes.is_some() {
            drop(rig);
            let mut rig = Rig::new(&places, dir.path());
            assert_eq!(rig.turn(&a, 10).0, a.len() - 1, "after a restart");
            assert_eq!(rig.turn(&b, 10).0, b.len() - 1, "after a restart");
        }
    }
}

#[test]
fn what_is_in_memory_survives_a_restart() {
    let places = Places {
        memory_blocks: 60,
        disk_bytes: Some(64 << 20),
        precision: Precision::Fast,
    };
    let dir = tempfile::tempdir().expect("a folder");
    let mut rig = Rig::new(&places, dir.path());
    let prompt = Random(4).ids(60);
    let (_, cold, _) = rig.turn(&prompt, 5);
    let stats = rig.store.stats();
    assert!(stats.memory_bytes > 0 && stats.disk_bytes == 0, "{stats:?}");
    drop(rig);
    let mut rig = Rig::new(&places, dir.path());
    let (n_reused, warm, _) = rig.turn(&prompt, 5);
    assert_eq!(n_reused, prompt.len() - 1);
    assert!(warm == cold);
}

#[test]
fn what_cannot_be_kept_is_told_once() {
    let places = Places {
        memory_blocks: 0,
        disk_bytes: Some(64 << 20),
        precision: Precision::Fast,
    };
    // A file lies where the folder should be.
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("kept"), "").expect("a file");
    let mut rig = Rig::new(&places, dir.path());
    let troubles = rig.store.take_troubles();
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    assert!(troubles[0].contains("kept: "), "{troubles:?}");
    rig.turn(&Random(8).ids(60), 2);
    assert!(rig.store.take_troubles().is_empty());
    // The folder goes while it is used.
    let dir = tempfile::tempdir().expect("a folder");
    let mut rig = Rig::new(&places, dir.path());
    rig.turn(&Random(9).ids(60), 2);
    assert!(rig.store.take_troubles().is_empty());
    fs::remove_dir_all(dir.path().join("kept")).expect("a folder");
    for seed in [10, 11] {
        rig.turn(&Random(seed).ids(60), 2);
    }
    let troubles = rig.store.take_troubles();
    assert_eq!(troubles.len(), 1, "{troubles:?}");
    assert!(!troubles[0].contains(".partial"), "{troubles:?}");
    // What goes wrong at the end is told before it.
    let dir = tempfile::tempdir().expect("a folder");
    let in_memory = Places {
        memory_blocks: 60,
        ..places
    };
    let mut rig = Rig::new(&in_memory, dir.path());
    rig.turn(&Random(12).ids(60), 2);
    fs::remove_dir_all(dir.path().join("kept")).expect("a folder");
    rig.store.put_away();
    assert_eq!(rig.store.take_troubles().len(), 1);
}

/// Gives the head of a file a sound checksum again.
fn reseal(bytes: &mut [u8]) {
    super::file::seal(&mut bytes[..16 << 10]);
}

#[test]
fn every_kind_of_damage_is_a_clean_miss_and_the_file_goes() {
    let places = Places {
        memory_blocks: 0,
        disk_bytes: Some(64 << 20),
        precision: Precision::Fast,
    };
    let prompt = Random(5).ids(60);
    type Change = (&'static str, fn(&mut Vec<u8>));
    let changes: [Change; 9] = [
        ("a flipped magic", |bytes| bytes[0] ^= 1),
        ("an older version", |bytes| {
            bytes[8] = 0;
            reseal(bytes);
        }),
        ("a foreign model", |bytes| {
            bytes[16] ^= 1;
            reseal(bytes);
        }),
        ("another key", |bytes| {
            bytes[50] ^= 1;
            reseal(bytes);
        }),
        ("a flip in the head's padding", |bytes| bytes[16_000] ^= 1),
        ("a flip in the rows", |bytes| {
            bytes[(16 << 10) + 100] ^= 0x40
        }),
        ("a flip at the very end", |bytes| {
            *bytes.last_mut().expect("bytes") ^= 1
        }),
        ("a byte less", |bytes| {
            bytes.pop();
        }),
        ("nothing at all", Vec::clear),
    ];
    for is_restarted in [false, true] {
        for (what, change) in changes {
            let dir = tempfile::tempdir().expect("a folder");
            let mut rig = Rig::new(&places, dir.path());
            let (_, cold, _) = rig.turn(&prompt, 1);
            let kept: Vec<PathBuf> = fs::read_dir(dir.path().join("kept"))
                .expect("the folder")
                .map(|entry| entry.expect("a file").path())
                .collect();
            assert_eq!(kept.len(), 2, "full layers and sliding layers");
            for path in &kept {
                let mut bytes = fs::read(path).expect("a file");
                change(&mut bytes);
                fs::write(path, bytes).expect("a file");
            }
            if is_restarted {
                drop(rig);
                rig = Rig::new(&places, dir.path());
            } else {
                rig.engine.reset();
                rig.tokens.clear();
            }
            let prompt_again =
                rig.store
                    .begin(&mut rig.engine, &mut rig.tokens, &prompt, Some(&TOKENIZER));
            assert!(rig.tokens.is_empty(), "{what}");
            // Four readers: either file may be found out first, and then the other is of no use.
            assert!(!kept.iter().all(|path| path.exists()), "{what}");
            assert!(rig.store.stats().n_damaged > 0, "{what}");
            let (warm, _) = compute(&mut rig.engine, &prompt_again, 1);
            assert!(warm == cold, "{what}");
        }
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let places = Places {
        memory_blocks: 0,
        disk_bytes: Some(1 << 20),
        precision: Precision::Fast,
    };
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("kept");
    fs::create_dir(&folder).expect("a folder");
    let ours = format!("{}.rows.partial", "0123456789abcdef".repeat(2));
    for name in ["notes.txt", "a.rows", ours.as_str()] {
        fs::write(folder.join(name), "text").expect("a file");
    }
    let mut rig = Rig::new(&places, dir.path());
    assert!(folder.join("notes.txt").exists() && folder.join("a.rows").exists());
    assert!(!folder.join(ours).exists(), "what a crash left behind");
    // A second process has no place of its own there, and works.
    let mut second = Rig::new(&places, dir.path());
    assert!(second.store.folder.is_none());
    let prompt = Random(6).ids(30);
    assert!(second.turn(&prompt, 2).1 == rig.turn(&prompt, 2).1);
}

#[test]
fn ids_that_only_cut_the_text_otherwise_are_replaced_by_those_that_are_held() {
    let encode = |text: &str| TOKENIZER.encode(text);
    let letters = |text: &str| -> Vec<u32> {
        text.chars()
            .flat_map(|c| TOKENIZER.encode_plain(&c.to_string()))
            .collect()
    };
    let turn = |content: &[u32]| {
        let mut ids = encode("<bos><|turn>user\nHello<turn|>\n<|turn>model\n");
        ids.extend(content);
        ids
    };
    let rest = encode("<turn|>\n<|turn>user\nAnd a fieldfare?<turn|>\n<|turn>model\n");
    let sampled = letters("A thrush is a bird.");
    let text = encode("A thrush is a bird.");
    assert_ne!(sampled, text);
    let held = turn(&sampled);
    let prompt = [turn(&text), rest.clone()].concat();
    // The answer's last control token was never computed, or it was.
    assert_eq!(
        align(&held, &prompt, &TOKENIZER),
        [held.clone(), rest.clone()].concat()
    );
    let with_end = [held.clone(), encode("<turn|>")].concat();
    assert_eq!(
        align(&with_end, &prompt, &TOKENIZER),
        [held.clone(), rest.clone()].concat()
    );
    // Two such turns.
    let held_twice = [held.clone(), rest.clone(), sampled.clone()].concat();
    let twice = [prompt.clone(), text.clone(), rest.clone()].concat();
    assert_eq!(
        align(&held_twice, &twice, &TOKENIZER),
        [held_twice.clone(), rest.clone()].concat()
    );
    // Another text, a text that goes on, and one that is still being written are the prompt's own.
    for content in ["A thrush is a bird!", "A thrush is a bird. It sings."] {
        let prompt = [turn(&encode(content)), rest.clone()].concat();
        assert_eq!(align(&held, &prompt, &TOKENIZER), prompt);
    }
    assert_eq!(align(&held, &turn(&text), &TOKENIZER), turn(&text));
    // A control token is no text, however it is spelled.
    let spelled = [turn(&letters("<turn|>")), rest.clone()].concat();
    let marked = [turn(&encode("<turn|>")), rest].concat();
    assert_eq!(align(&marked, &spelled, &TOKENIZER), spelled);
    assert_eq!(align(&spelled, &marked, &TOKENIZER), marked);
}

/// Whoever changes these digests raises [`super::ARITHMETIC`] in the same commit: rows that are kept on disk have the old bits.
const DIGESTS: [(Precision, u64); 2] = [
    (Precision::Fast, 5_876_830_332_725_399_283),
    (Precision::Exact, 7_466_024_099_511_969_335),
];

#[test]
fn bits_that_change_raise_the_arithmetic() {
    let ids: Vec<TokenId> = (0..40).map(|i| TokenId(300 + 7 * i % 200)).collect();
    for (precision, expected) in DIGESTS {
        let mut engine = engine(Some(&Places {
            memory_blocks: 1,
            disk_bytes: None,
            precision,
        }));
        engine
            .prefill(&ids, &mut |_| ControlFlow::Continue(()))
            .expect("a prompt");
        let mut bytes = Vec::new();
        for kind in [LayerKind::Full, LayerKind::Sliding] {
            let held = engine.held_rows(kind);
            let start = bytes.len();
            bytes.resize(start + held.len() * engine.row_bytes(kind), 0);
            engine.save_rows(kind, held, &mut bytes[start..]);
        }
        bytes.extend(engine.logits().iter().flat_map(|x| x.to_le_bytes()));
        assert_eq!(
            xxh3_64(&bytes),
            expected,
            "{precision:?} has other bits: raise ARITHMETIC and write the new digest"
        );
    }
}
