//! Which tokens may come next, so that an answer has the shape that was asked for.
//!
//! llguidance walks the model's vocabulary as a trie along a grammar and says which tokens a grammar allows. For JSON it reads the schema itself;
//! for tool calls, which Gemma writes in a notation of its own, `calls` writes a grammar. Separators are compact in both, so white space can
//! never go on for ever, and what is not supported is refused by name before anything is generated.
//!
//! `Grammars` belongs to a model and builds its trie when the first demand comes; `bytes` says what it takes. A `Constraint` belongs to one
//! answer. It stands aside while the model thinks. Measured with Gemma's vocabulary on two cores of a shared x86-64 server
//! (`examples/constraint.rs`): 0.8 s to build, 3 ms to compile a tool, 0.02 ms for most masks, 5 to 17 ms for one that begins a string,
//! where every token of the vocabulary is looked at.

mod calls;
mod constraint;
mod keywords;
mod literal;
mod vocabulary;

use crate::conversation::Tool;
use crate::tokenizer::Tokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};
use std::fmt;
use std::sync::OnceLock;

pub use constraint::Constraint;
use constraint::Mode;
use vocabulary::{Ids, Vocabulary};

/// States of a grammar's lexer. llguidance's own limit is 250,000, at 1 to 2 kB each; schemas of real tools need some hundreds.
const MAX_LEXER_STATES: usize = 8_192;

/// JSON values in the schemas of one demand. llguidance walks down a schema by calling itself, once a property or a reference, and takes time that grows
/// faster than the schema: what 40 tools of 100 kB need fits several times, and what would take seconds does not.
const MAX_SCHEMA_VALUES: usize = 8_192;
/// Entries of one object in a schema; the time that many optional properties take grows with the square of their number.
const MAX_ENTRIES: usize = 1_024;
/// What one place of a text may mean at once, as llguidance counts it: four for each optional property that may come next.
const MAX_ITEMS_IN_ROW: usize = 8 * MAX_ENTRIES;
/// The stack on which demands are to be compiled and checked: what schemas of the largest size take of it, several times.
pub const STACK_BYTES: usize = 256 << 20;

/// More of an error is a schema's own text.
const MAX_ERROR_CHARS: usize = 300;

/// What an answer must look like.
#[derive(Debug, Clone, PartialEq)]
pub enum Demand {
    /// A JSON object.
    JsonObject,
    /// JSON that fulfils a schema. `oneOf` counts as `anyOf`.
    JsonSchema(Value),
    /// Either JSON that fulfils a schema or calls of tools, at least one; the calls as in [`Demand::Tools`].
    JsonOrTools {
        /// What the JSON must fulfil.
        schema: Value,
        /// The tools that may be called.
        tools: Vec<Tool>,
        /// Whether several calls may follow each other.
        parallel: bool,
    },
    /// Calls of tools, in the model's notation. `strict` tools get only calls that fulfil their schema; the others' schemas are kept
    /// to where they can be.
    Tools {
        /// The tools that may be called.
        tools: Vec<Tool>,
        /// Whether the answer must be calls, at least one. If not, the model answers as it likes, and only its calls are held to schemas.
        at_least_one: bool,
        /// The one tool that may be called, if not all.
        only: Option<String>,
        /// Whether several calls may follow each other.
        parallel: bool,
    },
}

/// Why a demand cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A schema uses a keyword that cannot be enforced.
    #[error("the schema's keyword {keyword:?} at {path:?} is not supported")]
    Unsupported {
        /// The keyword.
        keyword: String,
        /// Where it stands: a JSON pointer into the schema; behind the tool's name, where there are tools.
        path: String,
    },
    /// The schema is no schema, or nothing fulfils it, or it is too large.
    #[error("the schema cannot be enforced: {0}")]
    Schema(String),
    /// There is no tool to call, or none of that name, or its name cannot stand in a call.
    #[error("there is no tool {0:?} to call")]
    Tool(String),
    /// The model's vocabulary lacks a token that is needed, or is too large.
    #[error("the model's vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
}

