//! The owner's side: it starts the service, asks it, hears when it dies, and ends it.
//!
//! A thread reads the reports, so that the death of the service is noticed at any time, and another one what it writes to standard error,
//! of which the last lines go into the message when it dies.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ouzel::Cancel;
use thiserror::Error;

use crate::line::{LineError, Lines, write};
use crate::protocol::{Load, PROTOCOL, Report, Request};
use crate::turn::{Generate, Step};

/// A program that starts and says hello needs much less, on however busy a machine.
const HELLO_TIME: Duration = Duration::from_secs(60);
/// What was computed is written down when a model is unloaded: a gigabyte on a slow disk.
const UNLOAD_TIME: Duration = Duration::from_secs(60);
/// A process that has nothing to do any more ends at once.
const END_TIME: Duration = Duration::from_secs(5);
/// How often it is looked whether an answer is still wanted: a cancellation reaches the service so much later. Two hundred looks a second
/// cost a thousandth of a processor.
const CANCEL_POLL: Duration = Duration::from_millis(5);
/// How often it is looked whether a process that is ending has ended.
const END_POLL: Duration = Duration::from_millis(2);
/// Reports that may wait for the one who asked; further ones wait in the pipe, and the service with them.
const MAX_WAITING: usize = 256;
/// Of what a service writes to standard error, so much is kept: lines, and bytes of each.
const MAX_LAST_LINES: usize = 4;
const MAX_LAST_BYTES: usize = 400;

/// Why a service does not do what it was asked for.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The process cannot be started.
    #[error("the decode service cannot be started: {0}")]
    Start(#[source] std::io::Error),
    /// The process is gone, or had to be ended. The next one may do better.
    #[error("{0}")]
    Lost(String),
    /// The service says that it went wrong; it may be asked again.
    #[error("{0}")]
    Failed(String),
}

/// The program that is a decode service.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub file: PathBuf,
    /// What makes it a decode service.
    pub args: Vec<String>,
}

/// What is called once when a service is gone, whether it was told to end or not.
pub type OnLoss = Box<dyn FnOnce() + Send>;

/// Whether a service is gone, and who wants to know.
#[derive(Default)]
struct Loss {
    is_lost: AtomicBool,
    tell: Mutex<Option<OnLoss>>,
}

/// The last lines that a service wrote to standard error.
type LastWords = Arc<Mutex<Vec<String>>>;

/// A running decode service. Dropping it ends the process, which first gives everything back.
pub struct Service {
    child: Child,
    requests: Option<BufWriter<ChildStdin>>,
    reports: Receiver<Result<Report, LineError>>,
    loss: Arc<Loss>,
    last_words: LastWords,
    stderr: Option<JoinHandle<()>>,
    /// Whether a turn is under way, which nobody waits for any more when this is dropped.
    is_answering: bool,
    /// Whether it was told to end.
    has_ended: bool,
    /// What it could not keep, as far as nobody asked.
    troubles: Vec<String>,
}

impl Program {
    /// Starts the process and hears its hello. It has a process group of its own: Ctrl-C in a terminal is for its owner, who may let an answer
    /// come to its end.
    ///
    /// # Errors
    /// [`ServiceError::Start`]; [`ServiceError::Lost`] if it is no decode service, or one that speaks another version.
    pub fn start(&self) -> Result<Service, ServiceError> {
        let mut command = Command::new(&self.file);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        apart(&mut command);
        let mut child = command.spawn().map_err(ServiceError::Start)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let threads = || {
            let (sender, reports) = sync_channel(MAX_WAITING);
            let loss = Arc::<Loss>::default();
            let last_words = LastWords::default();
            if let Some(stdout) = stdout {
                let loss = loss.clone();
                spawn("reports", move || {
                    hear(stdout, &sender);
                    drop(sender);
                    loss.tell();
                })?;
            }
            let words = last_words.clone();
            let stderr = stderr.map(|stderr| spawn("last words", move || listen(stderr, &words)));
            Ok((reports, loss, last_words, stderr.transpose()?))
        };
        let (reports, loss, last_words, stderr) = match threads() {
            Ok(threads) => threads,
            Err(error) => {
                // It ends by itself when nobody holds its standard input; this only spares it the wait.
                let _ = child.kill();
                let _ = child.wait();
                return Err(ServiceError::Start(error));
            }
        };
        let mut service = Service {
            child,
            requests: stdin.map(BufWriter::new),
            reports,
            loss,
            last_words,
            stderr,
            is_answering: false,
            has_ended: false,
            troubles: Vec::new(),
        };
        service.greet()?;
        Ok(service)
    }
}

