//! A prompt in the ids that were sampled.
//!
//! A client sends back the text of an answer, and its text may be cut into other tokens than the model wrote. What is held is then as
//! good as what the text would become, and it is already computed. So where the ids part, the held ones stand in for the prompt's
//! as long as their text is the same up to the end of the turn. Control tokens are compared as ids, never as text.

use ouzel_tokenizer::Tokenizer;

/// The prompt with held ids in the place of its own where only the cut into tokens differs.
pub fn align(held: &[u32], prompt: &[u32], tokenizer: &Tokenizer) -> Vec<u32> {
    let mut aligned = Vec::new();
    // What is held and what is asked for agree up to these places.
    let (mut h, mut p) = (0, 0);
    loop {
        let n = common(&held[h..], &prompt[p..]);
        aligned.extend_from_slice(&prompt[p..p + n]);
        (h, p) = (h + n, p + n);
        let (h_end, p_end) = (
            h + text_len(&held[h..], tokenizer),
            p + text_len(&prompt[p..], tokenizer),
        );
        let is_same = h < h_end
            && p < p_end
            && p_end < prompt.len()
            // An answer may end with what is held: its last control token was never computed.
            && (h_end == held.len() || held[h_end] == prompt[p_end])
            && same_text(&held[h..h_end], &prompt[p..p_end], tokenizer);
        if !is_same {
            break;
        }
        aligned.extend_from_slice(&held[h..h_end]);
        (h, p) = (h_end, p_end);
    }
    aligned.extend_from_slice(&prompt[p..]);
    aligned
}

/// How many ids two sequences begin with together.
pub fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Ids before the next control token.
fn text_len(ids: &[u32], tokenizer: &Tokenizer) -> usize {
    ids.iter()
        .take_while(|id| !tokenizer.is_special(**id))
        .count()
}

fn same_text(a: &[u32], b: &[u32], tokenizer: &Tokenizer) -> bool {
    let text = tokenizer.decode(a, false);
    // Bytes that are no text all look the same.
    !text.contains(char::REPLACEMENT_CHARACTER) && text == tokenizer.decode(b, false)
}
