//! The model's own chat template, rendered as Jinja2 under Python renders it.
//!
//! minijinja runs the template; what differs from Python shows in a prompt and therefore in ids, so values are printed, sorted, cased,
//! trimmed and asked for methods by `template/python.rs`. Templates come with a model and are not trusted: fuel bounds the time and
//! the memory of one rendering.

mod methods;
mod python;

use crate::conversation::marks;
use crate::error::TemplateError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Fuel of one rendering: one an instruction, one for 64 bytes created. Gemma's templates burn 0.3 million for 200 messages with 40 tools
/// or for a megabyte of text; this much lets a hostile template create 256 MB.
const FUEL: u64 = 4_000_000;
/// Fuel for the square of the number of messages: Gemma's templates look at every other message from each (measured: 3.7).
const FUEL_PER_PAIR: u64 = 16;
const NAME: &str = "chat_template";

/// A compiled chat template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

/// One conversation to render.
#[derive(Debug, Clone, Default)]
pub struct RenderInput {
    /// The list of messages, in the shape of the OpenAI chat API; tool call arguments as objects, not as strings.
    pub messages: serde_json::Value,
    /// The list of tool declarations, `None` where there are none.
    pub tools: Option<serde_json::Value>,
    /// Whether to end with the opening of the model's turn.
    pub add_generation_prompt: bool,
    /// Further variables that the template knows, such as `enable_thinking`.
    pub kwargs: serde_json::Map<String, serde_json::Value>,
}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts of those tokens.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate, TemplateError> {
        let mut environment = Environment::new();
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(failure)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_formatter(|out, state, value| match value.kind() {
            // A value that carries an error raises it there.
            ValueKind::Invalid => minijinja::escape_formatter(out, state, value),
            _ => {
                let text = python::text(state, value)?;
                out.write_str(&text)
                    .map_err(|_| Error::from(ErrorKind::WriteFailure))
            }
        });
        environment.set_unknown_method_callback(methods::call);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("dictsort", dictsort);
        environment.add_filter("upper", |state: &State<'_, '_>, value: &Value| {
            python::text(state, value).map(|text| text.to_uppercase())
        });
        environment.add_filter("lower", |state: &State<'_, '_>, value: &Value| {
            python::text(state, value).map(|text| text.to_lowercase())
        });
        environment.add_filter("string", python::text);
        environment.add_filter("trim", trim);
        environment.add_filter("tojson", tojson);
        environment.add_test("sequence", python::is_sequence);
        let syntax = |error: Error| TemplateError::Syntax(error.to_string());
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(syntax)?;
        Ok(ChatTemplate {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// The prompt's text. Errors carry the template's own message where it raised one.
    pub fn render(&self, input: &RenderInput) -> Result<String, TemplateError> {
        let mut variables: BTreeMap<&str, Value> = BTreeMap::new();
        for (name, value) in &input.kwargs {
            variables.insert(name, Value::from(Serde(value)));
        }
        variables.insert("messages", Value::from(Serde(&input.messages)));
        variables.insert("tools", Value::from(Serde(&input.tools)));
        variables.insert("documents", Value::from(()));
        variables.insert(
            "add_generation_prompt",
            Value::from(input.add_generation_prompt),
        );
        variables.insert("bos_token", Value::from(self.bos.as_str()));
        variables.insert("eos_token", Value::from(self.eos.as_str()));
        let n_messages = input.messages.as_array().map_or(0, Vec::len) as u64;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL + FUEL_PER_PAIR * n_messages * n_messages));
        let template = environment.get_template(NAME).map_err(failure)?;
        let rendered = template.render(Value::from(variables)).map_err(failure)?;
        Ok(marks::settle(rendered))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .finish_non_exhaustive()
    }
}

/// The message of a `raise_exception`, carried as the source of minijinja's error.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(state: &State<'_, '_>, message: &Value) -> Result<Value, Error> {
    let message = python::text(state, message)?;
    Err(
        Error::new(ErrorKind::InvalidOperation, "raised by the template")
            .with_source(Raised(message)),
    )
}

fn failure(error: Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(at) = cause {
        if let Some(Raised(message)) = at.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        cause = at.source();
    }
    TemplateError::Render(error.to_string())
}

/// Jinja2's `dictsort`: pairs by key (or value), without regard to case unless asked, stable.
fn dictsort(
    state: &State<'_, '_>,
    value: &Value,
    case_sensitive: Option<bool>,
    by: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let case_sensitive = options
        .get::<Option<bool>>("case_sensitive")?
        .or(case_sensitive)
        .unwrap_or(false);
    let by_value = options.get::<Option<&str>>("by")?.or(by) == Some("value");
    let reverse = options.get::<Option<bool>>("reverse")?.unwrap_or(false);
    options.assert_all_used()?;
    let pairs = python::pairs(value)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "dictsort needs a mapping"))?;
    state.consume_fuel(pairs.len() as u64)?;
    let sort_key = |pair: &(Value, Value)| {
        let key = if by_value { &pair.1 } else { &pair.0 };
        match key.as_str() {
            Some(text) if !case_sensitive => Value::from(text.to_lowercase()),
            _ => key.clone(),
        }
    };
    let mut keyed: Vec<(Value, (Value, Value))> = pairs
        .into_iter()
        .map(|pair| (sort_key(&pair), pair))
        .collect();
    // `sort_by` panics where an order contradicts itself; minijinja's order of values is total.
    keyed.sort_by(|a, b| {
        if reverse {
            b.0.cmp(&a.0)
        } else {
            a.0.cmp(&b.0)
        }
    });
    Ok(keyed
        .into_iter()
        .map(|(_, (key, value))| Value::from(vec![key, value]))
        .collect())
}

fn trim(state: &State<'_, '_>, value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = python::text(state, value)?;
    Ok(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).to_owned(),
        None => text.trim_matches(python::is_space).to_owned(),
    })
}

/// `json.dumps` as transformers gives it to templates: not escaped to ASCII, and not for HTML.
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    indent: Option<usize>,
    options: Kwargs,
) -> Result<String, Error> {
    let indent = options.get::<Option<usize>>("indent")?.or(indent);
    let _ = options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    python::dumps(state, value, indent)
}

#[cfg(test)]
mod tests;
