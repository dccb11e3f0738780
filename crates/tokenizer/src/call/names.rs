//! The tools' names, and which of them a model means.

use std::collections::HashMap;

/// Parts that a written name may have, its namespaces included.
const MAX_PARTS: usize = 6;

/// The names of the tools that a model may call.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: Vec<String>,
    /// The place of each name by its letters and digits; `None` where two names share them.
    by_letters: HashMap<String, Option<usize>>,
}

impl Names {
    pub fn new(names: &[String]) -> Names {
        let mut by_letters = HashMap::new();
        for (i, name) in names.iter().enumerate() {
            let letters = letters(name);
            if letters.is_empty() {
                continue;
            }
            by_letters
                .entry(letters)
                .and_modify(|place| *place = None)
                .or_insert(Some(i));
        }
        Names {
            names: names.to_vec(),
            by_letters,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The longest name, in bytes.
    pub fn longest(&self) -> usize {
        self.names.iter().map(String::len).max().unwrap_or(0)
    }

    /// The tool that a written name means: the same name; or the same letters and digits, in capitals or not and whatever stands between
    /// them; or either of these behind a namespace.
    pub fn resolve(&self, written: &str) -> Option<&str> {
        if let Some(name) = self.names.iter().find(|name| *name == written) {
            return Some(name);
        }
        let parts = std::iter::successors(Some(written), |part| {
            part.split_once(['.', ':', '/']).map(|(_, rest)| rest)
        });
        parts
            .take(MAX_PARTS)
            .filter_map(|part| self.by_letters.get(&letters(part)).copied().flatten())
            .map(|place| self.names[place].as_str())
            .next()
    }
}

fn letters(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// Whether a character may stand in a name: letters, digits, and what namespaces and hyphenated names have between them.
pub(super) fn is_in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}
