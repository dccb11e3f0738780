//! `config.json` and `generation_config.json`: real ones, both forms, defaults, and every feature that is refused by name.

use ouzel_format::{CheckpointConfig, FormatError, GenerationConfig, bits_from_shape, names};
use serde_json::{Value, json};

use crate::edit::{with, without};

const DEMO: &[u8] = include_bytes!("../../../../models/demo/config.json");
const TINY_A: &[u8] = include_bytes!("../../../../testdata/tiny-a/mlx/config.json");
const TINY_B: &[u8] = include_bytes!("../../../../testdata/tiny-b/mlx/config.json");
const DEMO_GENERATION: &[u8] = include_bytes!("../../../../models/demo/generation_config.json");

fn parse(bytes: &[u8]) -> CheckpointConfig {
    CheckpointConfig::parse(bytes).expect("a valid configuration")
}

fn refusal(bytes: &[u8]) -> FormatError {
    CheckpointConfig::parse(bytes).expect_err("this has to be refused")
}

/// The demo's text model alone: its fields at the root, beside the quantization.
fn flat() -> Vec<u8> {
    let mut json: Value = serde_json::from_slice(DEMO).expect("valid JSON");
    let mut text = json["text_config"].take();
    text["quantization"] = json["quantization"].take();
    text.to_string().into_bytes()
}

#[test]
fn the_demo_is_read() {
    let config = parse(DEMO);
    let arch = &config.arch;
    assert_eq!(
        (
            arch.hidden_size,
            arch.ffn_intermediate,
            arch.moe_intermediate
        ),
        (256, 512, 128)
    );
    assert_eq!(
        (arch.num_heads, arch.num_kv_heads, arch.num_full_kv_heads),
        (4, 2, 1)
    );
    assert_eq!(
        (
            arch.head_dim,
            arch.full_head_dim,
            arch.vocab_size,
            arch.sliding_window
        ),
        (64, 128, 8192, 512)
    );
    assert_eq!(
        (arch.num_layers, arch.num_experts, arch.top_k_experts),
        (12, 32, 4)
    );
    assert_eq!(
        (
            arch.final_logit_softcap,
            arch.rope_theta,
            arch.full_rope_theta
        ),
        (30.0, 1e4, 1e6)
    );
    assert_eq!(
        (arch.partial_rotary_factor, arch.attention_k_eq_v),
        (0.25, true)
    );
    let full: Vec<usize> = (0..12)
        .filter(|&l| arch.full_attention_layer_mask[l])
        .collect();
    assert_eq!(full, [5, 11]);
    assert_eq!(
        (config.rms_norm_eps, config.max_position_embeddings),
        (1e-6, 4096)
    );
    assert_eq!(
        config.eos_token_ids,
        [1, 106, 50],
        "the whole model's ids win over the text model's"
    );
    assert_eq!(
        (config.bos_token_id, config.pad_token_id),
        (Some(2), Some(0))
    );
}

#[test]
fn the_demos_quantization_is_read() {
    let config = parse(DEMO);
    assert_eq!(
        (config.quantization.group_size, config.quantization.bits),
        (64, 4)
    );
    assert_eq!(config.quantization.overrides.len(), 12);
    assert_eq!(
        config
            .quantization
            .bits_of(&names::layer(3, names::ROUTER_PROJ)),
        8
    );
    assert_eq!(
        config.quantization.bits_of(&names::layer(3, names::Q_PROJ)),
        4
    );
    let summary = config.quantization.summary();
    assert_eq!(
        (summary.embedding, summary.router, summary.routed_expert),
        (4, 8, 4)
    );
}

#[test]
fn the_tiny_models_are_read() {
    let (a, b) = (parse(TINY_A), parse(TINY_B));
    assert_eq!(
        (a.arch.num_layers, a.arch.num_experts, a.arch.top_k_experts),
        (6, 8, 3)
    );
    assert_eq!(
        (
            b.arch.num_layers,
            b.arch.num_kv_heads,
            b.arch.num_full_kv_heads
        ),
        (7, 3, 2)
    );
    assert_eq!(
        b.arch.full_attention_layer_mask,
        [false, false, true, false, false, false, true]
    );
    assert_eq!(
        (a.eos_token_ids, a.quantization.overrides.len()),
        (vec![1, 106], 6)
    );
}

#[test]
fn the_text_model_alone_is_read() {
    let (whole, text) = (parse(DEMO), parse(&flat()));
    assert_eq!(text.arch, whole.arch);
    assert_eq!(text.quantization, whole.quantization);
    assert_eq!(text.eos_token_ids, [1]);
}

