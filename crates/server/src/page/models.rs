//! Which model answers, and what one would take: the page asks the engine for every figure and chooses by a wish.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::routes::{Shared, answered, keep_settings, nothing, said, settings};
use crate::app::App;
use crate::body::{parse, read};
use crate::error::Refusal;
use crate::models::{Models, Planned, Wish};
use crate::wire::setup::{Named, Shelf};

/// The addresses of models.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/app/models", get(list))
        .route("/app/models/open", post(open))
        .route("/app/models/default", post(make_default))
        .route("/app/plan", post(plan))
        .route("/app/measure", post(measure))
}

/// Asks the models something, on a thread that may wait.
async fn ask<T: Send + 'static>(
    shared: &Shared,
    ask: impl FnOnce(&dyn Models) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let missing = || Refusal::Unsupported("this server has one model and no other".to_owned());
    let models = shared.app.options.models.clone().ok_or_else(missing)?;
    let broken = |_| Refusal::Internal("the models could not be asked".to_owned());
    spawn_blocking(move || ask(&*models))
        .await
        .map_err(broken)?
}

async fn list(State(shared): State<Shared>) -> Response {
    let listed = async {
        let models = ask(&shared, |models| Ok(models.list())).await?;
        let chosen = shared.app.current.get();
        let problem = shared.app.problem.lock();
        Ok(Shelf {
            models,
            chosen: (!chosen.is_nothing()).then(|| {
                let wished = chosen.wish.model.clone();
                wished.unwrap_or_else(|| chosen.name().to_owned())
            }),
            wish: chosen.wish.clone(),
            problem: problem.unwrap_or_else(PoisonError::into_inner).clone(),
            can_install: shared.app.installation.is_some(),
        })
    };
    said(listed.await)
}

async fn plan(State(shared): State<Shared>, request: Request) -> Response {
    let planned = async {
        let wish: Wish = parse(&read(request).await?)?;
        let planned = ask(&shared, move |models| models.plan(&wish)).await?;
        Ok(with_what_comes_back(&shared.app, planned))
    };
    said(planned.await)
}

/// The model that is loaded gives its memory back before another one takes any.
fn with_what_comes_back(app: &App, planned: Planned) -> Planned {
    let process = app.current.get().engine.process();
    let is_loaded = app.metrics.is_loaded.load(Ordering::Relaxed);
    let back = process.resident_bytes.filter(|_| is_loaded).unwrap_or(0);
    let free_bytes = planned.free_bytes.map(|free| free + back);
    Planned {
        free_bytes,
        fits: free_bytes.map(|free| planned.total_bytes <= free),
        ..planned
    }
}

async fn measure(State(shared): State<Shared>, request: Request) -> Response {
    let measured = async {
        let wish: Wish = parse(&read(request).await?)?;
        refuse_while_busy(&shared.app, "measure the machine")?;
        ask(&shared, move |models| models.measure(&wish)).await?;
        Ok(nothing())
    };
    answered(measured.await)
}

/// Neither would be what it is beside an answer.
fn refuse_while_busy(app: &App, what: &'static str) -> Result<(), Refusal> {
    match app.queue.load() {
        (0, false) => Ok(()),
        _ => Err(Refusal::Busy(what)),
    }
}

async fn open(State(shared): State<Shared>, request: Request) -> Response {
    let opened = async {
        let wish: Wish = parse(&read(request).await?)?;
        // Not this request's: a tab that is closed now must not leave a model that is chosen and not loaded.
        let opening = tokio::spawn(take(shared.clone(), wish));
        let broken = |_| Refusal::Internal("the model could not be opened".to_owned());
        opening.await.map_err(broken)??;
        Ok(nothing())
    };
    answered(opened.await)
}

/// Opens a model, lets it answer from now on, remembers it, and loads it. One that cannot be opened changes nothing.
pub async fn take(shared: Shared, wish: Wish) -> Result<(), Refusal> {
    let app = &shared.app;
    refuse_while_busy(app, "choose another model")?;
    let wanted = wish.clone();
    let opened = ask(&shared, move |models| models.open(&wanted)).await?;
    done(app.queue.take(opened)?).await?;
    *app.problem.lock().unwrap_or_else(PoisonError::into_inner) = None;
    {
        let _alone = shared.page.changing.lock().await;
        let mut kept = settings(&shared).await?;
        kept.engine = wish;
        keep_settings(&shared, kept).await?;
    }
    done(app.queue.order(true)?).await
}

async fn done(reply: crate::queue::Reply) -> Result<(), Refusal> {
    reply.await.map_err(|_| Refusal::Draining)?
}

async fn make_default(State(shared): State<Shared>, request: Request) -> Response {
    let made = async {
        let Named { model } = parse(&read(request).await?)?;
        ask(&shared, move |models| models.make_default(&model)).await?;
        Ok(nothing())
    };
    answered(made.await)
}

/// What was chosen on the page before, for whoever starts the program; nothing where nothing is kept or understood.
pub fn kept_wish(chats: &Arc<ouzel_chats::Chats>) -> Wish {
    let kept = chats.settings().ok().flatten();
    let kept = kept.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let engine = kept.map_or(json!({}), |kept| kept["engine"].clone());
    serde_json::from_value(engine).unwrap_or_default()
}
