//! Conversations through the door of their room, in files.

use ouzel_chats::{Chats, ChatsError, Question, Role};

fn ask(chats: &Chats, chat: Option<i64>, text: &str) -> (i64, i64) {
    let question = Question {
        chat,
        text: Some(text),
        ..Question::default()
    };
    let asked = chats.ask(question).unwrap();
    (asked.chat, asked.answer)
}

fn texts(chats: &Chats, chat: i64) -> Vec<String> {
    let (_, messages) = chats.chat(chat).unwrap();
    messages.into_iter().map(|m| m.text).collect()
}

#[test]
fn what_was_written_is_there_after_a_program_that_died() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.sqlite3");
    let chats = Chats::open(&path).unwrap();
    let (chat, answer) = ask(&chats, None, "What is a fieldfare?");
    chats.write(answer, "A thr", "Birds.", None).unwrap();
    // Not closed, as when the process is killed.
    std::mem::forget(chats);
    let again = Chats::open(&path).unwrap();
    let (found, messages) = again.chat(chat).unwrap();
    assert_eq!(found.title, "What is a fieldfare?");
    assert_eq!(
        (messages[0].role, messages[1].role),
        (Role::User, Role::Assistant)
    );
    assert_eq!(
        (messages[1].text.as_str(), messages[1].thinking.as_str()),
        ("A thr", "Birds.")
    );
    assert_eq!(messages[1].ending, None);
    again.write(answer, "A thrush.", "", Some("stop")).unwrap();
    assert_eq!(
        again.message(answer).unwrap().1.ending.as_deref(),
        Some("stop")
    );
}

#[test]
fn two_programs_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.sqlite3");
    let (one, two) = (Chats::open(&path).unwrap(), Chats::open(&path).unwrap());
    let (chat, answer) = ask(&one, None, "first");
    two.rename(chat, "renamed").unwrap();
    one.write(answer, "said", "", None).unwrap();
    assert_eq!(two.chat(chat).unwrap().0.title, "renamed");
    assert_eq!(texts(&two, chat), ["first", "said"]);
}

#[test]
fn editing_and_answering_anew_forget_what_follows() {
    let chats = Chats::in_memory().unwrap();
    let (chat, first) = ask(&chats, None, "one");
    chats.write(first, "answer one", "", Some("stop")).unwrap();
    let (_, second) = ask(&chats, Some(chat), "two");
    chats.write(second, "answer two", "", Some("stop")).unwrap();
    let anew = chats.ask(Question {
        chat: Some(chat),
        replaces: Some(second),
        text: None,
    });
    let said: Vec<String> = anew.unwrap().before.into_iter().map(|m| m.text).collect();
    assert_eq!(said, ["one", "answer one", "two"]);
    let message = chats.chat(chat).unwrap().1[2].id;
    let edited = chats.ask(Question {
        chat: Some(chat),
        replaces: Some(message),
        text: Some("zwei"),
    });
    assert!(edited.is_ok());
    assert_eq!(texts(&chats, chat), ["one", "answer one", "zwei", ""]);
    // An answer that was forgotten while it was written has no place any more.
    assert!(matches!(
        chats.write(second, "late", "", None),
        Err(ChatsError::Missing)
    ));
}

#[test]
fn a_question_that_is_refused_changes_nothing() {
    let chats = Chats::in_memory().unwrap();
    let (chat, answer) = ask(&chats, None, "one");
    let (other, _) = ask(&chats, None, "another");
    let before = texts(&chats, chat);
    let refused = |chat, replaces, text| {
        let question = Question {
            chat,
            replaces,
            text,
        };
        chats.ask(question).unwrap_err()
    };
    // Nothing was said since the answer; a message of another conversation; none at all; nothing to say.
    assert!(matches!(
        refused(Some(chat), None, None),
        ChatsError::NothingToAnswer
    ));
    assert!(matches!(
        refused(Some(other), Some(answer), Some("x")),
        ChatsError::Missing
    ));
    assert!(matches!(
        refused(Some(999), None, Some("x")),
        ChatsError::Missing
    ));
    assert!(matches!(
        refused(None, None, None),
        ChatsError::NothingToAnswer
    ));
    assert_eq!(texts(&chats, chat), before);
    assert_eq!(chats.list().unwrap().len(), 2);
}

#[test]
fn conversations_are_found_by_words_of_any_language() {
    let chats = Chats::in_memory().unwrap();
    let (birds, answer) = ask(&chats, None, "Tell me of the ÄRGERLICHE blackbird");
    chats
        .write(answer, "It sings in the morning.", "", Some("stop"))
        .unwrap();
    let (_, _) = ask(&chats, None, "Something else");
    for (words, n, excerpt) in [
        ("blackBIRD morning", 1, Some("blackbird")),
        ("ärgerliche", 1, Some("ÄRGERLICHE")),
        ("%", 0, None),
        ("nowhere", 0, None),
        ("", 2, None),
    ] {
        let found = chats.search(words).unwrap();
        assert_eq!(found.len(), n, "{words}");
        if let Some(part) = excerpt {
            assert_eq!(found[0].chat.id, birds);
            assert!(
                found[0].excerpt.as_ref().unwrap().contains(part),
                "{found:?}"
            );
        }
    }
}

#[test]
fn removing_a_conversation_removes_what_was_said() {
    let chats = Chats::in_memory().unwrap();
    let (chat, answer) = ask(&chats, None, "one");
    chats.remove(chat).unwrap();
    assert!(matches!(chats.chat(chat), Err(ChatsError::Missing)));
    assert!(matches!(chats.message(answer), Err(ChatsError::Missing)));
    assert!(matches!(chats.remove(chat), Err(ChatsError::Missing)));
    assert!(matches!(chats.rename(chat, "x"), Err(ChatsError::Missing)));
    // No number is used again, so a page that still shows the old one never shows another's words.
    let (next, next_answer) = ask(&chats, None, "two");
    assert!(next > chat && next_answer > answer);
}

/// The files of a folder, by name.
fn files(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap();
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, std::fs::read(entry.path()).unwrap())
    };
    entries.map(|entry| read(entry.unwrap())).collect()
}

#[test]
fn what_is_removed_is_in_no_file_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let chats = Chats::open(&folder.path().join("chats.sqlite3")).unwrap();
    let secret = "where the fieldfare nests";
    let hold = |(_, bytes): &(String, Vec<u8>)| {
        let mut windows = bytes.windows(secret.len());
        windows.any(|window| window == secret.as_bytes())
    };
    let (chat, answer) = ask(&chats, None, secret);
    chats.write(answer, secret, secret, Some("{}")).unwrap();
    assert!(files(folder.path()).iter().any(hold));
    chats.remove(chat).unwrap();
    for file in files(folder.path()) {
        assert!(!hold(&file), "{}", file.0);
    }
}

#[test]
fn settings_are_kept_and_files_of_the_future_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.sqlite3");
    let chats = Chats::open(&path).unwrap();
    assert_eq!(chats.settings().unwrap(), None);
    chats.set_settings("{}").unwrap();
    chats.set_settings("{\"a\":1}").unwrap();
    drop(chats);
    assert_eq!(
        Chats::open(&path).unwrap().settings().unwrap().as_deref(),
        Some("{\"a\":1}")
    );
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 2).unwrap();
    drop(raw);
    assert!(matches!(
        Chats::open(&path),
        Err(ChatsError::TooNew { version: 2, .. })
    ));
}
