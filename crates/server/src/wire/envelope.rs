//! A refusal as each API says it.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::Refusal;

/// Whose envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"type": "error", "error": {"type", "message"}}`
    Anthropic,
}

impl Shape {
    /// The shape of errors at this address.
    pub fn of(path: &str) -> Shape {
        if path == "/v1/messages" || path.starts_with("/v1/messages/") {
            Shape::Anthropic
        } else {
            Shape::OpenAi
        }
    }

    /// The envelope.
    pub fn body(self, refusal: &Refusal) -> Value {
        let (message, status) = (refusal.to_string(), refusal.status());
        match self {
            Shape::OpenAi => json!({
                "error": {
                    "message": message,
                    "type": openai_type(status),
                    "param": refusal.param(),
                    "code": refusal.code(),
                }
            }),
            Shape::Anthropic => json!({
                "type": "error",
                "error": { "type": anthropic_type(status), "message": message },
            }),
        }
    }

    /// The whole response.
    pub fn response(self, refusal: &Refusal) -> Response {
        let mut response = json_response(refusal.status(), &self.body(refusal));
        let headers = response.headers_mut();
        if let Some(seconds) = refusal.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // The SDKs of both APIs ask this before they try again by themselves.
        let again = if refusal.is_final() { "false" } else { "true" };
        headers.insert("x-should-retry", HeaderValue::from_static(again));
        if refusal.ends_connection() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if matches!(refusal, Refusal::Unauthorized) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A JSON value as a response.
pub fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn openai_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}
