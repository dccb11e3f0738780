//! Files that are put into a question: what a text takes of the context, and what is text in a file that is not.

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::response::Response;
use axum::routing::post;
use tokio::task::spawn_blocking;

use super::routes::{Shared, said};
use crate::body::{parse, read};
use crate::documents::{MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES};
use crate::error::Refusal;
use crate::wire::page::{Counted, Text};

/// The addresses of files.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/app/tokens", post(tokens))
        .route("/app/pdf", post(pdf))
        .layer(DefaultBodyLimit::disable())
}

async fn tokens(State(shared): State<Shared>, request: Request) -> Response {
    let counted = async {
        let Text { text } = parse(&read(request).await?)?;
        let app = shared.app.clone();
        app.aside(move || {
            let ids = shared.app.current.get().engine.tokenize(&text, false)?;
            Ok(Counted { tokens: ids.len() })
        })
        .await
    };
    said(counted.await)
}

async fn pdf(State(shared): State<Shared>, request: Request) -> Response {
    let found = async {
        let missing = || Refusal::Unsupported("this server reads no PDF files".to_owned());
        let documents = shared.app.options.documents.clone().ok_or_else(missing)?;
        let file = to_bytes(request.into_body(), MAX_DOCUMENT_BYTES).await;
        let file = file.map_err(|_| Refusal::TooLarge(MAX_DOCUMENT_BYTES))?;
        let broken = |_| Refusal::Internal("the file could not be read".to_owned());
        let text = spawn_blocking(move || documents.text_of_pdf(file.into()));
        let text = text.await.map_err(broken)?;
        let text = text.map_err(|why| Refusal::invalid("file", why))?;
        match text.len() {
            0..=MAX_TEXT_BYTES => Ok(Text { text }),
            _ => Err(Refusal::TooLarge(MAX_TEXT_BYTES)),
        }
    };
    said(found.await)
}
