//! Checkpoints in memory that tests take apart and put together again, and one that is all header.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ouzel_format::names::{self, Role};
use ouzel_format::safetensors::{TensorDtype, encode_header};
use ouzel_hub::snapshot::{self, Shape};
use ouzel_install::{Checkpoint, InstallError, Source};
use serde_json::{Value, json};

/// One tensor with its bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub dtype: TensorDtype,
    pub shape: Vec<u64>,
    pub bytes: Vec<u8>,
}

/// A checkpoint, taken apart.
#[derive(Clone, Debug)]
pub struct Synthetic {
    pub config: Value,
    pub tensors: Vec<Tensor>,
}

/// A generator for arrangements; Knuth's MMIX constants, high bits.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

impl Synthetic {
    /// Takes a checkpoint of the repository apart.
    pub fn from(path: &str) -> Synthetic {
        let source = crate::checkpoint(path);
        let checkpoint = Checkpoint::read(&source).expect(path);
        let read = |file: &str, offset, len: u64| {
            let mut bytes = vec![0; len as usize];
            source.read_at(file, offset, &mut bytes).expect(path);
            bytes
        };
        let config_len = source.size("config.json").expect("a config");
        let tensors = checkpoint.tensors.values().map(|tensor| Tensor {
            name: tensor.info.name.clone(),
            dtype: tensor.info.dtype,
            shape: tensor.info.shape.clone(),
            bytes: read(&tensor.shard, tensor.info.start, tensor.info.size()),
        });
        Synthetic {
            tensors: tensors.collect(),
            config: serde_json::from_slice(&read("config.json", 0, config_len)).expect("JSON"),
        }
    }

    /// The tensor whose name ends so.
    pub fn tensor(&mut self, suffix: &str) -> &mut Tensor {
        let mut found = self.tensors.iter_mut();
        found
            .find(|tensor| tensor.name.ends_with(suffix))
            .unwrap_or_else(|| panic!("no tensor ends in {suffix}"))
    }

    /// Takes a tensor out.
    pub fn remove(&mut self, suffix: &str) {
        let name = self.tensor(suffix).name.clone();
        self.tensors.retain(|tensor| tensor.name != name);
    }

    /// Adds a tensor of small zeros.
    pub fn add(&mut self, name: &str) {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dtype: TensorDtype::BF16,
            shape: vec![3],
            bytes: vec![0; 6],
        });
    }

    /// Puts it together as one file without an index.
    pub fn single(&self) -> Memory {
        let all: Vec<&Tensor> = self.tensors.iter().collect();
        Memory::new(vec![
            ("config.json".to_owned(), self.config.to_string().into()),
            ("model.safetensors".to_owned(), shard(&all, None)),
        ])
    }

    /// Puts it together as `n_shards` files, every tensor in any of them at any place, with gaps between and headers of any length.
    pub fn scattered(&self, seed: u64, n_shards: usize) -> Memory {
        let mut random = Random(seed);
        let mut shards: Vec<Vec<&Tensor>> = vec![Vec::new(); n_shards];
        for tensor in &self.tensors {
            let shard = &mut shards[random.below(n_shards)];
            shard.insert(random.below(shard.len() + 1), tensor);
        }
        let mut weight_map = serde_json::Map::new();
        let mut files = vec![("config.json".to_owned(), self.config.to_string().into())];
        for (i, tensors) in shards.iter().enumerate() {
            let name = format!("model-{:05}-of-{n_shards:05}.safetensors", i + 1);
            for tensor in tensors {
                weight_map.insert(tensor.name.clone(), Value::from(name.as_str()));
            }
            files.push((name, shard(tensors, Some(&mut random))));
        }
        let index = json!({ "metadata": {}, "weight_map": weight_map });
        files.push((
            "model.safetensors.index.json".to_owned(),
            index.to_string().into(),
        ));
        Memory::new(files)
    }
}

/// A shard with these tensors in this order; with a generator, gaps of 0 to 2 bytes lie between them and the header is not padded.
fn shard(tensors: &[&Tensor], mut random: Option<&mut Random>) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for tensor in tensors {
        if let Some(random) = &mut random {
            data.resize(data.len() + random.below(3), 0xEE);
        }
        let start = data.len();
        data.extend_from_slice(&tensor.bytes);
        header.insert(
            tensor.name.clone(),
            json!({
                "dtype": tensor.dtype.name(),
                "shape": tensor.shape,
                "data_offsets": [start, data.len()],
            }),
        );
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&data);
    file
}

/// A checkpoint in memory that notes every read.
#[derive(Debug)]
pub struct Memory {
    pub files: BTreeMap<String, Vec<u8>>,
    pub version: String,
    pub reads: RefCell<Vec<(String, u64, usize)>>,
}

impl Memory {
    fn new(files: Vec<(String, Vec<u8>)>) -> Memory {
        Memory {
            files: files.into_iter().collect(),
            version: String::new(),
            reads: RefCell::default(),
        }
    }
}

impl Source for Memory {
    fn files(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.files.get(name).map(|bytes| bytes.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        let read = (name.to_owned(), offset, buf.len());
        self.reads.borrow_mut().push(read);
        buf.copy_from_slice(&self.files[name][offset as usize..][..buf.len()]);
        Ok(())
    }

    fn version(&self, _name: &str) -> String {
        self.version.clone()
    }
}

/// A checkpoint with the number of layers and experts of the real one, small matrices, and zeros for weights.
pub struct Hollow {
    config: Vec<u8>,
    header: Vec<u8>,
    size: u64,
}

impl Hollow {
    pub fn new(n_layers: u64, n_experts: u64) -> Hollow {
        let shape = Shape {
            n_layers,
            n_experts,
            ..Shape::FULL_TOPOLOGY
        };
        let tensors = snapshot::tensor_table(&shape);
        let tensors: Vec<(&str, TensorDtype, &[u64])> = tensors
            .iter()
            .map(|(name, dtype, shape)| (name.as_str(), *dtype, shape.as_slice()))
            .collect();
        let data: u64 = tensors
            .iter()
            .map(|(_, dtype, shape)| dtype.size() * shape.iter().product::<u64>())
            .sum();
        let header = encode_header(&tensors);
        Hollow {
            config: snapshot::config(&shape).to_string().into(),
            size: header.len() as u64 + data,
            header,
        }
    }
}

impl Source for Hollow {
    fn files(&self) -> Vec<String> {
        vec!["config.json".to_owned(), "model.safetensors".to_owned()]
    }

    fn size(&self, name: &str) -> Option<u64> {
        match name {
            "config.json" => Some(self.config.len() as u64),
            "model.safetensors" => Some(self.size),
            _ => None,
        }
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        let bytes = match name {
            "config.json" => &self.config,
            _ => &self.header,
        };
        buf.fill(0);
        let start = (offset as usize).min(bytes.len());
        let n = buf.len().min(bytes.len() - start);
        buf[..n].copy_from_slice(&bytes[start..start + n]);
        Ok(())
    }
}

/// Whether an installation copies the tensor.
pub fn is_kept(name: &str) -> bool {
    names::role(name) != Role::Skipped
}
