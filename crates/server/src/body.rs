//! Bodies: how much of one is taken, how long it may take, and what is wrong with its JSON, by field.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::Refusal;

/// Four times the longest context as text: whoever sends more sends pictures.
pub const MAX_BODY_BYTES: usize = 4 << 20;
/// Values of one body: each takes some ten times its text in memory. 40 tools of 100 kB and a conversation of 1,000 messages have some 20,000.
const MAX_VALUES: usize = 200_000;
/// What is read of a longer one, so that its sender hears why it is refused.
const MAX_DISCARDED_BYTES: usize = 64 << 20;
/// A body arrives within this time.
const BODY_TIME: Duration = Duration::from_secs(60);

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
    if length.is_some_and(|length| length > MAX_DISCARDED_BYTES as u64) {
        return Err(Refusal::TooLarge(MAX_BODY_BYTES));
    }
    match timeout(BODY_TIME, collect(request.into_body())).await {
        Ok(collected) => collected,
        Err(_) => Err(Refusal::SlowBody(BODY_TIME.as_secs())),
    }
}

/// Reads a body to its end, also one that is too long: a client that is cut off while it sends never hears why.
async fn collect(mut body: Body) -> Result<Bytes, Refusal> {
    let (mut all, mut n_bytes) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::Invalid {
            param: None,
            message: "the body ended before its end".to_owned(),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        n_bytes += data.len();
        if n_bytes <= MAX_BODY_BYTES {
            all.extend_from_slice(&data);
        } else if n_bytes > MAX_DISCARDED_BYTES {
            break;
        } else {
            all = Vec::new();
        }
    }
    if n_bytes > MAX_BODY_BYTES {
        return Err(Refusal::TooLarge(MAX_BODY_BYTES));
    }
    Ok(all.into())
}

/// A body as a type; errors name the field.
///
/// # Errors
/// [`Refusal::Invalid`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    if n_values(bytes) > MAX_VALUES {
        return Err(Refusal::Invalid {
            param: None,
            message: format!("the body has more than {MAX_VALUES} JSON values"),
        });
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })?;
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

fn explain(path: &str, error: &serde_json::Error) -> Refusal {
    let path = Some(path).filter(|path| *path != ".");
    if error.is_syntax() || error.is_eof() {
        return Refusal::Invalid {
            param: None,
            message: format!("the body is not JSON: {error}"),
        };
    }
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    if let Some(field) = quoted(text, "unknown field `") {
        let param = match path {
            None => field.to_owned(),
            // The path may name the field already.
            Some(path) if path == field || path.ends_with(&format!(".{field}")) => path.to_owned(),
            Some(path) => format!("{path}.{field}"),
        };
        let message = format!(
            "{param}: this server does not know this field and cannot honour it; leave it out"
        );
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

fn quoted<'t>(text: &'t str, begin: &str) -> Option<&'t str> {
    text.strip_prefix(begin)?.split('`').next()
}

/// What serde says of a value, with JSON's words for things instead of Rust's.
pub fn in_words(text: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("invalid type: map", "found an object"),
        ("invalid type: sequence", "found an array"),
        ("invalid type: floating point", "found number"),
        ("invalid type: ", "found "),
        ("invalid value: ", "found "),
    ];
    let said = WORDS
        .iter()
        .find_map(|(rust, json)| Some(format!("{json}{}", text.strip_prefix(rust)?)));
    said.unwrap_or_else(|| text.to_owned())
}
