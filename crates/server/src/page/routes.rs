//! The page's addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body::Frame;
use ouzel_chats::{Chats, Question};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::answering::Place;
use super::live::{Answering, Seen};
use super::{Page, answering, attach, door, files, install, models};
use crate::app::App;
use crate::body::{parse, read};
use crate::error::Refusal;
use crate::guard::has_key;
use crate::sse::{Events, HEARTBEAT};
use crate::wire::page::{
    Ask, Asked, ChatLine, Enter, Entrance, Loading, MAX_LINE_CHARS, PageMessage, PlanLine, Rename,
    Sampling, Search, Settings, Status, WholeChat,
};
use crate::wire::{Shape, json_response};

/// A watcher sees changes this long after the first of them: a picture of a film.
const FRAME: Duration = Duration::from_millis(40);

/// What the page's handlers share.
#[derive(Clone)]
pub struct Shared {
    pub app: Arc<App>,
    pub page: Arc<Page>,
}

type Answered = Result<Response, Refusal>;

/// The page's doors.
pub fn router(app: Arc<App>, page: Arc<Page>) -> Router {
    let shared = Shared { app, page };
    let file = |file: files::File| get(async move || files::response(file));
    let inside = Router::new()
        .route(
            "/app/status",
            get(async |State(s): State<Shared>| said(Ok(status(&s)))),
        )
        .route(
            "/app/settings",
            get(async |State(s): State<Shared>| said(settings(&s).await))
                .put(set_settings)
                .patch(change_settings),
        )
        .route(
            "/app/experts",
            get(async |State(s): State<Shared>| said(Ok(s.app.metrics.experts()))),
        )
        .route("/app/chats", get(list))
        .route("/app/search", post(search))
        .route("/app/chats/{id}", get(one).patch(rename).delete(remove))
        .route("/app/turns", post(ask))
        .route("/app/answers/{id}", get(watch))
        .route("/app/answers/{id}/stop", post(stop))
        .route(
            "/app/load",
            post(async |State(s): State<Shared>| answered(order(&s, true).await)),
        )
        .route(
            "/app/unload",
            post(async |State(s): State<Shared>| answered(order(&s, false).await)),
        )
        .route("/app/end", post(end))
        .merge(models::routes())
        .merge(install::routes())
        .merge(attach::routes())
        .layer(from_fn_with_state(shared.clone(), inside_only));
    Router::new()
        .route("/", file(files::DOCUMENT))
        .route("/assets/app.js", file(files::SCRIPT))
        .route("/assets/app.css", file(files::STYLE))
        .route("/assets/icon.svg", file(files::ICON))
        .route("/app/session", get(entrance).post(enter))
        .merge(inside)
        .with_state(shared)
}

/// Lets nobody through who has not come in by the door.
async fn inside_only(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if shared.page.door.is_inside(request.headers()) {
        next.run(request).await
    } else {
        answered(Err(Refusal::Locked))
    }
}