/// Gives a process a group of its own.
fn apart(command: &mut Command) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    #[cfg(windows)]
    {
        use std::os::windows::process::CommandExt;
        /// CREATE_NEW_PROCESS_GROUP: such a process does not hear Ctrl-C.
        const NEW_GROUP: u32 = 0x200;
        /// CREATE_NO_WINDOW: it has no console, and needs none.
        const NO_WINDOW: u32 = 0x0800_0000;
        command.creation_flags(NEW_GROUP | NO_WINDOW);
    }
    #[cfg(not(any(unix, windows)))]
    let _ = command;
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

fn hear(stdout: impl Read, reports: &SyncSender<Result<Report, LineError>>) {
    let mut lines = Lines::new(BufReader::new(stdout));
    loop {
        let next = match lines.read() {
            Ok(Some(report)) => Ok(report),
            Ok(None) | Err(LineError::Io(_) | LineError::BrokeOff) => return,
            Err(error) => Err(error),
        };
        let is_last = next.is_err();
        if reports.send(next).is_err() || is_last {
            return;
        }
    }
}

/// Keeps the last lines, none of them long, until there are no more.
fn listen(stderr: impl Read, words: &LastWords) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = stderr
            .by_ref()
            .take(MAX_LAST_BYTES as u64)
            .read_until(b'\n', &mut line);
        if !read.is_ok_and(|n| n > 0) {
            return;
        }
        let text = String::from_utf8_lossy(&line).trim().to_owned();
        // How to get a backtrace helps nobody who cannot start the service.
        if text.is_empty() || text.starts_with("note: ") {
            continue;
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == MAX_LAST_LINES {
            words.remove(0);
        }
        words.push(text);
    }
}

impl Loss {
    fn lock(&self) -> MutexGuard<'_, Option<OnLoss>> {
        self.tell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let tell = {
            let mut tell = self.lock();
            self.is_lost.store(true, Ordering::SeqCst);
            tell.take()
        };
        if let Some(tell) = tell {
            tell();
        }
    }
}

impl Service {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process is gone.
    pub fn is_lost(&self) -> bool {
        self.loss.is_lost.load(Ordering::SeqCst)
    }

    /// Has somebody told, once, when the process is gone: at once if it is gone already.
    pub fn on_loss(&self, tell: OnLoss) {
        let mut waiting = self.loss.lock();
        if self.is_lost() {
            drop(waiting);
            tell();
        } else {
            *waiting = Some(tell);
        }
    }

    /// Loads a model; once for each service. Tokens of context and the bytes of the budget, as the service has them.
    ///
    /// # Errors
    /// [`ServiceError::Failed`] with what is wrong with the model or its options, [`ServiceError::Lost`].
    pub fn load(&mut self, load: Load) -> Result<(usize, u64), ServiceError> {
        self.ask(&Request::Load(Box::new(load)))?;
        loop {
            match self.next(None)? {
                Some(Report::Loading) | None => {}
                Some(Report::Ready {
                    context,
                    memory_bytes,
                    troubles,
                }) => {
                    self.troubles.extend(troubles);
                    return Ok((context, memory_bytes));
                }
                Some(Report::Failed { message }) => return Err(ServiceError::Failed(message)),
                Some(_) => return Err(self.out_of_turn()),
            }
        }
    }

    /// Makes one answer, step by step, and stops soon after `cancel` says so. Returns when the service is ready for the next.
    ///
    /// # Errors
    /// [`ServiceError::Failed`], with which the service may be asked again; [`ServiceError::Lost`].
    pub fn answer(
        &mut self,
        asked: Generate,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), ServiceError> {
        let turn = asked.turn;
        let mut failed = Ok(());
        let mut is_told = false;
        self.ask(&Request::Generate(Box::new(asked)))?;
        self.is_answering = true;
        loop {
            if !is_told && cancel.is_cancelled() {
                is_told = true;
                self.ask(&Request::Cancel { turn })?;
            }
            let Some(report) = self.next((!is_told).then_some(CANCEL_POLL))? else {
                continue;
            };
            match report {
                Report::Failed { message } => failed = Err(ServiceError::Failed(message)),
                Report::Ready { troubles, .. } => {
                    self.troubles.extend(troubles);
                    self.is_answering = false;
                    return failed;
                }
                report => match report.into_step() {
                    Some(step) => emit(step),
                    None => return Err(self.out_of_turn()),
                },
            }
        }
    }

