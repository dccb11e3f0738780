//! A kept conversation as a turn of the model.

use ouzel_chats::{Message, Role};
use ouzel_tokenizer::{ChatMessage, Conversation};

use crate::error::Refusal;
use crate::turn::{Ask, Fields, Settings, Turn};
use crate::wire::{Defaults, page};

/// What refusals call the conversation, and the format that nobody here asks for.
const FIELDS: Fields = Fields {
    prompt: "the conversation",
    format: "format",
};

/// What was said, answered as the settings want it.
pub fn turn(
    said: Vec<Message>,
    settings: &page::Settings,
    defaults: &Defaults,
) -> Result<Turn, Refusal> {
    let system = Some(settings.system.trim()).filter(|system| !system.is_empty());
    let system = system.map(|system| ChatMessage::System(system.to_owned()));
    let messages = said.into_iter().filter_map(|message| match message.role {
        Role::User => Some(ChatMessage::User(message.text)),
        // An answer that was stopped before its first word was none.
        Role::Assistant if message.text.is_empty() => None,
        Role::Assistant => Some(ChatMessage::Assistant {
            content: Some(message.text),
            thinking: None,
            tool_calls: Vec::new(),
        }),
    });
    Ok(Turn {
        ask: Ask::Conversation(Conversation {
            messages: system.into_iter().chain(messages).collect(),
            tools: Vec::new(),
            thinking: settings.thinking,
        }),
        settings: Settings {
            max_new: settings.max_new,
            sampler: settings.sampler(defaults)?,
            stop: Vec::new(),
            logit_bias: Vec::new(),
            logprobs: None,
            parallel_calls: true,
        },
        demand: None,
        fields: FIELDS,
    })
}
