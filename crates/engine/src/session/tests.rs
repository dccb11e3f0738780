//! Random walks of one session against a twin that computes everything again: whatever a session forgets, takes back, keeps
//! elsewhere and restores, its next logits are those of its tokens, bit for bit. The tiny models' window is eight, so rings wrap all the time.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use crate::config::LayerKind;
use crate::testing::{Installed, install};
use crate::{EngineError, Options, Precision, Session, Stop, TokenId};

const KINDS: [LayerKind; 2] = [LayerKind::Full, LayerKind::Sliding];
const N_STEPS: usize = 120;
const CONTEXT: usize = 96;

fn seed() -> u64 {
    let seed = std::env::var("OUZEL_TEST_SEED").ok();
    let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(5);
    println!("OUZEL_TEST_SEED={seed}");
    seed
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn some_ids(&mut self, most: usize) -> Vec<TokenId> {
        let n = 1 + self.below(most);
        self.ids(n)
    }

    fn ids(&mut self, n: usize) -> Vec<TokenId> {
        (0..n).map(|_| TokenId(self.below(500) as u32)).collect()
    }
}

/// A context kept elsewhere.
struct Kept {
    ids: Vec<TokenId>,
    rows: [(Range<usize>, Vec<u8>); 2],
}

impl Kept {
    fn of(session: &Session, ids: &[TokenId]) -> Kept {
        let rows = KINDS.map(|kind| {
            let held = session.held_rows(kind);
            let mut bytes = vec![0; held.len() * session.row_bytes(kind)];
            session.save_rows(kind, held.clone(), &mut bytes);
            (held, bytes)
        });
        let ids = ids.to_vec();
        Kept { ids, rows }
    }

    /// Brings back its first `position` tokens, as far as it has the rows for that.
    fn restore(&self, session: &mut Session, position: usize, present: &[TokenId]) -> bool {
        if session.seen_rows(LayerKind::Sliding, position).start < self.rows[1].0.start {
            return false;
        }
        let common = present.iter().zip(&self.ids).take_while(|(a, b)| a == b);
        let kept = common.count();
        let mut restore = session.restore(position, kept).expect("it fits");
        for (kind, (held, bytes)) in KINDS.iter().zip(&self.rows) {
            let needed = restore.needed(*kind);
            // In two parts, the later one first.
            let middle = needed.start + needed.len() / 2;
            for wanted in [middle..needed.end, needed.start..middle] {
                restore.load(*kind, held.clone(), bytes, wanted);
            }
        }
        restore.finish();
        true
    }
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|z| z.to_bits()).collect()
}

fn prefill(session: &mut Session, ids: &[TokenId]) {
    session
        .prefill(ids, &mut |_| ControlFlow::Continue(()))
        .expect("a prefill");
}

fn sessions(installed: &Installed, precision: Precision, slots: u32) -> [Session; 2] {
    [Some(0), None].map(|kept_bytes| {
        let options = Options {
            precision,
            max_context: Some(CONTEXT as u32),
            slots: Some(slots),
            chunk: Some(32),
            threads: Some(1),
            kept_bytes,
            ..Options::default()
        };
        Session::new(Arc::clone(&installed.model), &options).expect("a session")
    })
}

/// One random change; says what it was.
fn step(
    session: &mut Session,
    ids: &mut Vec<TokenId>,
    all_kept: &mut Vec<Kept>,
    random: &mut Random,
) -> String {
    let room = CONTEXT - 1 - ids.len();
    match random.below(6) {
        0 if room > 0 => {
            let more = random.some_ids(room.min(40));
            prefill(session, &more);
            ids.extend(&more);
            format!("a prompt of {}", more.len())
        }
        1 if room > 0 => {
            let n = 1 + random.below(room.min(12));
            for id in random.ids(n) {
                session.decode(id).expect("a token");
                ids.push(id);
            }
            format!("{n} tokens")
        }
        2 => {
            let to = random.below(ids.len() + 1);
            let may = session.rewind(to);
            if may {
                ids.truncate(to);
            }
            format!("back to {to}: {may}")
        }
        3 => {
            all_kept.push(Kept::of(session, ids));
            "kept".to_owned()
        }
        4 if !all_kept.is_empty() => {
            let kept = &all_kept[random.below(all_kept.len())];
            let n = kept.ids.len();
            let position = n - random.below(4).min(n);
            let may = kept.restore(session, position, ids);
            if may {
                *ids = kept.ids[..position].to_vec();
            }
            format!("restored {position} of {n}: {may}")
        }
        5 if room > 0 => {
            let more = random.some_ids(room.min(70));
            let n_steps = random.below(16);
            session
                .begin_prefill(&more, &Stop::default())
                .expect("it fits");
            for _ in 0..n_steps {
                session.continue_prefill().expect("a layer");
            }
            session.abandon_prefill();
            let held = session.position();
            ids.extend(&more);
            ids.truncate(held);
            format!(
                "a prompt of {} left after {n_steps} layers: {held}",
                more.len()
            )
        }
        _ => "nothing".to_owned(),
    }
}

