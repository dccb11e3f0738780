//! The expert store: retained slots of every layer, the transit set that all layers share, and the reads under way.
//!
//! Plan, read, compute: [`ExpertStore::request`] asks the cache where each chosen expert comes from and starts to read what is
//! missing; [`ExpertStore::next`] hands out experts as they are at hand, hits first; [`ExpertStore::release`] takes
//! each back. A buffer is owned by whoever works with it, so nothing is computed from a buffer that is being read into.
//! A long prompt knows most of a layer's experts when the first of its rows are routed: [`ExpertStore::announce`] reads those while
//! the other rows still attend, into blocks borrowed from the slots. A single token does not know: [`ExpertStore::foresee`] takes guesses, and
//! reads them while the disk has nothing better to do, into the transit set where the layers have no other use for it.

mod lookahead;
#[cfg(test)]
mod tests;
mod watched;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ouzel_storage::{IoMode, PositionedFile, ReadMode, Region};

use self::lookahead::{Claim, Lookahead};
pub use self::watched::Experts;
use crate::blocks::Lender;
use crate::budget::Budget;
use crate::cache::{LayerCache, Placement, Plan};
use crate::expert_files::{ExpertFiles, ExpertParts};
use crate::readers::{ReadFailure, Readers, Reply, Request};
use crate::{EngineError, ExpertId, LayerId, SlotId, Stats};

