use super::*;

use half::bf16;
use ouzel_engine::Model;
use ouzel_format::{CheckpointConfig, Manifest, names};
use ouzel_install::verify_dir;
use rows::Rows;
use tensors::{GROUP, Part, Tensor};

fn order(preset: &str, seed: u64, output: PathBuf) -> Order {
    Order {
        preset: preset.to_owned(),
        skew: Skew::Hard,
        seed,
        tokenizer: None,
        output: Some(output),
        gguf: None,
        gguf_vocab: None,
    }
}

pub fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A tiny model of seed 1, as a GGUF file too where its place and its vocabulary are given.
pub fn make_tiny(output: &Path, gguf: Option<(&Path, &Path)>) -> anyhow::Result<()> {
    let order = Order {
        gguf: gguf.map(|(path, _)| path.to_owned()),
        gguf_vocab: gguf.map(|(_, vocab)| vocab.to_owned()),
        ..order("tiny", 1, output.to_owned())
    };
    make(&order, elsewhere().path())
}

/// A repository that no output is in.
fn elsewhere() -> tempfile::TempDir {
    temp()
}

fn source(preset: &str) -> Source {
    let arch = preset::arch(preset).expect("a known preset");
    Source::new(arch, Skew::Hard, 1)
}

#[test]
fn the_engine_opens_what_was_written_and_every_byte_is_as_recorded() {
    let (dir, repository) = (temp(), elsewhere());
    let output = dir.path().join("tiny.gturbo");
    make(&order("tiny", 7, output.clone()), repository.path()).expect("a tiny model");
    let model = Model::open(&output).expect("the engine opens it");
    assert_eq!(model.manifest().model_id, "synth-tiny-hard-seed7");
    assert_eq!(model.config().stop_ids.len(), 3);
    let verified = verify_dir(&OsDisk, &output, &mut |_| {}).expect("it verifies");
    assert!(verified.has_checksums);
    assert!(!dir.path().join("tiny.gturbo.partial").exists());
}

#[test]
fn a_seed_fixes_every_byte() {
    let (dir, repository) = (temp(), elsewhere());
    let hashes = |name: &str, seed, skew| {
        let output = dir.path().join(name);
        let order = Order {
            skew,
            ..order("tiny", seed, output.clone())
        };
        make(&order, repository.path()).expect("a tiny model");
        let bytes = std::fs::read(output.join(paths::MANIFEST)).expect("its manifest");
        Manifest::parse(&bytes).expect("a manifest").files
    };
    let one = hashes("a", 1, Skew::Hard);
    assert_eq!(one, hashes("b", 1, Skew::Hard));
    let other = hashes("c", 2, Skew::Hard);
    for (path, record) in &one {
        let is_random = path.ends_with(".bin");
        assert_eq!(record != &other[path], is_random, "{path}");
    }
    let trace = hashes("d", 1, Skew::Trace);
    let differing: Vec<&String> = one
        .keys()
        .filter(|path| one[*path] != trace[*path])
        .collect();
    assert_eq!(differing, [paths::WEIGHTS], "the skew lies in the routers");
}

#[test]
fn the_full_preset_has_the_real_sizes() {
    let source = source("gemma4-26b-a4b");
    let index = write::resident_index(&source.resident()).expect("an index");
    let resident = index.check().expect("it is valid") + index.payload_size;
    assert_eq!(resident, 1_353_771_068);
    assert_eq!(write::expert_stride(&source), 3_358_720);
    let total = write::total_bytes(&source).expect("it adds up");
    assert_eq!(total, 1_353_771_068 + 3840 * 3_358_720);
}

#[test]
fn resident_tensors_are_in_the_order_of_the_format() {
    for preset in preset::PRESETS {
        let source = source(preset);
        let names: Vec<String> = source.resident().into_iter().map(|t| t.name).collect();
        assert_eq!(names, names::resident_order(&source.arch), "{preset}");
        let config = CheckpointConfig::parse(&records::config(&source.arch)).expect(preset);
        assert_eq!(config.arch, source.arch, "{preset}");
        assert_eq!(
            config.quantization.overrides.len(),
            source.arch.num_layers as usize
        );
    }
}

/// The values of a row.
fn values(rows: &Rows<'_>, tensor: &Tensor, row: usize) -> Vec<f32> {
    let part = |part| {
        let mut bytes = vec![0; tensor.row_bytes(part)];
        rows.fill(part, row, &mut bytes);
        bytes
    };
    let floats = |bytes: Vec<u8>| -> Vec<f32> {
        let pairs = bytes.chunks_exact(2);
        pairs
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect()
    };
    let (packed, scales, biases) = (
        part(Part::Values),
        floats(part(Part::Scales)),
        floats(part(Part::Biases)),
    );
    let q: Vec<u8> = if packed.len() == tensor.n_in {
        packed
    } else {
        packed
            .iter()
            .flat_map(|byte| [byte & 15, byte >> 4])
            .collect()
    };
    let value = |(i, q): (usize, u8)| scales[i / GROUP] * f32::from(q) + biases[i / GROUP];
    q.into_iter().enumerate().map(value).collect()
}

