//! Bodies: how much of one is taken, how long it may take, and what is wrong with its JSON, by field and in JSON's words.

mod objects;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::error::Refusal;
use objects::Objects;

/// Four times the longest context as text: whoever sends more sends pictures.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// Values of one body: each takes some ten times its text in memory. 40 tools of 100 kB and a conversation of 1,000 messages have some 20,000.
const MAX_VALUES: usize = 200_000;
/// What is still read of a body that is too long, beside the refusal: many clients read nothing before everything is sent, and one that
/// is cut off never hears why.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// How long that goes on.
const DISCARD_TIME: Duration = Duration::from_secs(3);
/// A body arrives within this time.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Levels that serde_json reads.
const MAX_LEVELS: usize = 128;

/// All of a request's JSON body, as bytes.
///
/// # Errors
/// Too long, too slow, not JSON by its own account.
pub async fn read(request: Request<Body>) -> Result<Bytes, Refusal> {
    let headers = request.headers();
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        let kind = kind.to_str().unwrap_or("?");
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::MediaType(essence.to_owned()));
        }
    }
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    // Whoever asks before it sends will send nothing.
    let asks_first = headers.contains_key(EXPECT);
    let body = request.into_body();
    if length.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        if !asks_first {
            discard(body);
        }
        return Err(Refusal::TooLarge(MAX_BODY_BYTES));
    }
    match timeout(BODY_TIME, collect(body)).await {
        Ok(collected) => collected,
        Err(_) => Err(Refusal::SlowBody(BODY_TIME.as_secs())),
    }
}

/// Reads a body to its end, or to where it is too long.
async fn collect(mut body: Body) -> Result<Bytes, Refusal> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::Invalid {
            param: None,
            message: "the body ended before its end".to_owned(),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if all.len() + data.len() > MAX_BODY_BYTES {
            discard(body);
            return Err(Refusal::TooLarge(MAX_BODY_BYTES));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.into())
}

/// Reads on for a while what nobody needs, while the refusal is on its way. The connection closes with the body.
fn discard(mut body: Body) {
    let rest = async move {
        let mut n_bytes = 0;
        while n_bytes <= MAX_DISCARDED_BYTES
            && let Some(Ok(frame)) = body.frame().await
        {
            n_bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    tokio::spawn(timeout(DISCARD_TIME, rest));
}

/// A body as a type; errors name the field.
///
/// # Errors
/// [`Refusal::Invalid`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let whole = |message: &str| Refusal::Invalid {
        param: None,
        message: message.to_owned(),
    };
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Err(whole("the body is empty; it must be a JSON object")),
        Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
            return Err(whole("the body must be a JSON object"));
        }
        Some(_) => {}
    }
    if n_values(bytes) > MAX_VALUES {
        return Err(whole(&format!(
            "the body has more than {MAX_VALUES} JSON values"
        )));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(Objects(&mut json))
        .map_err(|error| explain(&error.path().to_string(), error.inner()))?;
    json.end().map_err(|error| explain(".", &error))?;
    Ok(value)
}

/// Values of a text that is JSON: each but the first stands behind a bracket, a brace or a comma. A key counts as part of its value.
fn n_values(bytes: &[u8]) -> usize {
    let (mut n, mut is_string, mut is_escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_string => is_escaped = true,
            b'"' => is_string = !is_string,
            b'[' | b'{' | b',' if !is_string => n += 1,
            _ => {}
        }
    }
    n
}

/// A part of a body that was kept as it came, as a type; `at` is its path.
///
/// # Errors
/// As [`parse`].
pub fn parse_part<T: DeserializeOwned>(at: &str, part: Value) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(Objects(part)).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => at.to_owned(),
            path if path.starts_with('[') => format!("{at}{path}"),
            path => format!("{at}.{path}"),
        };
        explain(&path, error.inner())
    })
}

