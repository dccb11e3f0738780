//! One question to the hub or its storage, and what may be made of the answer.
//!
//! Redirects are followed here, by hand, so that the token goes to the endpoint's own host and nowhere else, and so that an answer is
//! compared with what was asked for before a byte of it is used: commit, range, length, entity. What is wrong is either
//! [`Trouble::Passing`], worth another try, or [`Trouble::Final`].

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::address::{Address, Authority, shown};
use super::connection::{Connector, Sender};
use crate::InstallError;

/// Redirects that one question may meet.
const MAX_REDIRECTS: usize = 5;
/// The longest wait that a hub may ask for; a longer one is cut.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Why there is no answer that could be used.
#[derive(Debug)]
pub enum Trouble {
    /// It may go better next time.
    Passing {
        /// What happened.
        reason: String,
        /// How long the hub asked to wait.
        wait: Option<Duration>,
    },
    /// It will not.
    Final(InstallError),
}

impl Trouble {
    /// Worth another try.
    pub fn passing(reason: impl Into<String>) -> Trouble {
        Trouble::Passing {
            reason: reason.into(),
            wait: None,
        }
    }
}

impl From<InstallError> for Trouble {
    fn from(error: InstallError) -> Trouble {
        Trouble::Final(error)
    }
}

/// The hub, as every question needs to know it.
pub struct Origin {
    /// Its address without a slash at the end.
    pub endpoint: Address,
    /// `owner/name`.
    pub repository: String,
    /// An `Authorization` header.
    pub token: Option<Token>,
    /// How connections are made.
    pub connector: Connector,
    /// The longest time without a byte.
    pub stall: Duration,
}