#[test]
fn missing_values_have_the_reference_s_defaults() {
    let mut bytes = DEMO.to_vec();
    for field in [
        "head_dim",
        "global_head_dim",
        "rms_norm_eps",
        "max_position_embeddings",
        "layer_types",
        "rope_parameters",
        "hidden_activation",
        "attention_bias",
        "num_kv_shared_layers",
        "use_double_wide_mlp",
        "tie_word_embeddings",
        "use_bidirectional_attention",
        "vocab_size",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
    ] {
        bytes = without(&bytes, &format!("/text_config/{field}"));
    }
    let config = parse(&without(&bytes, "/eos_token_id"));
    let mut expected = parse(DEMO).arch;
    (expected.head_dim, expected.full_head_dim) = (256, 512);
    assert_eq!(config.arch, expected);
    assert_eq!(
        (config.rms_norm_eps, config.max_position_embeddings),
        (1e-6, 262_144)
    );
    assert_eq!(
        (
            config.eos_token_ids,
            config.bos_token_id,
            config.pad_token_id
        ),
        (vec![], None, None)
    );
}

#[test]
fn values_without_a_default_are_missed_by_name() {
    for field in [
        "hidden_size",
        "intermediate_size",
        "moe_intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "num_global_key_value_heads",
        "num_experts",
        "top_k_experts",
        "sliding_window",
        "final_logit_softcapping",
        "attention_k_eq_v",
        "hidden_size_per_layer_input",
        "model_type",
    ] {
        let error = refusal(&without(DEMO, &format!("/text_config/{field}")));
        let expected = format!("text_config.{field}");
        assert!(
            matches!(&error, FormatError::MissingField { field, .. } if *field == expected),
            "{error}"
        );
    }
    let error = refusal(&without(
        &without(DEMO, "/vocab_size"),
        "/text_config/vocab_size",
    ));
    assert!(matches!(error, FormatError::MissingField { field, .. } if field == "vocab_size"));
}

#[test]
fn features_that_the_engine_lacks_are_refused_by_name() {
    for (field, value) in [
        ("model_type", json!("gemma3n_text")),
        ("hidden_size_per_layer_input", json!(256)),
        ("num_kv_shared_layers", json!(20)),
        ("attention_bias", json!(true)),
        ("enable_moe_block", json!(false)),
        ("use_double_wide_mlp", json!(true)),
        ("hidden_activation", json!("silu")),
        ("tie_word_embeddings", json!(false)),
        ("use_bidirectional_attention", json!("all")),
        ("use_bidirectional_attention", json!(true)),
        ("layer_types/3", json!("chunked_attention")),
        ("rope_parameters/sliding_attention/rope_type", json!("yarn")),
        ("rope_parameters/full_attention/rope_type", json!("linear")),
        ("rope_parameters/full_attention/factor", json!(8.0)),
        (
            "rope_parameters/sliding_attention/partial_rotary_factor",
            json!(0.5),
        ),
    ] {
        let error = refusal(&with(DEMO, &format!("/text_config/{field}"), value));
        let expected = format!("text_config/{field}")
            .replace("/3", "[3]")
            .replace('/', ".");
        assert!(
            matches!(&error, FormatError::UnsupportedFeature { feature, .. } if *feature == expected),
            "{error}"
        );
    }
    let error = refusal(&without(DEMO, "/text_config/enable_moe_block"));
    assert!(matches!(error, FormatError::UnsupportedFeature { value, .. } if value == "missing"));
    let error = refusal(&with(DEMO, "/tie_word_embeddings", json!(false)));
    assert!(
        matches!(error, FormatError::UnsupportedFeature { feature, .. } if feature == "tie_word_embeddings")
    );
    // A share of the default type would mean other exponents.
    let error = refusal(&with(
        DEMO,
        "/text_config/rope_parameters/full_attention/rope_type",
        json!("default"),
    ));
    assert!(
        matches!(error, FormatError::UnsupportedFeature { feature, .. } if feature.ends_with("partial_rotary_factor"))
    );
}

#[test]
fn values_of_their_own_are_read() {
    let full = "/text_config/rope_parameters/full_attention";
    let whole = without(
        &with(DEMO, &format!("{full}/rope_type"), json!("default")),
        &format!("{full}/partial_rotary_factor"),
    );
    assert_eq!(parse(&whole).arch.partial_rotary_factor, 1.0);
    let split = with(DEMO, "/text_config/attention_k_eq_v", json!(false));
    assert_eq!(
        parse(&split).arch.num_full_kv_heads,
        2,
        "full layers share the count of the sliding ones"
    );
    let causal = with(
        DEMO,
        "/text_config/use_bidirectional_attention",
        json!(false),
    );
    assert_eq!(parse(&causal).arch, parse(DEMO).arch);
}

#[test]
fn shapes_have_to_add_up() {
    let text = |field: &str, value| refusal(&with(DEMO, &format!("/text_config/{field}"), value));
    assert!(matches!(
        text("num_hidden_layers", json!(11)),
        FormatError::MaskLength {
            expected: 11,
            actual: 12,
            ..
        }
    ));
    assert!(matches!(
        text("top_k_experts", json!(33)),
        FormatError::TopKExceedsExperts {
            top_k: 33,
            num_experts: 32
        }
    ));
    assert!(matches!(
        text("hidden_size", json!(0)),
        FormatError::NotPositive { .. }
    ));
    assert!(matches!(
        text("rms_norm_eps", json!(-1e-6)),
        FormatError::NotPositive { .. }
    ));
    assert!(matches!(
        text("rms_norm_eps", json!(1.001)),
        FormatError::OutOfRange { .. }
    ));
    let many = without(
        &with(DEMO, "/text_config/num_hidden_layers", json!(u32::MAX)),
        "/text_config/layer_types",
    );
    assert!(
        matches!(refusal(&many), FormatError::OutOfRange { field, .. } if field == "num_hidden_layers")
    );
}

