//! Installing, verifying and repairing a model: the work belongs to the server, so that any tab that looks finds it and a tab that goes away changes nothing.
//!
//! [`Installation`] owns the one piece of work that is under way and what is known of it; threads that may wait do it. The page asks for all of it again
//! and again, because it is small and whole each time.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State as Shares};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::models::take;
use super::routes::{Shared, answered, nothing, said};
use crate::body::{parse, read};
use crate::error::Refusal;
use crate::installer::{Ended, Installer, News, Trouble};
use crate::models::{Opened, Wish};
use crate::wire::setup::{Installing, Offer, Stage, Work, WorkPhase};

/// The rate is of this time: a hub's short pauses even out in it, and a line that became slower shows.
const RATE_OF: Duration = Duration::from_secs(10);
/// A sample for the rate is taken this often.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// Less than this says nothing of a rate.
const LEAST_TIME: Duration = Duration::from_millis(500);
/// A shorter wait is nobody's business.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// The work on models' files.
pub struct Installation {
    installer: Arc<dyn Installer>,
    state: Mutex<State>,
    is_running: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    is_asking: bool,
    offer: Option<Offer>,
    offer_problem: Option<String>,
    work: Option<Work>,
    stage: Stage,
    cancel: Arc<AtomicBool>,
    progress: Option<Progress>,
    retry: Option<String>,
    problem: Option<String>,
    damage: Vec<String>,
    model: Option<String>,
}

/// How far a part of the work is.
struct Progress {
    phase: WorkPhase,
    done: u64,
    total: u64,
    /// When so much was done, oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Progress {
    fn new(phase: WorkPhase, total: u64, done: u64) -> Progress {
        Progress {
            phase,
            done,
            total,
            samples: VecDeque::from([(Instant::now(), done)]),
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        let now = Instant::now();
        let last = self.samples.back().map(|sample| sample.0);
        if last.is_none_or(|last| now - last >= SAMPLE_EVERY) {
            self.samples.push_back((now, self.done));
            // The oldest that is left is older than the time that counts.
            while self.samples.len() > 2 && now - self.samples[1].0 >= RATE_OF {
                self.samples.pop_front();
            }
        }
    }

    fn bytes_per_s(&self) -> Option<u64> {
        let (since, done) = *self.samples.front()?;
        let time = since.elapsed();
        let more = self.done.saturating_sub(done);
        (time >= LEAST_TIME).then(|| (more as f64 / time.as_secs_f64()) as u64)
    }
}

impl Installation {
    /// Nothing under way.
    pub fn new(installer: Arc<dyn Installer>) -> Arc<Installation> {
        Arc::new(Installation {
            installer,
            state: Mutex::default(),
            is_running: watch::Sender::new(false),
        })
    }

