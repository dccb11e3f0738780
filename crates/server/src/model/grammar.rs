//! What an answer must look like, brought from the seam's words to the tokenizer's grammars and on to the sampler.

use ouzel::TokenConstraint;
use ouzel_tokenizer::grammar::{self, Constraint, GrammarError, Grammars};
use ouzel_tokenizer::{Tokenizer, Tool};

use crate::error::Refusal;
use crate::turn::{Demand, Fields};

/// A model's grammars, or why it has none. Their memory is taken when the first demand comes.
#[derive(Debug)]
pub struct Grammar(Result<Grammars, GrammarError>);

/// What a demand is about.
pub struct Demanded<'a> {
    /// What is demanded.
    pub demand: &'a Demand,
    /// The tools that the prompt offers.
    pub tools: &'a [Tool],
    /// Whether an answer may hold more than one call.
    pub parallel: bool,
    /// What the request calls its parts.
    pub fields: Fields,
}

impl Grammar {
    /// The grammars of what is written in these tokens.
    pub fn new(tokenizer: &Tokenizer) -> Grammar {
        Grammar(Grammars::new(tokenizer))
    }

    /// Bytes that the first demand takes and keeps.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Grammars::bytes)
    }

    /// The constraint of an answer to this prompt.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with what of a schema cannot be enforced.
    pub fn constraint(
        &self,
        tokenizer: &Tokenizer,
        demanded: &Demanded<'_>,
        prompt: &[u32],
    ) -> Result<Box<dyn TokenConstraint>, Refusal> {
        let (field, demand) = match demanded.demand {
            Demand::JsonObject => (demanded.fields.format, grammar::Demand::JsonObject),
            Demand::JsonSchema(schema) => (
                demanded.fields.format,
                grammar::Demand::JsonSchema(schema.clone()),
            ),
            Demand::JsonOrTools(schema) => (
                demanded.fields.format,
                grammar::Demand::JsonOrTools {
                    schema: schema.clone(),
                    tools: demanded.tools.to_vec(),
                    parallel: demanded.parallel,
                },
            ),
            Demand::Tools { at_least_one, only } => (
                "tools",
                grammar::Demand::Tools {
                    tools: demanded.tools.to_vec(),
                    at_least_one: *at_least_one,
                    only: only.clone(),
                    parallel: demanded.parallel,
                },
            ),
        };
        let refused = |error: &GrammarError| {
            let field = if is_of_tools(error, demanded.tools) {
                "tools"
            } else {
                field
            };
            Refusal::invalid(field, format!("{field}: {error}"))
        };
        let grammars = self.0.as_ref().map_err(refused)?;
        let constraint = grammars.compile(tokenizer, &demand);
        let mut constraint = constraint.map_err(|error| refused(&error))?;
        constraint.follow(prompt);
        Ok(Box::new(Bound(constraint)))
    }
}

/// Whether what cannot be enforced is a tool's: where it stands begins with the tool's name, which no keyword is.
fn is_of_tools(error: &GrammarError, tools: &[Tool]) -> bool {
    match error {
        GrammarError::Tool(_) => true,
        GrammarError::Unsupported { path, .. } => {
            let first = path.split('/').nth(1);
            tools
                .iter()
                .any(|tool| tool.strict && first == Some(&tool.name))
        }
        GrammarError::Schema(_) | GrammarError::Vocabulary(_) => false,
    }
}

/// A grammar as the sampler asks it.
struct Bound(Constraint);

impl TokenConstraint for Bound {
    fn allowed(&mut self) -> Option<&[u32]> {
        self.0.allowed()
    }

    fn accept(&mut self, id: u32) {
        self.0.accept(id);
    }
}