pub fn answered(result: Answered) -> Response {
    let mut response = result.unwrap_or_else(|refusal| Shape::OpenAi.response(&refusal));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub fn said<T: Serialize>(result: Result<T, Refusal>) -> Response {
    answered(result.and_then(|value| {
        let value = serde_json::to_value(value);
        let value = value.map_err(|error| Refusal::Internal(error.to_string()))?;
        Ok(json_response(StatusCode::OK, &value))
    }))
}

pub fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

async fn entrance(State(shared): State<Shared>, request: Request) -> Response {
    said(Ok(Entrance {
        is_inside: shared.page.door.is_inside(request.headers()),
        takes_key: shared.app.options.api_key.is_some(),
    }))
}

async fn enter(State(shared): State<Shared>, request: Request) -> Response {
    let entered = async {
        if !door::is_own(request.headers()) {
            return Err(Refusal::Locked);
        }
        let given: Enter = parse(&read(request).await?)?;
        let by_token = match given.token {
            Some(token) => shared.page.takes(token).await,
            None => false,
        };
        let by_key = match (&shared.app.options.api_key, &given.key) {
            (Some(key), Some(given)) => has_key(given.as_bytes(), key),
            _ => false,
        };
        if !by_token && !by_key {
            return Err(Refusal::Locked);
        }
        let mut response = nothing();
        if let Some(cookie) = shared.page.door.cookie() {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        Ok(response)
    };
    answered(entered.await)
}

fn status(shared: &Shared) -> Status {
    let app = &shared.app;
    let (waiting, is_answering) = app.queue.load();
    let chosen = app.current.get();
    let facts = chosen.engine.facts();
    let process = chosen.engine.process();
    let sampler = &chosen.defaults.sampler;
    let is_loading = app.metrics.is_loading.load(Ordering::Relaxed);
    let total_bytes = facts.plan.resident_bytes;
    // This process has taken other memory before.
    let has_own_process = process.pid.is_some_and(|pid| pid != std::process::id());
    let taken = process
        .resident_bytes
        .filter(|_| is_loading && has_own_process);
    Status {
        loading: taken.map(|taken| Loading {
            done_bytes: taken.min(total_bytes),
            total_bytes,
        }),
        version: env!("CARGO_PKG_VERSION"),
        model: chosen.name().to_owned(),
        can_choose: app.options.models.is_some(),
        is_loaded: app.metrics.is_loaded.load(Ordering::Relaxed),
        is_loading,
        is_answering,
        waiting,
        context: facts.context,
        pid: process.pid,
        budget_bytes: process.budget_bytes,
        resident_bytes: process.resident_bytes,
        slots: facts.plan.slots,
        layers: facts.plan.layers,
        experts: facts.plan.experts,
        plan: PlanLine::of(facts.plan),
        defaults: Sampling {
            temperature: sampler.temperature,
            top_p: sampler.top_p,
            top_k: sampler.top_k,
        },
    }
}

pub async fn settings(shared: &Shared) -> Result<Settings, Refusal> {
    let kept = shared.page.kept(Chats::settings).await?;
    // Those of another version that are not understood are as good as none.
    Ok(kept
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default())
}

async fn set_settings(State(shared): State<Shared>, request: Request) -> Response {
    let set = async {
        let wanted: Settings = parse(&read(request).await?)?;
        keep_settings(&shared, wanted).await
    };
    said(set.await)
}

/// Changes what the request names. The rest stays, so that two tabs do not undo each other's choices.
async fn change_settings(State(shared): State<Shared>, request: Request) -> Response {
    let changed = async {
        let change: Map<String, Value> = parse(&read(request).await?)?;
        let _alone = shared.page.changing.lock().await;
        let mut all = json!(settings(&shared).await?);
        if let Value::Object(all) = &mut all {
            all.extend(change);
        }
        let wanted: Settings = parse(all.to_string().as_bytes())?;
        keep_settings(&shared, wanted).await
    };
    said(changed.await)
}

pub async fn keep_settings(shared: &Shared, wanted: Settings) -> Result<Settings, Refusal> {
    wanted.sampler(&shared.app.current.get().defaults)?;
    if wanted.max_new == Some(0) {
        return Err(Refusal::invalid(
            "max_new",
            "max_new is 0; an answer has at least one token",
        ));
    }
    let text = json!(wanted).to_string();
    shared
        .page
        .kept(move |chats| chats.set_settings(&text))
        .await?;
    Ok(wanted)
}

async fn list(State(shared): State<Shared>) -> Response {
    let live = shared.page.live.chats();
    let chats = shared.page.kept(Chats::list).await;
    said(chats.map(|chats| {
        let line = |chat: ouzel_chats::Chat| {
            let is_answering = live.contains(&chat.id);
            ChatLine::of(chat, is_answering, None)
        };
        chats.into_iter().map(line).collect::<Vec<_>>()
    }))
}

async fn search(State(shared): State<Shared>, request: Request) -> Response {
    let live = shared.page.live.chats();
    let found = async {
        let Search { words } = parse(&read(request).await?)?;
        check_line("words", &words)?;
        let found = shared.page.kept(move |chats| chats.search(&words)).await?;
        let line = |found: ouzel_chats::Found| {
            let is_answering = live.contains(&found.chat.id);
            ChatLine::of(found.chat, is_answering, found.excerpt)
        };
        Ok(found.into_iter().map(line).collect::<Vec<_>>())
    };
    said(found.await)
}

async fn one(State(shared): State<Shared>, Path(id): Path<i64>) -> Response {
    // Looked at before the rows are read: an answer that ends in between has its ending in its row.
    let live = shared.page.live.of_chat(id);
    let found = shared.page.kept(move |chats| chats.chat(id)).await;
    said(found.map(|(chat, messages)| {
        let is_live = |id| live.as_ref().is_some_and(|answer| answer.id == id);
        let message = |message: ouzel_chats::Message| {
            let is_written = is_live(message.id) && message.ending.is_none();
            PageMessage::of(message, is_written)
        };
        WholeChat {
            line: ChatLine::of(chat, live.is_some(), None),
            messages: messages.into_iter().map(message).collect(),
        }
    }))
}

async fn rename(State(shared): State<Shared>, Path(id): Path<i64>, request: Request) -> Response {
    let renamed = async {
        let wanted: Rename = parse(&read(request).await?)?;
        check_line("title", &wanted.title)?;
        if wanted.title.trim().is_empty() {
            return Err(Refusal::invalid(
                "title",
                "title: a conversation has a name",
            ));
        }
        shared
            .page
            .kept(move |chats| chats.rename(id, &wanted.title))
            .await?;
        Ok(nothing())
    };
    answered(renamed.await)
}

async fn remove(State(shared): State<Shared>, Path(id): Path<i64>) -> Response {
    let _alone = shared.page.asking.lock().await;
    if let Some(answering) = shared.page.live.of_chat(id) {
        answering.stop();
    }
    let removed = shared.page.kept(move |chats| chats.remove(id)).await;
    answered(removed.map(|()| nothing()))
}

fn check_line(param: &str, text: &str) -> Result<(), Refusal> {
    if text.chars().count() > MAX_LINE_CHARS {
        let message = format!("{param} has more than {MAX_LINE_CHARS} letters");
        return Err(Refusal::invalid(param, message));
    }
    Ok(())
}

async fn ask(State(shared): State<Shared>, request: Request) -> Response {
    let asked = async {
        let ask: Ask = parse(&read(request).await?)?;
        let is_blank = |text: &String| text.trim().is_empty();
        if ask.text.as_ref().is_some_and(is_blank) {
            return Err(Refusal::invalid("text", "text: there is nothing to answer"));
        }
        // Not this request's: a tab that is closed now must not leave a row that nobody answers.
        let begun = tokio::spawn(begin(shared.clone(), ask));
        begun
            .await
            .map_err(|_| Refusal::Internal("the question could not be asked".to_owned()))?
    };
    said(asked.await)
}

/// Makes the answer's row and begins to answer; one question at a time, so that no conversation gets two answers at once.
async fn begin(shared: Shared, ask: Ask) -> Result<Asked, Refusal> {
    let Ask {
        chat,
        replaces,
        text,
        leaves_out,
    } = ask;
    let page = &shared.page;
    let _alone = page.asking.lock().await;
    page.live.check_free(chat)?;
    let settings = settings(&shared).await?;
    let text: Option<Arc<str>> = text.map(Into::into);
    let question = {
        let text = text.clone();
        move |chats: &Chats| {
            chats.rehearse(Question {
                chat,
                replaces,
                text: text.as_deref(),
            })
        }
    };
    // What would be replaced stays until the new turn has its place.
    let admitted = match replaces {
        Some(_) => {
            let said = page.kept(question).await?;
            Some(answering::admit(&shared.app, said, settings.clone(), leaves_out).await?)
        }
        None => None,
    };
    let question = move |chats: &Chats| {
        chats.ask(Question {
            chat,
            replaces,
            text: text.as_deref(),
        })
    };
    let asked = page.kept(question).await?;
    let live = page.live.begin(asked.answer, asked.chat);
    tokio::spawn(answering::answer(
        shared.app.clone(),
        page.clone(),
        live,
        match admitted {
            Some(admitted) => Place::Taken(admitted),
            None => Place::After {
                said: asked.before,
                leaves_out,
            },
        },
        settings,
    ));
    Ok(Asked {
        chat: asked.chat,
        answer: asked.answer,
    })
}

async fn stop(State(shared): State<Shared>, Path(id): Path<i64>) -> Response {
    // One that is over needs no stopping.
    if let Some(answering) = shared.page.live.find(id) {
        answering.stop();
    }
    answered(Ok(nothing()))
}

/// Ends the program, which may have no terminal in which it could be ended.
async fn end(State(shared): State<Shared>) -> Response {
    shared.page.end();
    answered(Ok(nothing()))
}

async fn order(shared: &Shared, load: bool) -> Answered {
    let reply = shared.app.queue.order(load)?;
    reply.await.map_err(|_| Refusal::Draining)??;
    Ok(nothing())
}

/// An answer as events: what there is, what comes, and the message at its end.
async fn watch(State(shared): State<Shared>, Path(id): Path<i64>) -> Response {
    let live = shared.page.live.find(id);
    if live.is_none()
        && let Err(refusal) = shared.page.kept(move |chats| chats.message(id)).await
    {
        return answered(Err(refusal));
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(tell(shared, id, live, sender));
    let mut response = Response::new(Body::new(Told(receiver)));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    answered(Ok(response))
}

async fn tell(shared: Shared, id: i64, live: Option<Arc<Answering>>, to: mpsc::Sender<Bytes>) {
    if let Some(live) = live
        && !tell_live(&live, &to).await
    {
        return;
    }
    // Its row has its ending by now.
    let message = shared.page.kept(move |chats| chats.message(id)).await;
    let mut events = Events::default();
    match message {
        Ok((_, message)) => events.event("end", &PageMessage::of(message, false)),
        Err(Refusal::NotFound(_)) => events.event("gone", &Value::Null),
        // The events break off, and the browser asks again.
        Err(_) => return,
    }
    // A watcher that is gone needs no end.
    let _ = to.send(events.take()).await;
}

/// Until the end of the answer; whether the watcher is still there.
async fn tell_live(live: &Answering, to: &mpsc::Sender<Bytes>) -> bool {
    let (mut changes, mut seen) = (live.changes(), Seen::default());
    loop {
        changes.mark_unchanged();
        let (said, is_end) = live.since(&mut seen);
        let mut events = Events::default();
        events.event("said", &said);
        if to.send(events.take()).await.is_err() {
            return false;
        }
        if is_end {
            return true;
        }
        loop {
            match timeout(HEARTBEAT, changes.changed()).await {
                Ok(_) => break,
                Err(_) => {
                    let mut events = Events::default();
                    events.comment("the model is at work");
                    if to.send(events.take()).await.is_err() {
                        return false;
                    }
                }
            }
        }
        sleep(FRAME).await;
    }
}

/// A body that is told from elsewhere.
struct Told(mpsc::Receiver<Bytes>);

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = self.0.poll_recv(cx);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
