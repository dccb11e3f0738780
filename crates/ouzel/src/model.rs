//! A model directory, opened, and what text becomes in it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ouzel_engine::floor::{self, Forecast, Rates};
use ouzel_engine::{Budget, Config, ReadMode};
use ouzel_format::Manifest;
use ouzel_storage::free_memory;
use ouzel_tokenizer::{
    ChatTemplate, Conversation, RenderInput, Tokenizer, Warning, guard_control_text, guard_json,
    guard_messages, strip_guards,
};

use crate::text::Text;
use crate::{Error, Message, Options, Session, message};

/// Bytes a token of the vocabulary that a sampler keeps at most: a candidate, and the history that penalties need.
const SAMPLER_BYTES_A_TOKEN: u64 = 21;

/// A prompt, as text and as ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What the model reads, control tokens spelled out.
    pub text: String,
    /// The same as token ids; control text typed by somebody is no control token here.
    pub ids: Vec<u32>,
}

/// A model directory, opened. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Model {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub engine: Arc<ouzel_engine::Model>,
    pub text: Text,
}

impl Model {
    /// Opens a `.gturbo` directory. Weights are read when a session begins.
    ///
    /// A directory without tokenizer or chat template opens too and computes on token ids.
    ///
    /// # Errors
    /// [`Error::Engine`] for a directory that is missing, damaged or not supported.
    pub fn open(dir: impl AsRef<Path>, options: &Options) -> Result<Model, Error> {
        let engine = ouzel_engine::Model::open(dir.as_ref())?;
        let text = Text::open(&engine, options.cache_dir.as_deref());
        let engine = Arc::new(engine);
        Ok(Model {
            inner: Arc::new(Inner { engine, text }),
        })
    }

    /// The directory as it was given.
    pub fn dir(&self) -> &Path {
        self.inner.engine.dir()
    }

    /// The shape of the model.
    pub fn config(&self) -> &Config {
        self.inner.engine.config()
    }

    /// What the directory says about itself.
    pub fn manifest(&self) -> &Manifest {
        self.inner.engine.manifest()
    }

    /// The ids that end an answer.
    ///
    /// # Errors
    /// [`Error::Text`] if generation_config.json is broken.
    pub fn stop_ids(&self) -> Result<&[u32], Error> {
        Ok(self.inner.text.stop_ids.as_deref().map_err(Arc::clone)?)
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Error::Text`] names the file that is missing or broken.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        Ok(self.inner.text.tokenizer.as_ref().map_err(Arc::clone)?)
    }

    /// The chat template.
    ///
    /// # Errors
    /// As [`Model::tokenizer`].
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        Ok(self.inner.text.template.as_ref().map_err(Arc::clone)?)
    }

    /// Plans the memory of a session without allocating it.
    ///
    /// # Errors
    /// [`Error::Engine`] with the smallest budget that would do, or with the option that is out of range.
    pub fn plan_budget(&self, options: &Options) -> Result<Budget, Error> {
        Ok(self
            .inner
            .engine
            .plan_budget(&self.engine_options(options))?)
    }

    /// The most tokens of context that leave at least `min_slots` expert slots in each layer within the options' memory, whatever context
    /// the options name.
    ///
    /// # Errors
    /// [`Error::Engine`] with the smallest budget that would do for a context of one token, or with the option that is out of range.
    pub fn largest_context(&self, options: &Options, min_slots: u32) -> Result<u32, Error> {
        let options = self.engine_options(options);
        Ok(self.inner.engine.largest_context(&options, min_slots)?)
    }

    /// What [`Options::memory`] may be where nobody knows better: half of the memory that is free now, and no more than the model has a
    /// use for with the other options. `None` where the system does not say what is free.
    ///
    /// # Errors
    /// [`Error::Engine`] with the option that is out of range.
    pub fn auto_memory(&self, options: &Options) -> Result<Option<u64>, Error> {
        let Some(free) = free_memory() else {
            return Ok(None);
        };
        let engine = &self.inner.engine;
        Ok(Some(
            engine.auto_memory(&self.engine_options(options), free)?,
        ))
    }

    /// Bytes of the weights that are read before a session answers.
    pub fn resident_bytes(&self) -> u64 {
        self.inner.engine.bytes().resident
    }

    /// Forecasts the speed of a session on a machine of these rates; loads nothing.
    ///
    /// # Errors
    /// As [`Model::plan_budget`]; or if the directory changed meanwhile.
    pub fn forecast(&self, options: &Options, rates: &Rates) -> Result<Forecast, Error> {
        let engine = &self.inner.engine;
        let (config, options) = (engine.config(), self.engine_options(options));
        Ok(floor::forecast(
            config,
            &engine.weight_bytes()?,
            &options,
            rates,
        )?)
    }

    /// How the weights would really be read: past the page cache, or through it where the file system refuses or the options ask for it.
    ///
    /// # Errors
    /// [`Error::Engine`] if the weights cannot be opened so.
    pub fn read_mode(&self, options: &Options) -> Result<ReadMode, Error> {
        Ok(self.inner.engine.read_mode(options.io)?)
    }

    /// Loads the weights and allocates everything that a session needs.
    ///
    /// # Errors
    /// As [`Model::plan_budget`]; or what went wrong with a file.
    pub fn session(&self, options: &Options) -> Result<Session, Error> {
        let engine = ouzel_engine::Session::new(
            Arc::clone(&self.inner.engine),
            &self.engine_options(options),
        )?;
        Ok(Session::new(self.clone(), engine, options))
    }

    /// The prompt of a conversation, which asks for the model's next turn.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::Text`], [`Error::Conversation`].
    pub fn chat_prompt(&self, messages: &[Message], thinking: bool) -> Result<Prompt, Error> {
        let input = RenderInput {
            messages: message::to_json(messages),
            tools: None,
            add_generation_prompt: true,
            kwargs: [("enable_thinking".to_owned(), thinking.into())]
                .into_iter()
                .collect(),
        };
        if messages.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        self.render(input)
    }

