//! Whether an SPDX licence expression can be met with licences from a list.

use anyhow::{bail, ensure};

/// `OR` needs one side, `AND` both; an exception (`WITH`) only adds rights, and the old `A/B` means `A OR B`.
///
/// # Errors
/// If it is no expression.
pub fn is_met(expression: &str, allowed: &[String]) -> anyhow::Result<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let met = any(&mut rest, allowed)?;
    ensure!(rest.is_empty(), "{expression}: {} is out of place", rest[0]);
    Ok(met)
}

fn any(rest: &mut &[&str], allowed: &[String]) -> anyhow::Result<bool> {
    let mut met = all(rest, allowed)?;
    while take(rest, "OR") {
        // Both sides are read, met or not.
        met |= all(rest, allowed)?;
    }
    Ok(met)
}

fn all(rest: &mut &[&str], allowed: &[String]) -> anyhow::Result<bool> {
    let mut met = one(rest, allowed)?;
    while take(rest, "AND") {
        met &= one(rest, allowed)?;
    }
    Ok(met)
}

fn one(rest: &mut &[&str], allowed: &[String]) -> anyhow::Result<bool> {
    if take(rest, "(") {
        let met = any(rest, allowed)?;
        ensure!(take(rest, ")"), "a parenthesis is missing");
        return Ok(met);
    }
    let licence = word(rest)?;
    if take(rest, "WITH") {
        word(rest)?;
    }
    Ok(allowed.iter().any(|name| name == licence))
}

fn word<'a>(rest: &mut &[&'a str]) -> anyhow::Result<&'a str> {
    match rest.split_first() {
        Some((first, others)) if !["OR", "AND", "WITH", "(", ")"].contains(first) => {
            *rest = others;
            Ok(first)
        }
        Some((first, _)) => bail!("{first} where a name belongs"),
        None => bail!("a name is missing"),
    }
}

fn take(rest: &mut &[&str], expected: &str) -> bool {
    let is_it = rest.first() == Some(&expected);
    if is_it {
        *rest = &rest[1..];
    }
    is_it
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> anyhow::Result<bool> {
        is_met(expression, &["MIT".to_owned(), "Apache-2.0".to_owned()])
    }

    #[test]
    fn expressions_are_met_or_not() {
        for met in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT AND Apache-2.0) OR GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(check(met).unwrap(), "{met}");
        }
        for unmet in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR LGPL-3.0)",
            "MIT-0",
            "mit",
        ] {
            assert!(!check(unmet).unwrap(), "{unmet}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for bad in [
            "", "MIT OR", "(MIT", "MIT)", "OR MIT", "MIT MIT", "MIT WITH",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
