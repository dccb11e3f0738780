use super::*;

const REGISTRY: &str = "registry+https://example.org/index";

const POLICY: &str = "[licenses]\nallow = [\n    \"MIT\",\n]\n[sources]\nallow-registry = [\n    \"https://example.org/index\",\n]\n";

fn said(name: &str, licence: &str, source: &str) -> Vec<String> {
    let text = format!(
        r#"{{"packages":[{{"name":"{name}","version":"1.0.0","license":{licence},"source":{source}}}]}}"#
    );
    judge(&Metadata::parse(&text), &Policy::parse(POLICY).unwrap())
}

#[test]
fn what_the_policy_allows_passes() {
    let registry = format!("\"{REGISTRY}\"");
    assert_eq!(said("serde", "\"MIT OR GPL-3.0\"", &registry), [""; 0]);
    assert_eq!(said("ouzel-engine", "\"MIT\"", "null"), [""; 0]);
}

#[test]
fn what_it_does_not_allow_is_refused() {
    let registry = format!("\"{REGISTRY}\"");
    for (name, licence, source, expected) in [
        ("serde", "\"GPL-3.0\"", registry.as_str(), "licence GPL-3.0"),
        ("serde", "\"MIT AND\"", &registry, "its licence"),
        ("serde", "null", &registry, "no licence"),
        (
            "serde",
            "\"MIT\"",
            "\"git+https://example.org/index\"",
            "comes from",
        ),
        (
            "serde",
            "\"MIT\"",
            "\"registry+https://example.org/other\"",
            "comes from",
        ),
        ("serde", "\"MIT\"", "null", "not a room"),
    ] {
        let found = said(name, licence, source);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn a_policy_without_its_lists_is_refused() {
    assert!(Policy::parse(POLICY).is_ok());
    for bad in [
        POLICY.replace("allow = ", "deny = "),
        POLICY.replace("-registry", "-git"),
        POLICY.replace("\"MIT\"", "MIT"),
        String::new(),
    ] {
        assert!(Policy::parse(&bad).is_err(), "{bad}");
    }
}

#[test]
fn the_lockfile_stays_readable() {
    assert_eq!(too_many(MAX_PACKAGES), None);
    assert!(too_many(MAX_PACKAGES + 1).is_some());
}