    /// The prompt of whatever else a template can render: tools, tool calls, variables. Control text in it is guarded.
    ///
    /// # Errors
    /// As [`Model::chat_prompt`].
    pub fn render(&self, mut input: RenderInput) -> Result<Prompt, Error> {
        let tokenizer = self.tokenizer()?;
        guard_messages(tokenizer, &mut input.messages);
        if let Some(tools) = &mut input.tools {
            guard_json(tokenizer, tools);
        }
        self.render_guarded(&input)
    }

    /// The prompt of what a chat API brings: tools, tool calls and their results, system messages anywhere; and what of it the template
    /// could only show in part.
    ///
    /// # Errors
    /// As [`Model::chat_prompt`].
    pub fn conversation_prompt(
        &self,
        conversation: &Conversation,
    ) -> Result<(Prompt, Vec<Warning>), Error> {
        let tokenizer = self.tokenizer()?;
        if conversation.messages.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let (input, warnings) =
            conversation.render_input(|text| guard_control_text(tokenizer, text));
        Ok((self.render_guarded(&input)?, warnings))
    }

    /// The prompt of an input whose texts are guarded.
    fn render_guarded(&self, input: &RenderInput) -> Result<Prompt, Error> {
        let (tokenizer, template) = (self.tokenizer()?, self.template()?);
        let text = template.render(input)?;
        let ids = tokenizer.encode_guarded(&text);
        Ok(Prompt {
            text: strip_guards(&text).into_owned(),
            ids,
        })
    }

    /// The prompt of a raw completion: the text as it stands, control tokens included, behind the token that begins a prompt.
    ///
    /// # Errors
    /// [`Error::EmptyPrompt`], [`Error::Text`].
    pub fn raw_prompt(&self, text: &str) -> Result<Prompt, Error> {
        let tokenizer = self.tokenizer()?;
        if text.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let bos = self.inner.text.bos.as_str();
        let text = if text.starts_with(bos) {
            text.to_owned()
        } else {
            format!("{bos}{text}")
        };
        let ids = tokenizer.encode(&text);
        Ok(Prompt { text, ids })
    }

    fn engine_options(&self, options: &Options) -> ouzel_engine::Options {
        let tokenizer = self.inner.text.tokenizer.as_ref();
        let tokenizer_bytes = tokenizer.map_or(0, Tokenizer::resident_bytes) as u64;
        let sampler_bytes = SAMPLER_BYTES_A_TOKEN * self.config().vocab_size as u64;
        options.to_engine(tokenizer_bytes + sampler_bytes)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("dir", &self.dir())
            .finish_non_exhaustive()
    }
}
