//! The expert cache at work, for whoever wants to watch it: counts of each layer, and what became of each expert since the last look.
//!
//! The store marks what it plans; a look copies the marks and begins them anew. Everything was allocated before, so neither allocates.

use super::ExpertStore;
use crate::ExpertId;
use crate::cache::Placement;

/// The expert cache at one moment. Made once with [`Experts::new`], and filled by every look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Routed experts of each layer.
    pub n_experts: usize,
    /// `[n_layers]`: chosen experts that were found in memory, since the session began.
    pub hits: Vec<u64>,
    /// `[n_layers]`: chosen experts that were read, since the session began.
    pub misses: Vec<u64>,
    /// `[n_layers, n_experts]`: [`Experts::RESIDENT`], [`Experts::HIT`] and [`Experts::READ`], the latter two since the last look.
    pub marks: Vec<u8>,
}

impl Experts {
    /// The expert lies in a slot.
    pub const RESIDENT: u8 = 1;
    /// It was chosen and found in memory.
    pub const HIT: u8 = 2;
    /// It was chosen and read.
    pub const READ: u8 = 4;

    /// Room for a look at a model of this shape.
    pub fn new(n_layers: usize, n_experts: usize) -> Experts {
        Experts {
            n_experts,
            hits: vec![0; n_layers],
            misses: vec![0; n_layers],
            marks: vec![0; n_layers * n_experts],
        }
    }
}

impl ExpertStore {
    /// Counts the plan of the request under way.
    pub(super) fn count_plan(&mut self) {
        let first = self.layer.index() * self.files.n_experts();
        for (&expert, placement) in self.requested.iter().zip(self.plan.placements()) {
            let mark = &mut self.watched.marks[first + expert.index()];
            if let Placement::Hit(_) = placement {
                self.counts.hits += 1;
                self.watched.hits[self.layer.index()] += 1;
                *mark |= Experts::HIT;
            } else {
                self.counts.misses += 1;
                self.watched.misses[self.layer.index()] += 1;
                *mark |= Experts::READ;
            }
        }
    }

    /// Copies what happened since the last look into `seen`, and begins anew.
    ///
    /// # Panics
    /// If `seen` is made for a model of another shape.
    pub fn look(&mut self, seen: &mut Experts) {
        seen.hits.copy_from_slice(&self.watched.hits);
        seen.misses.copy_from_slice(&self.watched.misses);
        seen.marks.copy_from_slice(&self.watched.marks);
        self.watched.marks.fill(0);
        let layers = seen.marks.chunks_exact_mut(self.files.n_experts());
        for (cache, marks) in self.caches.iter().zip(layers) {
            for (expert, mark) in (0..).zip(marks) {
                if cache.holds(ExpertId(expert)) {
                    *mark |= Experts::RESIDENT;
                }
            }
        }
    }

    /// Room for [`ExpertStore::look`].
    pub fn unseen(&self) -> Experts {
        Experts::new(self.files.n_layers(), self.files.n_experts())
    }
}
