//! Requests as coding agents really send them: the second of a turn, with the result of a tool. `testdata/README.md` says where they are from.

use ouzel_server::script::Script;
use serde_json::{Value, json};

use crate::tool::{Served, options};

const AGENTS: [(&str, &str, &str); 3] = [
    (
        "Claude Code",
        "/v1/messages",
        include_str!("../../../../testdata/clients/claude-code-2.1.197.json"),
    ),
    (
        "Codex",
        "/v1/responses",
        include_str!("../../../../testdata/clients/codex-0.171.0.json"),
    ),
    (
        "OpenCode",
        "/v1/chat/completions",
        include_str!("../../../../testdata/clients/opencode-1.18.33.json"),
    ),
];

#[test]
fn agents_are_understood() {
    // A token of the script is a byte.
    let served = Served::with_names(options(), Script::new(1 << 20), &["demo"]);
    for (agent, path, body) in AGENTS {
        let body: Value = serde_json::from_str(body).expect(agent);
        assert_eq!(body["stream"], json!(true), "{agent}");
        let response = served.post(path, &body);
        assert_eq!(response.status, 200, "{agent}: {}", response.text());
        let text = response.text();
        assert!(text.contains("fieldfare"), "{agent}: {text}");
        assert!(!text.contains("error\":{"), "{agent}: {text}");
        // Codex offers a group of tools that only OpenAI's models know.
        let warning = response.header("x-ouzel-warning").unwrap_or_default();
        assert_eq!(
            warning.contains("namespace"),
            agent == "Codex",
            "{agent}: {warning}"
        );
    }
}
