//! The checkpoint that `ouzel install` brings home when nothing else is said: exactly this one, whatever its repository holds later.

use ouzel_format::Sha256Hex;

/// Gemma 4 26B-A4B, quantized to 4 bits for MLX.
pub const REPOSITORY: &str = "mlx-community/gemma-4-26b-a4b-it-4bit";
/// The commit.
pub const REVISION: &str = "0d77464eeb233a2da68ebf9d7dc4edaac7db956d";
/// SHA-256 of its `model.safetensors.index.json`.
const INDEX_SHA256: &str = "bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c5c850b13";

/// SHA-256 of the index of that commit.
pub fn index_sha256() -> Sha256Hex {
    INDEX_SHA256.parse().expect("64 digits")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_one() {
        assert_eq!(super::index_sha256().to_string(), super::INDEX_SHA256);
    }
}
