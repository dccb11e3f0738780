//! The fuzz targets' bodies on seeded bytes: nothing a file can hold may panic.

use crate::data::{Random, bytes};
use ouzel_tokenizer::{Tokenizer, fuzz};

fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at + 1),
            3 => drop(bytes.remove(at)),
            _ => bytes.insert(at, random.next() as u8),
        }
    }
    bytes
}

fn noise(random: &mut Random) -> Vec<u8> {
    (0..random.below(400))
        .map(|_| random.next() as u8)
        .collect()
}

/// A tokenizer.json of a few hundred tokens, so that thousands of variants stay quick.
fn small_json() -> Vec<u8> {
    let demo = bytes("models/demo/tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&demo).expect("the demo's tokenizer");
    let model = &mut json["model"];
    model["vocab"]
        .as_object_mut()
        .expect("a vocabulary")
        .retain(|_, id| id.as_u64() < Some(500));
    let vocabulary = model["vocab"].as_object().expect("a vocabulary").clone();
    let known = |merge: &serde_json::Value| {
        let sides = [&merge[0], &merge[1]].map(|side| side.as_str().expect("a text"));
        vocabulary.contains_key(&sides.concat())
            && sides.iter().all(|side| vocabulary.contains_key(*side))
    };
    model["merges"]
        .as_array_mut()
        .expect("merges")
        .retain(known);
    serde_json::to_vec(&json).expect("it is written")
}

#[test]
fn arbitrary_tokenizer_files_do_not_panic() {
    let mut random = Random::new("tokenizer.json");
    let json = small_json();
    for _ in 0..500 {
        fuzz::tokenizer_json(&noise(&mut random));
        fuzz::tokenizer_json(&mutated(&mut random, &json));
    }
}

#[test]
fn arbitrary_images_do_not_panic() {
    let mut random = Random::new("image");
    let image = Tokenizer::compile(small_json().as_slice()).expect("the small tokenizer compiles");
    assert!(fuzz::image(&image, false));
    let mut n_opened = 0;
    for _ in 0..4_000 {
        let bytes = mutated(&mut random, &image);
        fuzz::image(&noise(&mut random), true);
        // Without the checksum of the changed bytes nothing but the same image opens.
        assert!(!fuzz::image(&bytes, false) || bytes == image);
        n_opened += u32::from(fuzz::image(&bytes, true));
    }
    // Ranks and results may be any numbers, so some changed images open and are used.
    println!("image: {n_opened} of 4000 changed images opened once resealed");
    assert!(n_opened > 0);
}

#[test]
fn arbitrary_templates_do_not_panic() {
    let mut random = Random::new("template");
    let source = bytes("testdata/chat-template/gemma4-chat_template.jinja");
    for _ in 0..300 {
        fuzz::template(&noise(&mut random));
        fuzz::template(&mutated(&mut random, &source));
        let from = random.below(source.len());
        fuzz::template(&source[from..]);
    }
}

#[test]
fn arbitrary_outputs_are_read_the_same_in_any_pieces() {
    let mut random = Random::new("tool calls");
    let call = "So: <|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>,days:[1,{a:'x'}]}<tool_call|>call:now{} {\"name\": \"now\", \"arguments\": {\"t\": \"\\u00e9\"}}";
    for _ in 0..5_000 {
        fuzz::tool_calls(&noise(&mut random));
        fuzz::tool_calls(&mutated(&mut random, call.as_bytes()));
    }
}

#[test]
fn arbitrary_tool_schemas_cost_no_turn() {
    let mut random = Random::new("tool schemas");
    let template = crate::template::template("testdata/chat-template/gemma4-chat_template.jinja");
    let schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"$ref\":\"#/$defs/b\"}]},\"c\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"d\":{\"enum\":[1,\"x\",null]}}}}},\"required\":[\"a\"],\"$defs\":{\"b\":{\"allOf\":[{\"$ref\":\"#\"},{\"const\":3}]}}}";
    for _ in 0..2_000 {
        fuzz::tool_schema(&mutated(&mut random, schema.as_bytes()), &template);
    }
    fuzz::tool_schema(schema.as_bytes(), &template);
}
