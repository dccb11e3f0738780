//! Text to token ids and back, chat templates, tool calls, thinking and stop parsing, grammars.
//!
//! The room works on strings and bytes: it opens no file, knows no model and no network. `Tokenizer` runs directly on the bytes of a
//! compiled image, because whatever it keeps resident is taken from the expert slots; `Detokenizer`, `ChatTemplate` and `OutputParser`
//! are pure state over it. Ids and texts equal the reference library's; what would differ is refused when a tokenizer is compiled.
//!
//! `conversation` brings what a chat API says into the template's shape, `OutputParser` sorts what the model writes, tool calls included,
//! and `grammar` says what it may write.
//!
//! Text typed by users never becomes a control token: `guard` marks it before a template sees it, `Tokenizer::encode_guarded` honours
//! the marks.

mod bpe;
mod call;
mod compile;
pub mod conversation;
mod detokenize;
mod error;
pub mod fuzz;
pub mod grammar;
mod guard;
mod image;
mod output;
mod template;
mod tokenizer;

pub use call::{Piece, ToolCallParser};
pub use conversation::{ChatMessage, Conversation, Tool, ToolCall, ToolContent, Warning};
pub use detokenize::Detokenizer;
pub use error::{TemplateError, TokenizerError};
pub use guard::{guard_control_text, guard_json, guard_messages, strip_guards};
pub use output::{Event, OutputOptions, OutputParser, StopReason};
pub use template::{ChatTemplate, RenderInput};
pub use tokenizer::Tokenizer;
