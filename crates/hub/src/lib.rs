//! A model hub on loopback that speaks the protocol of the real ones and misbehaves on demand. It never ships; `cargo xtask hub FOLDER`
//! runs one by hand.
//!
//! The endpoint is `127.0.0.1`, the storage that it redirects to is `localhost`: two host names, so that a token which follows a redirect
//! is caught. Large files are stored behind addresses that are signed and can expire; small ones come from the endpoint itself. A
//! [`Script`] looks at every question and may choose a [`Fault`]; every question is noted.

mod answer;
mod content;
mod http;
pub mod snapshot;

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use content::Content;

/// The repository that the hub has.
pub const REPOSITORY: &str = "ouzel/synthetic";
/// Its only commit.
pub const COMMIT: &str = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed";

/// What a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The list of files.
    Listing,
    /// Where a file is, by HEAD.
    Resolve,
    /// Bytes.
    Data,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// How many of this kind came before.
    pub n: u64,
    /// What it asks for.
    pub kind: Kind,
    /// The file; empty for the listing.
    pub file: String,
    /// The first byte and the last one.
    pub range: Option<(u64, u64)>,
    /// The host as the question named it.
    pub host: String,
    /// Whether it came with a token.
    pub has_token: bool,
}

/// How an answer goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes after so many bytes of the body.
    Truncates(u64),
    /// Nothing comes any more after so many bytes.
    Stalls(u64),
    /// The connection is reset after so many bytes.
    Resets(u64),
    /// This status, with a `Retry-After` where there is one.
    Answers(u16, Option<u64>),
    /// The whole file with 200, whatever range was asked for.
    WholeForRange,
    /// As many bytes as asked for, from another place.
    OtherRange,
    /// Fewer bytes than asked for, and the headers agree with them.
    Fewer(u64),
    /// More bytes than asked for, and the headers agree with them.
    More(u64),
    /// Other bytes under another tag.
    Swapped,
    /// Another commit in the headers.
    OtherCommit,
    /// A body that says it is compressed.
    Compressed,
    /// A web page, as a portal in a hotel would send.
    WebPage,
    /// Every address that was signed before has expired.
    Expires,
    /// Another size in the headers of a resolved file.
    OtherSize,
    /// So many bytes a second.
    Slow(u64),
}

/// Decides about each question.
pub type Script = Arc<dyn Fn(&Ask) -> Option<Fault> + Send + Sync>;

/// How a hub is.
#[derive(Clone, Default)]
pub struct Options {
    /// Without this token nothing is shown.
    pub token: Option<String>,
    /// Bytes a second that each connection gets.
    pub bytes_per_s: Option<u64>,
    /// What goes wrong.
    pub script: Option<Script>,
    /// The listing says nothing of sizes, as some mirrors'.
    pub is_terse: bool,
    /// The address of the storage, where it is not `localhost`.
    pub storage: Option<String>,
    /// A port; a free one where nothing is said.
    pub port: u16,
}

struct Shared {
    port: u16,
    options: Options,
    files: BTreeMap<String, Content>,
    asks: Mutex<Vec<Ask>>,
    counts: Mutex<BTreeMap<Kind, u64>>,
    /// Signatures of an older one have expired.
    generation: AtomicU64,
    bytes_sent: AtomicU64,
    is_over: AtomicBool,
    /// By their clients' ports.
    connections: Mutex<BTreeMap<u16, TcpStream>>,
}

/// A hub that runs until it is dropped.
pub struct Hub {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Hub {
    /// Serves the files of a folder as [`REPOSITORY`] at [`COMMIT`]; their names have letters that stand for themselves in an address.
    ///
    /// # Errors
    /// Those of the folder and of the port.
    pub fn serve(folder: &Path, options: Options) -> io::Result<Hub> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && path.is_file()
            {
                files.insert(name.to_owned(), Content::of_file(&path)?);
            }
        }
        Hub::start(files, options)
    }

    /// Serves files in memory.
    ///
    /// # Errors
    /// Those of the port.
    pub fn serve_bytes(files: &BTreeMap<String, Vec<u8>>, options: Options) -> io::Result<Hub> {
        let files = files.iter();
        let files = files.map(|(name, bytes)| (name.clone(), Content::of_bytes(name, bytes)));
        Hub::start(files.collect(), options)
    }

    fn start(files: BTreeMap<String, Content>, options: Options) -> io::Result<Hub> {
        let listener = TcpListener::bind(("127.0.0.1", options.port))?;
        let shared = Arc::new(Shared {
            port: listener.local_addr()?.port(),
            options,
            files,
            asks: Mutex::default(),
            counts: Mutex::default(),
            generation: AtomicU64::new(0),
            bytes_sent: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let own = shared.clone();
        let thread = thread::spawn(move || own.accept(&listener));
        Ok(Hub {
            shared,
            thread: Some(thread),
        })
    }

    /// Its address, for `HF_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.shared.port)
    }

    /// Every question so far.
    pub fn asks(&self) -> Vec<Ask> {
        lock(&self.shared.asks).clone()
    }

    /// Forgets the questions so far.
    pub fn forget_asks(&self) {
        lock(&self.shared.asks).clear();
    }

    /// Bytes of files that were sent so far.
    pub fn bytes_sent(&self) -> u64 {
        self.shared.bytes_sent.load(Ordering::Relaxed)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts; it looks at the flag then.
        let _ = TcpStream::connect(("127.0.0.1", self.shared.port));
        for connection in std::mem::take(&mut *lock(&self.shared.connections)).values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for connection in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Ok(connection) = connection else {
                continue;
            };
            let shared = self.clone();
            let copy = connection.try_clone().and_then(|copy| {
                lock(&self.connections).insert(connection.peer_addr()?.port(), copy);
                Ok(())
            });
            if copy.is_err() {
                continue;
            }
            thread::spawn(move || {
                // A client that goes away is its own business.
                let _ = answer::serve(&shared, connection);
            });
        }
    }

    /// Notes a question and asks the script about it.
    fn note(&self, mut ask: Ask) -> Option<Fault> {
        {
            let mut counts = lock(&self.counts);
            let n = counts.entry(ask.kind).or_default();
            ask.n = *n;
            *n += 1;
        }
        let fault = self.options.script.as_ref().and_then(|script| script(&ask));
        lock(&self.asks).push(ask);
        fault
    }

    /// Closes a connection: its other handle goes first, so that the client hears of it now.
    fn close(&self, connection: &TcpStream) -> io::Result<()> {
        lock(&self.connections).remove(&connection.peer_addr()?.port());
        Ok(())
    }

    /// Waits until the hub is over, or for as long as any client would.
    fn stall(&self) {
        let tick = Duration::from_millis(10);
        for _ in 0..12_000 {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(tick);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked meanwhile is lost already.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
