use super::*;

#[test]
fn a_seed_fixes_the_sequence_for_ever() {
    // Measurements name a seed, so these numbers may never change.
    let ids = token_sequence(262_144, 1, 4);
    assert_eq!(ids, [151_541, 149_386, 149_385, 150_689]);
    assert_ne!(ids, token_sequence(262_144, 2, 4));
    assert_ne!(ids, token_sequence(262_143, 1, 4));
}

#[test]
fn a_shorter_sequence_begins_a_longer_one() {
    let long = token_sequence(4096, 7, 1000);
    for n in [0, 1, 3, 4, 5, 12, 13, 999, 1000] {
        assert_eq!(token_sequence(4096, 7, n), long[..n], "{n}");
    }
}

#[test]
fn stretches_of_one_topic_follow_each_other() {
    let vocab_size = 262_144;
    let topics: Vec<u32> = token_sequence(vocab_size, 3, 20_000)
        .iter()
        .map(|&id| topic_of(vocab_size, id).expect("the sequence has topics only"))
        .collect();
    let stretches: Vec<&[u32]> = topics.chunk_by(|a, b| a == b).collect();
    let lengths: Vec<u64> = stretches.iter().map(|s| s.len() as u64).collect();
    let (_, whole) = lengths.split_last().expect("20,000 tokens have stretches");
    assert_eq!(whole.iter().min(), Some(&SHORTEST_STRETCH));
    assert_eq!(whole.iter().max(), Some(&LONGEST_STRETCH));
    assert!((0..N_TOPICS).all(|topic| topics.contains(&topic)));
}

#[test]
fn ids_stay_in_every_vocabulary() {
    for vocab_size in [1, 2, 7, 8, 63, 64, 65, 512, 2047, 2048, 2049, 262_144] {
        for id in token_sequence(vocab_size, 5, 3000) {
            assert!((id as usize) < vocab_size, "{id} of {vocab_size}");
            assert!(topic_of(vocab_size, id).is_some_and(|topic| topic < N_TOPICS));
        }
    }
}

#[test]
fn control_tokens_belong_to_no_topic() {
    assert_eq!(topic_of(262_144, 0), None);
    assert_eq!(topic_of(262_144, 255), None);
    assert_eq!(topic_of(262_144, 256), Some(0));
    assert_eq!(topic_of(262_144, u32::MAX), None);
    assert_eq!(topic_of(512, 63), None);
    assert_eq!(topic_of(512, 64), Some(0));
}
