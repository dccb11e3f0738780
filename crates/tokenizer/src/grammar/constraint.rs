//! One answer under a grammar: which tokens may come next, and what came.
//!
//! The grammar speaks of the answer only. What precedes it, thinking, is free; so is the text of an answer that may call tools and need
//! not. The tokens that end an answer are no part of a grammar either: they are allowed where it is complete.

use super::vocabulary::Ids;
use llguidance::Matcher;

/// What the grammar is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The whole answer, which is text.
    Whole,
    /// The whole answer, which is calls, or may be.
    Calls,
    /// Each call in an answer that is free otherwise.
    FreeWithCalls,
    /// Nothing.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The answer, or the thinking before it, is about to begin.
    Start,
    Thinking,
    /// Free text.
    Free,
    /// Under the grammar.
    Bound,
    /// Only the end may come.
    Done,
}

/// What one answer must look like; made by `Grammars::compile`.
pub struct Constraint {
    ids: Ids,
    mode: Mode,
    phase: Phase,
    /// The grammar as it stands.
    matcher: Option<Matcher>,
    /// The grammar at its beginning, for an answer of several calls.
    fresh: Option<Matcher>,
    /// Bit i of word i / 32 for each id; valid while `is_current`.
    mask: Vec<u32>,
    is_current: bool,
    error: Option<String>,
}

impl Constraint {
    pub(super) fn new(ids: Ids, mode: Mode, matcher: Matcher) -> Constraint {
        let fresh = (mode == Mode::FreeWithCalls).then(|| matcher.deep_clone());
        Constraint {
            ids,
            mode,
            phase: Phase::Start,
            matcher: Some(matcher),
            fresh,
            mask: vec![0; ids.n_tokens.div_ceil(32)],
            is_current: false,
            error: None,
        }
    }

    /// The constraint that allows everything.
    pub(super) fn none(ids: Ids) -> Constraint {
        Constraint {
            ids,
            mode: Mode::None,
            phase: Phase::Free,
            matcher: None,
            fresh: None,
            mask: Vec::new(),
            is_current: false,
            error: None,
        }
    }

    /// Begins behind a prompt: one that leaves a channel open begins with thinking, one that closed it has done with it.
    pub fn follow(&mut self, prompt: &[u32]) {
        let ids = self.ids;
        let is_mark = |id: &&u32| {
            [ids.turn_opens, ids.channel_opens, ids.channel_closes].contains(id)
                || ids.response_closes == Some(**id)
        };
        let last = prompt.iter().rev().find(is_mark);
        if self.mode == Mode::None || self.phase != Phase::Start {
            return;
        }
        if last == Some(&ids.channel_opens) {
            self.phase = Phase::Thinking;
        } else if last == Some(&ids.channel_closes) {
            self.begin_answer();
        }
    }

    /// The ids that may come next: bit i of word i / 32. `None` where all may.
    pub fn allowed(&mut self) -> Option<&[u32]> {
        match (self.phase, self.mode) {
            (Phase::Thinking | Phase::Free, _) | (Phase::Start, Mode::FreeWithCalls) => None,
            (Phase::Start | Phase::Bound | Phase::Done, _) => {
                if !self.is_current {
                    self.fill();
                    self.is_current = true;
                }
                Some(&self.mask)
            }
        }
    }

    /// Takes the id that came. One that was not allowed makes the constraint give up: then nothing may come.
    pub fn accept(&mut self, id: u32) {
        let ids = self.ids;
        self.is_current = false;
        if self.phase == Phase::Done || self.mode == Mode::None {
            return;
        }
        if self.ends(id) && self.phase != Phase::Thinking {
            self.phase = Phase::Done;
            return;
        }
        match self.phase {
            Phase::Start if id == ids.channel_opens => self.phase = Phase::Thinking,
            Phase::Start => {
                self.begin_answer();
                self.accept(id);
            }
            Phase::Thinking if id == ids.channel_closes => self.begin_answer(),
            Phase::Thinking | Phase::Free => {
                if id == ids.call_opens && self.mode == Mode::FreeWithCalls {
                    self.matcher = self.fresh.as_ref().map(Matcher::deep_clone);
                    self.phase = Phase::Bound;
                    self.consume(id);
                }
            }
            Phase::Bound => {
                self.consume(id);
                if id == ids.call_closes && self.mode == Mode::FreeWithCalls {
                    self.phase = Phase::Free;
                }
            }
            Phase::Done => {}
        }
    }

    /// Whether only the end of the answer may come, or has come, or nothing may come any more.
    pub fn is_finished(&self) -> bool {
        match (&self.matcher, self.phase) {
            (_, Phase::Done) => true,
            (Some(matcher), Phase::Bound) => matcher.is_stopped(),
            _ => false,
        }
    }

    /// Why the constraint gave up, if it did: an answer that ended then would look complete, and nothing may come. The text names no content.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn begin_answer(&mut self) {
        self.phase = if self.mode == Mode::FreeWithCalls {
            Phase::Free
        } else {
            Phase::Bound
        };
    }

    fn ends(&self, id: u32) -> bool {
        self.ends_of_turn().contains(&Some(id))
    }

    fn ends_of_turn(&self) -> [Option<u32>; 3] {
        let response = self.ids.response_opens.filter(|_| self.mode != Mode::Whole);
        [Some(self.ids.turn_closes), self.ids.eos, response]
    }

    fn consume(&mut self, id: u32) {
        let Some(matcher) = &mut self.matcher else {
            return;
        };
        if let Err(error) = matcher.consume_token(id) {
            self.fail(error.to_string());
        }
    }

    fn fail(&mut self, error: String) {
        // Behind the first line comes what the grammar was, or that it is left out.
        let line = error.lines().next().unwrap_or_default();
        let line = match line {
            "NoExtensionBias" => "nothing fulfils it",
            line => line,
        };
        self.error.get_or_insert_with(|| line.to_owned());
        self.phase = Phase::Done;
    }

    fn fill(&mut self) {
        self.mask.fill(0);
        let mut may_end = self.phase == Phase::Done;
        if !may_end && let Some(matcher) = &mut self.matcher {
            may_end = matcher.is_stopped() || matcher.is_accepting().unwrap_or(false);
            match matcher.compute_mask_or_eos() {
                Ok(mask) => {
                    let n_words = self.mask.len().min(mask.as_slice().len());
                    self.mask[..n_words].copy_from_slice(&mask.as_slice()[..n_words]);
                }
                Err(error) => self.fail(error.to_string()),
            }
        }
        // llguidance ends with one token; a model has several.
        for id in self.ends_of_turn().into_iter().flatten() {
            self.set(id, may_end);
        }
        if self.phase == Phase::Start {
            self.set(self.ids.channel_opens, true);
        }
        if self.mask.iter().all(|word| *word == 0) {
            self.fail("no token fits".to_owned());
        }
        if self.error.is_some() {
            self.mask.fill(0);
        } else if self.phase == Phase::Done {
            self.mask.fill(0);
            for id in self.ends_of_turn().into_iter().flatten() {
                self.set(id, true);
            }
        }
    }

    fn set(&mut self, id: u32, is_allowed: bool) {
        let bit = 1 << (id % 32);
        let word = &mut self.mask[id as usize / 32];
        *word = if is_allowed {
            *word | bit
        } else {
            *word & !bit
        };
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint")
            .field("mode", &self.mode)
            .field("phase", &self.phase)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
