//! The conversations of the page: what was said, by whom, and how each answer ended, in one file that outlives the program.
//!
//! An answer is a row from the moment it is asked for, and grows in it while the model writes, so a program that dies loses at most what
//! it had not handed over yet. SQLite keeps the promise: each change is whole or was never made, and durable when the call
//! returns. Several programs may have the file open; none needs to know of the others, because an answer whose row has no ending
//! is being written by whoever knows that it is, and was interrupted for everybody else.
//!
//! The room knows nothing of models, pages or the network. What an ending or the settings hold is a text to it.

mod schema;
mod search;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use thiserror::Error;

pub use search::Found;

/// What an open file takes of memory: the cache of its pages, and what SQLite needs beside it.
pub const MEMORY_BYTES: u64 = 4 << 20;
/// Another program that holds the file is waited for this long.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// Letters of a title that is made of a first message.
const TITLE_CHARS: usize = 60;

/// Why something could not be kept or read.
#[derive(Debug, Error)]
pub enum ChatsError {
    /// There is no such conversation, or it has no such message.
    #[error("there is no such conversation or message")]
    Missing,
    /// A conversation that would not end with what a person said.
    #[error("a conversation is answered after a message of its user")]
    NothingToAnswer,
    /// A program that is newer than this one wrote the file.
    #[error(
        "{path} is of version {version}, and this program reads version {known}: use a newer Ouzel"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its version.
        version: i64,
        /// What is known here.
        known: i64,
    },
    /// What SQLite says: a full disk, a damaged file, one that may not be written.
    #[error("the file of the conversations: {0}")]
    File(#[from] rusqlite::Error),
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// A conversation, without what was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chat {
    /// Its number.
    pub id: i64,
    /// What it is called.
    pub title: String,
    /// Milliseconds from 1970 to its first message.
    pub created_ms: i64,
    /// The same to its last change.
    pub updated_ms: i64,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number; later messages have larger ones, in every conversation.
    pub id: i64,
    /// Who said it.
    pub role: Role,
    /// What.
    pub text: String,
    /// What was thought before.
    pub thinking: String,
    /// How an answer ended, in the caller's words; none while it is written.
    pub ending: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

/// What shall be answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Question<'a> {
    /// The conversation; a new one where none is named.
    pub chat: Option<i64>,
    /// The message from which on the conversation is forgotten first: the one that is edited, or the answer that is made anew.
    pub replaces: Option<i64>,
    /// What the person says; nothing where what is there is answered anew.
    pub text: Option<&'a str>,
}

/// An answer that has a place and no words yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The conversation.
    pub chat: i64,
    /// The answer's number.
    pub answer: i64,
    /// What was said before it, oldest first.
    pub before: Vec<Message>,
}

/// The file.
#[derive(Debug)]
pub struct Chats {
    connection: Mutex<Connection>,
}

impl Chats {
    /// Opens the file, or makes it; the folder is there. SQLite gives the files beside it the same mode.
    ///
    /// # Errors
    /// [`ChatsError::TooNew`], [`ChatsError::File`].
    pub fn open(path: &Path) -> Result<Chats, ChatsError> {
        Chats::with(Connection::open(path)?, &path.display().to_string())
    }

    /// One without a file, for tests.
    ///
    /// # Errors
    /// [`ChatsError::File`].
    pub fn in_memory() -> Result<Chats, ChatsError> {
        Chats::with(Connection::open_in_memory()?, "")
    }

    fn with(mut connection: Connection, path: &str) -> Result<Chats, ChatsError> {
        connection.busy_timeout(BUSY_TIME)?;
        schema::prepare(&mut connection, path)?;
        Ok(Chats {
            connection: Mutex::new(connection),
        })
    }

