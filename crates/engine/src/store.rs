//! The expert store: retained slots of every layer, the transit set that all layers share, and the reads under way.
//!
//! Plan, read, compute: [`ExpertStore::request`] asks the cache where each chosen expert comes from and starts to read what is
//! missing; [`ExpertStore::next`] hands out experts as they are at hand, hits first; [`ExpertStore::release`] takes
//! each back. A buffer is owned by whoever works with it, so nothing is computed from a buffer that is being read into.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ouzel_storage::{AlignedBuf, IoMode, PositionedFile};

use crate::budget::Budget;
use crate::cache::{LayerCache, Placement, Plan};
use crate::expert_files::{ExpertFiles, ExpertParts};
use crate::readers::{ReadFailure, Readers, Reply, Request};
use crate::{EngineError, ExpertId, LayerId, SlotId, Stats};

/// Reads in flight at once.
const READ_DEPTH: usize = 8;
/// Threads that read; two already reach the rate of most disks, four cover slow first bytes.
const READ_THREADS: usize = 4;

/// An expert at hand, lent out by the store.
pub struct Ready {
    /// Which of the requested experts this is.
    pub nth: usize,
    /// Its bytes, one stride.
    pub bytes: AlignedBuf,
}

/// See the module's description.
pub struct ExpertStore {
    files: ExpertFiles,
    open: Vec<Arc<PositionedFile>>,
    readers: Readers,
    caches: Vec<LayerCache>,
    /// `[layers][slots]`; `None` while lent out or being read into.
    slots: Vec<Vec<Option<AlignedBuf>>>,
    /// Free buffers of the transit set.
    transit: Vec<AlignedBuf>,
    /// Whether an expert's checksum was compared in this process, `[layers * experts]`.
    verified: Vec<bool>,
    layer: LayerId,
    plan: Plan,
    /// Experts of the request under way, in ascending order.
    requested: Vec<ExpertId>,
    /// The next expert to look at for hits, and for misses to send.
    next_hit: usize,
    next_miss: usize,
    n_in_flight: usize,
    counts: Stats,
}

impl ExpertStore {
    /// Opens the expert files and allocates every buffer of `budget`.
    pub fn new(
        dir: &Path,
        files: ExpertFiles,
        experts_per_token: usize,
        budget: &Budget,
        io: IoMode,
    ) -> Result<ExpertStore, EngineError> {
        let stride = files.stride();
        let buffers = |n: usize| -> Result<Vec<AlignedBuf>, EngineError> {
            (0..n).map(|_| Ok(AlignedBuf::new(stride)?)).collect()
        };
        let n_experts = files.n_experts();
        Ok(ExpertStore {
            open: (0..files.n_layers())
                .map(|l| {
                    Ok(Arc::new(PositionedFile::open(
                        &files.path(dir, LayerId(l as u32)),
                        io,
                    )?))
                })
                .collect::<Result<_, EngineError>>()?,
            readers: Readers::new(READ_THREADS, READ_DEPTH)?,
            caches: budget
                .slots
                .iter()
                .map(|&n| LayerCache::new(n_experts, n as usize, experts_per_token))
                .collect(),
            slots: budget
                .slots
                .iter()
                .map(|&n| Ok(buffers(n as usize)?.into_iter().map(Some).collect()))
                .collect::<Result<_, EngineError>>()?,
            transit: buffers(budget.transit_slots)?,
            verified: vec![false; files.n_layers() * n_experts],
            layer: LayerId(0),
            plan: Plan::new(n_experts),
            requested: Vec::with_capacity(n_experts),
            next_hit: 0,
            next_miss: 0,
            n_in_flight: 0,
            counts: Stats::default(),
            files,
        })
    }

    /// Where the three matrices lie in an expert's bytes.
    pub fn parts(&self) -> &ExpertParts {
        self.files.parts()
    }

    /// How the files are read: directly or buffered.
    pub fn io_mode(&self) -> IoMode {
        self.open
            .first()
            .map_or(IoMode::Buffered, |file| file.mode())
    }

    /// Plans where `experts` (ascending, each with the number of rows that chose it) of layer `l` come from, and starts to read
    /// those that are missing.
    pub fn request(&mut self, l: LayerId, experts: &[(ExpertId, u32)]) -> Result<(), EngineError> {
        self.layer = l;
        self.requested.clear();
        self.requested
            .extend(experts.iter().map(|&(expert, _)| expert));
        self.caches[l.index()].plan_chunk(experts, &mut self.plan);
        self.next_hit = 0;
        self.next_miss = 0;
        for placement in self.plan.placements() {
            match placement {
                Placement::Hit(_) => self.counts.hits += 1,
                Placement::Retain(_) | Placement::Transit => self.counts.misses += 1,
            }
        }
        self.send_misses();
        Ok(())
    }