    /// Pauses what is under way, because the server ends.
    pub fn pause(&self) {
        let mut state = self.lock();
        if state.stage == Stage::Running {
            state.stage = Stage::Pausing;
            state.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until nothing is under way.
    pub async fn settled(&self) {
        // The sender lives as long as this.
        let _ = self
            .is_running
            .subscribe()
            .wait_for(|running| !running)
            .await;
    }

    /// Whether something is under way.
    pub fn is_running(&self) -> bool {
        *self.is_running.borrow()
    }

    /// All that is known.
    fn look(&self) -> Installing {
        let found = self.installer.found();
        let state = self.lock();
        let progress = state.progress.as_ref();
        let rate = match state.stage {
            Stage::Running => progress.and_then(Progress::bytes_per_s),
            _ => None,
        };
        let left = progress.map_or(0, |p| p.total.saturating_sub(p.done));
        let stage = match (state.stage, found.partial_bytes) {
            // Of a run of the program before this one.
            (Stage::Idle, Some(_)) => Stage::Paused,
            (stage, _) => stage,
        };
        Installing {
            is_asking: state.is_asking,
            offer: state.offer.clone(),
            offer_problem: state.offer_problem.clone(),
            work: state.work.clone(),
            stage,
            phase: progress.map(|progress| progress.phase),
            done_bytes: progress.map_or(0, |progress| progress.done),
            total_bytes: progress.map_or(0, |progress| progress.total),
            bytes_per_s: rate,
            seconds_left: rate.filter(|rate| *rate > 0).map(|rate| left / rate),
            retry: state.retry.clone(),
            problem: state.problem.clone(),
            damage: state.damage.clone(),
            model: state.model.clone(),
            found,
        }
    }

    /// Asks the hub, unless it is being asked.
    fn ask(self: &Arc<Installation>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_asking, true) {
            return;
        }
        state.offer_problem = None;
        drop(state);
        let this = self.clone();
        spawn_blocking(move || {
            let offer = this.installer.offer();
            let mut state = this.lock();
            state.is_asking = false;
            match offer {
                Ok(offer) => state.offer = Some(offer),
                Err(problem) => state.offer_problem = Some(problem),
            }
        });
    }

    /// Begins, or goes on.
    fn start(self: &Arc<Installation>, work: Work) -> Result<(), Refusal> {
        let mut state = self.lock();
        if self.is_running() {
            return Err(Refusal::Installing("try again"));
        }
        let cancel = Arc::<AtomicBool>::default();
        *state = State {
            offer: state.offer.take(),
            offer_problem: state.offer_problem.take(),
            is_asking: state.is_asking,
            work: Some(work.clone()),
            stage: Stage::Running,
            cancel: cancel.clone(),
            ..State::default()
        };
        self.is_running.send_replace(true);
        drop(state);
        let this = self.clone();
        spawn_blocking(move || {
            let run = || {
                this.installer
                    .run(&work, &cancel, &mut |news| this.hear(news))
            };
            let mistake = || "the installer failed in a way that it should not".to_owned();
            // Whatever happens, it ends: somebody may wait for that.
            let result = catch_unwind(AssertUnwindSafe(run));
            this.end(result.unwrap_or_else(|_| Err(Trouble::Failed(mistake()))));
        });
        Ok(())
    }

    fn hear(&self, news: News) {
        let mut state = self.lock();
        match news {
            News::Begins {
                phase,
                total_bytes,
                done_bytes,
            } => {
                state.progress = Some(Progress::new(phase, total_bytes, done_bytes));
                state.retry = None;
            }
            News::Advances { bytes } => {
                if let Some(progress) = &mut state.progress {
                    progress.advance(bytes);
                }
                if bytes > 0 {
                    state.retry = None;
                }
            }
            News::Retries { reason, wait } if wait >= LONG_WAIT => state.retry = Some(reason),
            News::Retries { .. } => {}
        }
    }

    fn end(&self, result: Result<Ended, Trouble>) {
        let mut state = self.lock();
        state.retry = None;
        state.stage = match result {
            Ok(Ended::Whole(model)) => {
                state.model = Some(model);
                Stage::Done
            }
            Ok(Ended::Damaged(model, damage)) => {
                (state.model, state.damage) = (Some(model), damage);
                Stage::Damaged
            }
            Err(Trouble::Paused) => Stage::Paused,
            Err(Trouble::Failed(problem)) => {
                state.problem = Some(problem);
                Stage::Failed
            }
        };
        self.is_running.send_replace(false);
    }

    /// Forgets what is over, and removes what it left, if anything.
    fn discard(&self) -> Result<(), Refusal> {
        if self.is_running() {
            return Err(Refusal::Installing("pause it, and discard it"));
        }
        self.installer.discard().map_err(Refusal::Internal)?;
        let mut state = self.lock();
        let offer = state.offer.take();
        // What has come is in it.
        *state = State {
            offer: offer.map(|offer| Offer {
                come_bytes: 0,
                ..offer
            }),
            ..State::default()
        };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The addresses of an installation.
pub fn routes() -> Router<Shared> {
    Router::new()
        .route("/app/install", get(look))
        .route("/app/install/ask", post(ask))
        .route("/app/install/start", post(start))
        .route("/app/install/pause", post(pause))
        .route("/app/install/discard", post(discard))
}

fn installation(shared: &Shared) -> Result<Arc<Installation>, Refusal> {
    let missing = || Refusal::Unsupported("this server installs nothing; `ouzel app` does".into());
    shared.app.installation.clone().ok_or_else(missing)
}

async fn look(Shares(shared): Shares<Shared>) -> Response {
    let looked = async {
        let installation = installation(&shared)?;
        let broken = |_| Refusal::Internal("the installation could not be looked at".to_owned());
        spawn_blocking(move || installation.look())
            .await
            .map_err(broken)
    };
    said(looked.await)
}

async fn ask(Shares(shared): Shares<Shared>) -> Response {
    answered(installation(&shared).map(|installation| {
        installation.ask();
        nothing()
    }))
}

async fn start(Shares(shared): Shares<Shared>, request: Request) -> Response {
    let started = async {
        let work: Work = parse(&read(request).await?)?;
        let installation = installation(&shared)?;
        // Nobody changes files under a model that is open.
        let chosen = shared.app.current.get();
        let is_closed =
            matches!(&work, Work::Repair { model } if chosen.wish.model.as_ref() == Some(model));
        if is_closed {
            let reply = shared.app.queue.take(Opened::nothing())?;
            reply.await.map_err(|_| Refusal::Draining)??;
        }
        let started = installation.start(work);
        if is_closed {
            tokio::spawn(open_again(
                shared.clone(),
                installation,
                chosen.wish.clone(),
            ));
        }
        started?;
        Ok(nothing())
    };
    answered(started.await)
}

/// Opens the model that was closed for its repair, when that is over and it is whole.
async fn open_again(shared: Shared, installation: Arc<Installation>, wish: Wish) {
    installation.settled().await;
    // Whoever chose another one meanwhile, or paused the repair, wants it so.
    let is_whole = installation.lock().stage == Stage::Done;
    if is_whole
        && shared.app.current.get().is_nothing()
        && let Err(refusal) = take(shared.clone(), wish).await
    {
        let mut problem = shared
            .app
            .problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *problem = Some(refusal.to_string());
    }
}

async fn pause(Shares(shared): Shares<Shared>) -> Response {
    answered(installation(&shared).map(|installation| {
        installation.pause();
        nothing()
    }))
}

async fn discard(Shares(shared): Shares<Shared>) -> Response {
    let discarded = async {
        let installation = installation(&shared)?;
        let broken = |_| Refusal::Internal("nothing could be removed".to_owned());
        spawn_blocking(move || installation.discard())
            .await
            .map_err(broken)??;
        Ok(nothing())
    };
    answered(discarded.await)
}
