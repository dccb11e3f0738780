//! Changes one value of a valid JSON document, so that a test can name the one thing that is wrong.

use serde_json::Value;

/// `bytes` with `value` at `pointer` (RFC 6901); the object or array that it goes into has to exist.
pub fn with(bytes: &[u8], pointer: &str, value: Value) -> Vec<u8> {
    edit(bytes, pointer, |parent, key| match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value.clone());
        }
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value.clone(),
        _ => panic!("{pointer} is inside of neither an object nor an array"),
    })
}

/// `bytes` without the field at `pointer`.
pub fn without(bytes: &[u8], pointer: &str) -> Vec<u8> {
    edit(bytes, pointer, |parent, key| {
        let removed = parent
            .as_object_mut()
            .and_then(|fields| fields.shift_remove(key));
        assert!(removed.is_some(), "{pointer} is not there");
    })
}

fn edit(bytes: &[u8], pointer: &str, change: impl Fn(&mut Value, &str)) -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(bytes).expect("valid JSON");
    let (parent, key) = pointer
        .rsplit_once('/')
        .expect("a pointer starts with a slash");
    let key = key.replace("~1", "/").replace("~0", "~");
    change(json.pointer_mut(parent).expect("the parent exists"), &key);
    json.to_string().into_bytes()
}
