//! What the environment says about model hubs, their tokens and the way to them; the library below reads none of it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use directories::BaseDirs;
use ouzel_install::{HubOptions, Proxy, Token};
use ouzel_storage::ShowPath;

use crate::exit::usage;

/// How to reach a repository, as the environment of the hub's other programs has it.
pub fn options(
    repository: &str,
    revision: &str,
    cancel: &Arc<AtomicBool>,
) -> anyhow::Result<HubOptions> {
    let mut options = HubOptions::new(repository, revision);
    options.cancel = cancel.clone();
    if let Some((name, endpoint)) = variable(&["HF_ENDPOINT"]) {
        options.endpoint = text(name, endpoint)?;
    }
    options.token = token()?;
    let proxies = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    if let Some((name, proxy)) = variable(&proxies) {
        let except = match variable(&["NO_PROXY", "no_proxy"]) {
            Some((name, except)) => text(name, except)?,
            None => String::new(),
        };
        options.proxy = Some(Proxy::parse(&text(name, proxy)?, &except).context(name)?);
    }
    if let Some((name, path)) = variable(&["SSL_CERT_FILE"]) {
        let pem = fs::read(&path);
        options.certificates =
            Some(pem.with_context(|| format!("{name}: {}", Path::new(&path).shown()))?);
    }
    Ok(options)
}

/// `HF_TOKEN`, else the file where `hf auth login` puts it.
fn token() -> anyhow::Result<Option<Token>> {
    if let Some((name, token)) = variable(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) {
        return Ok(Some(Token::parse(&text(name, token)?).context(name)?));
    }
    let folder = |name| variable(&[name]).map(|(_, path)| PathBuf::from(path));
    let cache = folder("XDG_CACHE_HOME");
    let cache = cache.or_else(|| Some(BaseDirs::new()?.home_dir().join(".cache")));
    let home = folder("HF_HOME").or_else(|| Some(cache?.join("huggingface")));
    let path = folder("HF_TOKEN_PATH");
    let Some(path) = path.or_else(|| Some(home?.join("token"))) else {
        return Ok(None);
    };
    // Nobody has to have one.
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => {
            let token = Token::parse(&text);
            Ok(Some(token.with_context(|| path.shown().to_string())?))
        }
        _ => Ok(None),
    }
}

/// The first of these variables that is set to something, and its name.
fn variable(names: &[&'static str]) -> Option<(&'static str, OsString)> {
    let mut values = names
        .iter()
        .filter_map(|&name| Some((name, env::var_os(name)?)));
    values.find(|(_, value)| !value.to_string_lossy().trim().is_empty())
}

/// What is said there counts: a mirror or a token that is no text is not passed over for the usual one.
fn text(name: &str, value: OsString) -> anyhow::Result<String> {
    value
        .into_string()
        .map_err(|_| usage(format!("{name} is not UTF-8")))
}
