//! Addresses on the web, as far as an installation meets them: an endpoint, what it redirects to, a proxy.
//!
//! Plain http is for loopback only. What cannot be part of an address is refused here, so that no name can smuggle a line into a request.

use crate::InstallError;

/// Who is talked to: the scheme, the host, the port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Authority {
    /// Whether the connection is encrypted.
    pub is_https: bool,
    /// In lower case, an IPv6 address without its brackets.
    pub host: String,
    /// The port, also where it was not said.
    pub port: u16,
}

/// An address without fragment or credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whose it is.
    pub authority: Authority,
    /// Path and query, from the slash.
    pub path: String,
}

impl Authority {
    /// Whether nobody but this machine answers there.
    pub fn is_loopback(&self) -> bool {
        let ip = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }

    /// `host:port`, as connections and proxies take it.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    /// What a `Host` header says: the port only where it is not the scheme's own.
    pub fn host_header(&self) -> String {
        match (self.is_https, self.port) {
            (true, 443) | (false, 80) => self.bracketed(),
            _ => self.host_and_port(),
        }
    }

    fn bracketed(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        }
    }
}

impl Address {
    /// Reads an absolute address.
    ///
    /// # Errors
    /// [`InstallError::Address`].
    pub fn parse(text: &str) -> Result<Address, InstallError> {
        let refuse = |reason: &str| InstallError::Address {
            text: shown(text),
            reason: reason.to_owned(),
        };
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| refuse("an address begins with https://"))?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(refuse("an address begins with https://")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        if host.contains('@') {
            return Err(refuse("credentials do not belong into an address"));
        }
        let (host, port) = host_and_port(host, if is_https { 443 } else { 80 })
            .ok_or_else(|| refuse("it has no valid host and port"))?;
        if !path.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(refuse("spaces and other letters have to be encoded as %20"));
        }
        let authority = Authority {
            is_https,
            host,
            port,
        };
        if !is_https && !authority.is_loopback() {
            return Err(refuse("plain http is for this machine only; use https"));
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Address {
            authority,
            path: format!("{slash}{path}"),
        })
    }

    /// Where a `Location` header of an answer from here leads.
    ///
    /// # Errors
    /// [`InstallError::Address`].
    pub fn join(&self, location: &str) -> Result<Address, InstallError> {
        if location.contains("://") && !location.starts_with('/') {
            let next = Address::parse(location)?;
            // A hub on the web has no business with what listens on this machine.
            if self.authority.is_https && !next.authority.is_https {
                return Err(InstallError::Address {
                    text: next.shown(),
                    reason: "the hub redirected from https to http".to_owned(),
                });
            }
            return Ok(next);
        }
        let scheme = if self.authority.is_https {
            "https"
        } else {
            "http"
        };
        if let Some(rest) = location.strip_prefix("//") {
            return Address::parse(&format!("{scheme}://{rest}"));
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        let folder = if location.starts_with('/') {
            ""
        } else {
            folder
        };
        let authority = self.authority.host_and_port();
        Address::parse(&format!("{scheme}://{authority}{folder}{location}"))
    }

    /// The address without its query, which may be a signature: for messages.
    pub fn shown(&self) -> String {
        let scheme = if self.authority.is_https {
            "https"
        } else {
            "http"
        };
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{scheme}://{}{path}", self.authority.host_header())
    }
}

/// A text of unknown origin in a message: its beginning, on one line.
pub fn shown(text: &str) -> String {
    let query = text.find('?').unwrap_or(text.len());
    let after = text
        .find('@')
        .filter(|&at| at < query)
        .map_or(0, |at| at + 1);
    text[after..query].escape_debug().take(200).collect()
}

/// Splits `host[:port]`.
pub fn host_and_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let at = text.find(':').unwrap_or(text.len());
            let (host, port) = text.split_at(at);
            let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.' || b == b'_';
            if host.is_empty() || !host.bytes().all(is_name) {
                return None;
            }
            (host, port)
        }
    };
    let port = match port.strip_prefix(':') {
        Some(digits) => digits.parse().ok().filter(|&port| port != 0)?,
        None if port.is_empty() => default,
        None => return None,
    };
    Some((host.to_ascii_lowercase(), port))
}

/// One part of a path, encoded so that it stays one part, whatever it holds.
pub fn encode(part: &str) -> String {
    let mut encoded = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
