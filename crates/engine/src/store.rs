//! The expert store: retained slots of every layer, the transit set that all layers share, and the reads under way.
//!
//! Plan, read, compute: [`ExpertStore::request`] asks the cache where each chosen expert comes from and starts to read what is
//! missing; [`ExpertStore::next`] hands out experts as they are at hand, hits first; [`ExpertStore::release`] takes
//! each back. A buffer is owned by whoever works with it, so nothing is computed from a buffer that is being read into.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ouzel_storage::{IoMode, PositionedFile, ReadMode, Region};

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
    /// A block that begins with its bytes.
    pub bytes: Region,
}

/// See the module's description.
pub struct ExpertStore {
    files: ExpertFiles,
    open: Vec<Arc<PositionedFile>>,
    readers: Readers,
    caches: Vec<LayerCache>,
    /// `[layers][slots]`; `None` while lent out or being read into.
    slots: Vec<Vec<Option<Region>>>,
    /// The most slots that a layer may have.
    max_slots: usize,
    /// Free buffers of the transit set.
    transit: Vec<Region>,
    /// Blocks that no layer may have: each has as many slots as it may.
    idle: Vec<Region>,
    /// Experts that arrived before their turn, by their number in the request.
    arrived: Vec<Option<Region>>,
    /// Whether an expert's checksum was compared in this process, `[layers * experts]`.
    verified: Vec<bool>,
    layer: LayerId,
    plan: Plan,
    /// Experts of the request under way, in ascending order.
    requested: Vec<ExpertId>,
    /// The next expert to hand out in turn, to look at for hits, and for misses to send.
    next_in_turn: usize,
    next_hit: usize,
    next_miss: usize,
    n_in_flight: usize,
    counts: Stats,
}

impl ExpertStore {
    /// Opens the expert files, allocates the arena of `budget` and makes slots of all of it that is not the transit set.
    pub fn new(
        dir: &Path,
        files: ExpertFiles,
        experts_per_token: usize,
        budget: &Budget,
        io: IoMode,
    ) -> Result<ExpertStore, EngineError> {
        let open = |l: usize| {
            let path = files.path(dir, LayerId(l as u32));
            Ok(Arc::new(PositionedFile::open(&path, io)?))
        };
        let (n_layers, n_experts) = (files.n_layers(), files.n_experts());
        let mut store = ExpertStore {
            open: (0..n_layers)
                .map(open)
                .collect::<Result<_, EngineError>>()?,
            readers: Readers::new(READ_THREADS, READ_DEPTH)?,
            caches: (0..n_layers)
                .map(|_| LayerCache::new(n_experts, 0, experts_per_token))
                .collect(),
            slots: (0..n_layers)
                .map(|_| Vec::with_capacity(n_experts))
                .collect(),
            max_slots: budget.max_slots_a_layer,
            transit: Vec::with_capacity(budget.transit_blocks),
            idle: Vec::with_capacity(budget.arena_blocks),
            arrived: (0..n_experts).map(|_| None).collect(),
            verified: vec![false; n_layers * n_experts],
            layer: LayerId(0),
            plan: Plan::new(n_experts),
            requested: Vec::with_capacity(n_experts),
            next_in_turn: 0,
            next_hit: 0,
            next_miss: 0,
            n_in_flight: 0,
            counts: Stats::default(),
            files,
        };
        let block_bytes = budget.blocks.bytes;
        let mut arena = Region::new(budget.arena_blocks * block_bytes)?;
        for i in 0..budget.arena_blocks {
            let rest = arena.split_off(block_bytes);
            let block = std::mem::replace(&mut arena, rest);
            if i < budget.transit_blocks {
                store.transit.push(block);
            } else {
                store.give_back(block);
            }
        }
        Ok(store)
    }

    /// Takes a block away from the slots: one that no layer may have, else the least wanted slot of a layer with most slots.
    ///
    /// # Panics
    /// If every block is lent out, which the budget rules out; or between a request and its end.
    pub fn lend(&mut self) -> Region {
        assert!(self.requested.is_empty(), "no request is under way");
        if let Some(block) = self.idle.pop() {
            return block;
        }
        let most = self.slots.iter().map(Vec::len).max().unwrap_or(0);
        let layer = self.slots.iter().rposition(|slots| slots.len() == most);
        let layer = layer.expect("a model has layers");
        let slot = self.caches[layer].remove_slot();
        let slot = slot.expect("the budget counted every block that may be lent at once");
        let block = self.slots[layer].swap_remove(slot.index());
        block.expect("outside a request every slot is in its place")
    }

    /// Makes a block a free slot of a layer with fewest slots, unless all have as many as they may.
    pub fn give_back(&mut self, block: Region) {
        let least = self.slots.iter().map(Vec::len).min().unwrap_or(0);
        if least >= self.max_slots {
            self.idle.push(block);
            return;
        }
        let layer = self.slots.iter().position(|slots| slots.len() == least);
        let layer = layer.expect("a model has layers");
        self.caches[layer].add_slot();
        self.slots[layer].push(Some(block));
    }

    /// Slots of each layer, now.
    pub fn slots_of_layers(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(Vec::len)
    }

    /// Where the three matrices lie in an expert's bytes.
    pub fn parts(&self) -> &ExpertParts {
        self.files.parts()
    }

    /// How the files are really read; they lie on one file system.
    pub fn read_mode(&self) -> ReadMode {
        self.open
            .first()
            .map_or(ReadMode::Direct, |file| file.mode())
    }

    /// Plans where `experts` (ascending, each with the number of rows that chose it) of layer `l` come from, and starts to read
    /// those that are missing.
    pub fn request(&mut self, l: LayerId, experts: &[(ExpertId, u32)]) -> Result<(), EngineError> {
        self.layer = l;
        self.requested.clear();
        self.requested
            .extend(experts.iter().map(|&(expert, _)| expert));
        self.caches[l.index()].plan_chunk(experts, &mut self.plan);
        self.next_in_turn = 0;
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
            self.requested.clear();
            return Ok(None);
        }
        let reply = self.receive();
        self.accept(reply).map(Some)
    }

    /// The next expert in ascending order, whatever arrives first; `None` when every requested expert was handed out. One request
    /// is taken either in turn or as it comes.
    pub fn next_in_turn(&mut self) -> Result<Option<Ready>, EngineError> {
        let nth = self.next_in_turn;
        if nth == self.requested.len() {
            self.requested.clear();
            return Ok(None);
        }
        self.next_in_turn += 1;
        if let Placement::Hit(slot) = self.plan.placements()[nth] {
            let bytes = self.slot(slot).take().expect("a hit lies in its slot");
            return Ok(Some(Ready { nth, bytes }));
        }
        loop {
            if let Some(bytes) = self.arrived[nth].take() {
                return Ok(Some(Ready { nth, bytes }));
            }
            let reply = self.receive();
            let ready = self.accept(reply)?;
            self.arrived[ready.nth] = Some(ready.bytes);
            self.send_misses();
        }
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

    fn slot(&mut self, slot: SlotId) -> &mut Option<Region> {
        &mut self.slots[self.layer.index()][slot.index()]
    }

    fn put_back(&mut self, nth: usize, bytes: Region) {
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
                n_bytes: self.files.stride(),
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
                self.counts.bytes_read += self.files.stride() as u64;
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
    fn give_up(&mut self, failed: usize, bytes: Region) {
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
        for nth in 0..self.requested.len() {
            if let Some(bytes) = self.arrived[nth].take() {
                self.put_back(nth, bytes);
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
