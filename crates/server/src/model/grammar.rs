//! What an answer must look like, brought from the seam's words to the tokenizer's, and refused here where no grammar can say it.
//!
//! The grammar itself is compiled by whoever owns the model. Here it is compiled for a vocabulary of single bytes, which finds the same
//! faults and takes no memory to speak of.

use ouzel_service::on_deep_stack;
use ouzel_tokenizer::grammar::{self, Checker, GrammarError, Grammars, Unheld};
use ouzel_tokenizer::{Tokenizer, Tool};

use crate::error::Refusal;
use crate::turn::{Demand, Fields};

/// What a model's grammars take, and whether they can do what is demanded; or why the model has none.
#[derive(Debug)]
pub struct Grammar {
    checker: Result<Checker, GrammarError>,
    bytes: usize,
}

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
        let grammars = Grammars::new(tokenizer);
        Grammar {
            bytes: grammars.as_ref().map_or(0, Grammars::bytes),
            checker: grammars.map(|_| Checker::new()),
        }
    }

    /// Bytes that the first demand takes and keeps, in the process with the model.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What an answer must look like, as the model's owner compiles it, and what of the request it does not hold to.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with what of a schema cannot be enforced.
    pub fn checked(
        &self,
        demanded: &Demanded<'_>,
    ) -> Result<(grammar::Demand, Vec<String>), Refusal> {
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
        let checker = self.checker.as_ref().map_err(refused)?;
        let checked = on_deep_stack(|| checker.check(&demand));
        let checked = checked.map_err(|error| Refusal::Internal(error.to_string()))?;
        let unheld = checked.map_err(|error| refused(&error))?;
        let warning = |Unheld { tool, why }| {
            format!("tools: the arguments of {tool:?} are not held to its schema: {why}")
        };
        Ok((demand, unheld.into_iter().map(warning).collect()))
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
