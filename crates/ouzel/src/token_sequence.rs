//! The token sequence that measurements decode.
//!
//! A benchmark that follows a model's own greedy output may loop and fake locality, so it feeds a fixed sequence instead. Text stays
//! with a subject for a while, and routing follows the subject; so does this sequence: stretches of 4 to 12 tokens, each drawn
//! from one of 64 topics. A topic is a range of neighbouring ids, which means something only in a synthetic model, whose token
//! embeddings share a part by topic. The sequence is a pure function of vocabulary size and seed, the same everywhere and for ever,
//! and a shorter one is the beginning of a longer one.

#[cfg(test)]
mod tests;

/// Topics of a vocabulary that has room for them.
pub const N_TOPICS: u32 = 64;
/// Ids below this are control tokens, bytes and their like, which belong to no topic; smaller vocabularies keep an eighth for them.
const FIRST_ID: u32 = 256;
/// Tokens in one stretch. In a replay of the cache policy, longer stretches favour large caches over small ones, and these lengths come
/// closest to scores that forget by degrees: within 2 points of the hit rates wanted, at every size.
const SHORTEST_STRETCH: u64 = 4;
const LONGEST_STRETCH: u64 = 12;

/// The first `n` token ids of the sequence for a vocabulary of this size; every id is below `vocab_size`.
///
/// # Panics
/// If `vocab_size` exceeds 32 bits, or is 0 where tokens are asked for.
pub fn token_sequence(vocab_size: usize, seed: u64, n: usize) -> Vec<u32> {
    let vocabulary = Topics::new(vocab_size);
    let mut random = SplitMix(seed);
    let mut ids = Vec::with_capacity(n);
    let mut topic = None;
    while ids.len() < n {
        let next = vocabulary.next(topic, &mut random);
        topic = Some(next);
        let stretch = SHORTEST_STRETCH + random.below(LONGEST_STRETCH - SHORTEST_STRETCH + 1);
        for _ in 0..stretch.min((n - ids.len()) as u64) {
            let place = random.below(u64::from(vocabulary.width)) as u32;
            ids.push(vocabulary.first + next * vocabulary.width + place);
        }
    }
    ids
}

/// The topic of a token id, below [`N_TOPICS`], or `None` for one that [`token_sequence`] never gives.
///
/// # Panics
/// If `vocab_size` exceeds 32 bits or is 0.
pub fn topic_of(vocab_size: usize, id: u32) -> Option<u32> {
    let vocabulary = Topics::new(vocab_size);
    let topic = id.checked_sub(vocabulary.first)? / vocabulary.width;
    (topic < vocabulary.n).then_some(topic)
}

/// Topic `t` has the `width` ids from `first + t * width`.
struct Topics {
    first: u32,
    width: u32,
    n: u32,
}

impl Topics {
    fn new(vocab_size: usize) -> Topics {
        let vocab_size = u32::try_from(vocab_size).expect("a vocabulary of at most 2^32 tokens");
        assert!(vocab_size > 0, "an empty vocabulary has no sequence");
        let first = FIRST_ID.min(vocab_size / 8);
        let n = N_TOPICS.min(vocab_size - first);
        let width = (vocab_size - first) / n;
        Topics { first, width, n }
    }

    /// Any topic but the last one, all as likely.
    fn next(&self, last: Option<u32>, random: &mut SplitMix) -> u32 {
        match last {
            Some(last) if self.n > 1 => {
                let step = 1 + random.below(u64::from(self.n) - 1) as u32;
                (last + step) % self.n
            }
            _ => random.below(u64::from(self.n)) as u32,
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; the bias, below `n / 2^64`, changes no measurement.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}
