//! `/v1/completions`: how a text goes on, without a template.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::ChatReply;
use super::checks::{self, only};
use super::openai::{Sampling, StreamOptions, logit_bias, max_new};
use super::text_or::TextOr;
use super::{Asked, Defaults, Ignored, Reply, Shape};
use crate::answer::{Answer, Head, HeldLogprobs};
use crate::body;
use crate::error::Refusal;
use crate::sse::{Events, Voice};
use crate::turn::{Ask, Fields, Outcome, Piece, Settings, TokenLogprob, Turn};
use crate::wire::chat::{finish_reason, usage};

/// The most alternatives that this API asks for.
const MAX_LOGPROBS: u8 = 5;
/// New tokens where nothing is said, as this API has it.
const DEFAULT_MAX_NEW: u32 = 16;

/// The request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletionRequest {
    /// The model; what `/v1/models` lists. Left out: the one that is served.
    pub model: Option<String>,
    /// A text, a list of one text, or a list of token ids.
    pub prompt: TextOr<Value>,
    /// Whether the answer comes as server-sent events.
    pub stream: Option<bool>,
    /// For streams.
    pub stream_options: Option<StreamOptions>,
    /// The most new tokens; 16 where nothing is said.
    pub max_tokens: Option<u32>,
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep tokens at least this many times as likely as the most likely one.
    pub min_p: Option<f32>,
    /// The same seed gives the same answer.
    pub seed: Option<i64>,
    /// Texts that end the answer.
    pub stop: Option<TextOr<String>>,
    /// -2 to 2.
    pub presence_penalty: Option<f32>,
    /// -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// Above 0, to 10.
    pub repetition_penalty: Option<f32>,
    /// Token ids and what is added to their logits.
    pub logit_bias: Option<Map<String, Value>>,
    /// How many alternatives to name beside each token, at most 5.
    pub logprobs: Option<u8>,
    /// 1.
    pub n: Option<u32>,
    /// 1.
    pub best_of: Option<u32>,
    /// False.
    pub echo: Option<bool>,
    /// Only empty.
    pub suffix: Option<String>,
    /// Accepted.
    pub user: Option<Ignored>,
}

/// Reads a request.
///
/// # Errors
/// [`Refusal::Invalid`] with the first field that cannot be honoured.
pub fn parse(bytes: &[u8], defaults: &Defaults) -> Result<Asked, Refusal> {
    let request: CompletionRequest = body::parse(bytes)?;
    only("n", request.n, &[1])?;
    only("best_of", request.best_of, &[1])?;
    only("echo", request.echo, &[false])?;
    if request.suffix.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(Refusal::invalid(
            "suffix",
            "suffix: this model does not fill gaps; leave it out",
        ));
    }
    let sampling = Sampling {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        presence_penalty: request.presence_penalty,
        frequency_penalty: request.frequency_penalty,
        repetition_penalty: request.repetition_penalty,
        seed: request.seed,
    };
    let logprobs = request.logprobs;
    checks::number("logprobs", logprobs, 0..=MAX_LOGPROBS, 0)?;
    let settings = Settings {
        max_new: max_new("max_tokens", request.max_tokens)?.or(Some(DEFAULT_MAX_NEW)),
        sampler: sampling.check(defaults)?,
        stop: checks::stops("stop", request.stop)?,
        logit_bias: logit_bias(request.logit_bias)?,
        logprobs,
        parallel_calls: true,
    };
    let include_usage = request
        .stream_options
        .unwrap_or_default()
        .include_usage
        .unwrap_or(false);
    Ok(Asked {
        model: request.model,
        turn: Turn {
            ask: prompt(request.prompt)?,
            settings,
            demand: None,
            fields: Fields {
                prompt: "prompt",
                format: "response_format",
            },
        },
        warnings: Vec::new(),
        stream: request.stream.unwrap_or(false),
        reply: Box::new(CompletionReply(ChatReply {
            include_usage,
            wants_logprobs: logprobs.is_some(),
        })),
    })
}

