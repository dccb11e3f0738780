//! Values of flags: sizes with units, numbers in their ranges. Each error says what would be allowed.

use std::time::Duration;

use super::Memory;

/// The largest count of tokens or slots that any model here could have a use for.
const MAX_COUNT: u32 = 1 << 20;
/// The largest memory size: more than any machine has, and far from overflow.
const MAX_SIZE: f64 = (1_u64 << 50) as f64;

const UNITS: [(&str, u64); 7] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("b", 1),
];

/// A count from `low` to 1,048,576.
pub fn count(low: u32) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    count_to(low, MAX_COUNT)
}

/// A count from `low` to `high`.
pub fn count_to(
    low: u32,
    high: u32,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value = text.parse::<u32>().ok();
        value
            .filter(|value| (low..=high).contains(value))
            .ok_or_else(|| format!("expected a whole number from {low} to {high}"))
    }
}

/// A port.
pub fn port(text: &str) -> Result<u16, String> {
    text.parse()
        .map_err(|_| "expected a whole number from 0 to 65535; 0 takes a free port".to_owned())
}

/// Any u64.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("expected a whole number from 0 to {}", u64::MAX))
}

/// `auto`, or bytes: a number and a unit, as in `2GiB` or `1500MB`; a whole number alone is bytes.
pub fn memory(text: &str) -> Result<Memory, String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(Memory::Auto);
    }
    size(text, "auto").map(Memory::Bytes)
}

/// Bytes as [`memory`] takes them, or `0`.
pub fn size_or_nothing(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        Ok(0)
    } else {
        size(text, "0")
    }
}

/// Bytes; `or` is what else the flag takes.
fn size(text: &str, or: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let unit = UNITS.iter().find(|(unit, _)| lower.ends_with(unit));
    let (number, factor) = match unit {
        Some((unit, factor)) => (lower[..lower.len() - unit.len()].trim_end(), *factor),
        None => (lower.as_str(), 1),
    };
    let is_plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let bytes = number.parse::<f64>().unwrap_or(f64::NAN) * factor as f64;
    if !is_plain || !(1.0..=MAX_SIZE).contains(&bytes) {
        return Err(format!(
            "expected {or}, or a size such as 2GiB, 1.5GiB or 800MB (units KiB, MiB, GiB, KB, MB, GB), at most 1048576GiB"
        ));
    }
    Ok(bytes as u64)
}

fn number(text: &str, is_allowed: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|value| is_allowed(*value));
    value.ok_or_else(|| format!("expected {expected}"))
}

/// 0 to 10.
pub fn temperature(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=10.0).contains(&x), "a number from 0 to 10")
}

/// 0 to 2, as in requests.
pub fn temperature_of_requests(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=2.0).contains(&x), "a number from 0 to 2")
}

/// Above 0, to 1.
pub fn top_p(text: &str) -> Result<f32, String> {
    number(
        text,
        |x| x > 0.0 && x <= 1.0,
        "a number above 0 and at most 1",
    )
}

/// 0 to 1.
pub fn probability(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "a number from 0 to 1")
}

/// Above 0, to 10.
pub fn repetition_penalty(text: &str) -> Result<f32, String> {
    number(
        text,
        |x| x > 0.0 && x <= 10.0,
        "a number above 0 and at most 10",
    )
}

/// -2 to 2.
pub fn penalty(text: &str) -> Result<f32, String> {
    number(text, |x| (-2.0..=2.0).contains(&x), "a number from -2 to 2")
}

/// Any text but the empty one, which would end every answer.
pub fn stop_string(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("expected a text that is not empty".to_owned());
    }
    Ok(text.to_owned())
}

/// Any text but the empty one.
pub fn non_empty(text: &str) -> Result<String, String> {
    stop_string(text)
}

/// `*`, or an origin as browsers say it, without a path; a slash at its end is forgiven.
pub fn origin(text: &str) -> Result<String, String> {
    let origin = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let is_host = |host: &str| {
        let is_in_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        host.chars().all(is_in_host) && host.chars().any(|c| c.is_ascii_alphanumeric())
    };
    // What has no address, such as a page from a file, says `null`.
    let is_word = matches!(origin.as_str(), "*" | "null");
    let is_address = origin
        .split_once("://")
        .is_some_and(|(scheme, host)| is_scheme(scheme) && is_host(host));
    if is_word || is_address {
        return Ok(origin);
    }
    Err("expected an origin such as https://example.org or http://localhost:3000, without a path, or * for all".to_owned())
}

/// A time: a whole number and a unit, as in `90s`, `10m` or `2h`; at most a week.
pub fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];
    const MOST: u64 = 7 * 24 * 3600;
    let seconds = UNITS.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    match seconds {
        Some(seconds @ 1..=MOST) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a time such as 90s, 10m or 2h, at most 168h".to_owned()),
    }
}