/// Mean and deviation of a random sample may be off by this many standard errors.
const MAX_ERRORS: f32 = 5.0;

#[test]
fn weights_have_mean_zero_and_keep_lengths() {
    let source = source("scaled");
    let mut tensors = source.layer(3);
    tensors.retain(Tensor::is_quantized);
    tensors.extend(source.expert(2, 5));
    for tensor in tensors {
        let rows = Rows::new(&source, &tensor);
        let all: Vec<f32> = (0..tensor.n_out)
            .flat_map(|row| values(&rows, &tensor, row))
            .collect();
        let n = all.len() as f32;
        let mean = all.iter().sum::<f32>() / n;
        let deviation = (all.iter().map(|x| x * x).sum::<f32>() / n).sqrt();
        let error = deviation / n.sqrt();
        assert!(
            mean.abs() < MAX_ERRORS * error,
            "{}: mean {mean}",
            tensor.name
        );
        if tensor.fill == tensors::Fill::Weights {
            let length = deviation * (tensor.n_in as f32).sqrt();
            // Scales are the nearest of a few, an eighth apart.
            assert!((0.9..1.1).contains(&length), "{}: {length}", tensor.name);
        }
    }
}

#[test]
fn what_is_there_stays() {
    let (dir, repository) = (temp(), elsewhere());
    let output = dir.path().join("tiny.gturbo");
    std::fs::write(&output, "mine").expect("a file");
    let error = make(&order("tiny", 1, output.clone()), repository.path()).expect_err("refused");
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(std::fs::read(&output).expect("still there"), b"mine");
}

#[test]
fn a_leftover_is_replaced_and_a_foreign_folder_is_not() {
    let (dir, repository) = (temp(), elsewhere());
    let output = dir.path().join("tiny.gturbo");
    let partial = dir.path().join("tiny.gturbo.partial");
    std::fs::create_dir(&partial).expect("a folder");
    std::fs::write(partial.join("letter.txt"), "mine").expect("a file");
    let error = make(&order("tiny", 1, output.clone()), repository.path()).expect_err("refused");
    assert!(error.to_string().contains("letter.txt"), "{error}");
    std::fs::remove_file(partial.join("letter.txt")).expect("removed");
    std::fs::write(partial.join(paths::WEIGHTS), "half").expect("a leftover");
    make(&order("tiny", 1, output), repository.path()).expect("the leftover is replaced");
    assert!(!partial.exists());
}

#[test]
fn nothing_is_written_into_the_repository() {
    let repository = temp();
    let folder = repository.path().join("models");
    std::fs::create_dir(&folder).expect("a folder");
    let order = order("tiny", 1, folder.join("tiny.gturbo"));
    let error = make(&order, repository.path()).expect_err("refused");
    assert!(
        error.to_string().contains("inside the repository"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
}

#[test]
fn a_small_disk_is_refused_with_numbers() {
    let dir = temp();
    let error =
        stage::check_room(&dir.path().join("x.gturbo"), 1 << 60).expect_err("no disk has that");
    let text = error.to_string();
    assert!(
        text.contains("needs 1152921504.88 GB") && text.contains("GB free"),
        "{text}"
    );
}

#[test]
fn an_error_leaves_nothing_behind() {
    let (dir, repository) = (temp(), elsewhere());
    let order = Order {
        tokenizer: Some(dir.path().join("no such folder")),
        ..order("tiny", 1, dir.path().join("tiny.gturbo"))
    };
    make(&order, repository.path()).expect_err("there is no tokenizer");
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("the folder").count(),
        0
    );
}

#[test]
fn arguments_are_read_or_refused() {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let order = Order::parse(&words("--preset tiny --skew trace --seed 3 a.gturbo")).expect("fine");
    assert_eq!(order.model_id(), "synth-tiny-trace-seed3");
    for bad in [
        "--preset tiny --skew trace a.gturbo",
        "--preset tiny --skew flat --seed 3 a.gturbo",
        "--preset tiny --skew hard --seed x a.gturbo",
        "--preset tiny --skew hard --seed 3",
        "--preset tiny --skew hard --seed 3 a b",
        "--preset tiny --skew hard --seed 3 --fast a",
        "--preset tiny --skew hard --seed 3 --gguf b.gguf a",
        "--preset",
    ] {
        Order::parse(&words(bad)).expect_err(bad);
    }
}
