//! What a layer is expected to ask for, before its router has spoken.
//!
//! While a layer computes and the disk idles, experts that the next layer would choose now are read into buffers of the transit set.
//! This is the book of those reads. It reads nothing itself, and nobody asks it which experts a layer gets or keeps: a guess decides
//! only what is at hand when the layer asks. There are few guesses at a time, so lists serve better than tables.

use ouzel_storage::Region;

use crate::{ExpertId, LayerId};

/// An expert of a layer.
pub type Guess = (LayerId, ExpertId);

/// What became of a guess that came true.
pub enum Claim {
    /// Its read is under way and now belongs to the request.
    UnderWay,
    /// Its bytes are here.
    Arrived(Region),
}

/// The guesses for one layer, and reads of wrong ones that still are under way.
pub struct Lookahead {
    /// The layer that is expected to ask, until it has.
    layer: Option<LayerId>,
    /// Guesses to be sent, the likeliest last.
    wanted: Vec<Guess>,
    /// Reads that no request has claimed, for this layer or for earlier ones.
    under_way: Vec<Guess>,
    /// Experts of this layer whose bytes are here: guessed now, or wrongly by the token before and late.
    arrived: Vec<(Guess, Region)>,
}

impl Lookahead {
    /// No guesses, and room for `n` at a time.
    pub fn new(n: usize) -> Lookahead {
        Lookahead {
            layer: None,
            wanted: Vec::with_capacity(n),
            under_way: Vec::with_capacity(n),
            arrived: Vec::with_capacity(2 * n),
        }
    }

    /// Expects layer `l` to choose `experts`, the likeliest first. The guesses before must have been closed.
    pub fn expect(&mut self, l: LayerId, experts: impl Iterator<Item = ExpertId>) {
        debug_assert!(self.layer.is_none(), "the guesses before were closed");
        self.layer = Some(l);
        self.wanted.extend(experts.map(|expert| (l, expert)));
        self.wanted.reverse();
    }

    /// Whether no read is under way but those of requests.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The likeliest guess that was not sent, whose read counts as under way from here on.
    pub fn next(&mut self) -> Option<Guess> {
        let guess = self.wanted.pop()?;
        self.under_way.push(guess);
        Some(guess)
    }

    /// Whether a read that has ended was one of a guess, which no request has claimed; then it is no longer under way.
    pub fn ends(&mut self, guess: Guess) -> bool {
        let place = self.under_way.iter().position(|&other| other == guess);
        place.map(|i| self.under_way.swap_remove(i)).is_some()
    }

    /// Keeps the bytes of a guess for its layer, or hands them back if that has asked for others.
    pub fn keep(&mut self, guess: Guess, bytes: Region) -> Option<Region> {
        if self.layer != Some(guess.0) {
            return Some(bytes);
        }
        self.arrived.push((guess, bytes));
        None
    }

    /// A layer is missing this expert: whether that was guessed.
    pub fn claim(&mut self, guess: Guess) -> Option<Claim> {
        if self.ends(guess) {
            return Some(Claim::UnderWay);
        }
        let place = self.arrived.iter().position(|(other, _)| *other == guess)?;
        Some(Claim::Arrived(self.arrived.swap_remove(place).1))
    }

    /// The layer has asked: forgets the guesses that did not come true, and hands back the buffers of those that are here.
    pub fn close(&mut self) -> impl Iterator<Item = Region> {
        self.layer = None;
        self.wanted.clear();
        self.arrived.drain(..).map(|(_, bytes)| bytes)
    }
}
