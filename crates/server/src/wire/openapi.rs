//! `/openapi.json`: the doors, described by the same types that read their requests.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{chat, completions, messages, responses, tokens};

/// The description.
pub fn description(needs_key: bool) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for (path, method, about) in DOORS {
        let operation = operation(about, request(path, &mut generator));
        let operations = Map::from_iter([((*method).to_owned(), operation)]);
        paths.insert((*path).to_owned(), operations.into());
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Error".to_owned(), error_schema());
    let mut description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Ouzel",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A local model behind the APIs of OpenAI and Anthropic. Fields that are not described here are refused.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "x-api-key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
            },
        },
    });
    if needs_key {
        description["security"] = json!([{ "bearer": [] }, { "x-api-key": [] }]);
    }
    description
}

/// Address, method, what it is for.
const DOORS: &[(&str, &str, &str)] = &[
    (
        "/health",
        "get",
        "Whether the server is alive. Needs no key.",
    ),
    ("/metrics", "get", "Counts as Prometheus reads them."),
    ("/openapi.json", "get", "This description."),
    ("/v1/models", "get", "The model."),
    ("/v1/models/{id}", "get", "The model by one of its names."),
    (
        "/v1/chat/completions",
        "post",
        "The next turn of a conversation; JSON or server-sent events.",
    ),
    (
        "/v1/completions",
        "post",
        "How a text goes on; JSON or server-sent events.",
    ),
    (
        "/v1/responses",
        "post",
        "The next turn of a conversation, stateless; JSON or server-sent events.",
    ),
    (
        "/v1/messages",
        "post",
        "The next turn of a conversation as Anthropic's API has it; JSON or server-sent events.",
    ),
    (
        "/v1/messages/count_tokens",
        "post",
        "The tokens of a prompt.",
    ),
    ("/v1/embeddings", "post", "Not supported: 501."),
    ("/tokenize", "post", "Text to token ids."),
    ("/detokenize", "post", "Token ids to text."),
    ("/load", "post", "Loads the model; 409 while it answers."),
    (
        "/unload",
        "post",
        "Gives the model's memory back until it is needed again; 409 while it answers.",
    ),
];

/// The schema of a door's request.
fn request(path: &str, generator: &mut SchemaGenerator) -> Option<Value> {
    match path {
        "/v1/chat/completions" => schema::<chat::ChatRequest>(generator),
        "/v1/completions" => schema::<completions::CompletionRequest>(generator),
        "/v1/responses" => schema::<responses::ResponsesRequest>(generator),
        "/v1/messages" | "/v1/messages/count_tokens" => {
            schema::<messages::MessagesRequest>(generator)
        }
        "/tokenize" => schema::<tokens::TokenizeRequest>(generator),
        "/detokenize" => schema::<tokens::DetokenizeRequest>(generator),
        _ => None,
    }
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Option<Value> {
    Some(generator.subschema_for::<T>().into())
}

fn operation(about: &str, request: Option<Value>) -> Value {
    let error = json!({ "$ref": "#/components/schemas/Error" });
    let mut operation = json!({
        "summary": about,
        "responses": {
            "200": { "description": "Done." },
            "default": { "description": "Refused.", "content": { "application/json": { "schema": error } } },
        },
    });
    if let Some(schema) = request {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation
}

fn error_schema() -> Value {
    let text_or_null = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "message": { "type": "string" },
                    "type": { "type": "string" },
                    "param": text_or_null,
                    "code": text_or_null,
                },
            },
        },
    })
}
