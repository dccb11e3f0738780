//! Finding conversations by words of their titles and messages.
//!
//! Every message is looked at: ten years of chatting are some tens of megabytes, which takes less time than a key takes to come up again, and an
//! index would have to fold the letters of every language as Rust does.

use rusqlite::Connection;

use crate::{Chat, ChatsError, chat_of};

/// Letters around the first word that was found.
const CONTEXT_CHARS: usize = 40;

/// A conversation that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The conversation.
    pub chat: Chat,
    /// Where a word of the search stands in it, unless that is the title alone.
    pub excerpt: Option<String>,
}

/// Conversations that have all words, in their title or in what was said.
pub fn run(connection: &Connection, words: &str) -> Result<Vec<Found>, ChatsError> {
    let wanted: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let mut statement = connection.prepare(
        "SELECT id, title, created_ms, updated_ms FROM chats ORDER BY updated_ms DESC, id DESC",
    )?;
    let chats = statement.query_map([], chat_of)?;
    let mut texts = connection.prepare("SELECT text FROM messages WHERE chat = ?1 ORDER BY id")?;
    let mut found = Vec::new();
    for chat in chats {
        let chat = chat?;
        let title = chat.title.to_lowercase();
        let mut missing: Vec<&String> = wanted.iter().filter(|w| !title.contains(*w)).collect();
        let mut excerpt = None;
        let mut rows = texts.query([chat.id])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            let folded = text.to_lowercase();
            missing.retain(|word| !folded.contains(*word));
            if excerpt.is_none() {
                excerpt = wanted.iter().find_map(|word| excerpt_of(&text, word));
            }
            if missing.is_empty() && excerpt.is_some() {
                break;
            }
        }
        if missing.is_empty() {
            found.push(Found { chat, excerpt });
        }
    }
    Ok(found)
}

/// The text around a word that is in lower case, on one line.
fn excerpt_of(text: &str, word: &str) -> Option<String> {
    let folded = text.to_lowercase();
    // Folding may change a letter's length, so places are counted in letters; the few that become two shift an excerpt and no more.
    let at = folded[..folded.find(word)?].chars().count();
    let first = at.saturating_sub(CONTEXT_CHARS);
    let n_chars = at - first + word.chars().count() + CONTEXT_CHARS;
    let middle: String = text.chars().skip(first).take(n_chars).collect();
    let middle = middle.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = if first > 0 { "…" } else { "" };
    let after = if text.chars().count() > first + n_chars {
        "…"
    } else {
        ""
    };
    Some(format!("{before}{middle}{after}"))
}
