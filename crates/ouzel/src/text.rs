//! The text side of a model: tokenizer, chat template, the ids that end an answer.
//!
//! All of it is optional. A directory without these files computes on token ids; what needs text then says which file is missing.
//! So nothing here fails while a model is opened: each part keeps its error until somebody asks for the part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ouzel_engine::Model;
use ouzel_format::paths::{CHAT_TEMPLATE, GENERATION_CONFIG, TOKENIZER};
use ouzel_format::{GenerationConfig, Manifest};
use ouzel_storage::{Sha256, read_once};
use ouzel_tokenizer::{ChatTemplate, Tokenizer};
use serde_json::Value;

use crate::TextError;
use crate::cache::{self, TokenizerFile, hex};

const TOKENIZER_CONFIG: &str = "tokenizer/tokenizer_config.json";
const CHAT_TEMPLATE_JSON: &str = "tokenizer/chat_template.json";
/// The ids that end an answer where no file names any.
const STOP_TOKENS: [&str; 3] = ["<eos>", "<turn|>", "<|tool_response>"];

pub(crate) struct Text {
    pub tokenizer: Result<Tokenizer, Arc<TextError>>,
    pub template: Result<ChatTemplate, Arc<TextError>>,
    pub stop_ids: Result<Vec<u32>, Arc<TextError>>,
    /// The text of the token that begins a prompt.
    pub bos: String,
}

impl Text {
    pub fn open(model: &Model, cache_dir: Option<&Path>) -> Text {
        let files = Files {
            dir: model.dir(),
            manifest: model.manifest(),
        };
        let tokenizer = files.tokenizer(cache_dir);
        // A broken tokenizer_config.json costs its names only; they are the same for every model of the family.
        let config = files
            .json(TOKENIZER_CONFIG)
            .ok()
            .flatten()
            .unwrap_or(Value::Null);
        let bos = token_text(&config["bos_token"])
            .unwrap_or("<bos>")
            .to_owned();
        let eos = token_text(&config["eos_token"]).unwrap_or("<eos>");
        let template = files.template(&config, &bos, eos);
        let from_config = model.config().stop_ids.iter().map(|id| id.0).collect();
        let stop_ids = files.stop_ids(from_config, tokenizer.as_ref().ok());
        Text {
            tokenizer: tokenizer.map_err(Arc::new),
            template: template.map_err(Arc::new),
            stop_ids: stop_ids.map_err(Arc::new),
            bos,
        }
    }
}

/// A special token in tokenizer_config.json: its text, or an object with it.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value["content"].as_str())
}

struct Files<'a> {
    dir: &'a Path,
    manifest: &'a Manifest,
}

impl Files<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn tokenizer(&self, cache_dir: Option<&Path>) -> Result<Tokenizer, TextError> {
        let record = self
            .manifest
            .files
            .get(TOKENIZER)
            .ok_or_else(|| TextError::Missing {
                dir: self.dir.to_owned(),
                file: TOKENIZER,
                missing: "text cannot become tokens",
            })?;
        let file = TokenizerFile {
            path: &self.path(TOKENIZER),
            sha256: &record.sha256.to_string(),
        };
        cache::open(&file, cache_dir)
    }

    fn template(&self, config: &Value, bos: &str, eos: &str) -> Result<ChatTemplate, TextError> {
        let (path, source) = self.template_source(config)?;
        ChatTemplate::new(&source, bos, eos).map_err(|source| TextError::Template { path, source })
    }

    /// The template stands in a file of its own, or in one of two JSON files.
    fn template_source(&self, config: &Value) -> Result<(PathBuf, String), TextError> {
        let path = self.path(CHAT_TEMPLATE);
        if let Some(bytes) = self.read(CHAT_TEMPLATE)? {
            let source = String::from_utf8(bytes).map_err(|error| TextError::Unreadable {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            return Ok((path, source));
        }
        let json = self.json(CHAT_TEMPLATE_JSON)?.unwrap_or(Value::Null);
        for (name, json) in [(CHAT_TEMPLATE_JSON, &json), (TOKENIZER_CONFIG, config)] {
            if let Some(source) = json["chat_template"].as_str() {
                return Ok((self.path(name), source.to_owned()));
            }
        }
        Err(TextError::Missing {
            dir: self.dir.to_owned(),
            file: CHAT_TEMPLATE,
            missing: "there is no chat",
        })
    }

    fn stop_ids(
        &self,
        from_config: Vec<u32>,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Vec<u32>, TextError> {
        if let Some(bytes) = self.read(GENERATION_CONFIG)? {
            let config =
                GenerationConfig::parse(&bytes).map_err(|error| TextError::Unreadable {
                    path: self.path(GENERATION_CONFIG),
                    reason: error.to_string(),
                })?;
            if !config.eos_token_ids.is_empty() {
                return Ok(config.eos_token_ids);
            }
        }
        if !from_config.is_empty() {
            return Ok(from_config);
        }
        let by_name = |tokenizer: &Tokenizer| {
            STOP_TOKENS
                .iter()
                .filter_map(|name| tokenizer.id_of(name))
                .collect()
        };
        Ok(tokenizer.map(by_name).unwrap_or_default())
    }

    fn json(&self, name: &str) -> Result<Option<Value>, TextError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let value = serde_json::from_slice(&bytes).map_err(|error| TextError::Unreadable {
            path: self.path(name),
            reason: error.to_string(),
        })?;
        Ok(Some(value))
    }

    /// A small file, compared with its recorded hash, if the model has it.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, TextError> {
        let Some(record) = self.manifest.files.get(name) else {
            return Ok(None);
        };
        let path = self.path(name);
        let bytes = match read_once(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let reason = error.to_string();
                return Err(TextError::Unreadable { path, reason });
            }
        };
        let (expected, actual) = (record.sha256.to_string(), hex(&Sha256::digest(&bytes)));
        if expected != actual {
            return Err(TextError::Damaged {
                path,
                expected,
                actual,
            });
        }
        Ok(Some(bytes))
    }
}