/// Threads that read, and so reads in flight; two already reach the rate of most disks, four cover slow first bytes.
pub const READ_THREADS: usize = 4;
/// The most blocks that are borrowed to read ahead: some 0.15 s of a fast disk, about what the attention of a few hundred rows takes.
const AHEAD_BLOCKS: usize = 64;

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
    /// Free buffers of the transit set, and those borrowed to read ahead.
    transit: Vec<Region>,
    /// Buffers of the transit set, wherever they are.
    n_transit: usize,
    /// Blocks borrowed to read ahead.
    n_ahead: usize,
    /// Blocks that no layer may have: each has as many slots as it may.
    idle: Vec<Region>,
    /// `[n_experts]`: whether a read of the layer's expert was sent.
    is_sent: Vec<bool>,
    /// `[n_experts]`: experts that arrived before their turn.
    arrived: Vec<Option<Region>>,
    /// Whether an expert's checksum was compared in this process, `[layers * experts]`.
    verified: Vec<bool>,
    layer: LayerId,
    plan: Plan,
    /// Experts of the request under way, in ascending order.
    requested: Vec<ExpertId>,
    /// The next expert to hand out in turn, and to look at for misses to send.
    next_in_turn: usize,
    next_miss: usize,
    n_in_flight: usize,
    lookahead: Lookahead,
    counts: Stats,
    watched: Experts,
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
            readers: Readers::new(READ_THREADS, n_experts)?,
            caches: (0..n_layers)
                .map(|_| LayerCache::new(n_experts, 0, experts_per_token))
                .collect(),
            slots: (0..n_layers)
                .map(|_| Vec::with_capacity(n_experts))
                .collect(),
            max_slots: budget.max_slots_a_layer,
            transit: Vec::with_capacity(budget.transit_blocks + AHEAD_BLOCKS),
            n_transit: budget.transit_blocks,
            n_ahead: 0,
            idle: Vec::with_capacity(budget.arena_blocks),
            is_sent: vec![false; n_experts],
            arrived: (0..n_experts).map(|_| None).collect(),
            verified: vec![false; n_layers * n_experts],
            layer: LayerId(0),
            plan: Plan::new(n_experts),
            requested: Vec::with_capacity(n_experts),
            next_in_turn: 0,
            next_miss: 0,
            n_in_flight: 0,
            lookahead: Lookahead::new(READ_THREADS),
            counts: Stats::default(),
            watched: Experts::new(n_layers, n_experts),
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

    /// Forgets every expert, and that any was ever compared with its checksum.
    pub fn clear(&mut self) {
        self.caches.iter_mut().for_each(LayerCache::clear);
        self.verified.fill(false);
    }

    /// Borrows blocks to read ahead: at most half of the slots that are left.
    pub fn borrow_ahead(&mut self) {
        let n_slots = self.slots_of_layers().sum::<usize>() + self.idle.len();
        while self.n_ahead < AHEAD_BLOCKS.min(n_slots / 2) {
            let block = self.lend();
            self.transit.push(block);
            self.n_ahead += 1;
        }
    }

    /// Makes slots again of what was borrowed to read ahead.
    pub fn return_ahead(&mut self) {
        debug_assert!(self.requested.is_empty(), "no request is under way");
        for block in self.transit.split_off(self.transit.len() - self.n_ahead) {
            self.give_back(block);
        }
        self.n_ahead = 0;
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

    /// Starts to read an expert of layer `l` that some row chose, if it is missing and a borrowed block is free. The layer's request follows,
    /// names it too, and is taken in turn.
    pub fn announce(&mut self, l: LayerId, expert: ExpertId) {
        self.layer = l;
        // The transit set itself is kept for what is wanted in turn.
        let has_room = self.transit.len() > self.n_transit;
        if has_room && !self.is_sent[expert.index()] && !self.caches[l.index()].holds(expert) {
            let bytes = self.transit.pop().expect("more than the transit set");
            self.send_requested(expert, bytes);
        }
    }

    /// Whether to guess what layer `l` will choose: it may miss something, and has slots enough to retain every miss, so that the
    /// transit set is free for guesses.
    pub fn may_foresee(&self, l: LayerId) -> bool {
        let n_slots = self.slots[l.index()].len();
        n_slots > self.n_transit && n_slots < self.files.n_experts()
    }

    /// Takes it that layer `l`, the next one, will choose `experts`, the likeliest first, and reads what is missing of them once the
    /// disk idles: no more than one read a thread, since its own misses will have to wait for them.
    pub fn foresee(&mut self, l: LayerId, experts: &[u32]) {
        let cache = &self.caches[l.index()];
        let experts = experts.iter().map(|&expert| ExpertId(expert));
        let missing = experts.filter(|&expert| !cache.holds(expert));
        self.lookahead.expect(l, missing.take(READ_THREADS));
        self.send_foreseen();
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
        self.next_miss = 0;
        self.claim_foreseen();
        self.take_in()?;
        self.count_plan();
        self.send_misses();
        Ok(())
    }

    /// Hands out the requested experts that are at hand: in slots, or read ahead.
    pub fn take_hits(&mut self, hits: &mut Vec<Ready>) {
        for nth in 0..self.requested.len() {
            if let Placement::Hit(slot) = self.plan.placements()[nth] {
                let bytes = self.slot(slot).take().expect("a hit lies in its slot");
                hits.push(Ready { nth, bytes });
            } else if let Some(bytes) = self.arrived[self.requested[nth].index()].take() {
                hits.push(Ready { nth, bytes });
            }
        }
    }

    /// The next of the other experts, as they arrive; `None` when every requested expert was handed out.
    pub fn next_arrival(&mut self) -> Result<Option<Ready>, EngineError> {
        if self.n_in_flight == 0 && self.next_miss == self.requested.len() {
            // Wrong guesses may have kept the disk until now.
            self.take_in()?;
            self.send_foreseen();
            self.finish();
            return Ok(None);
        }
        let reply = self.receive();
        let (expert, bytes) = self.accept(reply)?;
        self.send_foreseen();
        let nth = self.nth(expert);
        Ok(Some(Ready { nth, bytes }))
    }

    /// The next expert in ascending order, whatever arrives first; `None` when every requested expert was handed out. One request
    /// is taken either in turn or as it comes.
    pub fn next_in_turn(&mut self) -> Result<Option<Ready>, EngineError> {
        let nth = self.next_in_turn;
        if nth == self.requested.len() {
            self.finish();
            return Ok(None);
        }
        self.next_in_turn += 1;
        if let Placement::Hit(slot) = self.plan.placements()[nth] {
            let bytes = self.slot(slot).take().expect("a hit lies in its slot");
            return Ok(Some(Ready { nth, bytes }));
        }
        loop {
            let expert = self.requested[nth];
            if let Some(bytes) = self.arrived[expert.index()].take() {
                return Ok(Some(Ready { nth, bytes }));
            }
            let reply = self.receive();
            let (expert, bytes) = self.accept(reply)?;
            self.arrived[expert.index()] = Some(bytes);
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

    /// The number of an expert in the request.
    fn nth(&self, expert: ExpertId) -> usize {
        let found = self.requested.binary_search(&expert);
        found.expect("only experts of the request are read")
    }

    fn put_back(&mut self, nth: usize, bytes: Region) {
        let spare = match self.plan.placements()[nth] {
            // What was read ahead changes places with what its slot held.
            Placement::Hit(slot) | Placement::Retain(slot) => self.slot(slot).replace(bytes),
            Placement::Transit => Some(bytes),
        };
        self.transit.extend(spare);
    }

    /// Sends misses in ascending order while buffers last.
    fn send_misses(&mut self) {
        while self.next_miss < self.requested.len() {
            let nth = self.next_miss;
            let expert = self.requested[nth];
            let bytes = match self.plan.placements()[nth] {
                Placement::Hit(_) => None,
                _ if self.is_sent[expert.index()] => None,
                Placement::Retain(slot) => {
                    let bytes = self.slot(slot).take();
                    Some(bytes.expect("no expert chosen now is evicted"))
                }
                Placement::Transit => match self.transit.pop() {
                    Some(bytes) => Some(bytes),
                    None => return,
                },
            };
            self.next_miss += 1;
            if let Some(bytes) = bytes {
                self.send_requested(expert, bytes);
            }
        }
    }

    /// Sends the guesses for the next layer if the disk idles.
    fn send_foreseen(&mut self) {
        let all_sent = self.next_miss == self.requested.len();
        if !all_sent || self.n_in_flight > 0 || !self.lookahead.is_idle() {
            return;
        }
        while let Some(bytes) = self.transit.pop() {
            let Some((l, expert)) = self.lookahead.next() else {
                self.transit.push(bytes);
                return;
            };
            self.send(l, expert, bytes);
        }
    }

    /// Makes the guesses that came true a part of the request, and drops the others.
    fn claim_foreseen(&mut self) {
        for (&expert, placement) in self.requested.iter().zip(self.plan.placements()) {
            if matches!(placement, Placement::Hit(_)) {
                continue;
            }
            match self.lookahead.claim((self.layer, expert)) {
                None => continue,
                Some(Claim::UnderWay) => self.n_in_flight += 1,
                Some(Claim::Arrived(bytes)) => self.arrived[expert.index()] = Some(bytes),
            }
            self.is_sent[expert.index()] = true;
        }
        self.transit.extend(self.lookahead.close());
    }

    /// Takes in what has arrived, without waiting.
    fn take_in(&mut self) -> Result<(), EngineError> {
        while let Some(reply) = self.readers.try_receive() {
            if let Some(reply) = self.sort_out(reply) {
                let (expert, bytes) = self.accept(reply)?;
                self.arrived[expert.index()] = Some(bytes);
            }
        }
        Ok(())
    }

    /// Starts to read an expert of the layer.
    fn send_requested(&mut self, expert: ExpertId, bytes: Region) {
        self.is_sent[expert.index()] = true;
        self.n_in_flight += 1;
        self.send(self.layer, expert, bytes);
    }

    fn send(&mut self, l: LayerId, expert: ExpertId, bytes: Region) {
        let is_verified = self.verified[self.index(l, expert)];
        let checksum = self.files.checksum(l, expert);
        self.readers.send(Request {
            ticket: self.index(l, expert),
            file: Arc::clone(&self.open[l.index()]),
            offset: self.files.offset(l, expert),
            checksum: checksum.filter(|_| !is_verified),
            n_bytes: self.files.stride(),
            bytes,
        });
    }

    /// The next reply to the request.
    fn receive(&mut self) -> Reply {
        loop {
            let reply = match self.readers.try_receive() {
                Some(reply) => reply,
                None => {
                    let start = Instant::now();
                    let reply = self.readers.receive();
                    self.counts.disk_wait += start.elapsed();
                    reply
                }
            };
            if let Some(reply) = self.sort_out(reply) {
                return reply;
            }
        }
    }

    /// Hands a reply on if it is one to the request; what was guessed waits for its layer.
    fn sort_out(&mut self, reply: Reply) -> Option<Reply> {
        let guess = self.named(&reply);
        if !self.lookahead.ends(guess) {
            self.n_in_flight -= 1;
            return Some(reply);
        }
        let unwanted = match reply.outcome {
            Ok(()) => {
                self.count_read(guess.0, guess.1);
                self.lookahead.keep(guess, reply.bytes)
            }
            // If its layer asks for it, it is read again, and that failure is reported.
            Err(_) => Some(reply.bytes),
        };
        self.transit.extend(unwanted);
        // The request may have waited for a buffer.
        self.send_misses();
        None
    }

    /// Whom a reply is about.
    fn named(&self, reply: &Reply) -> (LayerId, ExpertId) {
        let n_experts = self.files.n_experts();
        let (l, expert) = (reply.ticket / n_experts, reply.ticket % n_experts);
        (LayerId(l as u32), ExpertId(expert as u32))
    }

    fn count_read(&mut self, l: LayerId, expert: ExpertId) {
        let index = self.index(l, expert);
        self.verified[index] = true;
        self.counts.bytes_read += self.files.stride() as u64;
    }

    fn accept(&mut self, reply: Reply) -> Result<(ExpertId, Region), EngineError> {
        let (l, expert) = self.named(&reply);
        match reply.outcome {
            Ok(()) => {
                self.count_read(l, expert);
                Ok((expert, reply.bytes))
            }
            Err(failure) => {
                let path = self.open[l.index()].path().to_owned();
                self.give_up(expert, reply.bytes);
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

    /// After a failed read.
    fn give_up(&mut self, failed: ExpertId, bytes: Region) {
        self.take_back_unread(failed, bytes);
        self.abandon();
    }

    /// Ends a request, or what was only announced, and drops every guess: gets every buffer back and forgets what was planned but never
    /// read, so that the store can go on.
    pub fn abandon(&mut self) {
        while self.n_in_flight > 0 {
            let reply = self.receive();
            let (_, expert) = self.named(&reply);
            match self.requested.binary_search(&expert) {
                Ok(nth) if reply.outcome.is_ok() => self.put_back(nth, reply.bytes),
                Ok(_) => self.take_back_unread(expert, reply.bytes),
                // Announced, and never requested.
                Err(_) => self.transit.push(reply.bytes),
            }
        }
        for nth in 0..self.requested.len() {
            if let Some(bytes) = self.arrived[self.requested[nth].index()].take() {
                self.put_back(nth, bytes);
            }
        }
        for nth in self.next_miss..self.requested.len() {
            if !self.is_sent[self.requested[nth].index()] {
                self.forget(nth);
            }
        }
        self.finish();
        while !self.lookahead.is_idle() {
            let reply = self.readers.receive();
            let of_request = self.sort_out(reply);
            debug_assert!(of_request.is_none(), "all of them are here");
        }
        self.transit.extend(self.lookahead.close());
    }

    fn take_back_unread(&mut self, expert: ExpertId, bytes: Region) {
        let nth = self.nth(expert);
        self.put_back(nth, bytes);
        self.forget(nth);
    }

    /// Ends a request.
    fn finish(&mut self) {
        self.requested.clear();
        self.is_sent.fill(false);
    }

    fn forget(&mut self, nth: usize) {
        if let Placement::Retain(slot) = self.plan.placements()[nth] {
            self.caches[self.layer.index()].forget(slot);
        }
    }

    /// The number of an expert among those of all layers.
    fn index(&self, l: LayerId, expert: ExpertId) -> usize {
        l.index() * self.files.n_experts() + expert.index()
    }
}

impl Lender for ExpertStore {
    /// Takes a block away from the slots: one that no layer may have, else the least wanted slot of a layer with most slots.
    ///
    /// # Panics
    /// If every block is lent out, which the budget rules out; or between a request and its end.
    fn lend(&mut self) -> Region {
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
    fn give_back(&mut self, block: Region) {
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
}
