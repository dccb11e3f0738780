//! Bodies: how much of one is taken, how long it may take, and what is wrong with its JSON, by field.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::error::Refusal;

/// Twenty times a context of 200,000 tokens as text: whoever sends more sends pictures.
pub const MAX_BODY_BYTES: usize = 16 << 20;
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
    if length.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(Refusal::TooLarge(MAX_BODY_BYTES));
    }
    match timeout(BODY_TIME, to_bytes(request.into_body(), MAX_BODY_BYTES)).await {
        Err(_) => Err(Refusal::SlowBody(BODY_TIME.as_secs())),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_long(&error) => Err(Refusal::TooLarge(MAX_BODY_BYTES)),
        Ok(Err(_)) => Err(Refusal::Invalid {
            param: None,
            message: "the body ended before its end".to_owned(),
        }),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        if at.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = at.source();
    }
    false
}

/// A body as a type; errors name the field.
///
/// # Errors
/// [`Refusal::Invalid`].
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value: T = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        explain(&path, error.inner())
    })?;
    json.end().map_err(|error| explain(".", &error))?;
    Ok(value)
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
        let inside = path.map(|path| {
            path.strip_suffix(field)
                .unwrap_or(path)
                .trim_end_matches('.')
        });
        let param = match inside {
            Some(inside) if !inside.is_empty() => format!("{inside}.{field}"),
            _ => field.to_owned(),
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

/// What serde says, with JSON's words for things instead of Rust's.
fn in_words(text: &str) -> String {
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
