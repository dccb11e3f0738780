//! How many bits a weight has: what `config.json` says, and what a tensor's shape says.

use std::collections::BTreeMap;

use crate::json::{Field, Object};
use crate::names::{self, Role};
use crate::{FormatError, GROUP_SIZE, Quant};

/// The affine quantization of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// Values that share a scale and a bias, always 64.
    pub group_size: u32,
    /// Bits of tensors that are not listed, 4 or 8.
    pub bits: u32,
    /// Bits of the tensors that the configuration lists, by their name without `.weight`.
    pub overrides: BTreeMap<String, u32>,
}

impl Quantization {
    /// The bits that the configuration states for the tensor `name`, with or without `.weight`.
    pub fn bits_of(&self, name: &str) -> u32 {
        self.overrides
            .get(names::stem(name))
            .copied()
            .unwrap_or(self.bits)
    }

    /// Derives the bits of the tensor `name` from its shape and checks that the configuration says the same.
    ///
    /// # Errors
    /// [`FormatError::BitsFromShape`], [`FormatError::BitsDisagree`].
    pub fn check_bits(&self, name: &str, packed_cols: u64, n_in: u64) -> Result<u32, FormatError> {
        let actual = bits_from_shape(packed_cols, n_in)?;
        let expected = self.bits_of(name);
        if actual != expected {
            return Err(FormatError::BitsDisagree {
                name: name.to_owned(),
                expected,
                actual,
            });
        }
        Ok(actual)
    }

    /// What `manifest.json` says about this quantization: the bits of the first layer's tensors.
    pub fn summary(&self) -> Quant {
        Quant {
            embedding: self.bits_of(names::EMBED_TOKENS),
            attention: self.bits_of(&names::layer(0, names::Q_PROJ)),
            router: self.bits_of(&names::layer(0, names::ROUTER_PROJ)),
            shared_expert: self.bits_of(&names::layer(0, names::GATE_PROJ)),
            routed_expert: self.bits_of(&names::expert(0, crate::ExpertPart::Gate)),
        }
    }

    /// Reads `quantization` or `quantization_config`, which have to agree where both are there.
    pub(crate) fn decode(root: &Object<'_, '_>) -> Result<Quantization, FormatError> {
        let blocks = ["quantization", "quantization_config"]
            .map(|name| root.optional(name, |field| decode_block(&field)));
        match blocks {
            [Err(error), _] | [_, Err(error)] => Err(error),
            [Ok(None), Ok(None)] => Err(unsupported("quantization".into(), "none")),
            [Ok(Some(block)), Ok(None)] | [Ok(None), Ok(Some(block))] => Ok(block),
            [Ok(Some(block)), Ok(Some(other))] if block == other => Ok(block),
            [Ok(Some(block)), Ok(Some(other))] => Err(FormatError::Disagreement {
                field: "quantization".into(),
                actual: format!("{} bits, {} overrides", block.bits, block.overrides.len()),
                other: "quantization_config".into(),
                expected: format!("{} bits, {} overrides", other.bits, other.overrides.len()),
            }),
        }
    }
}

/// The bits of packed rows: `packed_cols` words of 32 bits hold `n_in` values.
///
/// # Errors
/// [`FormatError::BitsFromShape`] unless they are exactly 4 or 8.
pub fn bits_from_shape(packed_cols: u64, n_in: u64) -> Result<u32, FormatError> {
    let holds = |bits: u64| n_in > 0 && packed_cols.checked_mul(32 / bits) == Some(n_in);
    match (holds(4), holds(8)) {
        (true, _) => Ok(4),
        (_, true) => Ok(8),
        _ => Err(FormatError::BitsFromShape { packed_cols, n_in }),
    }
}

fn unsupported(feature: String, value: &str) -> FormatError {
    FormatError::UnsupportedFeature {
        feature,
        value: value.to_owned(),
    }
}

fn decode_block(field: &Field<'_, '_>) -> Result<Quantization, FormatError> {
    let block = field.object()?;
    let (group_size, bits) = decode_scheme(&block)?;
    let mut overrides = BTreeMap::new();
    for (name, value) in block.fields() {
        // Everything beside the scheme that is neither an object nor a switch belongs to other tools.
        if matches!(name, "group_size" | "bits" | "mode") || names::role(name) == Role::Skipped {
            continue;
        }
        if value.is_object() {
            let (_, bits) = decode_scheme(&value.object()?)?;
            overrides.insert(name.to_owned(), bits);
        } else if value.bool() == Ok(false) {
            // MLX's way to say that a layer is left as it was.
            return Err(unsupported(value.path().to_owned(), "false"));
        }
    }
    Ok(Quantization {
        group_size,
        bits,
        overrides,
    })
}

fn decode_scheme(object: &Object<'_, '_>) -> Result<(u32, u32), FormatError> {
    if let Some(mode) = object.get("mode")
        && mode.text()? != "affine"
    {
        return Err(unsupported(mode.path().to_owned(), mode.text()?));
    }
    if let Some(method) = object.get("quant_method") {
        // Another library's block, with fields of its own.
        return Err(unsupported(method.path().to_owned(), method.text()?));
    }
    let group_size = object.need("group_size")?;
    if group_size.u32()? != GROUP_SIZE {
        return Err(unsupported(
            group_size.path().to_owned(),
            &group_size.kind(),
        ));
    }
    let bits = object.need("bits")?;
    match bits.u32()? {
        value @ (4 | 8) => Ok((GROUP_SIZE, value)),
        _ => Err(unsupported(bits.path().to_owned(), &bits.kind())),
    }
}
