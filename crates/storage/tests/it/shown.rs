//! Paths in messages.

use std::path::Path;

use ouzel_storage::ShowPath;

#[test]
fn a_path_is_shown_on_one_line() {
    for (path, expected) in [
        ("models/mo del é.gturbo", "models/mo del é.gturbo"),
        ("a\nb", "a\\nb"),
        ("a\r\tb", "a\\r\\tb"),
        ("\u{1b}[2J\u{7}\u{85}", "\\u{1b}[2J\\u{7}\\u{85}"),
        ("", ""),
    ] {
        assert_eq!(Path::new(path).shown().to_string(), expected);
        assert_eq!(path.shown().to_string(), expected);
    }
}