/// A secret; it prints as nothing.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token without the white space that files put around it.
    ///
    /// # Errors
    /// [`InstallError::Address`] if it cannot be part of a request.
    pub fn parse(text: &str) -> Result<Token, InstallError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(InstallError::Address {
                text: "the token".to_owned(),
                reason: "empty, or with letters that no token has".to_owned(),
            });
        }
        Ok(Token(text.to_owned()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// The connections of one worker: one to each host that it talks to.
#[derive(Default)]
pub struct Connections(BTreeMap<Authority, Sender>);

impl Origin {
    /// Asks one host once.
    pub async fn ask(
        &self,
        connections: &mut Connections,
        method: &Method,
        address: &Address,
        range: Option<(u64, u64)>,
    ) -> Result<Response<Incoming>, Trouble> {
        let request = self.request(method, address, range);
        let kept = connections.0.remove(&address.authority);
        let mut sender = match kept.filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.open(address).await?,
        };
        let asked = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let response = timeout(self.stall, asked)
            .await
            .map_err(|_| self.stalled())?
            .map_err(|error| {
                let causes = causes(&error);
                Trouble::passing(format!("{}: {causes}", address.authority.host))
            })?;
        connections.0.insert(address.authority.clone(), sender);
        Ok(response)
    }

    async fn open(&self, address: &Address) -> Result<Sender, Trouble> {
        let connecting = self.connector.connect(&address.authority);
        connecting.await.map_err(Trouble::passing)
    }

    /// The next bytes of a body; `None` at its end.
    pub async fn next(&self, body: &mut Incoming) -> Result<Option<Bytes>, Trouble> {
        loop {
            let frame = timeout(self.stall, body.frame())
                .await
                .map_err(|_| self.stalled())?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    let causes = causes(&error);
                    return Err(Trouble::passing(format!("the connection broke: {causes}")));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    fn stalled(&self) -> Trouble {
        Trouble::passing(format!("no byte for {} s", self.stall.as_secs()))
    }

    fn request(
        &self,
        method: &Method,
        address: &Address,
        range: Option<(u64, u64)>,
    ) -> Request<Empty<Bytes>> {
        let mut request = Request::builder()
            .method(method)
            .uri(&address.path)
            .header(header::HOST, address.authority.host_header())
            .header(header::ACCEPT_ENCODING, "identity")
            .header(
                header::USER_AGENT,
                concat!("ouzel/", env!("CARGO_PKG_VERSION")),
            );
        if let Some((offset, len)) = range {
            let range = format!("bytes={offset}-{}", offset + len - 1);
            request = request.header(header::RANGE, range);
        }
        if let Some(Token(token)) = &self.token
            && address.authority == self.endpoint.authority
        {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
            .body(Empty::new())
            .expect("addresses and tokens have only letters that requests have")
    }

    /// Asks and follows redirects: to any host, or only as long as they stay at the endpoint. The last address is where the answer
    /// is from, or where it leads away to.
    pub async fn follow(
        &self,
        connections: &mut Connections,
        method: &Method,
        start: &Address,
        range: Option<(u64, u64)>,
        stays: bool,
    ) -> Result<Followed, Trouble> {
        let mut address = start.clone();
        let mut headers = HeaderMap::new();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.ask(connections, method, &address, range).await?;
            // What the hub says on the way counts as much as what is said at the end.
            for (name, value) in response.headers() {
                headers.entry(name).or_insert_with(|| value.clone());
            }
            if !response.status().is_redirection() {
                return Ok(Followed {
                    address,
                    headers,
                    response: Some(response),
                });
            }
            let location = text(response.headers(), header::LOCATION.as_str())
                .ok_or_else(|| Trouble::passing("a redirect without a target"))?;
            let next = address.join(location)?;
            // Its body is of no use, and the connection waits until it is read.
            connections.0.remove(&address.authority);
            if stays && next.authority != self.endpoint.authority {
                return Ok(Followed {
                    address: next,
                    headers,
                    response: None,
                });
            }
            address = next;
        }
        Err(Trouble::passing("too many redirects"))
    }

    /// What a status that is no success means.
    pub fn refusal(&self, address: &Address, status: StatusCode, headers: &HeaderMap) -> Trouble {
        let here = address.authority == self.endpoint.authority;
        let code = text(headers, "x-error-code").unwrap_or_default();
        let final_error = |reason: &str| {
            Trouble::Final(InstallError::Refused {
                repository: self.repository.clone(),
                reason: reason.to_owned(),
            })
        };
        match status.as_u16() {
            401 | 403 if here && self.token.is_some() => final_error(
                "the hub refuses this token; accept the repository's terms on its page with the token's account, or set HF_TOKEN to \
                 another token",
            ),
            401 | 403 if here => final_error(
                "the hub does not show it to everyone: check the name; for a gated one accept the terms on its page and set HF_TOKEN to \
                 a token of your account",
            ),
            404 if here && code == "RevisionNotFound" => {
                final_error("it has no such revision; check --revision")
            }
            404 if here => final_error("there is no such repository or file; check --repo"),
            429 => Trouble::Passing {
                reason: "too many requests, says the hub".to_owned(),
                wait: retry_after(headers),
            },
            503 => Trouble::Passing {
                reason: format!("{} answered {status}", address.authority.host),
                wait: retry_after(headers),
            },
            // A signature that expired, an object that moved, a fault of theirs: resolved anew, it may be there again.
            _ => Trouble::passing(format!("{} answered {status}", address.authority.host)),
        }
    }
}

/// Where redirects led.
pub struct Followed {
    /// The last address.
    pub address: Address,
    /// The first value of each header on the way.
    pub headers: HeaderMap,
    /// The answer, unless redirects led away from the endpoint.
    pub response: Option<Response<Incoming>>,
}

/// What an answer with bytes has to be.
pub struct Wanted<'a> {
    /// Where its bytes start.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// The size of the file.
    pub size: u64,
    /// The entity that this host answered with before.
    pub entity: Option<&'a str>,
    /// The commit.
    pub commit: &'a str,
}

impl Wanted<'_> {
    /// The range to ask for; a whole file is asked for as such.
    pub fn range(&self) -> Option<(u64, u64)> {
        (self.len < self.size).then_some((self.offset, self.len))
    }

    /// Compares the head of a successful answer with the question.
    ///
    /// # Errors
    /// [`Trouble::Passing`]: what is wrong may be an expired address, a cache or a portal in between.
    pub fn check(&self, response: &Response<Incoming>) -> Result<(), Trouble> {
        let (status, headers) = (response.status(), response.headers());
        let wrong = |reason: String| Err(Trouble::passing(reason));
        let expected = match self.range() {
            Some(_) => StatusCode::PARTIAL_CONTENT,
            None => StatusCode::OK,
        };
        if status != expected {
            return wrong(format!("answered {status} where {expected} was due"));
        }
        if let Some(encoding) = text(headers, "content-encoding").filter(|e| *e != "identity") {
            return wrong(format!("compressed the bytes ({})", shown(encoding)));
        }
        if text(headers, "content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            return wrong("sent a web page instead of the file".to_owned());
        }
        if let Some(commit) = text(headers, "x-repo-commit").filter(|c| *c != self.commit) {
            return wrong(format!(
                "answered with commit {} instead of {}",
                shown(commit),
                self.commit
            ));
        }
        if let (Some(before), Some(now)) = (self.entity, entity(headers))
            && before != now
        {
            return wrong("the file changed between two requests".to_owned());
        }
        if self.range().is_some() {
            let last = self.offset + self.len - 1;
            let range = format!("bytes {}-{last}/{}", self.offset, self.size);
            let found = text(headers, "content-range").unwrap_or("none");
            if found != range {
                return wrong(format!(
                    "sent the range {} instead of {range}",
                    shown(found)
                ));
            }
        }
        let length = text(headers, "content-length").and_then(|text| text.parse::<u64>().ok());
        match length {
            Some(n) if n == self.len => Ok(()),
            // A whole small file may come without it; what comes is counted.
            None if self.range().is_none() => Ok(()),
            Some(n) => wrong(format!("announced {n} bytes instead of {}", self.len)),
            None => wrong("did not say how many bytes come".to_owned()),
        }
    }
}

/// What the HTTP library says, down to the system's word.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        said.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    said
}

/// A header as text.
pub fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// The entity of an answer, without what tells a weak tag from a strong one.
pub fn entity(headers: &HeaderMap) -> Option<&str> {
    text(headers, "etag").map(unquoted)
}

/// A tag without its quotes.
pub fn unquoted(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = text(headers, "retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}