#[test]
fn quantization_is_read_from_either_block() {
    for field in ["/quantization", "/quantization_config"] {
        assert_eq!(parse(&without(DEMO, field)), parse(DEMO));
    }
    let neither = without(&without(DEMO, "/quantization"), "/quantization_config");
    assert!(
        matches!(refusal(&neither), FormatError::UnsupportedFeature { feature, .. } if feature == "quantization")
    );
    let error = refusal(&with(DEMO, "/quantization/bits", json!(8)));
    assert!(matches!(error, FormatError::Disagreement { field, .. } if field == "quantization"));
}

#[test]
fn other_quantizations_are_refused_by_name() {
    let stem = "language_model.model.layers.0.router.proj";
    for (field, value) in [
        ("group_size".to_owned(), json!(32)),
        ("bits".to_owned(), json!(6)),
        ("mode".to_owned(), json!("mxfp4")),
        ("quant_method".to_owned(), json!("gptq")),
        (format!("{stem}/bits"), json!(3)),
        (format!("{stem}/group_size"), json!(128)),
        (format!("{stem}/mode"), json!("nvfp4")),
        (stem.to_owned(), json!(false)),
    ] {
        let error = refusal(&with(DEMO, &format!("/quantization/{field}"), value));
        let expected = format!("quantization.{}", field.replace('/', "."));
        assert!(
            matches!(&error, FormatError::UnsupportedFeature { feature, .. } if *feature == expected),
            "{error}"
        );
    }
}

#[test]
fn overrides_of_skipped_towers_do_not_count() {
    let only = without(DEMO, "/quantization_config");
    let vision = with(
        &only,
        "/quantization/vision_tower.blocks.0.proj",
        json!(false),
    );
    let vision = with(
        &vision,
        "/quantization/model.embed_vision.proj",
        json!({ "group_size": 32, "bits": 3 }),
    );
    assert_eq!(parse(&vision), parse(&only));
}

#[test]
fn bits_follow_from_shapes() {
    for (packed_cols, n_in, bits) in [
        (352, 2816, 4),
        (704, 2816, 8),
        (8, 64, 4),
        (16, 64, 8),
        (88, 704, 4),
    ] {
        assert_eq!(bits_from_shape(packed_cols, n_in), Ok(bits));
    }
    for (packed_cols, n_in) in [
        (0, 0),
        (0, 64),
        (64, 0),
        (7, 64),
        (4, 64),
        (32, 64),
        (u64::MAX, 8),
        (1 << 62, 0),
    ] {
        assert_eq!(
            bits_from_shape(packed_cols, n_in),
            Err(FormatError::BitsFromShape { packed_cols, n_in })
        );
    }
    let quantization = parse(DEMO).quantization;
    let router = names::layer(0, names::ROUTER_PROJ);
    assert_eq!(quantization.check_bits(&router, 64, 256), Ok(8));
    assert_eq!(
        quantization.check_bits(&router, 32, 256),
        Err(FormatError::BitsDisagree {
            name: router.clone(),
            expected: 8,
            actual: 4
        })
    );
}

#[test]
fn generation_config_gives_ids() {
    let config = GenerationConfig::parse(DEMO_GENERATION).expect("valid");
    assert_eq!(
        (
            config.eos_token_ids,
            config.bos_token_id,
            config.pad_token_id
        ),
        (vec![1, 106, 50], Some(2), Some(0))
    );
    let one = GenerationConfig::parse(br#"{"eos_token_id": 1}"#).expect("valid");
    assert_eq!((one.eos_token_ids, one.bos_token_id), (vec![1], None));
    let repeated = GenerationConfig::parse(br#"{"eos_token_id": [3, 1, 3]}"#).expect("valid");
    assert_eq!(repeated.eos_token_ids, [3, 1]);
    assert_eq!(
        GenerationConfig::parse(b"{}"),
        Ok(GenerationConfig::default())
    );
    for bad in [
        r#"{"eos_token_id": "a"}"#,
        r#"{"eos_token_id": [-1]}"#,
        r#"{"bos_token_id": 1.5}"#,
    ] {
        assert!(
            matches!(
                GenerationConfig::parse(bad.as_bytes()),
                Err(FormatError::WrongType { .. })
            ),
            "{bad}"
        );
    }
    let ids = |n: u32| json!({ "eos_token_id": (0..n).collect::<Vec<u32>>() }).to_string();
    assert!(GenerationConfig::parse(ids(64).as_bytes()).is_ok());
    assert!(matches!(
        GenerationConfig::parse(ids(65).as_bytes()),
        Err(FormatError::OutOfRange { .. })
    ));
}
