//! Why a request gets no answer, or no whole one; and the one table of statuses, types and codes.
//!
//! Grouped by what a client can do about it. The doors put a [`Refusal`] into their API's envelope; whether a client should try again is
//! decided here alone.

use axum::http::StatusCode;
use thiserror::Error;

/// A request that is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A field cannot be honoured: change the request.
    #[error("{message}")]
    Invalid {
        /// The field, as a path into the body.
        param: Option<String>,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// The prompt does not fit: shorten it, or start the server with more context. Claude Code, OpenCode and LiteLLM know this error by
    /// the first words, and Claude Code reads both numbers in order to shorten its conversation.
    #[error(
        "prompt is too long: {needed} tokens > {} maximum; the context of this server holds {limit} tokens, {param} and one token of the answer{}; shorten the conversation, or start the server with a larger --max-context",
        limit.saturating_sub(1),
        advice(*memory)
    )]
    ContextFull {
        /// The field that is too long.
        param: &'static str,
        /// Tokens of the prompt.
        needed: usize,
        /// Tokens of the context.
        limit: usize,
        /// The `--memory` that would do, in bytes; `None` where no memory would.
        memory: Option<u64>,
    },
    /// No such model is served here.
    #[error("the model {0:?} is not served here; this server has {1:?}")]
    UnknownModel(String, String),
    /// No such address.
    #[error("there is no {0} here")]
    NotFound(String),
    /// The address knows other methods.
    #[error("{0} does not take this method")]
    Method(String),
    /// No key, or a wrong one.
    #[error("this server wants its API key, as `Authorization: Bearer KEY` or `x-api-key: KEY`")]
    Unauthorized,
    /// The page is asked for something by somebody who has not come in.
    #[error("the page is locked: open it by the address that `ouzel` printed when it started")]
    Locked,
    /// A browser asks for a page that must not.
    #[error("{0}")]
    Forbidden(String),
    /// The body is too long.
    #[error("the body has more than {0} bytes, the limit of this server")]
    TooLarge(usize),
    /// The body is no JSON by its own account.
    #[error("the body is {0:?} by its Content-Type; send application/json")]
    MediaType(String),
    /// The body did not come in time.
    #[error("the body did not arrive within {}", counted(*.0, "second"))]
    SlowBody(u64),
    /// Everyone waits: try again later.
    #[error("{}; try again in {}", crowd(*waiting), counted(*retry_after_s, "second"))]
    QueueFull {
        /// How many wait.
        waiting: usize,
        /// When a place may be free.
        retry_after_s: u64,
    },
    /// The model is at work: try when it is not.
    #[error("the model is answering; {0} when it is idle")]
    Busy(&'static str),
    /// Work on a model's files is under way: try when it is over.
    #[error("a model is being installed, verified or repaired; {0} when that is over")]
    Installing(&'static str),
    /// Nobody has chosen a model.
    #[error(
        "no model is chosen: choose one on the page, or name one when Ouzel starts, as in `ouzel app demo`"
    )]
    NoModel,
    /// The request was read for a model that does not answer any more.
    #[error("another model was chosen while this request was read; send it again")]
    Changed,
    /// The server is ending.
    #[error("the server is shutting down")]
    Draining,
    /// The request took longer than the server allows.
    #[error("the time limit of {} was over before the answer began", counted(*.0, "second"))]
    TimeLimit(u64),
    /// The reader did not keep up.
    #[error(
        "the answer was not read as fast as it was made, and {0} bytes of it waited; the rest is lost"
    )]
    SlowReader(usize),
    /// The model cannot be had.
    #[error("the model cannot be loaded: {0}")]
    Unavailable(String),
    /// The model was lost while it answered.
    #[error("{0}")]
    Lost(String),
    /// Something that should not happen.
    #[error("{0}")]
    Internal(String),
    /// Nothing here does it.
    #[error("{0}")]
    Unsupported(String),
}

/// Why there is no room in a queue in which so many wait.
fn crowd(waiting: usize) -> String {
    match waiting {
        0 => "another request is being answered, and this server lets none wait".to_owned(),
        1 => "1 request waits already, as many as this server lets wait".to_owned(),
        n => format!("{n} requests wait already, as many as this server lets wait"),
    }
}

/// A number and what it counts.
fn counted(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn advice(memory: Option<u64>) -> String {
    match memory {
        Some(bytes) => format!(" (--memory {}MiB would hold it)", bytes.div_ceil(1 << 20)),
        None => String::new(),
    }
}

impl Refusal {
    /// A field that cannot be honoured.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Refusal {
        Refusal::Invalid {
            param: Some(param.into()),
            message: message.into(),
        }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Invalid { .. } | Refusal::ContextFull { .. } => StatusCode::BAD_REQUEST,
            Refusal::UnknownModel(..) | Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Unauthorized | Refusal::Locked => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Refusal::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Busy(_) | Refusal::Installing(_) => StatusCode::CONFLICT,
            Refusal::Draining
            | Refusal::NoModel
            | Refusal::Changed
            | Refusal::Unavailable(_)
            | Refusal::Lost(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::TimeLimit(_) => StatusCode::GATEWAY_TIMEOUT,
            Refusal::SlowReader(_) | Refusal::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Refusal::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The code that programs compare.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Invalid { .. } => "invalid_value",
            Refusal::ContextFull { .. } => "context_length_exceeded",
            Refusal::UnknownModel(..) => "model_not_found",
            Refusal::NotFound(_) => "not_found",
            Refusal::Method(_) => "method_not_allowed",
            Refusal::Unauthorized => "invalid_api_key",
            Refusal::Locked => "page_locked",
            Refusal::Forbidden(_) => "forbidden",
            Refusal::TooLarge(_) => "request_too_large",
            Refusal::MediaType(_) => "unsupported_media_type",
            Refusal::SlowBody(_) => "body_timeout",
            Refusal::QueueFull { .. } => "queue_full",
            Refusal::Busy(_) => "model_busy",
            Refusal::Installing(_) => "install_busy",
            Refusal::NoModel => "no_model",
            Refusal::Changed => "model_changed",
            Refusal::Draining => "shutting_down",
            Refusal::TimeLimit(_) => "time_limit",
            Refusal::SlowReader(_) => "slow_reader",
            Refusal::Unavailable(_) => "model_unavailable",
            Refusal::Lost(_) => "model_lost",
            Refusal::Internal(_) => "internal_error",
            Refusal::Unsupported(_) => "not_supported",
        }
    }

    /// The field that is wrong, as a path into the body.
    pub fn param(&self) -> Option<&str> {
        match self {
            Refusal::Invalid { param, .. } => param.as_deref(),
            Refusal::ContextFull { param, .. } => Some(param),
            Refusal::UnknownModel(..) => Some("model"),
            _ => None,
        }
    }

    /// Seconds until it makes sense to ask again.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Refusal::QueueFull { retry_after_s, .. } => Some(*retry_after_s),
            _ => None,
        }
    }

    /// Whether the connection ends with it, since what is left of the request is not read.
    pub fn ends_connection(&self) -> bool {
        matches!(self, Refusal::TooLarge(_) | Refusal::SlowBody(_))
    }

    /// Whether the same request would fail the same way at once, so that clients which try again by themselves should not.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Refusal::QueueFull { .. } | Refusal::SlowBody(_) | Refusal::Changed
        )
    }
}
