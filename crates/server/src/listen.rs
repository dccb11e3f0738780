//! Listening, connections, and the end of both.
//!
//! Each connection is a task that holds one of a fixed number of permits; when all of them are back, everything is over. The limits of what
//! a connection may send before it is believed are here, those of bodies in `body`.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use crate::app::App;
use crate::error::Refusal;
use crate::log::{Log, Record};
use crate::metrics::Metrics;
use crate::models::{Current, Opened};
use crate::options::{Loading, ServerOptions};
use crate::paced::Paced;
use crate::queue::{Queue, QueueOptions};
use crate::routes;
use crate::stop::{Stage, Stop};
use crate::worker::Worker;

/// Open connections; further ones wait in the system's backlog.
const MAX_CONNECTIONS: u32 = 512;
/// The head of a request arrives within this time; also how long a connection may say nothing between two requests.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Headers of a request.
const MAX_HEADERS: usize = 100;
/// Bytes of a request's head that are read before it must be whole; what comes with the last read counts not.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// A client that reads nothing for this long is gone.
const WRITE_STALL: Duration = Duration::from_secs(30);
/// Threads that serve connections. They wait most of the time; the model has the processors.
const IO_THREADS: usize = 2;
/// Where the system has no more descriptors, some may be free after this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is left of connections after everything was dropped may still be written in this time.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why a server did not start, or did not end well.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Everybody on the network could use the model.
    #[error("{0} is not loopback; listening there needs an API key")]
    NeedsKey(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] io::Error),
    /// The model cannot be loaded.
    #[error("{0}")]
    Load(Refusal),
    /// A second signal came; answers were cut off.
    #[error("ended at once, with answers under way")]
    Forced,
}

/// Serves until `stop` says so, and returns when all that was under way is answered. `ready` hears the address once the model is loaded.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    options: ServerOptions,
    opened: Opened,
    log: Arc<dyn Log>,
    stop: &Stop,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    let (listener, address) = bind(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .map_err(ServeError::Threads)?;
    let current = Arc::new(Current::new(opened));
    let metrics = Arc::new(Metrics::default());
    let queue_options = QueueOptions {
        max_waiting: options.queue,
        time_limit: options.time_limit,
        idle_unload: options.idle_unload,
    };
    let queue = Arc::new(Queue::new(queue_options, metrics.clone()));
    let worker = Worker {
        current: current.clone(),
        queue: queue.clone(),
        metrics: metrics.clone(),
        log: log.clone(),
        told: RefCell::default(),
    };
    let worker = worker.start().map_err(ServeError::Threads)?;
    if let Some(page) = &options.page {
        page.listens(address, stop);
    }
    let app = Arc::new(App::new(current, queue.clone(), metrics, log, options));
    let result = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Threads)?;
        // Before anybody hears that it listens, and may end it.
        if app.options.on_terminate {
            heed_terminate(stop);
        }
        match app.options.loading {
            Loading::First => load(&app).await.map_err(ServeError::Load)?,
            Loading::Meanwhile => drop(tokio::spawn(load_meanwhile(app.clone()))),
            Loading::Asked => {}
        }
        ready(address);
        run(listener, &app, stop).await
    });
    queue.close();
    if result.is_ok() {
        // A worker that panicked has said so already.
        let _ = worker.join();
    } else {
        queue.abort();
    }
    runtime.shutdown_timeout(LAST_WORDS);
    result
}

/// Loads the model.
async fn load(app: &App) -> Result<(), Refusal> {
    let gone = |_| Refusal::Internal("the worker is gone".to_owned());
    app.queue.order(true)?.await.map_err(gone)?
}

/// Loads the model while the page is open already, which says so if it cannot be.
async fn load_meanwhile(app: Arc<App>) {
    // Where a question came first, the model is loaded for it.
    if let Err(refusal @ (Refusal::Unavailable(_) | Refusal::Internal(_))) = load(&app).await {
        let mut problem = app.problem.lock().unwrap_or_else(PoisonError::into_inner);
        *problem = Some(refusal.to_string());
    }
}

