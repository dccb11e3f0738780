//! Who may use the page's addresses: whoever came with the token, once, or with the API key, and has the cookie since.
//!
//! The guard before this door keeps strange names and origins out. What is left are other programs on the same machine, also those of other users,
//! and their pages, which a browser counts as the same site. None of them knows the token, and no script can read the cookie. A browser sends a
//! cookie to every port of a host, though, so a server of another user sees it if a person opens a page of theirs below `/app`: whoever shares
//! a machine with people that they do not trust has to know that. A request that a browser marks as another site's is refused even with it.

use std::sync::{Mutex, OnceLock, PoisonError};

use axum::http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;

/// Random bytes of a secret: as many as nobody can try.
const SECRET_BYTES: usize = 24;
/// A browser that was closed finds its way back for this long, if the server still runs: thirty days.
const COOKIE_S: u64 = 30 * 24 * 3600;

/// Both secrets live as long as the server.
pub struct Door {
    token: Mutex<Token>,
    session: String,
    /// Cookies do not know ports, so each server's has a name of its own.
    cookie: OnceLock<String>,
}

struct Token {
    secret: String,
    is_used: bool,
}

impl Door {
    /// A door with new secrets.
    pub fn new() -> Result<Door, getrandom::Error> {
        let token = Token {
            secret: secret()?,
            is_used: false,
        };
        Ok(Door {
            token: Mutex::new(token),
            session: secret()?,
            cookie: OnceLock::new(),
        })
    }

    /// Says on which port the server listens, once.
    pub fn listens(&self, port: u16) {
        // A server has one port; a second call would say the same.
        let _ = self.cookie.set(format!("ouzel-{port}"));
    }

    /// The token that opens once.
    pub fn token(&self) -> String {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.secret.clone()
    }

    /// Whether this is the token, for the first time.
    pub fn takes(&self, given: &str) -> bool {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let opens = !token.is_used && is_same(given, &token.secret);
        token.is_used |= opens;
        opens
    }

    /// The header that gives the cookie. It has no `Secure`: there is no TLS here.
    pub fn cookie(&self) -> Option<HeaderValue> {
        let (name, session) = (self.name(), &self.session);
        let text =
            format!("{name}={session}; Path=/app; HttpOnly; SameSite=Strict; Max-Age={COOKIE_S}");
        HeaderValue::from_str(&text).ok()
    }

    /// Whether a request comes from this page and has the cookie.
    pub fn is_inside(&self, headers: &HeaderMap) -> bool {
        is_own(headers) && self.has_cookie(headers)
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .any(|(name, value)| name == self.name() && is_same(value, &self.session))
    }

    fn name(&self) -> &str {
        self.cookie.get().map_or("ouzel", String::as_str)
    }
}

/// Whether a browser, if it is one, says that the request is the page's own or was typed by a person.
pub fn is_own(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    site.is_none_or(|site| site == b"same-origin" || site == b"none")
}

/// The time tells the length at most.
pub fn is_same(given: &str, secret: &str) -> bool {
    bool::from(given.as_bytes().ct_eq(secret.as_bytes()))
}

/// Random digits that nobody can try.
pub fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_opens_once_and_nothing_else_does() {
        let door = Door::new().unwrap();
        let token = door.token();
        for wrong in ["", "x", &token[1..], &door.session, &format!("{token}0")] {
            assert!(!door.takes(wrong), "{wrong}");
        }
        assert!(door.takes(&token));
        assert!(!door.takes(&token));
    }

    #[test]
    fn the_cookie_is_found_among_others_and_bound_to_the_port() {
        let door = Door::new().unwrap();
        door.listens(8080);
        let session = &door.session;
        let with = |cookie: &str, site: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.append(header::COOKIE, cookie.parse().unwrap());
            if let Some(site) = site {
                headers.insert("sec-fetch-site", site.parse().unwrap());
            }
            door.is_inside(&headers)
        };
        let right = format!("ouzel-8080={session}");
        assert!(with(&right, None));
        assert!(with(&format!("a=b; {right}; c=d"), Some("same-origin")));
        assert!(with(&right, Some("none")));
        // Another port of the same machine is the same site, and not this page.
        assert!(!with(&right, Some("same-site")));
        assert!(!with(&right, Some("cross-site")));
        assert!(!with(&format!("ouzel-8081={session}"), None));
        assert!(!with(&format!("ouzel-8080={}", &session[1..]), None));
        assert!(!with("ouzel-8080=", None));
        let cookie = door.cookie().unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(
            cookie.contains("Path=/app;")
                && cookie.contains("HttpOnly")
                && cookie.contains("SameSite=Strict")
        );
        assert_ne!(door.token(), *session);
    }
}
