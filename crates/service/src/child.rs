//! The service's side: it owns the model, and does what its owner says.
//!
//! One thread reads requests, so that a cancellation is heard while an answer is made, and so that the end of the requests, which is the end
//! of the owner, is heard at any time. The thread that called [`run`] does the rest, one request after the other.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ouzel::{Cancel, Model};
use thiserror::Error;

use crate::line::{LineError, Lines, write};
use crate::model::LoadedModel;
use crate::protocol::{Load, PROTOCOL, Report, Request};
use crate::turn::{Generate, Step};

/// Requests that may wait; an owner who keeps to the protocol has one at most.
const MAX_WAITING: usize = 4;

/// Why a service ended before it was told to.
#[derive(Debug, Error)]
pub enum ChildError {
    /// The owner said what the protocol does not have.
    #[error("{0}")]
    Protocol(String),
    /// The owner reads no more.
    #[error("the owner of this decode service is gone: {0}")]
    Gone(LineError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// The turn under way.
type Current = Arc<Mutex<Option<(u64, Cancel)>>>;

/// What the reading thread hands over.
enum Heard {
    Request(Request),
    Generate(Box<Generate>, Cancel),
    Broken(LineError),
}

/// Serves one owner until it says `shutdown`. `orphaned` is called, on another thread and at any moment, when the owner is gone; it must
/// end the process.
///
/// # Errors
/// See [`ChildError`]; where the owner still reads, it was told.
pub fn run(
    requests: impl Read + Send + 'static,
    reports: impl Write,
    orphaned: impl FnOnce() + Send + 'static,
) -> Result<(), ChildError> {
    let mut child = Child {
        reports: BufWriter::new(reports),
        current: Current::default(),
        model: None,
    };
    child.say(&Report::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    let (sender, heard) = sync_channel(MAX_WAITING);
    let current = child.current.clone();
    thread::Builder::new()
        .name("requests".to_owned())
        .spawn(move || {
            listen(Lines::new(BufReader::new(requests)), &sender, &current);
            orphaned();
        })
        .map_err(ChildError::Thread)?;
    let result = child.serve(&heard);
    if let Err(error @ ChildError::Protocol(_)) = &result {
        let message = error.to_string();
        child.say(&Report::Failed { message })?;
    }
    result
}

/// Reads requests until there are no more.
fn listen<R: BufRead>(mut lines: Lines<R>, heard: &SyncSender<Heard>, current: &Current) {
    loop {
        let next = match lines.read() {
            Ok(Some(Request::Cancel { turn })) => {
                if let Some((under_way, cancel)) = &*lock(current)
                    && *under_way == turn
                {
                    cancel.cancel();
                }
                continue;
            }
            Ok(Some(Request::Generate(asked))) => {
                let cancel = Cancel::new();
                *lock(current) = Some((asked.turn, cancel.clone()));
                Heard::Generate(asked, cancel)
            }
            Ok(Some(request)) => Heard::Request(request),
            Ok(None) | Err(LineError::Io(_) | LineError::BrokeOff) => return,
            Err(error) => {
                // What is under way is not wanted any more: nothing that follows can be understood.
                if let Some((_, cancel)) = &*lock(current) {
                    cancel.cancel();
                }
                let _ = heard.send(Heard::Broken(error));
                // The owner is told and goes; nothing else that comes from it is understood.
                lines.skip_all();
                return;
            }
        };
        if heard.send(next).is_err() {
            return;
        }
    }
}

fn lock(current: &Current) -> MutexGuard<'_, Option<(u64, Cancel)>> {
    current.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Child<W: Write> {
    reports: BufWriter<W>,
    current: Current,
    model: Option<LoadedModel>,
}

impl<W: Write> Child<W> {
    fn say(&mut self, report: &Report) -> Result<(), ChildError> {
        write(report, &mut self.reports).map_err(ChildError::Gone)?;
        // What a turn took is nobody's concern before what came of it.
        if !matches!(report, Report::Statistics { .. }) {
            let flushed = self.reports.flush();
            flushed.map_err(|error| ChildError::Gone(error.into()))?;
        }
        Ok(())
    }

    fn serve(&mut self, heard: &Receiver<Heard>) -> Result<(), ChildError> {
        let mut is_greeted = false;
        // The reading thread ends the process when the owner is gone, so a closed channel is its business.
        while let Ok(next) = heard.recv() {
            match next {
                Heard::Request(Request::Hello { protocol }) if !is_greeted => {
                    if protocol != PROTOCOL {
                        return Err(ChildError::Protocol(format!(
                            "the owner speaks version {protocol} of the protocol, and this decode service {PROTOCOL}"
                        )));
                    }
                    is_greeted = true;
                }
                Heard::Broken(error) => return Err(ChildError::Protocol(error.to_string())),
                _ if !is_greeted => return Err(out_of_turn("a request before hello")),
                Heard::Request(Request::Load(load)) if self.model.is_none() => self.load(&load)?,
                Heard::Generate(asked, cancel) => self.generate(*asked, &cancel)?,
                Heard::Request(Request::Unload) => {
                    let troubles = self.model.take().map_or(Vec::new(), |mut model| {
                        model.put_away();
                        model.take_troubles()
                    });
                    self.say(&Report::Unloaded { troubles })?;
                }
                Heard::Request(Request::Shutdown) => {
                    self.model = None;
                    return Ok(());
                }
                Heard::Request(_) => return Err(out_of_turn("a request that does not fit here")),
            }
        }
        Ok(())
    }

    fn load(&mut self, load: &Load) -> Result<(), ChildError> {
        self.say(&Report::Loading)?;
        let options = load.options();
        let opened = Model::open(&load.model, &options);
        match opened.and_then(|model| LoadedModel::load(&model, &options)) {
            Ok(model) => {
                self.model = Some(model);
                self.ready()
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn ready(&mut self) -> Result<(), ChildError> {
        let Some(model) = &mut self.model else {
            return Ok(());
        };
        let (context, memory_bytes) = model.size();
        let troubles = model.take_troubles();
        self.say(&Report::Ready {
            context,
            memory_bytes,
            troubles,
        })
    }

    fn failed(&mut self, message: String) -> Result<(), ChildError> {
        self.say(&Report::Failed { message })
    }

    fn generate(&mut self, asked: Generate, cancel: &Cancel) -> Result<(), ChildError> {
        let Some(mut model) = self.model.take() else {
            return Err(out_of_turn("a turn, and no model is loaded"));
        };
        let (mut has_ended, mut gone) = (false, None);
        let result = model.answer(asked, cancel, &mut |step| {
            has_ended |= matches!(step, Step::Done(_));
            if gone.is_none()
                && let Err(error) = self.say(&step.into())
            {
                gone = Some(error);
                cancel.cancel();
            }
        });
        self.model = Some(model);
        *lock(&self.current) = None;
        if let Some(error) = gone {
            return Err(error);
        }
        if let (Err(message), false) = (result, has_ended) {
            self.failed(message)?;
        }
        self.ready()
    }
}

fn out_of_turn(what: &str) -> ChildError {
    ChildError::Protocol(what.to_owned())
}
