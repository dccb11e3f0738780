//! Where the bytes of an answer go: into memory, or in buffers of a fixed size to the one thread that writes.

use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::connection::READ_BUFFER_BYTES;
use super::exchange::Trouble;
use crate::InstallError;

/// Bytes of scratch for each connection: two buffers, one filling while the other is written, and what the HTTP library reads into.
pub const SCRATCH_BYTES: usize = 512 << 10;
/// Of each buffer.
pub const BUFFER_BYTES: usize = (SCRATCH_BYTES - READ_BUFFER_BYTES) / 2;

/// What a worker tells the writing thread.
pub enum Message {
    /// The next bytes of a request; the buffer goes back to the worker.
    Bytes {
        /// Who sends it.
        worker: usize,
        /// Of which request.
        request: usize,
        /// The bytes.
        buffer: Vec<u8>,
    },
    /// A request failed and is made again.
    Retries {
        /// Of which file.
        request: usize,
        /// What happened.
        reason: String,
        /// How long it waits first.
        wait: Duration,
    },
    /// A request failed for good.
    Failed(InstallError),
    /// A request is complete.
    Done,
}

/// Where bytes go.
pub enum Out<'a> {
    /// Into memory that has room for what is asked for.
    Memory(&'a mut Vec<u8>),
    /// To the writing thread.
    Writer(&'a mut Pipe),
}

/// A worker's way to the writing thread.
pub struct Pipe {
    /// Whose it is.
    pub worker: usize,
    /// The request that it works on.
    pub request: usize,
    /// To the writing thread.
    pub to_writer: Sender<Message>,
    /// Buffers that were written.
    pub empty: UnboundedReceiver<Vec<u8>>,
    /// The buffer that is filling.
    pub filling: Vec<u8>,
}

impl Out<'_> {
    /// Hands bytes over; waits while the writer has all buffers.
    pub async fn put(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self {
            Out::Memory(memory) => {
                memory.extend_from_slice(bytes);
                Ok(())
            }
            Out::Writer(pipe) => pipe.put(bytes).await,
        }
    }
}

impl Pipe {
    async fn put(&mut self, mut bytes: &[u8]) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            let n = (BUFFER_BYTES - self.filling.len()).min(bytes.len());
            self.filling.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.filling.len() == BUFFER_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Sends what is in the buffer and waits for another one.
    ///
    /// # Errors
    /// [`InstallError::Paused`]: the writer is gone.
    pub async fn flush(&mut self) -> Result<(), Trouble> {
        if self.filling.is_empty() {
            return Ok(());
        }
        let gone = || Trouble::Final(InstallError::Paused);
        let message = Message::Bytes {
            worker: self.worker,
            request: self.request,
            buffer: std::mem::take(&mut self.filling),
        };
        self.to_writer.send(message).map_err(|_| gone())?;
        self.filling = self.empty.recv().await.ok_or_else(gone)?;
        Ok(())
    }
}
