//! One conversation's context in memory.
//!
//! The session knows which tokens its KV cache holds. A prompt that begins with them costs only the rest, so a caller hands in the
//! whole conversation each turn and keeps no state of its own. Where a prompt departs from what is held, the session rewinds to
//! the last token that agrees; sliding layers forget, so after a long departure it starts again from the first token, or from
//! where a conversation that it had before was kept.

use std::fmt;
use std::time::Instant;

use ouzel_engine::{Budget, EngineError, LayerKind, TokenId};
use ouzel_tokenizer::Tokenizer;

use crate::generation::{Generation, Parts};
use crate::prefix::{PrefixStats, PrefixStore, Reach, rewind};
use crate::score::Scorer;
use crate::{Cancel, Error, GenerateOptions, Message, Model, Options, Score, TokenConstraint};

/// One context of tokens on one model, with all of its memory allocated.
pub struct Session {
    model: Model,
    engine: ouzel_engine::Session,
    /// The ids whose keys and values the engine holds; as many as its position.
    tokens: Vec<u32>,
    prefixes: Option<PrefixStore>,
}

impl Session {
    pub(crate) fn new(model: Model, engine: ouzel_engine::Session, options: &Options) -> Session {
        let tokens = Vec::with_capacity(engine.capacity());
        let prefixes = options.prefixes.as_ref();
        Session {
            model,
            prefixes: prefixes.map(|kept| PrefixStore::open(&engine, kept, options.io)),
            engine,
            tokens,
        }
    }

    /// The model that the session runs.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How the session's memory is spent.
    pub fn budget(&self) -> &Budget {
        self.engine.budget()
    }

    /// The computing session, for what is not a matter of text: instruction set, I/O mode, counts.
    pub fn engine(&self) -> &ouzel_engine::Session {
        &self.engine
    }

    /// The computing session alone, for measurements that feed it token ids.
    pub fn into_engine(self) -> ouzel_engine::Session {
        self.engine
    }

    /// The tokens that the session holds.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// What is kept of conversations, if [`Options::prefixes`] asked for it.
    pub fn prefix_stats(&self) -> Option<PrefixStats> {
        self.prefixes.as_ref().map(PrefixStore::stats)
    }

    /// Why conversations are not kept on the disk, in words, as far as this was not asked before; each kind of trouble once. It is no error:
    /// they are computed again.
    pub fn take_prefix_troubles(&mut self) -> Vec<String> {
        let prefixes = self.prefixes.as_mut();
        prefixes.map_or(Vec::new(), PrefixStore::take_troubles)
    }