/// Makes constraints for one model.
pub struct Grammars {
    vocabulary: Vocabulary,
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Grammars {
    /// Costs little: what is large is built for the first demand.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`] for a model that has none of Gemma's control tokens.
    pub fn new(tokenizer: &Tokenizer) -> Result<Grammars, GrammarError> {
        Ok(Grammars {
            vocabulary: Vocabulary::of(tokenizer)?,
            factory: OnceLock::new(),
        })
    }

    /// Bytes that the first demand takes, for a budget: 40 MB for Gemma's vocabulary. A constraint takes some more while it lives: the states
    /// of its grammar's lexer, below a megabyte for schemas of real tools and at most 16 MB.
    pub fn bytes(&self) -> usize {
        self.vocabulary.trie_bytes()
    }

    /// Whether the first demand came.
    pub fn is_built(&self) -> bool {
        self.factory.get().is_some()
    }

    /// A constraint for one answer. Takes the tokenizer that `new` took, from which the trie is built, and a stack of [`STACK_BYTES`] where the demand
    /// is anybody's.
    ///
    /// # Errors
    /// All of [`GrammarError`]; none of them is the caller's programming mistake.
    pub fn compile(
        &self,
        tokenizer: &Tokenizer,
        demand: &Demand,
    ) -> Result<Constraint, GrammarError> {
        let ids = self.vocabulary.ids();
        let Some(compiled) = grammar(demand, ids)? else {
            return Ok(Constraint::none(ids));
        };
        let matcher = self.matcher(tokenizer, compiled.grammar)?;
        Ok(Constraint::new(ids, compiled.mode, matcher))
    }

    fn matcher(
        &self,
        tokenizer: &Tokenizer,
        grammar: TopLevelGrammar,
    ) -> Result<Matcher, GrammarError> {
        let build = || {
            let env = self.vocabulary.environment(tokenizer);
            factory(&env)
        };
        let factory = self.factory.get_or_init(build);
        let factory = factory.as_ref();
        parse(
            factory.map_err(|error| GrammarError::Vocabulary(error.clone()))?,
            grammar,
        )
    }
}

/// Says whether a demand can be met, without a model's trie: it compiles the same grammar for a vocabulary of single bytes and the marks of
/// calls, which takes kilobytes. What may be wrong with a demand is wrong with its grammar, whatever the tokens are.
pub struct Checker {
    factory: Result<ParserFactory, String>,
}

impl Default for Checker {
    fn default() -> Checker {
        Checker::new()
    }
}

impl Checker {
    /// For demands of any model.
    pub fn new() -> Checker {
        Checker {
            factory: factory(&vocabulary::bytes_alone()),
        }
    }

    /// Whether [`Grammars::compile`] would take this demand, and which tools' arguments it would not hold to their schemas. Takes as much of the stack.
    ///
    /// # Errors
    /// The same as there, but for what is wrong with a model's vocabulary.
    pub fn check(&self, demand: &Demand) -> Result<Vec<Unheld>, GrammarError> {
        let Some(compiled) = grammar(demand, vocabulary::BYTES_ALONE)? else {
            return Ok(Vec::new());
        };
        let factory = self.factory.as_ref();
        let factory = factory.map_err(|error| GrammarError::Vocabulary(error.clone()))?;
        parse(factory, compiled.grammar)?;
        Ok(compiled.unheld)
    }
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

/// A tool whose schema cannot be enforced and need not be: any object will do as its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unheld {
    /// The tool.
    pub tool: String,
    /// What of its schema cannot be enforced.
    pub why: GrammarError,
}

/// A demand as llguidance takes it.
struct Compiled {
    grammar: TopLevelGrammar,
    mode: Mode,
    unheld: Vec<Unheld>,
}

/// The grammar of a demand, or nothing where everything is allowed.
fn grammar(demand: &Demand, ids: Ids) -> Result<Option<Compiled>, GrammarError> {
    let whole = |grammar| Compiled {
        grammar,
        mode: Mode::Whole,
        unheld: Vec::new(),
    };
    Ok(Some(match demand {
        Demand::JsonObject => whole(json_grammar(json!({"type": "object"}))?),
        Demand::JsonSchema(schema) => {
            check_size(&mut [schema].into_iter())?;
            keywords::check(schema)?;
            whole(json_grammar(schema.clone())?)
        }
        Demand::JsonOrTools {
            schema,
            tools,
            parallel,
        } => {
            let tools = callable(tools, None)?;
            check_size(&mut parameters(&tools).chain([schema]))?;
            keywords::check(schema)?;
            let text = json_options(schema.clone())?;
            let (lark, unheld) = calls::grammar(&tools, ids, *parallel, Some(&text))?;
            Compiled {
                grammar: TopLevelGrammar::from_lark(lark),
                mode: Mode::Calls,
                unheld,
            }
        }
        Demand::Tools {
            tools,
            at_least_one,
            only,
            parallel,
        } => {
            let tools = callable(tools, only.as_deref())?;
            if !at_least_one && !tools.iter().any(|tool| tool.strict) {
                return Ok(None);
            }
            check_size(&mut parameters(&tools))?;
            let several = *at_least_one && *parallel;
            let (lark, unheld) = calls::grammar(&tools, ids, several, None)?;
            Compiled {
                grammar: TopLevelGrammar::from_lark(lark),
                mode: match at_least_one {
                    true => Mode::Calls,
                    false => Mode::FreeWithCalls,
                },
                unheld,
            }
        }
    }))
}

fn parameters<'a>(tools: &'a [&Tool]) -> impl Iterator<Item = &'a Value> {
    tools.iter().filter_map(|tool| tool.parameters.as_ref())
}