    /// What it could not keep for later, in words, as far as this was not asked before.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    /// Ends the process, which first gives everything back, unless nobody knows what it is at.
    pub fn put_away(&mut self) {
        if !self.is_lost() && !self.is_answering && !self.has_ended {
            self.has_ended = true;
            // Whether it went well or not, the process is gone when this is dropped.
            let _ = self.end();
        }
    }

    /// Says hello and hears it.
    fn greet(&mut self) -> Result<(), ServiceError> {
        self.ask(&Request::Hello { protocol: PROTOCOL })?;
        match self.next(Some(HELLO_TIME))? {
            Some(Report::Hello { protocol, .. }) if protocol == PROTOCOL => Ok(()),
            Some(Report::Hello { protocol, version }) => {
                self.kill();
                Err(ServiceError::Lost(format!(
                    "the decode service is Ouzel {version} and speaks version {protocol} of the protocol, this is {} and speaks {PROTOCOL}; the program was replaced: start it again",
                    env!("CARGO_PKG_VERSION")
                )))
            }
            Some(_) => Err(self.out_of_turn()),
            None => {
                self.kill();
                let seconds = HELLO_TIME.as_secs();
                Err(ServiceError::Lost(format!(
                    "the decode service did not say hello within {seconds} s"
                )))
            }
        }
    }

    fn ask(&mut self, request: &Request) -> Result<(), ServiceError> {
        let Some(requests) = &mut self.requests else {
            return Err(self.died());
        };
        match write(request, requests) {
            Ok(()) => {}
            Err(error @ LineError::TooLong(_)) => {
                return Err(ServiceError::Failed(error.to_string()));
            }
            Err(_) => return Err(self.died()),
        }
        match requests.flush() {
            Ok(()) => Ok(()),
            Err(_) => Err(self.died()),
        }
    }

    /// The next report; `None` if there is none in time.
    fn next(&mut self, within: Option<Duration>) -> Result<Option<Report>, ServiceError> {
        let next = match within {
            Some(within) => self.reports.recv_timeout(within),
            None => self.reports.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Ok(Ok(report)) => Ok(Some(report)),
            Ok(Err(broken)) => {
                self.kill();
                Err(ServiceError::Lost(format!(
                    "the decode service said what is not in its protocol, and was ended: {broken}"
                )))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
        }
    }

    fn out_of_turn(&mut self) -> ServiceError {
        self.kill();
        ServiceError::Lost(
            "the decode service said something out of turn, and was ended".to_owned(),
        )
    }

    /// What became of a process that answers no more; afterwards it is certainly gone.
    fn died(&mut self) -> ServiceError {
        let pid = self.pid();
        let status = self.wait(END_TIME);
        self.kill();
        let how = match status {
            Some(status) => in_words(status),
            None => "stopped answering, and was ended".to_owned(),
        };
        let said = self.last_words();
        ServiceError::Lost(format!(
            "the decode service (process {pid}) {how}{said}; the next request starts it again"
        ))
    }

    fn last_words(&mut self) -> String {
        let since = Instant::now();
        while let Some(stderr) = &self.stderr
            && !stderr.is_finished()
            && since.elapsed() < END_TIME
        {
            thread::sleep(END_POLL);
        }
        let words = self.last_words.lock();
        let words = words.unwrap_or_else(PoisonError::into_inner);
        match words.as_slice() {
            [] => String::new(),
            words => format!("; it said: {}", words.join(" ")),
        }
    }

    /// How the process ended, if it does in time.
    fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        let since = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if since.elapsed() < within => thread::sleep(END_POLL),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Ends the process, whatever it does.
    fn kill(&mut self) {
        self.requests = None;
        // One that is gone needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.loss.is_lost.store(true, Ordering::SeqCst);
    }

    /// Has it give back everything and end by itself.
    fn end(&mut self) -> Result<(), ServiceError> {
        self.ask(&Request::Unload)?;
        let since = Instant::now();
        while let Some(left) = UNLOAD_TIME.checked_sub(since.elapsed()) {
            if let Some(Report::Unloaded { troubles }) = self.next(Some(left))? {
                self.troubles.extend(troubles);
                self.ask(&Request::Shutdown)?;
                self.wait(END_TIME);
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.put_away();
        self.kill();
    }
}

/// What an end was.
fn in_words(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        const SIGKILL: i32 = 9;
        match status.signal() {
            Some(SIGKILL) => {
                return format!(
                    "was killed by signal {SIGKILL}: the system may have been out of memory; a smaller --memory needs less"
                );
            }
            Some(signal) => return format!("was ended by signal {signal}"),
            None => {}
        }
    }
    match status.code() {
        Some(code) => format!("ended with code {code}"),
        None => "ended".to_owned(),
    }
}
