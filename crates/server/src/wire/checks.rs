//! Checks that several doors make: ranges, texts, lists. Each error names its field and says what would be allowed.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::text_or::TextOr;
use crate::error::Refusal;

/// More stop strings than anybody has a use for.
const MAX_STOPS: usize = 16;

/// A number in its range, or the default.
pub fn number<T: PartialOrd + Display + Copy>(
    param: &str,
    value: Option<T>,
    allowed: RangeInclusive<T>,
    default: T,
) -> Result<T, Refusal> {
    match value {
        None => Ok(default),
        Some(value) if allowed.contains(&value) => Ok(value),
        Some(value) => Err(Refusal::invalid(
            param,
            format!(
                "{param} is {value}; expected a number from {} to {}",
                allowed.start(),
                allowed.end()
            ),
        )),
    }
}

/// As [`number`], where 0 itself is not allowed.
pub fn positive(param: &str, value: Option<f32>, most: f32, default: f32) -> Result<f32, Refusal> {
    match value {
        Some(value) if value <= 0.0 || value.is_nan() => Err(Refusal::invalid(
            param,
            format!("{param} is {value}; expected a number above 0 and at most {most}"),
        )),
        value => number(param, value, 0.0..=most, default),
    }
}

/// A field that may be there only with one value, which changes nothing.
pub fn only<T: PartialEq + Display>(
    param: &str,
    value: Option<T>,
    allowed: &[T],
) -> Result<(), Refusal> {
    let Some(value) = value else {
        return Ok(());
    };
    if allowed.contains(&value) {
        return Ok(());
    }
    let list: Vec<String> = allowed.iter().map(T::to_string).collect();
    Err(Refusal::invalid(
        param,
        format!(
            "{param} is {value}; this server honours {}",
            list.join(" or ")
        ),
    ))
}

/// Stop strings.
pub fn stops(param: &str, stop: Option<TextOr<String>>) -> Result<Vec<String>, Refusal> {
    let stops = match stop {
        None => Vec::new(),
        Some(TextOr::Text(text)) => vec![text],
        Some(TextOr::List(list)) => list,
    };
    if stops.len() > MAX_STOPS {
        return Err(Refusal::invalid(
            param,
            format!(
                "{param} has {} texts, and {MAX_STOPS} are the most",
                stops.len()
            ),
        ));
    }
    if stops.iter().any(String::is_empty) {
        return Err(Refusal::invalid(
            param,
            format!("{param}: an empty text would end every answer; leave it out"),
        ));
    }
    Ok(stops)
}

/// Arguments of a call, which some APIs write as a text.
pub fn arguments(param: &str, text: &str) -> Result<Map<String, Value>, Refusal> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|error| {
        Refusal::invalid(
            param,
            format!("{param}: expected the text of a JSON object: {error}"),
        )
    })
}