/// Refuses schemas that are too large together.
fn check_size(schemas: &mut dyn Iterator<Item = &Value>) -> Result<(), GrammarError> {
    let mut left: Vec<&Value> = schemas.collect();
    let mut n_values = 0;
    while let Some(value) = left.pop() {
        n_values += 1;
        if n_values > MAX_SCHEMA_VALUES {
            return Err(GrammarError::Schema(format!(
                "it has more than {MAX_SCHEMA_VALUES} JSON values"
            )));
        }
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(map) if map.len() > MAX_ENTRIES => {
                return Err(GrammarError::Schema(format!(
                    "it has an object with more than {MAX_ENTRIES} entries"
                )));
            }
            Value::Object(map) => left.extend(map.values()),
            _ => {}
        }
    }
    Ok(())
}

fn parse(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher, GrammarError> {
    let matcher = Matcher::new(factory.create_parser(grammar));
    match matcher.get_error() {
        Some(error) => Err(GrammarError::Schema(one_line(&error))),
        None => Ok(matcher),
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars")
            .field("bytes", &self.bytes())
            .field("is_built", &self.is_built())
            .finish_non_exhaustive()
    }
}

/// Without slices, which would make a mask cheaper and the trie several times as large: memory is what the experts need.
fn factory(env: &TokEnv) -> Result<ParserFactory, String> {
    let factory = ParserFactory::new(env, InferenceCapabilities::default(), &[]);
    let mut factory = factory.map_err(|error| error.to_string())?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.max_lexer_states = MAX_LEXER_STATES;
    limits.max_items_in_row = MAX_ITEMS_IN_ROW;
    // An error is shown to people; what the model wrote is not for it.
    limits.verbose_errors = false;
    Ok(factory)
}

fn json_grammar(schema: Value) -> Result<TopLevelGrammar, GrammarError> {
    Ok(TopLevelGrammar::from_json_schema(json_options(schema)?))
}

/// A schema that says itself how its JSON is written.
fn json_options(mut schema: Value) -> Result<Value, GrammarError> {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if !schema.is_object() {
        return Err(GrammarError::Schema("it is no object".to_owned()));
    }
    let options = JsonCompileOptions {
        item_separator: ",".to_owned(),
        key_separator: ":".to_owned(),
        whitespace_flexible: false,
        coerce_one_of: true,
        ..JsonCompileOptions::default()
    };
    options.apply_to(&mut schema);
    Ok(schema)
}

/// The tools that may be called; their names must be such that a call of them can be read again.
fn callable<'a>(tools: &'a [Tool], only: Option<&str>) -> Result<Vec<&'a Tool>, GrammarError> {
    let wanted = |tool: &&Tool| only.is_none_or(|only| tool.name == only);
    let found: Vec<&Tool> = tools.iter().filter(wanted).collect();
    if found.is_empty() {
        return Err(GrammarError::Tool(only.unwrap_or("").to_owned()));
    }
    match found.iter().find(|tool| !calls::is_callable(&tool.name)) {
        Some(tool) => Err(GrammarError::Tool(tool.name.clone())),
        None => Ok(found),
    }
}

/// Some errors show in several lines what they are about.
fn one_line(error: &str) -> String {
    let line: Vec<&str> = error.split_whitespace().collect();
    let line = line.join(" ");
    match line.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