    /// All conversations, the last changed first.
    ///
    /// # Errors
    /// [`ChatsError::File`].
    pub fn list(&self) -> Result<Vec<Chat>, ChatsError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT id, title, created_ms, updated_ms FROM chats ORDER BY updated_ms DESC, id DESC",
        )?;
        let rows = statement.query_map([], chat_of)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The conversations in which all of these words occur, the last changed first.
    ///
    /// # Errors
    /// [`ChatsError::File`].
    pub fn search(&self, words: &str) -> Result<Vec<Found>, ChatsError> {
        search::run(&self.lock(), words)
    }

    /// A conversation and what was said in it.
    ///
    /// # Errors
    /// [`ChatsError::Missing`], [`ChatsError::File`].
    pub fn chat(&self, id: i64) -> Result<(Chat, Vec<Message>), ChatsError> {
        let connection = self.lock();
        let chat = connection
            .query_row(
                "SELECT id, title, created_ms, updated_ms FROM chats WHERE id = ?1",
                [id],
                chat_of,
            )
            .optional()?;
        Ok((chat.ok_or(ChatsError::Missing)?, messages(&connection, id)?))
    }

    /// One message, and the conversation that it belongs to.
    ///
    /// # Errors
    /// [`ChatsError::Missing`], [`ChatsError::File`].
    pub fn message(&self, id: i64) -> Result<(i64, Message), ChatsError> {
        let sql =
            "SELECT id, role, text, thinking, ending, created_ms, chat FROM messages WHERE id = ?1";
        let found = self
            .lock()
            .query_row(sql, [id], |row| Ok((row.get(6)?, message_of(row)?)))
            .optional()?;
        found.ok_or(ChatsError::Missing)
    }

    /// Makes a place for an answer, behind what a person says.
    ///
    /// # Errors
    /// [`ChatsError::Missing`], [`ChatsError::NothingToAnswer`], [`ChatsError::File`]; then nothing was changed.
    pub fn ask(&self, question: Question<'_>) -> Result<Asked, ChatsError> {
        let mut connection = self.lock();
        let change = begin(&mut connection)?;
        let asked = place(&change, question)?;
        change.commit()?;
        Ok(asked)
    }

    /// What [`Chats::ask`] would put before the answer; nothing is changed.
    ///
    /// # Errors
    /// As [`Chats::ask`].
    pub fn rehearse(&self, question: Question<'_>) -> Result<Vec<Message>, ChatsError> {
        let mut connection = self.lock();
        // A change that is not committed is undone.
        let change = begin(&mut connection)?;
        Ok(place(&change, question)?.before)
    }

    /// Writes down what there is of an answer, and its ending once it has one.
    ///
    /// # Errors
    /// [`ChatsError::Missing`] where it was removed meanwhile, [`ChatsError::File`].
    pub fn write(
        &self,
        answer: i64,
        text: &str,
        thinking: &str,
        ending: Option<&str>,
    ) -> Result<(), ChatsError> {
        let sql = "UPDATE messages SET text = ?2, thinking = ?3, ending = ?4 WHERE id = ?1";
        let connection = self.lock();
        let mut statement = connection.prepare(sql)?;
        match statement.execute(params![answer, text, thinking, ending])? {
            0 => Err(ChatsError::Missing),
            _ => Ok(()),
        }
    }

    /// Gives a conversation another title.
    ///
    /// # Errors
    /// [`ChatsError::Missing`], [`ChatsError::File`].
    pub fn rename(&self, chat: i64, title: &str) -> Result<(), ChatsError> {
        let sql = "UPDATE chats SET title = ?2 WHERE id = ?1";
        match self.lock().execute(sql, params![chat, title_of(title)])? {
            0 => Err(ChatsError::Missing),
            _ => Ok(()),
        }
    }

    /// Removes a conversation and all that was said in it.
    ///
    /// # Errors
    /// [`ChatsError::Missing`], [`ChatsError::File`].
    pub fn remove(&self, chat: i64) -> Result<(), ChatsError> {
        let connection = self.lock();
        if connection.execute("DELETE FROM chats WHERE id = ?1", [chat])? == 0 {
            return Err(ChatsError::Missing);
        }
        // The log still has what was said. A reader in another program may hold it; then the next change takes it along.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    /// What was last given to [`Chats::set_settings`].
    ///
    /// # Errors
    /// [`ChatsError::File`].
    pub fn settings(&self) -> Result<Option<String>, ChatsError> {
        let sql = "SELECT value FROM settings";
        Ok(self
            .lock()
            .query_row(sql, [], |row| row.get(0))
            .optional()?)
    }

    /// Keeps a text for the page.
    ///
    /// # Errors
    /// [`ChatsError::File`].
    pub fn set_settings(&self, value: &str) -> Result<(), ChatsError> {
        let sql = "INSERT INTO settings (id, value) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET value = ?1";
        self.lock().execute(sql, [value])?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A change that was not committed is undone, so the file is whole after a panic, too.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change that fails early where another program is at it, instead of in its middle.
fn begin(connection: &mut Connection) -> Result<Transaction<'_>, ChatsError> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

/// Carries out a question, up to the commit.
fn place(change: &Transaction<'_>, question: Question<'_>) -> Result<Asked, ChatsError> {
    let now = now_ms();
    let chat = match question.chat {
        Some(chat) => {
            touch(change, chat, now)?;
            chat
        }
        None => {
            let title = title_of(question.text.unwrap_or_default());
            change.execute(
                "INSERT INTO chats (title, created_ms, updated_ms) VALUES (?1, ?2, ?2)",
                params![title, now],
            )?;
            change.last_insert_rowid()
        }
    };
    if let Some(first) = question.replaces {
        let sql = "DELETE FROM messages WHERE chat = ?1 AND id >= ?2
            AND EXISTS (SELECT 1 FROM messages WHERE chat = ?1 AND id = ?2)";
        if change.execute(sql, [chat, first])? == 0 {
            return Err(ChatsError::Missing);
        }
    }
    if let Some(text) = question.text {
        add(change, chat, Role::User, text, now)?;
    }
    let before = messages(change, chat)?;
    if before.last().is_none_or(|last| last.role != Role::User) {
        return Err(ChatsError::NothingToAnswer);
    }
    let answer = add(change, chat, Role::Assistant, "", now)?;
    Ok(Asked {
        chat,
        answer,
        before,
    })
}

fn touch(change: &Transaction<'_>, chat: i64, now: i64) -> Result<(), ChatsError> {
    let sql = "UPDATE chats SET updated_ms = ?2 WHERE id = ?1";
    match change.execute(sql, [chat, now])? {
        0 => Err(ChatsError::Missing),
        _ => Ok(()),
    }
}

fn add(
    change: &Transaction<'_>,
    chat: i64,
    role: Role,
    text: &str,
    now: i64,
) -> Result<i64, ChatsError> {
    change.execute(
        "INSERT INTO messages (chat, role, text, created_ms) VALUES (?1, ?2, ?3, ?4)",
        params![chat, role.word(), text, now],
    )?;
    Ok(change.last_insert_rowid())
}

fn messages(connection: &Connection, chat: i64) -> Result<Vec<Message>, ChatsError> {
    let sql = "SELECT id, role, text, thinking, ending, created_ms FROM messages WHERE chat = ?1 ORDER BY id";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([chat], message_of)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn chat_of(row: &Row<'_>) -> rusqlite::Result<Chat> {
    Ok(Chat {
        id: row.get(0)?,
        title: row.get(1)?,
        created_ms: row.get(2)?,
        updated_ms: row.get(3)?,
    })
}

fn message_of(row: &Row<'_>) -> rusqlite::Result<Message> {
    let role: String = row.get(1)?;
    Ok(Message {
        id: row.get(0)?,
        // The schema has no third word.
        role: if role == Role::User.word() {
            Role::User
        } else {
            Role::Assistant
        },
        text: row.get(2)?,
        thinking: row.get(3)?,
        ending: row.get(4)?,
        created_ms: row.get(5)?,
    })
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
        }
    }
}

/// The beginning of a text's first paragraph on one line, cut between two words where there are some: attached files come in further ones.
fn title_of(text: &str) -> String {
    let text = text.trim_start();
    let paragraph = text.split_once("\n\n").map_or(text, |(first, _)| first);
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(TITLE_CHARS) else {
        return line;
    };
    let cut = &line[..end];
    let words = cut.rsplit_once(' ').map_or(cut, |(words, _)| words);
    // A first word that is longer than half of the title is cut in its middle.
    let kept = if words.chars().count() * 2 < TITLE_CHARS {
        cut
    } else {
        words
    };
    format!("{kept}…")
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_short_and_on_one_line() {
        let long = "w".repeat(TITLE_CHARS + 1);
        for (text, title) in [
            ("What is a fieldfare?", "What is a fieldfare?".to_owned()),
            ("  a\n b\t", "a b".to_owned()),
            ("\n\na b\n\nc", "a b".to_owned()),
            ("", String::new()),
            (&long[1..], long[1..].to_owned()),
            (&long, format!("{}…", &long[1..])),
            (
                "eleven words of one sentence are a bit more than a title may be",
                "eleven words of one sentence are a bit more than a title…".to_owned(),
            ),
        ] {
            assert_eq!(title_of(text), title);
        }
    }
}
