//! What had to be changed to show a conversation.

use std::fmt;

/// Something that the template cannot show as it came. The turn goes on without it; the text names no content, only places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A part of a tool's schema was simplified.
    Schema {
        /// The tool.
        tool: String,
        /// Where, as a JSON pointer into its parameters.
        path: String,
        /// What is not shown.
        what: &'static str,
    },
    /// A call never got a result; the model is told so.
    NoResult {
        /// The call.
        call_id: String,
    },
    /// A result answers no call before it; it is shown without one.
    NoCall {
        /// The call it names.
        call_id: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Schema { tool, path, what } => {
                write!(
                    f,
                    "tool {tool}: its schema was simplified at {path:?}: {what}"
                )
            }
            Warning::NoResult { call_id } => write!(f, "tool call {call_id:?} has no result"),
            Warning::NoCall { call_id } => {
                write!(
                    f,
                    "a tool result names {call_id:?}, which no call before it has"
                )
            }
        }
    }
}
