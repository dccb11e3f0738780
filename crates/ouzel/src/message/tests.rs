use super::*;

#[test]
fn every_role_has_its_names() {
    let cases = [
        ("user", Role::User),
        ("assistant", Role::Assistant),
        ("model", Role::Assistant),
        ("system", Role::System),
        ("developer", Role::System),
    ];
    for (name, role) in cases {
        let json = format!(r#"{{"role":"{name}","content":"Hello"}}"#);
        let message: Message = serde_json::from_str(&json).expect(name);
        assert_eq!(message.role, role, "{name}");
    }
}

#[test]
fn an_unknown_role_is_named_with_its_place() {
    let error = serde_json::from_str::<Vec<Message>>("[\n{\"role\":\"wizard\",\"content\":\"\"}]");
    let text = error.expect_err("no such role").to_string();
    assert!(text.contains("unknown role \"wizard\""), "{text}");
    assert!(text.contains("line 2"), "{text}");
}

#[test]
fn a_field_that_would_be_ignored_is_refused() {
    let error = serde_json::from_str::<Message>(r#"{"role":"user","content":"a","tool_calls":[]}"#);
    assert!(
        error
            .expect_err("unknown field")
            .to_string()
            .contains("tool_calls")
    );
}
