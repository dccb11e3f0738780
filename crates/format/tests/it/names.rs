//! Names of tensors: roles, order, companions, over the real list of a checkpoint.

use std::collections::BTreeSet;

use ouzel_format::names::{self, Role};
use ouzel_format::safetensors::Index;
use ouzel_format::{CheckpointConfig, ExpertPart, FormatError};

const DEMO_CONFIG: &[u8] = include_bytes!("../../../../models/demo/config.json");
const DEMO_INDEX: &[u8] = include_bytes!("../../../../models/demo/model.safetensors.index.json");

#[test]
fn every_source_tensor_has_a_role() {
    let part = |layer, part| Role::Expert { layer, part };
    for (name, expected) in [
        ("language_model.model.embed_tokens.weight", Role::Resident),
        ("language_model.model.embed_tokens.scales", Role::Resident),
        (
            "language_model.model.layers.29.layer_scalar",
            Role::Resident,
        ),
        ("language_model.something.else", Role::Resident),
        (
            "language_model.model.layers.12.experts.switch_glu.gate_proj.weight",
            part(12, ExpertPart::Gate),
        ),
        (
            "language_model.model.layers.0.experts.switch_glu.up_proj.biases",
            part(0, ExpertPart::UpBiases),
        ),
        (
            "language_model.model.layers.7.experts.switch_glu.down_proj.scales",
            part(7, ExpertPart::DownScales),
        ),
        ("vision_tower.blocks.0.weight", Role::Skipped),
        ("model.vision_tower.blocks.0.weight", Role::Skipped),
        ("embed_vision.embedding_projection.weight", Role::Skipped),
        ("model.audio_tower.x", Role::Skipped),
        ("vision_towers.x", Role::Unknown),
        ("model.language_model.layers.0.layer_scalar", Role::Unknown),
        ("lm_head.weight", Role::Unknown),
        ("", Role::Unknown),
        // Experts in another arrangement are not resident weights.
        (
            "language_model.model.layers.0.experts.gate_up_proj",
            Role::Unknown,
        ),
        (
            "language_model.model.layers.0.experts.switch_glu.gate_proj.bias",
            Role::Unknown,
        ),
        (
            "language_model.model.layers.00.experts.switch_glu.gate_proj.weight",
            Role::Unknown,
        ),
        (
            "language_model.model.layers.+1.experts.switch_glu.gate_proj.weight",
            Role::Unknown,
        ),
        (
            "language_model.model.layers.4294967296.experts.switch_glu.gate_proj.weight",
            Role::Unknown,
        ),
    ] {
        assert_eq!(names::role(name), expected, "{name}");
        let known = names::known_role(name);
        match expected {
            Role::Unknown => {
                assert_eq!(known, Err(FormatError::UnknownTensor { name: name.into() }))
            }
            expected => assert_eq!(known, Ok(expected)),
        }
    }
}

#[test]
fn expert_names_and_roles_are_inverse() {
    for layer in [0, 9, 10, u32::MAX] {
        for part in ExpertPart::ALL {
            assert_eq!(
                names::role(&names::expert(layer, part)),
                Role::Expert { layer, part }
            );
        }
    }
}

#[test]
fn companions_are_named_after_their_tensor() {
    let name = names::layer(2, names::Q_PROJ);
    assert_eq!(
        names::stem(&name),
        "language_model.model.layers.2.self_attn.q_proj"
    );
    let (scales, biases) = names::companions(&name).expect("a weight may have companions");
    assert_eq!(names::companion_of(&scales), Some(name.clone()));
    assert_eq!(names::companion_of(&biases), Some(name.clone()));
    assert_eq!(names::companion_of(&name), None);
    assert_eq!(
        names::companions(&names::layer(0, names::LAYER_SCALAR)),
        None
    );
    assert_eq!(
        names::companion_of(&names::layer(0, names::ROUTER_SCALE)),
        None
    );
}

#[test]
fn the_demo_has_the_resident_tensors_in_their_order() {
    let arch = CheckpointConfig::parse(DEMO_CONFIG).expect("valid").arch;
    let sources = Index::parse(DEMO_INDEX).expect("valid").weight_map;
    let is_companion =
        |name: &str| names::companion_of(name).is_some_and(|weight| sources.contains_key(&weight));
    let resident: BTreeSet<String> = sources
        .keys()
        .filter(|name| names::role(name) == Role::Resident && !is_companion(name))
        .cloned()
        .collect();
    let order = names::resident_order(&arch);
    assert_eq!(
        names::order_resident(&arch, resident.clone()),
        Ok(order.clone())
    );
    // 12 layers of 20 tensors, two of them without v_proj, the embedding and the final norm.
    assert_eq!(order.len(), 12 * 20 - 2 + 2);
    assert_eq!(order[0], names::EMBED_TOKENS);
    assert_eq!(
        order[3],
        "language_model.model.layers.0.self_attn.v_proj.weight"
    );
    assert!(!order.contains(&names::layer(5, names::V_PROJ)));
    assert_eq!(order.last().map(String::as_str), Some(names::FINAL_NORM));
    let experts = sources
        .keys()
        .filter(|name| matches!(names::role(name), Role::Expert { .. }))
        .count();
    assert_eq!(experts, 12 * 9);

    let mut with_others = resident.clone();
    with_others.extend([
        "language_model.z".to_owned(),
        "language_model.model.a".to_owned(),
    ]);
    let longer = names::order_resident(&arch, with_others).expect("others are welcome");
    let end: Vec<&str> = longer[order.len() - 1..]
        .iter()
        .map(String::as_str)
        .collect();
    assert_eq!(
        end,
        [
            "language_model.model.a",
            "language_model.z",
            names::FINAL_NORM
        ]
    );

    for name in [
        names::EMBED_TOKENS.to_owned(),
        names::layer(11, names::LAYER_SCALAR),
    ] {
        let mut fewer = resident.clone();
        fewer.remove(&name);
        assert_eq!(
            names::order_resident(&arch, fewer),
            Err(FormatError::MissingTensor { name })
        );
    }
    let twice = resident
        .iter()
        .cloned()
        .chain([names::FINAL_NORM.to_owned()]);
    let name = names::FINAL_NORM.to_owned();
    assert_eq!(
        names::order_resident(&arch, twice),
        Err(FormatError::DuplicateName { name })
    );
}

#[test]
fn full_layers_with_values_of_their_own_list_them() {
    let mut arch = CheckpointConfig::parse(DEMO_CONFIG).expect("valid").arch;
    arch.attention_k_eq_v = false;
    assert!(names::resident_order(&arch).contains(&names::layer(5, names::V_PROJ)));
}
