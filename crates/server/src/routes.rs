//! The table of addresses, and what is behind each.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::answer::collect;
use crate::app::{App, Parse, check_messages};
use crate::body::{self, read};
use crate::error::Refusal;
use crate::guard::guard;
use crate::page;
use crate::sse;
use crate::wire::{
    Shape, chat, completions, json_response, messages, models, openapi, responses, tokens,
};

type Shared = State<Arc<App>>;
type Answered = Result<Response, Refusal>;

/// Says what was changed of a request so that it could be served.
const WARNING: HeaderName = HeaderName::from_static("x-ouzel-warning");

/// All doors.
pub fn router(app: Arc<App>) -> Router {
    let page = app.options.page.clone();
    let page = page.map(|page| page::router(app.clone(), page));
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(description))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(one_model))
        .route("/v1/chat/completions", door(chat::parse))
        .route("/v1/completions", door(completions::parse))
        .route("/v1/responses", door(responses::parse))
        .route("/v1/messages", door(messages::parse))
        .route("/v1/messages/count_tokens", work(count_tokens))
        .route("/v1/embeddings", post(async || {
            let reason = "this server has no embedding model: the model that it serves writes text; use another server for embeddings";
            Shape::OpenAi.response(&Refusal::Unsupported(reason.to_owned()))
        }))
        .route("/tokenize", work(tokenize))
        .route("/detokenize", work(detokenize))
        .route("/load", post(async |State(app): Shared| order(app, true).await))
        .route("/unload", post(async |State(app): Shared| order(app, false).await))
        .fallback(async |request: Request| {
            let path = request.uri().path();
            Shape::of(path).response(&Refusal::NotFound(path.to_owned()))
        })
        .with_state(app.clone())
        .merge(page.unwrap_or_default())
        .method_not_allowed_fallback(async |request: Request| {
            let path = request.uri().path();
            Shape::of(path).response(&Refusal::Method(path.to_owned()))
        })
        .layer(from_fn_with_state(app, guard))
}

/// A door whose requests become turns.
fn door(parse: Parse) -> MethodRouter<Arc<App>> {
    post(async move |State(app): Shared, request: Request| {
        let shape = Shape::of(request.uri().path());
        let answered = turn(&app, request, parse).await;
        answered.unwrap_or_else(|refusal| shape.response(&refusal))
    })
}

/// A door whose requests need a body and no turn.
fn work(answer: fn(&App, &[u8]) -> Result<Value, Refusal>) -> MethodRouter<Arc<App>> {
    post(async move |State(app): Shared, request: Request| {
        let shape = Shape::of(request.uri().path());
        let answered = async {
            let bytes: Bytes = read(request).await?;
            let shared = app.clone();
            app.aside(move || answer(&shared, &bytes)).await
        };
        match answered.await {
            Ok(value) => json_response(StatusCode::OK, &value),
            Err(refusal) => shape.response(&refusal),
        }
    })
}

async fn turn(app: &Arc<App>, request: Request<Body>, parse: Parse) -> Answered {
    let bytes = read(request).await?;
    let understood = app.understand(bytes, parse).await?;
    let ticket = app.queue.admit(understood.prepared, understood.chosen.id)?;
    let head = App::head(&understood.chosen, &ticket);
    let warnings = ticket.warnings().join("; ");
    let turn_id = ticket.id();
    let mut response = if understood.stream {
        sse::stream(ticket, understood.reply.voice(head))
    } else {
        let (answer, outcome) = collect(ticket).await?;
        json_response(
            StatusCode::OK,
            &understood.reply.whole(&head, &answer, &outcome),
        )
    };
    let headers = response.headers_mut();
    headers.insert("x-request-id", HeaderValue::from(turn_id));
    if !warnings.is_empty() {
        // A header is ASCII and short.
        let ascii: String = warnings
            .chars()
            .map(|c| if (' '..='~').contains(&c) { c } else { '?' })
            .take(1000)
            .collect();
        if let Ok(value) = HeaderValue::from_str(&ascii) {
            headers.insert(WARNING, value);
        }
    }
    Ok(response)
}

async fn health(State(app): Shared) -> Response {
    let (waiting, is_answering) = app.queue.load();
    let chosen = app.current.get();
    let value = json!({
        "status": "ok",
        "model": chosen.name(),
        "model_loaded": app.metrics.is_loaded.load(Ordering::Relaxed),
        "context_length": chosen.engine.facts().context,
        "turns_waiting": waiting,
        "turns_running": u8::from(is_answering),
    });
    json_response(StatusCode::OK, &value)
}

async fn metrics(State(app): Shared) -> Response {
    let chosen = app.current.get();
    let memory_bytes = chosen.engine.facts().memory_bytes;
    let process = chosen.engine.process();
    let text = app.metrics.text(app.queue.load(), memory_bytes, &process);
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn description(State(app): Shared) -> Response {
    json_response(
        StatusCode::OK,
        &openapi::description(app.options.api_key.is_some()),
    )
}

async fn list_models(State(app): Shared) -> Response {
    let chosen = app.current.get();
    let facts = chosen.engine.facts();
    json_response(
        StatusCode::OK,
        &models::list(&chosen.names, app.started, &facts),
    )
}

async fn one_model(State(app): Shared, Path(id): Path<String>) -> Response {
    let chosen = app.current.get();
    match chosen.check_model(Some(&id)) {
        Ok(()) => json_response(
            StatusCode::OK,
            &models::model(&id, app.started, &chosen.engine.facts()),
        ),
        Err(refusal) => Shape::OpenAi.response(&refusal),
    }
}

/// Loads or gives back the model's memory, when it is not at work.
async fn order(app: Arc<App>, load: bool) -> Response {
    let done = async {
        let reply = app.queue.order(load)?;
        reply.await.map_err(|_| Refusal::Draining)?
    };
    match done.await {
        Ok(()) => json_response(
            StatusCode::OK,
            &json!({ "model": app.current.get().name(), "model_loaded": load }),
        ),
        Err(refusal) => Shape::OpenAi.response(&refusal),
    }
}

fn count_tokens(app: &App, bytes: &[u8]) -> Result<Value, Refusal> {
    let chosen = app.current.get();
    let asked = messages::parse_to_count(bytes, &chosen.defaults)?;
    chosen.check_model(asked.model.as_deref())?;
    check_messages(&asked.turn)?;
    let prepared = chosen.engine.prepare(asked.turn)?;
    Ok(json!({ "input_tokens": prepared.ids.len() }))
}

fn tokenize(app: &App, bytes: &[u8]) -> Result<Value, Refusal> {
    let request: tokens::TokenizeRequest = body::parse(bytes)?;
    let chosen = app.current.get();
    let ids = chosen
        .engine
        .tokenize(&request.content, request.parse_special.unwrap_or(true))?;
    Ok(json!(tokens::Tokens { tokens: ids }))
}

fn detokenize(app: &App, bytes: &[u8]) -> Result<Value, Refusal> {
    let request: tokens::DetokenizeRequest = body::parse(bytes)?;
    let content = app.current.get().engine.detokenize(&request.tokens)?;
    Ok(json!(tokens::Content { content }))
}
