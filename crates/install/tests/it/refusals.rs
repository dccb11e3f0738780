//! Checkpoints that must be refused, each with an error that names what is wrong.

use std::fs;
use std::path::Path;

use ouzel_format::safetensors::TensorDtype;
use ouzel_install::{Event, InstallOptions, LocalFolder, install, verify_dir};
use ouzel_storage::Disk;

use crate::synthetic::Synthetic;
use crate::{checkpoint, disk, install_on, output};

type Change = Box<dyn Fn(&Path)>;

/// Installs a copy of tiny-a after `change` was made to it, and returns the error.
fn refused(change: impl Fn(&Path)) -> String {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tiny-a/mlx");
    for entry in fs::read_dir(root).expect("the checkpoint") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("a copy");
    }
    change(dir.path());
    let source = match LocalFolder::open(dir.path()) {
        Ok(source) => source,
        Err(error) => return error.to_string(),
    };
    install(
        &source,
        &disk(),
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("it must be refused")
    .to_string()
}

fn edit(file: &'static str, from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |dir| {
        let path = dir.join(file);
        let text = fs::read_to_string(&path).expect("a text file");
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).expect("a write");
    }
}

#[test]
fn broken_and_foreign_checkpoints_are_named() {
    let index = "model.safetensors.index.json";
    let cases: [(&str, Change); 7] = [
        (
            "config.json",
            Box::new(|dir| fs::remove_file(dir.join("config.json")).expect("gone")),
        ),
        (
            "line",
            Box::new(|dir| fs::write(dir.join("config.json"), "{").expect("a write")),
        ),
        (
            "model.safetensors",
            Box::new(|dir| fs::remove_file(dir.join("model.safetensors")).expect("gone")),
        ),
        (
            "hidden_size_per_layer_input",
            Box::new(edit(
                "config.json",
                "\"hidden_size_per_layer_input\": 0",
                "\"hidden_size_per_layer_input\": 256",
            )),
        ),
        (
            "num_kv_shared_layers",
            Box::new(edit(
                "config.json",
                "\"num_kv_shared_layers\": 0",
                "\"num_kv_shared_layers\": 2",
            )),
        ),
        (
            "enable_moe_block",
            Box::new(edit(
                "config.json",
                "\"enable_moe_block\": true",
                "\"enable_moe_block\": false",
            )),
        ),
        (
            "8-bit",
            Box::new(edit("config.json", "\"bits\": 8", "\"bits\": 4")),
        ),
    ];
    for (named, change) in cases {
        let error = refused(change);
        assert!(error.contains(named), "expected a word on {named}: {error}");
    }
    let error = refused(edit(index, "layer_scalar", "layer_scaler"));
    assert!(error.contains("layer_scaler"), "{error}");
    let error = refused(|dir| {
        let path = dir.join("model.safetensors");
        let bytes = fs::read(&path).expect("the shard");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("a write");
    });
    assert!(error.contains("model.safetensors"), "{error}");
}

