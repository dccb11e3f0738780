//! What the environment says about model hubs, their tokens and the way to them; the library below reads none of it.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use directories::BaseDirs;
use ouzel_install::{HubOptions, Proxy, Token};

/// How to reach a repository, as the environment of the hub's other programs has it.
pub fn options(repository: &str, revision: &str) -> anyhow::Result<HubOptions> {
    let mut options = HubOptions::new(repository, revision);
    if let Some(endpoint) = variable(&["HF_ENDPOINT"]) {
        options.endpoint = endpoint;
    }
    options.token = token().context("HF_TOKEN")?;
    if let Some(proxy) = variable(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]) {
        let except = variable(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
        options.proxy = Some(Proxy::parse(&proxy, &except).context("HTTPS_PROXY")?);
    }
    if let Some(path) = variable(&["SSL_CERT_FILE"]) {
        let pem = fs::read(&path).with_context(|| format!("SSL_CERT_FILE: {path}"))?;
        options.certificates = Some(pem);
    }
    Ok(options)
}

/// `HF_TOKEN`, else the file where `hf auth login` puts it.
fn token() -> anyhow::Result<Option<Token>> {
    if let Some(token) = variable(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) {
        return Ok(Some(Token::parse(&token)?));
    }
    let cache = variable(&["XDG_CACHE_HOME"]).map(PathBuf::from);
    let cache = cache.or_else(|| Some(BaseDirs::new()?.home_dir().join(".cache")));
    let home = variable(&["HF_HOME"]).map(PathBuf::from);
    let home = home.or_else(|| Some(cache?.join("huggingface")));
    let path = variable(&["HF_TOKEN_PATH"]).map(PathBuf::from);
    let Some(path) = path.or_else(|| Some(home?.join("token"))) else {
        return Ok(None);
    };
    // Nobody has to have one.
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => Ok(Some(Token::parse(&text)?)),
        _ => Ok(None),
    }
}

/// The first of these variables that is set to something.
fn variable(names: &[&str]) -> Option<String> {
    let mut values = names.iter().filter_map(|name| env::var(name).ok());
    values.find(|value| !value.trim().is_empty())
}