    /// The next expert at hand: hits first, then misses as they arrive; `None` when every requested expert was handed out.
    pub fn next(&mut self) -> Result<Option<Ready>, EngineError> {
        while self.next_hit < self.requested.len() {
            let nth = self.next_hit;
            self.next_hit += 1;
            if let Placement::Hit(slot) = self.plan.placements()[nth] {
                let bytes = self.slot(slot).take().expect("a hit lies in its slot");
                return Ok(Some(Ready { nth, bytes }));
            }
        }
        if self.n_in_flight == 0 {
            return Ok(None);
        }
        let reply = self.receive();
        self.accept(reply).map(Some)
    }

    /// Takes back an expert that was handed out, and reads the next one into its buffer if it was in transit.
    pub fn release(&mut self, ready: Ready) {
        self.put_back(ready.nth, ready.bytes);
        self.send_misses();
    }

    /// Adds the counts since the last call to `stats`.
    pub fn add_stats(&mut self, stats: &mut Stats) {
        let counts = std::mem::take(&mut self.counts);
        stats.hits += counts.hits;
        stats.misses += counts.misses;
        stats.bytes_read += counts.bytes_read;
        stats.disk_wait += counts.disk_wait;
    }

    fn slot(&mut self, slot: SlotId) -> &mut Option<AlignedBuf> {
        &mut self.slots[self.layer.index()][slot.index()]
    }

    fn put_back(&mut self, nth: usize, bytes: AlignedBuf) {
        match self.plan.placements()[nth] {
            Placement::Hit(slot) | Placement::Retain(slot) => *self.slot(slot) = Some(bytes),
            Placement::Transit => self.transit.push(bytes),
        }
    }

    /// Sends misses in ascending order while buffers and depth last.
    fn send_misses(&mut self) {
        while self.next_miss < self.requested.len() && self.n_in_flight < READ_DEPTH {
            let nth = self.next_miss;
            let bytes = match self.plan.placements()[nth] {
                Placement::Hit(_) => {
                    self.next_miss += 1;
                    continue;
                }
                Placement::Retain(slot) => self
                    .slot(slot)
                    .take()
                    .expect("no expert chosen now is evicted"),
                Placement::Transit => match self.transit.pop() {
                    Some(bytes) => bytes,
                    None => return,
                },
            };
            self.next_miss += 1;
            self.n_in_flight += 1;
            let (l, expert) = (self.layer, self.requested[nth]);
            let verified = self.verified[self.verified_index(l, expert)];
            self.readers.send(Request {
                ticket: nth,
                file: Arc::clone(&self.open[l.index()]),
                offset: self.files.offset(l, expert),
                checksum: if verified {
                    None
                } else {
                    self.files.checksum(l, expert)
                },
                bytes,
            });
        }
    }

    fn receive(&mut self) -> Reply {
        let reply = match self.readers.try_receive() {
            Some(reply) => reply,
            None => {
                let start = Instant::now();
                let reply = self.readers.receive();
                self.counts.disk_wait += start.elapsed();
                reply
            }
        };
        self.n_in_flight -= 1;
        reply
    }

    fn accept(&mut self, reply: Reply) -> Result<Ready, EngineError> {
        let (l, expert) = (self.layer, self.requested[reply.ticket]);
        match reply.outcome {
            Ok(()) => {
                let index = self.verified_index(l, expert);
                self.verified[index] = true;
                self.counts.bytes_read += reply.bytes.len() as u64;
                Ok(Ready {
                    nth: reply.ticket,
                    bytes: reply.bytes,
                })
            }
            Err(failure) => {
                let path = self.open[l.index()].path().to_owned();
                self.give_up(reply.ticket, reply.bytes);
                Err(match failure {
                    ReadFailure::Storage(error) => EngineError::Storage(error),
                    ReadFailure::Checksum => EngineError::Checksum {
                        path,
                        layer: l,
                        expert,
                    },
                })
            }
        }
    }

    /// After a failed read: gets every buffer back and forgets what was planned but never read, so that the store can go on.
    fn give_up(&mut self, failed: usize, bytes: AlignedBuf) {
        self.put_back(failed, bytes);
        self.forget(failed);
        while self.n_in_flight > 0 {
            let reply = self.receive();
            let arrived = reply.outcome.is_ok();
            self.put_back(reply.ticket, reply.bytes);
            if !arrived {
                self.forget(reply.ticket);
            }
        }
        for nth in self.next_miss..self.requested.len() {
            self.forget(nth);
        }
        self.requested.clear();
    }

    fn forget(&mut self, nth: usize) {
        if let Placement::Retain(slot) = self.plan.placements()[nth] {
            self.caches[self.layer.index()].forget(slot);
        }
    }

    fn verified_index(&self, l: LayerId, expert: ExpertId) -> usize {
        l.index() * self.files.n_experts() + expert.index()
    }
}
