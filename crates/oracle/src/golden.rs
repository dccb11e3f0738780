//! Golden tensors: a safetensors file of f32 and i32, as the fixtures have it, for the tests of every room.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use ouzel_format::safetensors::{Header, TensorDtype};

/// The tensors of one file.
#[derive(Clone, Debug)]
pub struct Golden {
    tensors: BTreeMap<String, (Vec<usize>, Values)>,
}

#[derive(Clone, Debug)]
enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Golden {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no safetensors file or holds other types than f32 and i32.
    pub fn load(path: &Path) -> io::Result<Golden> {
        let bytes = fs::read(path)?;
        let invalid = |text: String| {
            let text = format!("{}: {text}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let header = Header::parse(&bytes, bytes.len() as u64)
            .map_err(|error| invalid(error.to_string()))?;
        let mut tensors = BTreeMap::new();
        for tensor in header.tensors {
            let data = &bytes[tensor.start as usize..tensor.end as usize];
            let words = data
                .chunks_exact(4)
                .map(|word| [word[0], word[1], word[2], word[3]]);
            let values = match tensor.dtype {
                TensorDtype::F32 => Values::F32(words.map(f32::from_le_bytes).collect()),
                TensorDtype::I32 => Values::I32(words.map(i32::from_le_bytes).collect()),
                other => return Err(invalid(format!("{} is {}", tensor.name, other.name()))),
            };
            let shape = tensor.shape.iter().map(|&n| n as usize).collect();
            tensors.insert(tensor.name, (shape, values));
        }
        Ok(Golden { tensors })
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The shape of a tensor.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn shape(&self, name: &str) -> &[usize] {
        &self.tensor(name).0
    }

    /// The values of an f32 tensor, row-major.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn f32(&self, name: &str) -> &[f32] {
        match &self.tensor(name).1 {
            Values::F32(values) => values,
            Values::I32(_) => panic!("{name} holds i32"),
        }
    }

    /// The values of an i32 tensor of ids, row-major.
    ///
    /// # Panics
    /// If there is none of this name, or one of its values is negative.
    pub fn u32(&self, name: &str) -> Vec<u32> {
        match &self.tensor(name).1 {
            Values::I32(values) => values
                .iter()
                .map(|&id| u32::try_from(id).unwrap_or_else(|_| panic!("{name} holds {id}")))
                .collect(),
            Values::F32(_) => panic!("{name} holds f32"),
        }
    }

    fn tensor(&self, name: &str) -> &(Vec<usize>, Values) {
        let tensor = self.tensors.get(name);
        tensor.unwrap_or_else(|| panic!("no golden tensor {name}"))
    }
}