#[test]
fn an_existing_output_is_kept_unless_told_otherwise() {
    let disk = disk();
    let source = checkpoint("testdata/tiny-a/mlx");
    install_on(&disk, &source);
    let before = disk.files_below(&output());
    let error = install(
        &source,
        &disk,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("it exists");
    assert!(error.to_string().contains("--overwrite"), "{error}");
    assert_eq!(disk.files_below(&output()), before);
}

#[test]
fn missing_texts_are_warned_of() {
    let mut missing = Vec::new();
    let source = checkpoint("testdata/tiny-a/mlx");
    install(
        &source,
        &disk(),
        &output(),
        &InstallOptions::default(),
        &mut |event| {
            if let Event::Missing { file, .. } = event {
                missing.push(file);
            }
        },
    )
    .expect("it installs all the same");
    assert_eq!(
        missing,
        [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "generation_config.json"
        ]
    );
}

type Damage = fn(&mut Synthetic);

/// Each case: a part of the error that says what is wrong, and the damage.
const DAMAGED_TENSORS: [(&str, Damage); 17] = [
    ("the tensor speech_tower.x is of no known kind", |model| {
        model.add("speech_tower.x");
    }),
    ("experts.gate_up_proj is of no known kind", |model| {
        model.add("language_model.model.layers.0.experts.gate_up_proj");
    }),
    (
        "layers.1.pre_feedforward_layernorm_2.weight is missing",
        |model| {
            model.remove("layers.1.pre_feedforward_layernorm_2.weight");
        },
    ),
    ("model.norm.weight is missing", |model| {
        model.remove("language_model.model.norm.weight");
    }),
    (
        "layers.2.experts.switch_glu.up_proj.weight is missing",
        |model| {
            model.remove("layers.2.experts.switch_glu.up_proj.weight");
        },
    ),
    ("switch_glu.down_proj.biases is missing", |model| {
        model.remove("layers.0.experts.switch_glu.down_proj.biases");
    }),
    ("layers.0.self_attn.q_proj.weight", |model| {
        model.remove("layers.0.self_attn.q_proj.scales");
    }),
    ("expected quantized [128, 128]", |model| {
        // Half of the heads.
        for suffix in ["weight", "scales", "biases"] {
            let tensor = model.tensor(&format!("layers.0.self_attn.q_proj.{suffix}"));
            tensor.shape[0] /= 2;
            tensor.bytes.truncate(tensor.bytes.len() / 2);
        }
    }),
    ("expected plain [128]", |model| {
        let norm = model.tensor("layers.0.input_layernorm.weight");
        norm.shape = vec![64];
        norm.bytes.truncate(128);
    }),
    ("expected quantized [8, 128]", |model| {
        // A router that nobody quantized.
        model.remove("layers.0.router.proj.scales");
        model.remove("layers.0.router.proj.biases");
        let router = model.tensor("layers.0.router.proj.weight");
        router.dtype = TensorDtype::F32;
        router.bytes.resize(8 * 128 * 4, 0);
        router.shape = vec![8, 128];
    }),
    ("[8, 64, 128] unpacked", |model| {
        // Half of the experts.
        for suffix in ["weight", "scales", "biases"] {
            let tensor = model.tensor(&format!("layers.3.experts.switch_glu.gate_proj.{suffix}"));
            tensor.shape[0] /= 2;
            tensor.bytes.truncate(tensor.bytes.len() / 2);
        }
    }),
    ("BF16 scales and biases", |model| {
        model.tensor("layers.0.mlp.up_proj.scales").dtype = TensorDtype::F16;
    }),
    ("BF16 scales and biases", |model| {
        let biases = model.tensor("layers.0.mlp.up_proj.biases");
        biases.shape[0] /= 2;
        biases.bytes.truncate(biases.bytes.len() / 2);
    }),
    ("neither 4 nor 8 bits", |model| {
        let weights = model.tensor("layers.0.mlp.up_proj.weight");
        let last = weights.shape.len() - 1;
        weights.shape[last] /= 4;
        weights.bytes.truncate(weights.bytes.len() / 4);
    }),
    ("8-bit", |model| {
        // Eight bits where the configuration says four.
        let weights = model.tensor("layers.0.mlp.down_proj.weight");
        let last = weights.shape.len() - 1;
        weights.shape[last] *= 2;
        weights.bytes.resize(weights.bytes.len() * 2, 0);
    }),
    ("expected only the 6 layers of config.json", |model| {
        for suffix in ["weight", "scales", "biases"] {
            model.add(&format!(
                "language_model.model.layers.9.experts.switch_glu.up_proj.{suffix}"
            ));
        }
    }),
    ("rope_type", |model| {
        model.config["text_config"]["rope_parameters"]["full_attention"]["rope_type"] =
            "yarn".into();
    }),
];

#[test]
fn tensors_that_disagree_with_the_configuration_are_named() {
    let whole = Synthetic::from("testdata/tiny-a/mlx");
    for (named, damage) in DAMAGED_TENSORS {
        let mut model = whole.clone();
        damage(&mut model);
        let disk = disk();
        let options = InstallOptions::default();
        let error = install(&model.single(), &disk, &output(), &options, &mut |_| {})
            .expect_err(named)
            .to_string();
        assert!(error.contains(named), "expected {named:?} in: {error}");
        assert!(!error.contains('\n'), "more than a line: {error}");
        assert!(
            disk.files_below(Path::new("models")).is_empty(),
            "{named}: something was written"
        );
    }
}

#[test]
fn a_tensor_that_two_shards_hold_is_refused() {
    let model = Synthetic::from("testdata/tiny-a/mlx");
    let mut source = model.scattered(1, 2);
    let shard = "model-00001-of-00002.safetensors";
    let copy = source.files[shard].clone();
    source
        .files
        .insert("model-00002-of-00002.safetensors".to_owned(), copy);
    let options = InstallOptions::default();
    let error = install(&source, &disk(), &output(), &options, &mut |_| {})
        .expect_err("two copies")
        .to_string();
    assert!(error.contains(shard), "{error}");
}

fn write(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    let parent = path.parent().expect("a path with a folder");
    disk.create_dir_all(parent).expect("healthy");
    let mut file = disk.create(path).expect("healthy");
    file.write_at(0, bytes).expect("healthy");
    file.sync().expect("healthy");
}

/// With `--overwrite`, a folder that is no model is still not removed, whichever of the three places it is in.
#[test]
fn only_a_model_is_replaced() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let overwrite = InstallOptions {
        overwrite: true,
        ..InstallOptions::default()
    };
    for place in ["model.gturbo", "model.gturbo.partial", "model.gturbo.old"] {
        let disk = disk();
        let letter = Path::new("models").join(place).join("letter.txt");
        write(&disk, &letter, b"dear");
        let before = disk.files_below(Path::new("models"));
        let error = install(&source, &disk, &output(), &overwrite, &mut |_| {})
            .expect_err("a letter is there")
            .to_string();
        assert!(error.contains("letter.txt"), "{error}");
        assert_eq!(disk.files_below(Path::new("models")), before);
    }
    // A model of the user's own beside the one that is replaced.
    let disk = disk();
    install_on(&disk, &source);
    write(
        &disk,
        Path::new("models/model.gturbo.old/manifest.json"),
        b"{}",
    );
    let before = disk.files_below(Path::new("models"));
    let error = install(&source, &disk, &output(), &overwrite, &mut |_| {})
        .expect_err("it is not ours")
        .to_string();
    assert!(error.contains("model.gturbo.old"), "{error}");
    assert_eq!(disk.files_below(Path::new("models")), before);
    // A file.
    let disk = crate::disk();
    write(&disk, &output(), b"a file");
    for options in [&overwrite, &InstallOptions::default()] {
        let error = install(&source, &disk, &output(), options, &mut |_| {})
            .expect_err("a file is there")
            .to_string();
        let advises = error.contains("--overwrite");
        assert!(error.contains("is no folder") && !advises, "{error}");
    }
    // A damaged model, an empty folder, and what file managers leave are replaced.
    for rest in ["model.gturbo/manifest.json", "model.gturbo/.DS_Store"] {
        let disk = crate::disk();
        write(&disk, &Path::new("models").join(rest), b"{");
        install(&source, &disk, &output(), &overwrite, &mut |_| {}).expect(rest);
        verify_dir(&disk, &output(), &mut |_| {}).expect(rest);
    }
}
