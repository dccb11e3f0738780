//! Threads that read experts, so that the disk works while the processor does.
//!
//! A buffer travels with its request and comes back with its reply: who holds it may use it, nobody shares it. The
//! channels are bounded and allocated once.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ouzel_storage::{PositionedFile, Region, StorageError, xxh3_64};

use crate::EngineError;

/// Address space of a reader's stack, in bytes.
pub const STACK_BYTES: usize = 128 << 10;

/// One expert to be read.
pub struct Request {
    /// What the reply is to be called.
    pub ticket: usize,
    /// The layer's file.
    pub file: Arc<PositionedFile>,
    /// Where the expert starts in it.
    pub offset: u64,
    /// XXH3-64 of the bytes, where they should be checked.
    pub checksum: Option<u64>,
    /// How many bytes.
    pub n_bytes: usize,
    /// Where they go, from the start.
    pub bytes: Region,
}

/// What became of a request.
pub struct Reply {
    /// The request's ticket.
    pub ticket: usize,
    /// Its buffer, filled if `outcome` is `Ok`.
    pub bytes: Region,
    /// Whether the bytes are there and right.
    pub outcome: Result<(), ReadFailure>,
}

/// Why the bytes of an expert cannot be used.
#[derive(Debug)]
pub enum ReadFailure {
    /// The read failed.
    Storage(StorageError),
    /// The bytes do not match their checksum.
    Checksum,
}

/// The reading threads.
pub struct Readers {
    /// `None` only while dropping: closing the channel ends the threads.
    requests: Option<SyncSender<Request>>,
    /// Never locked: the mutex only makes the readers shareable between threads that do not receive.
    replies: Mutex<Receiver<Reply>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts `n_threads` readers for up to `depth` requests under way.
    pub fn new(n_threads: usize, depth: usize) -> Result<Readers, EngineError> {
        let (requests, inbox) = sync_channel::<Request>(depth);
        let (outbox, replies) = sync_channel(depth);
        let inbox = Arc::new(Mutex::new(inbox));
        let threads = (0..n_threads)
            .map(|i| {
                let (inbox, outbox) = (Arc::clone(&inbox), outbox.clone());
                std::thread::Builder::new()
                    .name(format!("ouzel-read-{i}"))
                    .stack_size(STACK_BYTES)
                    .spawn(move || read_until_closed(&inbox, &outbox))
                    .map_err(|error| EngineError::System {
                        what: "starting a reader thread",
                        reason: error.to_string(),
                    })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Readers {
            requests: Some(requests),
            replies: Mutex::new(replies),
            threads,
        })
    }

    /// Hands a request to the next free thread.
    pub fn send(&self, request: Request) {
        let requests = self.requests.as_ref().expect("open until dropped");
        requests
            .send(request)
            .expect("readers live as long as their channel");
    }

    /// The next reply, if one is there.
    pub fn try_receive(&mut self) -> Option<Reply> {
        self.replies().try_recv().ok()
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Reply {
        self.replies()
            .recv()
            .expect("readers live as long as their channel")
    }

    fn replies(&mut self) -> &mut Receiver<Reply> {
        self.replies
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            // A reader does not panic; if one did, its message was printed and there is nothing left to do.
            let _ = thread.join();
        }
    }
}

fn read_until_closed(inbox: &Mutex<Receiver<Request>>, outbox: &SyncSender<Reply>) {
    loop {
        let request = match inbox.lock() {
            Ok(inbox) => inbox.recv(),
            Err(_) => return,
        };
        let Ok(mut request) = request else { return };
        let outcome = read(&mut request);
        let reply = Reply {
            ticket: request.ticket,
            bytes: request.bytes,
            outcome,
        };
        if outbox.send(reply).is_err() {
            return;
        }
    }
}

fn read(request: &mut Request) -> Result<(), ReadFailure> {
    let bytes = &mut request.bytes[..request.n_bytes];
    request
        .file
        .read_exact_at(bytes, request.offset)
        .map_err(ReadFailure::Storage)?;
    match request.checksum {
        Some(expected) if xxh3_64(bytes) != expected => Err(ReadFailure::Checksum),
        _ => Ok(()),
    }
}
