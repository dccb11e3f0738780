//! Who may ask: keys, hosts, origins. Every request passes here before anything of it is read.
//!
//! A page in a browser can send requests to loopback. Two things tell it from a program: its `Origin`, and, after it has rebound its own
//! name to 127.0.0.1, its `Host`. So without a key only names of loopback are answered to, and with an `Origin` only the server's own
//! and those that the operator named.
//!
//! Whatever the router itself refuses, such as an address that is no text, gets the envelope of its API here.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::error::Refusal;
use crate::log::Record;
use crate::options::ServerOptions;
use crate::wire::Shape;

/// Needs no key: monitors ask it.
const OPEN: &str = "/health";
/// Seconds for which a browser remembers a preflight.
const PREFLIGHT_AGE: &str = "600";

/// Lets a request through or refuses it; counts and tells both.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let shape = Shape::of(&path);
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let origin = request.headers().get(header::ORIGIN).cloned();
    let mut response = match check(&app.options, &request) {
        Err(refusal) => shape.response(&refusal),
        Ok(Pass::Preflight) => preflight(request.headers()),
        Ok(Pass::Request) => enveloped(next.run(request).await, shape, path),
    };
    if let Some(origin) = origin.filter(|origin| is_listed(&app.options, origin)) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    let status = response.status().as_u16();
    app.metrics.count_request(status);
    app.log.record(&Record::Request {
        method: method.as_str(),
        route: matched.as_ref().map_or("unknown", MatchedPath::as_str),
        status,
        took: began.elapsed(),
    });
    response
}

/// The response, unless it is the router's own refusal of an address whose parts it cannot read: there is nothing there.
fn enveloped(response: Response, shape: Shape, path: String) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if response.status().is_client_error() && is_text {
        return shape.response(&Refusal::NotFound(path));
    }
    response
}

enum Pass {
    Request,
    Preflight,
}

fn check(options: &ServerOptions, request: &Request<Body>) -> Result<Pass, Refusal> {
    let headers = request.headers();
    check_host(request)?;
    let host = host_of(request);
    if options.api_key.is_none() && host.is_some_and(|host| !is_local(options, host)) {
        return Err(Refusal::Forbidden(
            "this server answers to names of loopback only, such as localhost and 127.0.0.1; another name needs an API key".to_owned(),
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN)
        && !is_listed(options, origin)
        && !is_same(origin, host)
    {
        return Err(Refusal::Forbidden(
            "pages of this origin may not use this server; start it with --cors-origin to let them"
                .to_owned(),
        ));
    }
    if *request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    {
        return Ok(Pass::Preflight);
    }
    match &options.api_key {
        Some(key) if !needs_no_key(options, request.uri().path()) && !says_key(headers, key) => {
            Err(Refusal::Unauthorized)
        }
        _ => Ok(Pass::Request),
    }
}

/// HTTP/1.1 wants one name. Without one nobody could tell a page that has rebound its own, and of two a proxy may have checked the other.
fn check_host(request: &Request<Body>) -> Result<(), Refusal> {
    let message = match request.headers().get_all(header::HOST).iter().count() {
        0 if request.version() == Version::HTTP_11 => "the request has no Host header",
        0 | 1 => return Ok(()),
        _ => "the request has several Host headers",
    };
    Err(Refusal::Invalid {
        param: None,
        message: format!("{message}; HTTP/1.1 wants one"),
    })
}

/// The name by which the client calls the server; programs that speak HTTP/1.0 may have none.
fn host_of(request: &Request<Body>) -> Option<&str> {
    let header = request.headers().get(header::HOST);
    match header {
        // A name that is no text is nobody's.
        Some(value) => Some(value.to_str().unwrap_or("?")),
        None => request.uri().host(),
    }
}

fn is_local(options: &ServerOptions, host: &str) -> bool {
    let name = without_port(host);
    let is_loopback = name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    is_loopback
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(&options.host)
}

/// `[::1]:8080`, `::1`, `localhost:8080`, `localhost` without brackets and port.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => name,
        _ => host,
    }
}

/// Whether the operator named this origin.
fn is_listed(options: &ServerOptions, origin: &HeaderValue) -> bool {
    let listed = &options.cors_origins;
    listed
        .iter()
        .any(|known| known == "*" || known.trim_end_matches('/').as_bytes() == origin.as_bytes())
}

/// Whether the page came from this server.
fn is_same(origin: &HeaderValue, host: Option<&str>) -> bool {
    let authority = origin
        .to_str()
        .ok()
        .and_then(|origin| origin.strip_prefix("http://"));
    authority.is_some() && authority == host
}

/// What monitors ask, and the page, which has a door of its own.
fn needs_no_key(options: &ServerOptions, path: &str) -> bool {
    let is_page = path == "/" || path.starts_with("/assets/") || path.starts_with("/app/");
    path == OPEN || (options.page.is_some() && is_page)
}

fn says_key(headers: &HeaderMap, key: &str) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
    });
    let plain = headers.get("x-api-key").map(HeaderValue::as_bytes);
    let mut given = [bearer, plain].into_iter().flatten();
    given.any(|given| has_key(given, key))
}

/// Whether this is the key. The time tells its length at most.
pub fn has_key(given: &[u8], key: &str) -> bool {
    bool::from(given.trim_ascii().ct_eq(key.as_bytes()))
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, OPTIONS"),
    );
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if asked.contains_key("access-control-request-private-network") {
        headers.insert(
            "access-control-allow-private-network",
            HeaderValue::from_static("true"),
        );
    }
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static(PREFLIGHT_AGE),
    );
    response
}

#[cfg(test)]
mod tests;