fn explain(path: &str, error: &serde_json::Error) -> Refusal {
    let path = Some(path).filter(|path| *path != "." && !path.contains('?'));
    if error.is_syntax() || error.is_eof() {
        return explain_syntax(path, error);
    }
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let below = |field: &str| match path {
        None => field.to_owned(),
        // The path may name the field already.
        Some(path) if path == field || path.ends_with(&format!(".{field}")) => path.to_owned(),
        Some(path) => format!("{path}.{field}"),
    };
    if let Some(field) = quoted(text, "unknown field `") {
        let param = below(field);
        let message = format!(
            "{param}: this server does not know this field and cannot honour it; leave it out"
        );
        return Refusal::invalid(param, message);
    }
    if let Some(field) = quoted(text, "duplicate field `") {
        let param = below(field);
        let message = format!("{param}: this field is there twice");
        return Refusal::invalid(param, message);
    }
    if let Some(field) = quoted(text, "missing field `") {
        let param = path.map_or_else(|| field.to_owned(), |path| format!("{path}.{field}"));
        let message = format!("{param}: this field is needed");
        return Refusal::invalid(param, message);
    }
    let text = in_words(text);
    match path {
        Some(path) => Refusal::invalid(path, format!("{path}: {text}")),
        None => Refusal::Invalid {
            param: None,
            message: text,
        },
    }
}

/// What is no JSON, and what is JSON beyond the limits of the one who reads it.
fn explain_syntax(path: Option<&str>, error: &serde_json::Error) -> Refusal {
    let text = error.to_string();
    let beyond = if text.starts_with("number out of range") {
        "this number is out of range".to_owned()
    } else if text.starts_with("recursion limit exceeded") {
        format!("arrays and objects lie in each other deeper than {MAX_LEVELS} levels")
    } else {
        return Refusal::Invalid {
            param: None,
            message: format!("the body is not JSON: {text}"),
        };
    };
    let at = format!("line {}, column {}", error.line(), error.column());
    // The way down to a limit of depth is long; where it begins says enough.
    let field = path.and_then(|path| path.split(['.', '[']).next());
    let param = match path {
        Some(path) if path.len() <= 100 => Some(path),
        _ => field,
    };
    match param {
        Some(param) => Refusal::invalid(param, format!("{param}: {beyond} ({at})")),
        None => Refusal::Invalid {
            param: None,
            message: format!("the body at {at}: {beyond}"),
        },
    }
}

fn quoted<'t>(text: &'t str, begin: &str) -> Option<&'t str> {
    text.strip_prefix(begin)?.split('`').next()
}

/// What serde says of a value, with JSON's words for things instead of Rust's.
pub fn in_words(text: &str) -> String {
    const FOUND: [(&str, &str); 8] = [
        ("invalid type: map", "found an object"),
        ("invalid type: sequence", "found an array"),
        ("invalid type: floating point", "found number"),
        ("invalid type: integer", "found number"),
        ("invalid type: boolean ", "found "),
        ("invalid type: ", "found "),
        ("invalid value: integer", "found number"),
        ("invalid value: ", "found "),
    ];
    let (text, place) = match text.find(" at line ") {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let (found, wanted) = match text.rsplit_once(", expected ") {
        Some((found, wanted)) => (found, Some(wanted)),
        None => (text, None),
    };
    let said = FOUND
        .iter()
        .find_map(|(rust, json)| Some(format!("{json}{}", found.strip_prefix(rust)?)));
    let found = said.unwrap_or_else(|| found.to_owned());
    match wanted {
        Some(wanted) => format!("{found}, expected {}{place}", wanted_in_words(wanted)),
        None => format!("{found}{place}"),
    }
}

/// What a type of Rust takes.
fn wanted_in_words(rust: &str) -> &str {
    match rust {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a map" => "an object",
        "a sequence" => "an array",
        rust if rust.starts_with("struct ") => "an object",
        rust => rust,
    }
}
