use std::collections::BTreeMap;

use super::*;
use crate::plan::PlannedFile;

/// A failure prints its own.
const SEEDS: Span<u64> = 0..100;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Source bytes that are cut into wanted and unwanted stretches, the wanted ones dealt to files in any order.
fn random_plan(random: &mut Random, longest: u64) -> Plan {
    let (n_sources, n_files) = (1 + random.below(3) as usize, 1 + random.below(5) as usize);
    let mut pieces: Vec<Vec<Piece>> = vec![Vec::new(); n_files];
    for source in 0..n_sources {
        let mut offset = random.below(9);
        for _ in 0..random.below(40) {
            let len = random.below(longest);
            if random.below(4) > 0 {
                let file = &mut pieces[random.below(n_files as u64) as usize];
                let at = random.below(file.len() as u64 + 1) as usize;
                let piece = Piece::Copy {
                    source,
                    offset,
                    len,
                };
                file.insert(at, piece);
                if random.below(3) == 0 {
                    file.push(Piece::Zeros(random.below(50)));
                }
            }
            offset += len;
        }
    }
    let files: Vec<PlannedFile> = pieces
        .into_iter()
        .enumerate()
        .map(|(i, pieces)| PlannedFile {
            path: format!("f{i}"),
            pieces,
            has_experts: false,
        })
        .collect();
    Plan {
        sources: (0..n_sources).map(|i| format!("s{i}")).collect(),
        files,
        expert_stride: 1,
    }
}

/// Where every wanted byte lands.
fn wanted_bytes(plan: &Plan) -> BTreeMap<(usize, u64), (usize, u64)> {
    let mut wanted = BTreeMap::new();
    for (file, planned) in plan.files.iter().enumerate() {
        let mut at = 0;
        for piece in &planned.pieces {
            if let Piece::Copy { source, offset, .. } = *piece {
                for i in 0..piece.len() {
                    wanted.insert((source, offset + i), (file, at + i));
                }
            }
            at += piece.len();
        }
    }
    wanted
}

#[test]
fn every_wanted_byte_lands_exactly_once_and_no_other() {
    for seed in SEEDS {
        let mut random = Random(seed + 1);
        let longest = [40, 2000][random.below(2) as usize];
        let plan = random_plan(&mut random, longest);
        let mut wanted = wanted_bytes(&plan);
        let transfer = Transfer::of(&plan);
        assert_eq!(transfer.bytes(), wanted.len() as u64, "seed {seed}");
        for range in &transfer.ranges {
            assert!(range.len > 0 && range.len <= transfer.range_bytes);
            let mut offset = range.offset;
            for segment in &transfer.segments[range.segments.clone()] {
                for i in 0..segment.len {
                    let place = wanted.remove(&(range.source, offset + i));
                    assert_eq!(place, Some((segment.file, segment.at + i)), "seed {seed}");
                }
                offset += segment.len;
            }
            assert_eq!(offset, range.offset + range.len, "seed {seed}");
        }
        assert!(wanted.is_empty(), "seed {seed}: {} left", wanted.len());
    }
}

#[test]
fn requests_cover_what_has_not_landed_and_stay_small() {
    for seed in SEEDS {
        let mut random = Random(seed + 1);
        let plan = random_plan(&mut random, 3_000_000);
        let transfer = Transfer::of(&plan);
        let landed: Vec<bool> = transfer
            .ranges
            .iter()
            .map(|_| random.below(3) == 0)
            .collect();
        let mut asked = landed.clone();
        for run in transfer.runs(&landed) {
            assert!(run.ranges.len() <= RANGES_PER_REQUEST, "seed {seed}");
            assert!(run.len <= RANGES_PER_REQUEST as u64 * MAX_RANGE_BYTES);
            let mut offset = run.offset;
            for i in run.ranges {
                assert!(!asked[i], "seed {seed}: range {i} twice");
                asked[i] = true;
                assert_eq!(transfer.ranges[i].offset, offset, "seed {seed}");
                offset += transfer.ranges[i].len;
            }
            assert_eq!(offset, run.offset + run.len, "seed {seed}");
        }
        assert!(asked.iter().all(|&asked| asked), "seed {seed}");
    }
}