#[test]
fn whatever_is_taken_back_kept_and_restored_the_logits_are_those_of_the_tokens() {
    let mut random = Random(seed());
    for name in ["tiny-a", "tiny-b"] {
        let installed = install(&format!("testdata/{name}/mlx"));
        // Without slots nothing can be taken back but what the rings hold.
        for (precision, slots) in [
            (Precision::Exact, 8),
            (Precision::Fast, 4),
            (Precision::Fast, 0),
        ] {
            let [mut session, mut twin] = sessions(&installed, precision, slots);
            let (mut ids, mut all_kept, mut log) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..N_STEPS {
                log.push(step(&mut session, &mut ids, &mut all_kept, &mut random));
                assert_eq!(session.position(), ids.len(), "{log:#?}");
                if ids.len() >= CONTEXT - 1 {
                    session.reset();
                    ids.clear();
                    log.clear();
                }
                let next = random.ids(1)[0];
                ids.push(next);
                let actual = bits(session.decode(next).expect("a token"));
                twin.reset();
                prefill(&mut twin, &ids);
                assert!(
                    actual == bits(twin.logits()),
                    "{name}, {precision:?}, {slots} slots: {log:#?}"
                );
            }
            session.reset();
            assert_eq!(session.n_slots(), session.budget().slots_at_start);
        }
    }
}

#[test]
fn an_answer_can_be_taken_back_as_far_as_the_trail_reaches() {
    let installed = install("testdata/tiny-a/mlx");
    let [mut session, mut plain] = sessions(&installed, Precision::Fast, 8);
    let mut random = Random(1);
    let prompt = random.ids(30);
    for session in [&mut session, &mut plain] {
        prefill(session, &prompt);
        for id in random.ids(40) {
            session.decode(id).expect("a token");
        }
    }
    assert!(!plain.rewind(30), "nothing was kept");
    assert!(session.rewind(50), "into the answer");
    assert!(session.rewind(30), "and further");
    assert!(
        session.rewind(29),
        "the prompt's last token, for its logits"
    );
    assert!(!session.rewind(28), "beyond what the prompt left");
    assert_eq!(session.position(), 29);
}

#[test]
fn a_stop_ends_a_prompt_within_a_layer_and_everything_comes_back() {
    let installed = install("testdata/tiny-a/mlx");
    let [mut session, mut twin] = sessions(&installed, Precision::Fast, 4);
    let n_slots = session.n_slots();
    let ids = Random(2).ids(60);
    let stop = Stop::default();
    session.begin_prefill(&ids, &stop).expect("it fits");
    session.continue_prefill().expect("a layer");
    stop.ask();
    let error = session.continue_prefill().expect_err("stopped");
    assert!(matches!(error, EngineError::Cancelled), "{error}");
    // The chunk was longer than the window, so its rings are lost.
    assert_eq!((session.position(), session.n_slots()), (0, n_slots));
    prefill(&mut session, &ids);
    prefill(&mut twin, &ids);
    assert!(session.logits() == twin.logits());
}

#[test]
fn a_context_that_came_back_only_in_part_is_empty() {
    let installed = install("testdata/tiny-a/mlx");
    let [mut session, _] = sessions(&installed, Precision::Fast, 4);
    let ids = Random(3).ids(20);
    prefill(&mut session, &ids);
    let kept = Kept::of(&session, &ids);
    let mut restore = session.restore(20, 0).expect("it fits");
    let (held, bytes) = &kept.rows[0];
    restore.load(LayerKind::Full, held.clone(), bytes, 0..7);
    drop(restore);
    assert_eq!(session.position(), 0);
    assert!(kept.restore(&mut session, 20, &[]));
    assert_eq!(session.position(), 20);
    let too_long = session.restore(CONTEXT + 1, 0).err().expect("no room");
    assert!(
        matches!(too_long, EngineError::ContextFull { .. }),
        "{too_long}"
    );
    assert_eq!(session.position(), 20);
}