fn bind(options: &ServerOptions) -> Result<(TcpListener, SocketAddr), ServeError> {
    let name = format!("{}:{}", options.host, options.port);
    let refused = |source| ServeError::Listen {
        address: name.clone(),
        source,
    };
    let addresses: Vec<SocketAddr> = match options.host.parse::<IpAddr>() {
        Ok(ip) => vec![(ip, options.port).into()],
        Err(_) => (options.host.as_str(), options.port)
            .to_socket_addrs()
            .map_err(refused)?
            .collect(),
    };
    if let Some(public) = addresses.iter().find(|address| !address.ip().is_loopback())
        && options.api_key.is_none()
    {
        return Err(ServeError::NeedsKey(*public));
    }
    let listener = TcpListener::bind(addresses.as_slice()).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

async fn run(
    listener: tokio::net::TcpListener,
    app: &Arc<App>,
    stop: &Stop,
) -> Result<(), ServeError> {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
    let router = routes::router(app.clone());
    let mut stage = stop.watch();
    accept(&listener, app, &router, &permits, stop, &mut stage).await;
    drop(listener);
    app.queue.close();
    app.log.record(&Record::Draining);
    if let Some(installation) = &app.installation {
        installation.pause();
    }
    tokio::select! {
        () = settled(app, &permits) => Ok(()),
        _ = stage.wait_for(|stage| *stage == Stage::Forced) => {
            app.queue.abort();
            let _ = tokio::time::timeout(LAST_WORDS, settled(app, &permits)).await;
            Err(ServeError::Forced)
        }
    }
}

/// Waits until all connections are closed and all answers of the page, which may have nobody who watches, are written down.
async fn settled(app: &App, permits: &Semaphore) {
    // Nobody closes the permits.
    let _ = permits.acquire_many(MAX_CONNECTIONS).await;
    if let Some(page) = &app.options.page {
        page.settled().await;
    }
    if let Some(installation) = &app.installation {
        installation.settled().await;
    }
}

/// Takes connections until the server drains.
async fn accept(
    listener: &tokio::net::TcpListener,
    app: &Arc<App>,
    router: &Router,
    permits: &Arc<Semaphore>,
    stop: &Stop,
    stage: &mut watch::Receiver<Stage>,
) {
    loop {
        let next = async {
            let permit = permits.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            next = next => next,
        };
        match (accepted, permit) {
            (Ok((stream, _)), Ok(permit)) => {
                let service = router.clone();
                tokio::spawn(connection(
                    stream,
                    app.clone(),
                    service,
                    stop.watch(),
                    permit,
                ));
            }
            (Err(_), _) => sleep(ACCEPT_PAUSE).await,
            // Nobody closes the permits.
            (_, Err(_)) => return,
        }
    }
}

async fn connection(
    stream: TcpStream,
    app: Arc<App>,
    router: Router,
    mut stage: watch::Receiver<Stage>,
    permit: OwnedSemaphorePermit,
) {
    let _permit = permit;
    app.metrics.connections.fetch_add(1, Ordering::Relaxed);
    // Tokens are small, and each is wanted at once.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Paced::new(stream, WRITE_STALL));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(io, TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let is_draining = tokio::select! {
        // What goes wrong with a connection is its client's affair.
        _ = connection.as_mut() => false,
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => true,
    };
    if is_draining {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
    app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
}

/// From now on SIGTERM drains, and a second one forces.
fn heed_terminate(stop: &Stop) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        // Without the signal there is still Ctrl-C.
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return;
        };
        let stop = stop.clone();
        tokio::spawn(async move {
            while terminate.recv().await.is_some() {
                stop.advance();
            }
        });
    }
    #[cfg(not(unix))]
    let _ = stop;
}
