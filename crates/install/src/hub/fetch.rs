//! Several requests at once. Workers ask, check and retry; the calling thread takes what comes and is the only one that writes.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

use super::exchange::{Connections, Trouble};
use super::files::{Files, Part};
use super::pipe::{BUFFER_BYTES, Message, Out, Pipe};
use crate::{Event, InstallError, Request, Sink};

/// How often the calling thread asks whether anything more is wanted.
pub const CHECK_EVERY: Duration = Duration::from_millis(100);

/// So many bytes show that it was worth another try.
const PROGRESS_BYTES: u64 = 64 << 10;

/// How often and how long failed requests are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Failures in a row, with hardly a byte between them, after which a request is given up.
    pub tries: u32,
    /// The wait after the first; each next one is twice as long.
    pub first_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
}

impl Default for Patience {
    /// Some six minutes without a byte: a router restarts, a laptop changes its network.
    fn default() -> Patience {
        Patience {
            tries: 12,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// Failures in a row before there is anything to keep: whoever just gave the command wants to know soon.
    pub fn tries_to_begin(&self) -> u32 {
        self.tries.min(4)
    }

    /// How long to wait after `failures` in a row: at least as long as the hub asked for, and never the same for two workers.
    pub fn wait(&self, failures: u32, asked: Option<Duration>) -> Duration {
        // An expired address is asked for anew at once, the first time.
        if failures == 1 && asked == Some(Duration::ZERO) {
            return Duration::ZERO;
        }
        let doubled = self.first_wait * 2_u32.pow(failures.clamp(1, 16) - 1);
        let wait = doubled
            .min(self.longest_wait)
            .max(asked.unwrap_or_default());
        let random = (RandomState::new().hash_one(0) % 1000) as u32;
        wait + wait / 2 * random / 1000
    }
}

/// Brings a part, as often as it takes; `tell` hears of failures that are not the end.
pub async fn bring_patiently(
    files: &Files,
    patience: &Patience,
    connections: &mut Connections,
    part: &Part<'_>,
    out: &mut Out<'_>,
    tell: &mut (dyn FnMut(&str, Duration) + Send),
) -> Result<(), InstallError> {
    let (mut done, mut counted, mut failures) = (0, 0, 0);
    loop {
        let result = files.bring(connections, part, out, &mut done).await;
        if done - counted >= PROGRESS_BYTES {
            (counted, failures) = (done, 0);
        }
        match result {
            Ok(()) => return Ok(()),
            Err(Trouble::Final(error)) => return Err(error),
            Err(Trouble::Passing { reason, wait }) => {
                failures += 1;
                if failures >= patience.tries {
                    return Err(InstallError::Network {
                        file: part.file.to_owned(),
                        reason: format!("{reason}, {failures} times in a row"),
                    });
                }
                let wait = patience.wait(failures, wait);
                tell(&reason, wait);
                sleep(wait).await;
            }
        }
    }
}

/// What all workers share.
struct Work {
    files: Arc<Files>,
    patience: Patience,
    /// File, offset and length of each request.
    requests: Vec<(String, u64, u64)>,
    next: AtomicUsize,
}

/// Brings all requests to `sink`, `n_workers` at a time.
pub fn bring(
    runtime: &Runtime,
    files: &Arc<Files>,
    (patience, n_workers): (Patience, usize),
    requests: &[Request<'_>],
    sink: &mut dyn Sink,
) -> Result<(), InstallError> {
    let own = |request: &Request<'_>| (request.file.to_owned(), request.offset, request.len);
    let work = Arc::new(Work {
        files: files.clone(),
        patience,
        requests: requests.iter().map(own).collect(),
        next: AtomicUsize::new(0),
    });
    let (to_writer, messages) = mpsc::channel();
    let mut workers = Vec::new();
    let mut back = Vec::new();
    for worker in 0..n_workers.min(requests.len()) {
        let (give_back, empty) = unbounded_channel();
        // The second buffer waits there.
        let _ = give_back.send(Vec::with_capacity(BUFFER_BYTES));
        back.push(give_back);
        let pipe = Pipe {
            worker,
            request: 0,
            to_writer: to_writer.clone(),
            empty,
            filling: Vec::with_capacity(BUFFER_BYTES),
        };
        workers.push(runtime.spawn(run(work.clone(), pipe)));
    }
    drop(to_writer);
    let result = write(&messages, &back, requests, sink);
    for worker in workers {
        worker.abort();
    }
    result
}

/// Takes what the workers send until all requests are complete.
fn write(
    messages: &mpsc::Receiver<Message>,
    back: &[tokio::sync::mpsc::UnboundedSender<Vec<u8>>],
    requests: &[Request<'_>],
    sink: &mut dyn Sink,
) -> Result<(), InstallError> {
    let mut n_done = 0;
    while n_done < requests.len() {
        match messages.recv_timeout(CHECK_EVERY) {
            Ok(Message::Bytes {
                worker,
                request,
                mut buffer,
            }) => {
                sink.take(request, &buffer)?;
                buffer.clear();
                // A worker that has nothing more to do takes none back.
                let _ = back[worker].send(buffer);
            }
            Ok(Message::Done) => n_done += 1,
            Ok(Message::Retries {
                request,
                reason,
                wait,
            }) => sink.tell(Event::Retries {
                file: requests[request].file.to_owned(),
                reason,
                wait,
            }),
            Ok(Message::Failed(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) => sink.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("workers end when there is no request left, or say why")
            }
        }
    }
    Ok(())
}

/// One worker: takes the next request until there is none.
async fn run(work: Arc<Work>, mut pipe: Pipe) {
    let mut connections = Connections::default();
    let to_writer = pipe.to_writer.clone();
    loop {
        let request = work.next.fetch_add(1, Ordering::Relaxed);
        let Some((file, offset, len)) = work.requests.get(request) else {
            return;
        };
        pipe.request = request;
        let part = Part {
            file,
            offset: *offset,
            len: *len,
        };
        let result = bring_request(&work, &mut connections, &part, &mut pipe, &to_writer).await;
        let has_failed = result.is_err();
        let message = result.map_or_else(Message::Failed, |()| Message::Done);
        if to_writer.send(message).is_err() || has_failed {
            return;
        }
    }
}

async fn bring_request(
    work: &Work,
    connections: &mut Connections,
    part: &Part<'_>,
    pipe: &mut Pipe,
    to_writer: &Sender<Message>,
) -> Result<(), InstallError> {
    let request = pipe.request;
    let mut tell = |reason: &str, wait| {
        // Nobody hears it only when everything is over.
        let _ = to_writer.send(Message::Retries {
            request,
            reason: reason.to_owned(),
            wait,
        });
    };
    bring_patiently(
        &work.files,
        &work.patience,
        connections,
        part,
        &mut Out::Writer(pipe),
        &mut tell,
    )
    .await?;
    match pipe.flush().await {
        Ok(()) | Err(Trouble::Passing { .. }) => Ok(()),
        Err(Trouble::Final(error)) => Err(error),
    }
}
