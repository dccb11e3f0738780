//! The tables, how SQLite is told to keep them, and the file's version.

use rusqlite::Connection;

use crate::{ChatsError, begin};

/// What `user_version` says of a file that this program reads.
pub const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE chats (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    text TEXT NOT NULL,
    thinking TEXT NOT NULL DEFAULT '',
    ending TEXT,
    created_ms INTEGER NOT NULL
);
CREATE INDEX messages_of_a_chat ON messages (chat, id);
CREATE TABLE settings (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value TEXT NOT NULL
);
";

/// Makes a new file's tables; refuses those of the future.
///
/// Changes go to a log that is made durable with each of them (on macOS down to the drive, which a plain sync does not reach), which costs
/// one sync of the disk instead of two; the cache of pages is
/// held to 1 MiB; what is removed is overwritten, because people remove what nobody shall read.
pub fn prepare(connection: &mut Connection, path: &str) -> Result<(), ChatsError> {
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA fullfsync = ON;
         PRAGMA checkpoint_fullfsync = ON;
         PRAGMA secure_delete = ON;
         PRAGMA cache_size = -1024;",
    )?;
    let change = begin(connection)?;
    let version: i64 = change.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    match version {
        0 => {
            change.execute_batch(TABLES)?;
            change.pragma_update(None, "user_version", VERSION)?;
            Ok(change.commit()?)
        }
        VERSION => Ok(()),
        _ => Err(ChatsError::TooNew {
            path: path.to_owned(),
            version,
            known: VERSION,
        }),
    }
}
