//! Where conversations that differ stop being the same: behind the turn that holds instructions and tools.
//!
//! The template begins a conversation with a system turn, where it has instructions or tools, and then takes turns. The place is read
//! off the control tokens of the prompt, which nobody can type, so it needs to be told by no one.

use ouzel_tokenizer::Tokenizer;

/// What begins a turn.
const TURN: &str = "<|turn>";
/// The name of the turn that holds what conversations share.
const SYSTEM: &str = "system\n";
/// A name has no more tokens.
const MAX_NAME_TOKENS: usize = 8;

/// How many tokens precede the second turn of a prompt whose first one is the system's.
pub fn end_of_system_turn(prompt: &[u32], tokenizer: &Tokenizer) -> Option<usize> {
    let mark = tokenizer.id_of(TURN)?;
    let begins_turn = |(i, id): (usize, &u32)| (*id == mark).then_some(i);
    let mut turns = prompt.iter().enumerate().filter_map(begins_turn);
    let name = &prompt[turns.next()? + 1..];
    let name = tokenizer.decode(&name[..name.len().min(MAX_NAME_TOKENS)], false);
    turns.next().filter(|_| name.starts_with(SYSTEM))
}