fn prompt(prompt: TextOr<Value>) -> Result<Ask, Refusal> {
    let list = match prompt {
        TextOr::Text(text) => return Ok(Ask::Text(text)),
        TextOr::List(list) => list,
    };
    match list.as_slice() {
        [Value::String(text)] => return Ok(Ask::Text(text.clone())),
        [Value::Array(ids)] => return ids_of(ids),
        [Value::String(_), ..] | [Value::Array(_), ..] => {
            return Err(Refusal::invalid(
                "prompt",
                "prompt has several texts; this server answers one a request",
            ));
        }
        _ => {}
    }
    ids_of(&list)
}

fn ids_of(list: &[Value]) -> Result<Ask, Refusal> {
    let ids: Option<Vec<u32>> = list
        .iter()
        .map(|id| u32::try_from(id.as_u64()?).ok())
        .collect();
    match ids {
        Some(ids) if !ids.is_empty() => Ok(Ask::Ids(ids)),
        _ => Err(Refusal::invalid(
            "prompt",
            "prompt: expected a text, or a list of token ids",
        )),
    }
}

struct CompletionReply(ChatReply);

impl Reply for CompletionReply {
    fn whole(self: Box<Self>, head: &Head, answer: &Answer, outcome: &Outcome) -> Value {
        let logprobs = self.0.wants_logprobs.then(|| logprobs(&answer.logprobs, 0));
        let reason = finish_reason(&outcome.end, false);
        let mut value = object(head, &answer.text(), logprobs, Some(reason));
        value["usage"] = usage(&outcome.usage);
        value
    }

    fn voice(self: Box<Self>, head: Head) -> Box<dyn Voice> {
        Box::new(Chunks {
            reply: self.0,
            head,
            held: HeldLogprobs::default(),
            offset: 0,
        })
    }
}

struct Chunks {
    reply: ChatReply,
    head: Head,
    held: HeldLogprobs,
    /// Characters so far, for the offsets that this API says.
    offset: usize,
}

impl Chunks {
    fn send(&self, mut value: Value, out: &mut Events) {
        if self.reply.include_usage && value.get("usage").is_none() {
            value["usage"] = Value::Null;
        }
        out.data(&value);
    }
}

impl Voice for Chunks {
    fn open(&mut self, _: &mut Events) {}

    fn piece(&mut self, piece: Piece, out: &mut Events) {
        match piece {
            Piece::Text(text) => {
                let tokens = self.held.take();
                let logprobs = self
                    .reply
                    .wants_logprobs
                    .then(|| logprobs(&tokens, self.offset));
                self.offset += text.chars().count();
                self.send(object(&self.head, &text, logprobs, None), out);
            }
            Piece::Token(token) => self.held.push(token),
            // A raw text has no other parts; what the model makes of it beside text is not part of this API.
            Piece::Prompt { .. } => {}
            Piece::Thinking(_) | Piece::Call { .. } => self.held.drop_all(),
        }
    }

    fn close(&mut self, outcome: &Outcome, out: &mut Events) {
        let reason = finish_reason(&outcome.end, false);
        self.send(object(&self.head, "", None, Some(reason)), out);
        if self.reply.include_usage {
            let mut last = object(&self.head, "", None, None);
            last["choices"] = json!([]);
            last["usage"] = usage(&outcome.usage);
            self.send(last, out);
        }
        out.done();
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        out.data(&Shape::OpenAi.body(refusal));
        out.done();
    }
}

fn object(head: &Head, text: &str, logprobs: Option<Value>, reason: Option<&str>) -> Value {
    json!({
        "id": format!("cmpl-{}", head.id),
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": null,
        "choices": [{ "index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason }],
    })
}

fn logprobs(tokens: &[TokenLogprob], offset: usize) -> Value {
    let mut at = offset;
    let offsets: Vec<usize> = tokens
        .iter()
        .map(|token| {
            let here = at;
            at += token.token.chars().count();
            here
        })
        .collect();
    let top = |token: &TokenLogprob| -> Map<String, Value> {
        let pairs = token
            .top
            .iter()
            .map(|(text, logprob)| (text.clone(), (*logprob).into()));
        pairs.collect()
    };
    json!({
        "tokens": tokens.iter().map(|token| token.token.as_str()).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.logprob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
