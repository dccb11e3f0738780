//! Scales whose groups another format can carry unchanged.
//!
//! A weight of 4 bits is `scale * (q - 7.5)`, so that uniform `q` have mean zero: weights that lean to one side add up to a direction
//! that drowns all others, and routing becomes trivial. The bias `-7.5 * scale` has to be exact in bf16, which has 8 significant
//! bits, and in f16; 7.5 takes 4 of them (15 / 2), so a scale has at most the 4 others.

use half::bf16;

use super::random::Random;

/// Standard deviation of a uniform `q` of 0 to 15: `sqrt((16^2 - 1) / 12)`.
const Q4_DEVIATION: f32 = 4.609_772;

/// The scales of a tensor of 4 bits: eight neighbours, each as likely.
#[derive(Clone, Copy, Debug)]
pub struct Scales {
    /// Scale and bias in bf16, little endian.
    choices: [([u8; 2], [u8; 2]); 8],
}

impl Scales {
    /// Those with which uniform `q` give weights of this deviation.
    pub fn for_deviation(deviation: f32) -> Scales {
        Scales::around(deviation / Q4_DEVIATION)
    }

    /// Those whose root mean square comes closest to `scale`.
    ///
    /// # Panics
    /// If no scale that f16 holds exactly is near.
    pub fn around(scale: f32) -> Scales {
        let rms = |lowest: i32| {
            let sum: f32 = (0..8).map(|step| at(lowest + step).powi(2)).sum();
            (sum / 8.0).sqrt()
        };
        let off = |lowest: i32| (rms(lowest) - scale).abs();
        let lowest = (LOWEST_STEP..=HIGHEST_STEP)
            .min_by(|&a, &b| off(a).total_cmp(&off(b)))
            .expect("the range has steps");
        assert!(
            lowest > LOWEST_STEP && lowest < HIGHEST_STEP,
            "a scale of {scale} is out of range"
        );
        let choices = std::array::from_fn(|step| {
            let scale = at(lowest + step as i32);
            let bits = |x: f32| bf16::from_f32(x).to_le_bytes();
            (bits(scale), bits(-7.5 * scale))
        });
        Scales { choices }
    }

    /// Fills the scales of a row's groups, or their biases.
    pub fn fill(&self, random: &mut Random, biases: bool, out: &mut [u8]) {
        // 21 choices of 3 bits in one draw.
        for groups in out.chunks_mut(2 * 21) {
            let mut bits = random.bits();
            for group in groups.chunks_exact_mut(2) {
                let (scale, bias) = self.choices[(bits & 7) as usize];
                group.copy_from_slice(if biases { &bias } else { &scale });
                bits >>= 3;
            }
        }
    }
}

/// `8 * 2^-20` to `15 * 2^-3`: all exact in f16, and 7.5 times them too.
const LOWEST_STEP: i32 = -20 * 8;
const HIGHEST_STEP: i32 = -3 * 8;

/// The values of four significant bits, in order.
fn at(step: i32) -> f32 {
    let (exponent, mantissa) = (step.div_euclid(8), 8 + step.rem_euclid(8));
    mantissa as f32 * 2f32.powi(exponent)
}

/// Rounds weights of one group to 8 bits around 128: the scale, and its bias of `-128 * scale`, in bf16.
pub fn quantize_q8(weights: &[f32], q: &mut [u8]) -> ([u8; 2], [u8; 2]) {
    let max = weights.iter().fold(0f32, |max, w| max.max(w.abs()));
    // Rounded up, so that the largest still fits.
    let above = bf16::from_bits(bf16::from_f32(max / 127.0).to_bits() + 1);
    let scale = above.to_f32();
    for (q, w) in q.iter_mut().zip(weights) {
        *q = ((w / scale).round() + 128.0).clamp(1.0, 255.0) as u8;
    }
    (
        above.to_le_bytes(),
        bf16::from_f32(-128.0 * scale).to_le_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn every_scale_and_bias_is_exact_in_both_formats() {
        for step in LOWEST_STEP..HIGHEST_STEP + 8 {
            for x in [at(step), -7.5 * at(step)] {
                assert_eq!(bf16::from_f32(x).to_f32(), x, "{x} in bf16");
                assert_eq!(f16::from_f32(x).to_f32(), x, "{x} in f16");
            }
        }
    }

    #[test]
    fn eight_bits_are_within_half_a_step() {
        let mut random = Random::new(1, "weights", 0);
        let weights: Vec<f32> = (0..64).map(|_| random.normal()).collect();
        let mut q = [0; 64];
        let (scale, bias) = quantize_q8(&weights, &mut q);
        let (scale, bias) = (
            bf16::from_le_bytes(scale).to_f32(),
            bf16::from_le_bytes(bias).to_f32(),
        );
        assert_eq!(bias, -128.0 * scale);
        for (w, q) in weights.iter().zip(q) {
            let off = (w - (scale * f32::from(q) + bias)).abs();
            // Half a step, and the rounding of f32.
            assert!(off <= scale * 0.5001, "{w}: {off} of {scale}");
        }
    }
}