    /// Writes kept conversations that are in memory to the disk, as the end of the session would, so that what goes wrong can be asked for.
    pub fn put_prefixes_away(&mut self) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.put_away();
        }
    }

    /// Tokens that the context can hold.
    pub fn capacity(&self) -> usize {
        self.engine.capacity()
    }

    /// Forgets all tokens. Experts in slots stay.
    pub fn reset(&mut self) {
        self.engine.reset();
        self.tokens.clear();
    }

    /// The model's answer to a conversation, event by event.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), ouzel::Error> {
    /// use ouzel::{Cancel, Event, GenerateOptions, Message, Model, Options};
    ///
    /// let options = Options::default();
    /// let mut session = Model::open("model.gturbo", &options)?.session(&options)?;
    /// let messages = [Message::user("What is a fieldfare?")];
    /// for event in session.chat(&messages, &GenerateOptions::default(), &Cancel::new())? {
    ///     if let Event::Answer(text) = event? {
    ///         print!("{text}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::ContextFull`], [`Error::EmptyPrompt`], [`Error::Text`] and [`Error::Conversation`]; nothing was changed then.
    pub fn chat(
        &mut self,
        messages: &[Message],
        options: &GenerateOptions,
        cancel: &Cancel,
    ) -> Result<Generation<'_>, Error> {
        let prompt = self.model.chat_prompt(messages, options.thinking)?;
        self.generate(prompt.ids, options, cancel)
    }

    /// How a text goes on, see [`Model::raw_prompt`].
    ///
    /// # Errors
    /// As [`Session::chat`].
    pub fn complete(
        &mut self,
        text: &str,
        options: &GenerateOptions,
        cancel: &Cancel,
    ) -> Result<Generation<'_>, Error> {
        let prompt = self.model.raw_prompt(text)?;
        self.generate(prompt.ids, options, cancel)
    }

    /// How a prompt given as ids goes on.
    ///
    /// # Errors
    /// As [`Session::chat`]; [`Error::Engine`] for an id outside the vocabulary, before anything was changed.
    pub fn generate(
        &mut self,
        prompt: Vec<u32>,
        options: &GenerateOptions,
        cancel: &Cancel,
    ) -> Result<Generation<'_>, Error> {
        self.generate_with(prompt, options, None, cancel)
    }

    /// The same for an answer that must satisfy a constraint.
    ///
    /// # Errors
    /// As [`Session::generate`].
    pub fn generate_with(
        &mut self,
        prompt: Vec<u32>,
        options: &GenerateOptions,
        constraint: Option<Box<dyn TokenConstraint>>,
        cancel: &Cancel,
    ) -> Result<Generation<'_>, Error> {
        // Everything that may be refused is asked before anything is changed. An answer needs room for one token at least.
        self.check_fits(&prompt, prompt.len() + 1)?;
        self.check_known(options.logit_bias.iter().map(|(id, _)| *id))?;
        let tokenizer = self.model.tokenizer()?;
        self.model.stop_ids()?;
        let start = Instant::now();
        let prompt = go_to(
            (&mut self.engine, &mut self.tokens),
            self.prefixes.as_mut(),
            &prompt,
            Some(tokenizer),
        );
        Generation::new(
            Parts {
                model: &self.model,
                engine: &mut self.engine,
                tokens: &mut self.tokens,
                prefixes: self.prefixes.as_mut(),
                restore_time: start.elapsed(),
            },
            prompt,
            options,
            constraint,
            cancel,
        )
    }

    /// How likely the model finds these ids, from an empty context on; `logits` sees the row `[vocab_size]` of each.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::ContextFull`], [`Error::Engine`].
    pub fn score(
        &mut self,
        ids: &[u32],
        logits: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<Score, Error> {
        self.check_fits(ids, ids.len())?;
        self.reset();
        let mut scorer = Scorer::new(ids);
        let result = self
            .engine
            .prefill_all(&token_ids(ids), &mut |row, values| {
                scorer.add(row, values);
                logits(row, values);
            });
        // The session holds the sequence now, or nothing after an error.
        self.tokens.extend(&ids[..self.engine.position()]);
        result?;
        Ok(scorer.finish())
    }

    /// For measurements: says that the session holds these tokens, and fills their keys and values with noise. What the model then says
    /// means nothing; how long it takes, and how long it takes to keep and to bring back, is as if they had been computed.
    ///
    /// # Errors
    /// [`Error::ContextFull`].
    pub fn pretend(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.check_fits(ids, ids.len())?;
        let shapes =
            [LayerKind::Full, LayerKind::Sliding].map(|kind| (kind, self.engine.row_bytes(kind)));
        let mut restore = self.engine.restore(ids.len(), 0)?;
        let mut noise = Vec::new();
        for (kind, row_bytes) in shapes {
            for position in restore.needed(kind) {
                // Values of f16 or f32 below 2 in magnitude, of which no two rows are alike.
                noise.clear();
                let mut x = position as u32 | 1;
                noise.extend((0..row_bytes).map(|_| {
                    x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (x >> 24) as u8 & 0x3f
                }));
                let row = position..position + 1;
                restore.load(kind, row.clone(), &noise, row);
            }
        }
        restore.finish();
        self.tokens.clear();
        self.tokens.extend_from_slice(ids);
        Ok(())
    }

    /// For measurements: keeps what the session holds, as after a turn, and goes to where a prompt of these ids would continue. How many
    /// tokens of the prompt are then held.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::ContextFull`].
    pub fn keep_and_continue(&mut self, ids: &[u32]) -> Result<usize, Error> {
        self.check_fits(ids, ids.len())?;
        let (engine, tokens) = (&mut self.engine, &mut self.tokens);
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.keep(engine, tokens, tokens.len());
        }
        go_to((engine, tokens), self.prefixes.as_mut(), ids, None);
        Ok(self.tokens.len())
    }

    fn check_fits(&self, ids: &[u32], needed: usize) -> Result<(), Error> {
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.check_known(ids.iter().copied())?;
        let capacity = self.capacity();
        if needed > capacity {
            return Err(Error::ContextFull { needed, capacity });
        }
        Ok(())
    }

    fn check_known(&self, mut ids: impl Iterator<Item = u32>) -> Result<(), Error> {
        let vocab_size = self.model.config().vocab_size;
        match ids.find(|&id| id as usize >= vocab_size) {
            Some(id) => Err(EngineError::UnknownToken { id, vocab_size }.into()),
            None => Ok(()),
        }
    }
}

/// Brings an engine and the tokens that it holds to where a prompt continues; the prompt in the ids that are then held.
fn go_to(
    (engine, tokens): (&mut ouzel_engine::Session, &mut Vec<u32>),
    prefixes: Option<&mut PrefixStore>,
    prompt: &[u32],
    tokenizer: Option<&Tokenizer>,
) -> Vec<u32> {
    match prefixes {
        Some(prefixes) => prefixes.begin(engine, tokens, prompt, tokenizer),
        None => {
            let held = Reach::of_held(engine, tokens, prompt, tokenizer);
            rewind(engine, tokens, held.n_tokens);
            held.prompt
        }
    }
}

pub(crate) fn token_ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().copied().map(TokenId).collect()
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model)
            .field("n_tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}
