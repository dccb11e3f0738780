//! The element types of the `.gturbo` directory.

/// The type of a tensor's elements, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// Words of packed quantized values.
    U32,
    /// The upper half of an f32.
    BF16,
    /// IEEE half precision.
    F16,
    /// IEEE single precision.
    F32,
}

impl Dtype {
    /// Every type, in the order of its code in the resident index.
    pub const ALL: [Dtype; 4] = [Dtype::U32, Dtype::BF16, Dtype::F16, Dtype::F32];

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Dtype::U32 | Dtype::F32 => 4,
            Dtype::BF16 | Dtype::F16 => 2,
        }
    }

    /// The name in `layout.json` and in safetensors headers.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::U32 => "U32",
            Dtype::BF16 => "BF16",
            Dtype::F16 => "F16",
            Dtype::F32 => "F32",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Dtype> {
        Dtype::ALL.get(usize::from(code)).copied()
    }
}
