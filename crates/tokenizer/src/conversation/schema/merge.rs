//! Several schemas as one: all of them at once, or any one of them.

use super::shown::{ANY, Shown};
use std::collections::HashSet;
use std::hash::Hash;

impl Shown {
    /// Adds what another schema says of the same value.
    pub fn narrow(&mut self, other: Shown) {
        self.set_kind(&other.kind);
        if self.description.is_empty() {
            self.description = other.description;
        }
        extend(&mut self.notes, other.notes);
        self.nullable |= other.nullable;
        if self.values.is_empty() {
            self.values = other.values;
        }
        self.items = self.items.take().or(other.items);
        self.properties.append(other.properties);
        extend(&mut self.required, other.required);
    }

    /// Whether it says nothing but that the value may be null.
    fn is_null(&self) -> bool {
        self.kind == ANY && self.nullable && self.properties.is_empty()
    }
}

/// One schema for a choice, and whether it is the whole choice. The first alternative's type is shown; others of that type are merged
/// into it, and other types are named in its description.
pub(super) fn union(alternatives: Vec<Shown>) -> (Option<Shown>, bool) {
    let nullable = alternatives.iter().any(|one| one.nullable);
    let mut alternatives = alternatives.into_iter().filter(|one| !one.is_null());
    let Some(mut first) = alternatives.next() else {
        let null = Shown {
            nullable,
            ..Shown::any()
        };
        return (nullable.then_some(null), true);
    };
    first.nullable |= nullable;
    let mut is_whole = true;
    let mut others: Vec<String> = Vec::new();
    for other in alternatives {
        if other.kind == first.kind {
            is_whole &= widen(&mut first, other);
        } else {
            is_whole = false;
            if !others.contains(&other.kind) {
                others.push(other.kind);
            }
        }
    }
    if !others.is_empty() {
        first.note(&format!("or: {}", others.join(", ")));
    }
    (Some(first), is_whole)
}

/// Makes a schema accept what another of its type accepts. False where something of the choice is lost.
fn widen(first: &mut Shown, other: Shown) -> bool {
    if first.values.is_empty() || other.values.is_empty() {
        first.values.clear();
    } else {
        extend(&mut first.values, other.values);
    }
    // A property that only one alternative asks for is not asked for.
    let others: HashSet<&String> = other.required.iter().collect();
    first.required.retain(|name| others.contains(name));
    let is_whole = first.properties.is_empty() && other.properties.is_empty();
    let known: HashSet<String> = first
        .properties
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    for (name, property) in other.properties.into_entries() {
        if !known.contains(&name) {
            first.properties.insert(name, property);
        }
    }
    extend(&mut first.notes, other.notes);
    match (&mut first.items, other.items) {
        (items @ None, more) => *items = more,
        (Some(items), Some(more)) => return is_whole && items.kind == more.kind,
        (Some(_), None) => {}
    }
    is_whole
}

/// Adds what is not there yet. Lists come from outside and may be long.
fn extend<T: Eq + Hash + Clone>(list: &mut Vec<T>, more: Vec<T>) {
    if more.is_empty() {
        return;
    }
    let mut known: HashSet<T> = list.iter().cloned().collect();
    list.extend(more.into_iter().filter(|item| known.insert(item.clone())));
}
