//! The files of the page, as they were built from `app/`, and the headers that hold a browser to them.
//!
//! `cargo xtask app` builds them anew; `cargo xtask app --check` refuses others than it would build. They name no other host, and the policy
//! would not let them: whatever a model writes, nothing is loaded, run or sent elsewhere.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;

/// What the browser may do with the page: its own scripts, styles and pictures, and requests to its own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// A file, and what it is.
#[derive(Clone, Copy)]
pub struct File {
    kind: &'static str,
    bytes: &'static [u8],
}

/// The document.
pub const DOCUMENT: File = File {
    kind: "text/html; charset=utf-8",
    bytes: include_bytes!("../../page/index.html"),
};
/// What it loads.
pub const SCRIPT: File = File {
    kind: "text/javascript; charset=utf-8",
    bytes: include_bytes!("../../page/assets/app.js"),
};
/// How it looks.
pub const STYLE: File = File {
    kind: "text/css; charset=utf-8",
    bytes: include_bytes!("../../page/assets/app.css"),
};
/// Its mark.
pub const ICON: File = File {
    kind: "image/svg+xml",
    bytes: include_bytes!("../../page/assets/icon.svg"),
};

/// The response with a file. Nothing is stored: the next program on this port may bring another page.
pub fn response(file: File) -> Response {
    let mut response = Response::new(Body::from(file.bytes));
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(header::CONTENT_TYPE, file.kind);
    set(header::CACHE_CONTROL, "no-store");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    set(
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    );
    response
}
